"""Host programs of the npu level in both memory modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from npu_programs import ADD, MACHINE, MODES, PUT, matmul, parse, random, run
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from tilewright.backends.interpreter import Executable


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
