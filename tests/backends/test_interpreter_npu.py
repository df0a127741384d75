"""Kernels and host programs of the npu level in both memory modes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from tilewright.backends.interpreter import Executable
from tilewright.dialects import make_context
from tilewright.machine import Machine

MACHINE = Machine.load("ascend-910b1")


def parse(text: str) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    module.verify()
    return module


def run(text: str, *arrays: np.ndarray, memory: str = "typed") -> list[np.ndarray]:
    return [np.asarray(x) for x in Executable(parse(text), MACHINE, memory)(*arrays)]


def matmul(m: int, n: int, k: int, l0a_address: int = 0) -> str:
    """x [m, k] times w [k, n] in f32: 2 x 2 cores, base tiles of 32 x 16 x 32, double buffers, sizes that
    need not divide. With another address for the second l0a slot's neighbour the buffers overlap."""
    bm, bk, bn, l1k = 32, 16, 32, 32
    tm, tn, n1 = -(-m // (2 * bm)), -(-n // (2 * bn)), -(-k // l1k)
    x, w, o = f"!npu.gm<{m}x{k}xf32>", f"!npu.gm<{k}x{n}xf32>", f"!npu.gm<{m}x{n}xf32>"
    l1a, l1b = f"!npu.buffer<{bm}x{l1k}xf32, l1", f"!npu.buffer<{l1k}x{bn}xf32, l1"
    l0a, l0b = f"!npu.buffer<{bm}x{bk}xf32, l0a", f"!npu.buffer<{bk}x{bn}xf32, l0b"
    acc = f"!npu.buffer<{bm}x{bn}xf32, l0c>"
    second = -(-m * k * 4 // 512) * 512
    third = second + -(-k * n * 4 // 512) * 512
    return f"""
npu.kernel @matmul {{kind="cube", grid=[2,2], outputs=1, workspaces=0}} {{
^bb0(%gi: index, %gj: index, %x: {x}, %w: {w}, %o: {o}):
  npu.section {{core="cube", units=1}} {{
  ^bb1(%u: index):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %ctm = arith.constant {tm} : index
    %ctn = arith.constant {tn} : index
    %cn1 = arith.constant {n1} : index
    %cnk = arith.constant {l1k // bk} : index
    %l1a = npu.alloc {{address=0}} : () -> {l1a}, 2 slots>
    %l1b = npu.alloc {{address=8192}} : () -> {l1b}, 2 slots>
    %l0a = npu.alloc {{address={l0a_address}}} : () -> {l0a}, 2 slots>
    %l0b = npu.alloc {{address=0}} : () -> {l0b}, 2 slots>
    %acc = npu.alloc {{address=0}} : () -> {acc}
    scf.for %i = %c0 to %ctm step %c1 {{
      scf.for %j = %c0 to %ctn step %c1 {{
        scf.for %k1 = %c0 to %cn1 step %c1 {{
          %sa = npu.slot %l1a at [%k1] : ({l1a}, 2 slots>) -> {l1a}>
          %sb = npu.slot %l1b at [%k1] : ({l1b}, 2 slots>) -> {l1b}>
          npu.load_nd2nz %x, %sa at [%gi * {tm * bm} + %i * {bm}, %k1 * {l1k}] {{sizes=[{bm},{l1k}]}}
            : ({x}, {l1a}>)
          npu.load_nd2nz %w, %sb at [%k1 * {l1k}, %gj * {tn * bn} + %j * {bn}] {{sizes=[{l1k},{bn}]}}
            : ({w}, {l1b}>)
          scf.for %kk = %c0 to %cnk step %c1 {{
            %ta = npu.slot %l0a at [%kk] : ({l0a}, 2 slots>) -> {l0a}>
            %tb = npu.slot %l0b at [%kk] : ({l0b}, 2 slots>) -> {l0b}>
            npu.load_l0 %sa, %ta at [0, %kk * {bk}] {{sizes=[{bm},{bk}]}} : ({l1a}>, {l0a}>)
            npu.load_l0 %sb, %tb at [%kk * {bk}, 0] {{sizes=[{bk},{bn}]}} : ({l1b}>, {l0b}>)
            npu.mmad %ta, %tb, %acc at [%k1 * {l1k // bk} + %kk] : ({l0a}>, {l0b}>, {acc})
          }}
        }}
        npu.fixpipe %acc, %o
          at [%gi * {tm * bm} + %i * {bm}, %gj * {tn * bn} + %j * {bn}] {{sizes=[{bm},{bn}]}} : ({acc}, {o})
      }}
    }}
  }}
}}
func.func @main(%x: {x}, %w: {w}) -> {o} attributes {{
    npu.addresses = array<i64: 0, {second}>, npu.arena_bytes = {third + m * n * 4 + 512} : i64}} {{
  %o = npu.gm_alloc {{address={third}}} : () -> {o}
  npu.launch @matmul %x, %w, %o {{outputs=1, workspaces=0}} : ({x}, {w}, {o})
  func.return %o : {o}
}}
"""


SOFTMAX = """
npu.kernel @softmax {kind="vector", grid=[3], outputs=1, workspaces=0} {
^bb0(%g: index, %x: !npu.gm<50x37xf32>, %o: !npu.gm<50x37xf16>):
  npu.section {core="vector", units=2} {
  ^bb1(%u: index):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %in = npu.alloc {address=0} : () -> !npu.buffer<3x37xf32, ub, 2 slots>
    %m = npu.alloc {address=960} : () -> !npu.buffer<3x1xf32, ub>
    %wide = npu.alloc {address=1056} : () -> !npu.buffer<3x37xf32, ub>
    %e = npu.alloc {address=OVERLAP} : () -> !npu.buffer<3x37xf32, ub>
    %q = npu.alloc {address=2016} : () -> !npu.buffer<3x37xf32, ub>
    %h = npu.alloc {address=2496} : () -> !npu.buffer<3x37xf16, ub>
    scf.for %i = %c0 to %c3 step %c1 {
      %t = npu.slot %in at [%i] : (!npu.buffer<3x37xf32, ub, 2 slots>) -> !npu.buffer<3x37xf32, ub>
      npu.load_nd %x, %t at [%g * 18 + %u * 9 + %i * 3, 0] {sizes=[3,37]}
        : (!npu.gm<50x37xf32>, !npu.buffer<3x37xf32, ub>)
      npu.vreduce %t, %m {kind="max", dims=[1]} : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x1xf32, ub>)
      npu.vbroadcast %m, %wide : (!npu.buffer<3x1xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vsub %t, %wide, %e
        : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vexp %e, %e : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vreduce %e, %m {kind="sum", dims=[1]} : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x1xf32, ub>)
      npu.vbroadcast %m, %wide : (!npu.buffer<3x1xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vdiv %e, %wide, %q
        : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vconvert %q, %h : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf16, ub>)
      npu.store_nd %h, %o at [%g * 18 + %u * 9 + %i * 3, 0] {sizes=[3,37]}
        : (!npu.buffer<3x37xf16, ub>, !npu.gm<50x37xf16>)
    }
  }
}
func.func @main(%x: !npu.gm<50x37xf32>) -> !npu.gm<50x37xf16> attributes {
    npu.addresses = array<i64: 0>, npu.arena_bytes = 16384 : i64} {
  %o = npu.gm_alloc {address=8192} : () -> !npu.gm<50x37xf16>
  npu.launch @softmax %x, %o {outputs=1, workspaces=0} : (!npu.gm<50x37xf32>, !npu.gm<50x37xf16>)
  func.return %o : !npu.gm<50x37xf16>
}
"""
"""Rows of x, three at a time; OVERLAP is the address of the exponentials (1536 keeps them apart)."""


ADD = """
npu.kernel @add {kind="vector", grid=[1], outputs=1, workspaces=0} {
^bb0(%g: index, %x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>, %o: !npu.gm<8xf32>):
  npu.section {core="vector", units=1} {
  ^bb1(%u: index):
    %a = npu.alloc {address=0} : () -> !npu.buffer<8xf32, ub>
    %b = npu.alloc {address=32} : () -> !npu.buffer<8xf32, ub>
    npu.load_nd %x, %a at [0] {sizes=[8]} : (!npu.gm<8xf32>, !npu.buffer<8xf32, ub>)
    npu.load_nd %y, %b at [0] {sizes=[8]} : (!npu.gm<8xf32>, !npu.buffer<8xf32, ub>)
    npu.vadd %a, %b, %b : (!npu.buffer<8xf32, ub>, !npu.buffer<8xf32, ub>, !npu.buffer<8xf32, ub>)
    npu.store_nd %b, %o at [0] {sizes=[8]} : (!npu.buffer<8xf32, ub>, !npu.gm<8xf32>)
  }
}
"""
"""A kernel for the tests of the host program: o = x + y."""

PUT = """
npu.kernel @put {kind="vector", grid=[1], outputs=1, workspaces=0} {
^bb0(%g: index, %n: !npu.gm<i32>, %o: !npu.gm<8xf32>):
  npu.section {core="vector", units=1} {
  ^bb1(%u: index):
    %a = npu.alloc {address=0} : () -> !npu.buffer<1xf32, ub>
    %i = npu.load_scalar %n at [] {low=0, high=7} : (!npu.gm<i32>) -> index
    npu.vfill %a {value = 7.0 : f64} : (!npu.buffer<1xf32, ub>)
    npu.store_nd %a, %o at [%i] {sizes=[1]} : (!npu.buffer<1xf32, ub>, !npu.gm<8xf32>)
  }
}
"""
"""A kernel that takes a number: o[n] = 7."""


MODES = pytest.mark.parametrize("memory", ["typed", "bytes"])


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# -- kernels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (100, 70, 45), (33, 1, 7)])
def test_matmul(m: int, n: int, k: int) -> None:
    x, w = random(m, k), random(k, n)
    (typed,), (addressed,) = run(matmul(m, n, k), x, w), run(matmul(m, n, k), x, w, memory="bytes")
    np.testing.assert_allclose(typed, x @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(typed, addressed)


def test_vector_kernel() -> None:
    x, text = random(50, 37), SOFTMAX.replace("OVERLAP", "1536")
    (typed,), (addressed,) = run(text, x), run(text, x, memory="bytes")
    np.testing.assert_allclose(typed, np.asarray(jax.nn.softmax(x, axis=-1)), atol=1e-3)
    np.testing.assert_array_equal(typed, addressed)


def test_an_overlap_changes_numbers_in_bytes_mode_only() -> None:
    x = random(50, 37)
    right, wrong = (SOFTMAX.replace("OVERLAP", at) for at in ("1536", "1312"))
    np.testing.assert_array_equal(run(right, x)[0], run(wrong, x)[0])
    assert not np.array_equal(run(right, x, memory="bytes")[0], run(wrong, x, memory="bytes")[0])


def test_a_buffer_beyond_its_space_is_refused() -> None:
    with pytest.raises(VerifyException, match="ends at byte 69632 of l0a, which has 65536"):
        run(matmul(64, 64, 32, l0a_address=65536), random(64, 32), random(32, 64), memory="bytes")


def test_results_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.backends.interpreter import launch

    x, w = random(100, 45), random(45, 70)
    (one,) = run(matmul(100, 70, 45), x, w)
    monkeypatch.setattr(launch, "HEAVY_FLOPS", 0)
    (two,) = run(matmul(100, 70, 45), x, w)
    np.testing.assert_array_equal(one, two)


def convolve(strides: tuple[int, int], x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(jax.lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=layout) + b)


@pytest.mark.parametrize(
    ("x", "w", "strides"),
    [
        ((1, 14, 14, 32), (3, 3, 32, 48), (1, 1)),  # rows of the image to each core
        ((1, 7, 7, 64), (3, 3, 64, 160), (1, 1)),  # columns
        ((1, 7, 7, 64), (1, 1, 64, 200), (1, 1)),  # stored as a matrix, cores with less to do
        ((2, 16, 12, 16), (3, 3, 16, 32), (2, 1)),
    ],
)
def test_convolutions_do_not_depend_on_threads(
    monkeypatch: pytest.MonkeyPatch, x: tuple[int, ...], w: tuple[int, ...], strides: tuple[int, int]
) -> None:
    from tilewright.backends.interpreter import launch

    arrays = random(*x), random(*w), random(w[-1])
    program = tw.compile(functools.partial(convolve, strides), *arrays)
    whole, addressed = (np.asarray(program.executable(m)(*arrays)[0]) for m in ("typed", "bytes"))
    splits: list[launch.Split | None] = []

    def find(*args: Any) -> launch.Split | None:
        splits.append(launch_find_split(*args))
        return splits[-1]

    launch_find_split = launch.find_split
    for name, value in (("HEAVY_FLOPS", 0), ("JOIN_FLOPS", 0), ("find_split", find)):
        monkeypatch.setattr(launch, name, value)
    monkeypatch.setattr(launch, "batched_axes", lambda kernel, batches: set())
    parts = np.asarray(Executable(program.module("npu"), MACHINE, "typed")(*arrays)[0])
    assert any(splits)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(addressed, whole)


@pytest.mark.parametrize(("out", "splits"), [("6x8", True), ("1x6x8", True), ("48", False)])
def test_an_output_is_split_only_where_each_view_of_it_has_the_dimension(out: str, splits: bool) -> None:
    from tilewright.backends.interpreter import launch
    from tilewright.dialects.npu.structure import KernelOp

    (kernel,) = parse(f"""
npu.kernel @copy {{kind="vector", grid=[2], outputs=1, workspaces=0}} {{
^bb0(%g: index, %x: !npu.gm<6x8xf32>, %o: !npu.gm<{out}xf32>):
  %v = npu.view %o : (!npu.gm<{out}xf32>) -> !npu.gm<6x8xf32>
  npu.section {{core="vector", units=1}} {{
  ^bb1(%u: index):
    %t = npu.alloc {{address=0}} : () -> !npu.buffer<3x8xf32, ub>
    npu.load_nd %x, %t at [%g * 3, 0] {{sizes=[3,8]}} : (!npu.gm<6x8xf32>, !npu.buffer<3x8xf32, ub>)
    npu.store_nd %t, %v at [%g * 3, 0] {{sizes=[3,8]}} : (!npu.buffer<3x8xf32, ub>, !npu.gm<6x8xf32>)
  }}
}}""").ops
    assert isinstance(kernel, KernelOp)
    f32 = np.dtype(np.float32)
    tensors = launch.Tensor((6, 8), f32, False, False), launch.Tensor((6, 8), f32, True, True)
    signature = launch.Signature((0, 1), tensors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "batched_axes", lambda kernel, batches: set())
        split = launch.find_split(kernel, signature, {})
    assert (split is not None) == splits
    x = random(6, 8)

    def run_part(start: jax.Array) -> jax.Array:
        return launch.trace(
            kernel, signature, jax.numpy.float32(0), [jax.numpy.asarray(x)], None, split, start
        )[0]

    parts = [np.asarray(jax.jit(run_part)(np.int32(i))) for i in ((0, 1) if splits else (0,))]
    np.testing.assert_array_equal(np.concatenate(parts), x)


# -- host programs -----------------------------------------------------------------------------------------


def program(body: str, signature: str, results: str) -> str:
    return f"""{ADD}{PUT}
func.func @main({signature}) -> ({results}) attributes {{
    npu.addresses = array<i64: 0, 512>, npu.arena_bytes = 16384 : i64}} {{
{body}
}}
"""


G = "!npu.gm<8xf32>"


@MODES
def test_constants_copies_and_views(memory: str) -> None:
    text = program(
        f"""
  %c = npu.gm_constant
    {{value = #graph.data<f32, [8], (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)>, address=1024}} : () -> {G}
  %t = npu.gm_alloc {{address=1536}} : () -> {G}
  %r = npu.view %c : ({G}) -> !npu.gm<8xf32, strides [-1], offset 7>
  npu.copy %r, %t : (!npu.gm<8xf32, strides [-1], offset 7>, {G})
  %o = npu.gm_alloc {{address=2048}} : () -> {G}
  npu.launch @add %x, %t, %o {{outputs=1, workspaces=0}} : ({G}, {G}, {G})
  %p = npu.gm_alloc {{address=2560}} : () -> {G}
  npu.launch @add %o, %y, %p {{outputs=1, workspaces=0}} : ({G}, {G}, {G})
  func.return %p, %t : {G}, {G}""",
        f"%x: {G}, %y: {G}",
        f"{G}, {G}",
    )
    x, y = random(2, 8)
    got, turned = run(text, x, y, memory=memory)
    np.testing.assert_array_equal(turned, np.arange(8, 0, -1, dtype=np.float32))
    np.testing.assert_array_equal(got, (x + turned) + y)


@MODES
@pytest.mark.parametrize("counted", [True, False])
def test_loop(memory: str, counted: bool) -> None:
    trips = "trip_count = 3" if counted else ""
    text = program(
        f"""
  %s = npu.gm_alloc {{address=1024}} : () -> {G}
  npu.copy %x, %s : ({G}, {G})
  %f = npu.gm_constant {{value = #graph.data<i1, [], (0)>, address=1536}} : () -> !npu.gm<i1>
  npu.loop %s, %y {{{trips}}} : ({G}, {G}) {{
  ^bb0(%a: {G}, %b: {G}):
    %stop = npu.to_host %f : (!npu.gm<i1>) -> tensor<i1>
    npu.yield %stop : (tensor<i1>)
  }} {{
  ^bb0(%a: {G}, %b: {G}):
    %t = npu.gm_alloc {{address=2048}} : () -> {G}
    npu.launch @add %a, %b, %t {{outputs=1, workspaces=0}} : ({G}, {G}, {G})
    npu.yield %b, %t : ({G}, {G})
  }}
  func.return %s, %y : {G}, {G}""",
        f"%x: {G}, %y: {G}",
        f"{G}, {G}",
    )
    x, y = random(2, 8)
    want = (x, y)
    for _ in range(3 if counted else 0):
        want = (want[1], want[0] + want[1])
    for got, expected in zip(run(text, x, y, memory=memory), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@MODES
@pytest.mark.parametrize("index", [0, 1, 9])
def test_branch(memory: str, index: int) -> None:
    number = "!npu.gm<i32>"
    text = program(
        f"""
  %o = npu.gm_alloc {{address=1024}} : () -> {G}
  %n = npu.to_host %i : ({number}) -> tensor<i32>
  npu.branch %n, %o : (tensor<i32>, {G}) {{
    npu.yield %x : ({G})
  }} {{
    %t = npu.gm_alloc {{address=1536}} : () -> {G}
    npu.launch @add %x, %x, %t {{outputs=1, workspaces=0}} : ({G}, {G}, {G})
    npu.yield %t : ({G})
  }}
  func.return %o : {G}""",
        f"%x: {G}, %i: {number}",
        G,
    )
    (x,) = random(1, 8)
    (got,) = run(text, x, np.int32(index), memory=memory)
    np.testing.assert_array_equal(got, x if index == 0 else x + x)


HOST = (
    "module { func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> { "
    "%0 = stablehlo.sine %a : tensor<8xf32> return %0 : tensor<8xf32> } }"
)


def on_host(source: str, dest: str) -> str:
    """The sine of a tensor of the device, by the host."""
    host = "tensor<8xf32>"
    return f"""%h = npu.to_host {source} : ({G}) -> {host}
    %s = npu.host_call %h {{op = "sine", module = "{HOST}"}} : {host}
    npu.to_device %s, {dest} : ({host}, {G})"""


@MODES
@pytest.mark.parametrize("calls_host", [True, False])
def test_numbers_of_the_host(memory: str, calls_host: bool) -> None:
    """A loop that carries numbers, gives them to kernels and branches, and leaves them behind: in one compiled
    function, and stepped by Python where it calls the host."""
    call = on_host("%t", "%t")
    text = program(
        f"""
  %c = npu.scalars : () -> tensor<i32> {{
    %zero = graph.constant {{value = #graph.data<i32, [], (0)>}} : () -> tensor<i32>
    graph.yield %zero : (tensor<i32>)
  }}
  %n = npu.to_host %limit : (!npu.gm<i32>) -> tensor<i32>
  %t = npu.gm_alloc {{address=1024}} : () -> {G}
  npu.copy %x, %t : ({G}, {G})
  %i, %odd = npu.loop %t, %c, %c : ({G}, tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>) {{
  ^bb0(%a: {G}, %j: tensor<i32>, %o: tensor<i32>):
    %more = npu.scalars %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1> {{
    ^bb1(%k: tensor<i32>, %m: tensor<i32>):
      %lt = graph.lt %k, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
      graph.yield %lt : (tensor<i1>)
    }}
    npu.yield %more : (tensor<i1>)
  }} {{
  ^bb0(%a: {G}, %j: tensor<i32>, %o: tensor<i32>):
    %next, %two = npu.scalars %j, %o : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>) {{
    ^bb1(%k: tensor<i32>, %l: tensor<i32>):
      %one = graph.constant {{value = #graph.data<i32, [], (1)>}} : () -> tensor<i32>
      %s = graph.add %k, %one : tensor<i32>
      %d = graph.sub %one, %l : tensor<i32>
      graph.yield %s, %d : (tensor<i32>, tensor<i32>)
    }}
    %u = npu.branch %o, %a : (tensor<i32>, {G}) -> tensor<i32> {{
      {call if calls_host else ""}
      npu.yield %t, %two : ({G}, tensor<i32>)
    }} {{
      npu.launch @put %j, %a {{outputs=1, workspaces=0}} : (tensor<i32>, {G})
      npu.yield %a, %two : ({G}, tensor<i32>)
    }}
    npu.yield %a, %next, %u : ({G}, tensor<i32>, tensor<i32>)
  }}
  %r = npu.gm_alloc {{address=1536}} : () -> !npu.gm<i32>
  npu.to_device %i, %r : (tensor<i32>, !npu.gm<i32>)
  func.return %t, %r : {G}, !npu.gm<i32>""",
        f"%x: {G}, %limit: !npu.gm<i32>",
        f"{G}, !npu.gm<i32>",
    )
    (x,) = random(1, 8)
    for limit in (0, 5):
        got, count = run(text, x, np.int32(limit), memory=memory)
        want = x.copy()
        for i in range(limit):
            want = want if i % 2 else (np.sin(want) if calls_host else want)
            if i % 2:
                want[i] = 7
        np.testing.assert_allclose(got, want, rtol=1e-6)
        assert count == limit


@MODES
def test_host_call_inside_a_loop(memory: str) -> None:
    text = program(
        f"""
  npu.loop %x {{trip_count = 2}} : ({G}) {{
  ^bb0(%a: {G}):
    npu.yield
  }} {{
  ^bb0(%a: {G}):
    %t = npu.gm_alloc {{address=2048}} : () -> {G}
    {on_host("%a", "%t")}
    %z = npu.gm_alloc {{address=2560}} : () -> {G}
    npu.launch @add %t, %y, %z {{outputs=1, workspaces=0}} : ({G}, {G}, {G})
    npu.yield %z : ({G})
  }}
  func.return %x : {G}""",
        f"%x: {G}, %y: {G}",
        G,
    )
    x, y = random(2, 8)
    (got,) = run(text, x, y, memory=memory)
    np.testing.assert_allclose(got, np.sin(np.sin(x) + y) + y, rtol=1e-6)


def test_arguments_are_checked() -> None:
    executable = Executable(parse(matmul(64, 64, 32)), MACHINE)
    with pytest.raises(TypeError, match="takes 2 arrays, got 1"):
        executable(random(64, 32))
    with pytest.raises(TypeError, match="argument 1 of @main"):
        executable(random(64, 32), random(32, 63))


def test_bytes_mode_needs_addresses() -> None:
    text = matmul(64, 64, 32).replace("{address=8192}", "")
    with pytest.raises(VerifyException, match="npu-allocate has not run"):
        run(text, random(64, 32), random(32, 64), memory="bytes")


def test_equal_launches_compile_once() -> None:
    launch = f"npu.launch @add %{{}}, %y, %{{}} {{{{outputs=1, workspaces=0}}}} : ({G}, {G}, {G})"
    lines, last = [], "x"
    for i in range(24):
        lines.append(f"%t{i} = npu.gm_alloc {{address={1024 + 512 * i}}} : () -> {G}")
        lines.append(launch.format(last, f"t{i}"))
        last = f"t{i}"
    executable = Executable(
        parse(program("\n".join([*lines, f"func.return %{last} : {G}"]), f"%x: {G}, %y: {G}", G)), MACHINE
    )
    x, y = random(2, 8)
    want = x
    for _ in range(24):
        want = want + y
    np.testing.assert_array_equal(np.asarray(executable(x, y)[0]), want)
    assert len(executable.compiled) == 1


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_tensors_in_bytes(dtype: type) -> None:
    x = np.array([1 + 2j, -0.5j, complex(np.nan, np.inf)], dtype)
    with jax.enable_x64(True):
        program = tw.compile(lambda x: (x, x.conj()), x)
        same, other = program.executable("bytes")(x)
    assert np.asarray(same).tobytes() == x.tobytes()
    np.testing.assert_array_equal(np.asarray(other), x.conj())


def test_what_one_stretch_makes_the_next_reads_as_it_is() -> None:
    """Launches of one kernel are compiled in several functions; XLA would store the padded tensors by columns."""

    def take(x: jax.Array, i: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, i, 1)

    def fn(x: jax.Array, y: jax.Array, i: jax.Array) -> jax.Array:
        x = jnp.pad(x, ((0, 0), (0, 1)))
        taken = [take(x, i), take(x, i + 1), *(take(jnp.pad(y, ((0, 0), (n, 2 - n))), i) for n in range(3))]
        return (taken[0] - taken[1]) * taken[2] * taken[3] * taken[4]

    i = np.random.default_rng(0).integers(0, 7, (64, 1)).astype(np.int32)
    args = (random(64, 8), random(64, 7), i)
    got = tw.compile(fn, *args)(*args)
    np.testing.assert_allclose(got, jax.jit(fn)(*args), rtol=1e-5, atol=1e-5)
