"""Hand-written programs of the tile and graph levels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from tilewright.backends.interpreter import run_graph
from tilewright.backends.tile_level import run_tile
from tilewright.dialects import make_context
from tilewright.dialects.tile import LaunchOp

MATMUL = """
tile.kernel @matmul {kind="cube", grid=[2,3], outputs=1, workspaces=0, slots=[2,2,2,1,1]} {
^bb0(%i: index, %j: index, %x: !npu.gm<50x45xf16>, %w: !npu.gm<45x70xf16>, %o: !npu.gm<50x70xf32>):
  tile.section {core="cube", units=1} {
  ^bb1(%u: index):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %zero = tile.zero : () -> !tile.tile<32x32xf32, l0c>
    %acc = scf.for %k = %c0 to %c3 step %c1 iter_args(%t = %zero) -> (!tile.tile<32x32xf32, l0c>) {
      %a1 = tile.load %x at [%i * 32, %k * 16] {sizes=[32,16]}
        : (!npu.gm<50x45xf16>) -> !tile.tile<32x16xf16, l1>
      %b1 = tile.load %w at [%k * 16, %j * 32] {sizes=[16,32]}
        : (!npu.gm<45x70xf16>) -> !tile.tile<16x32xf16, l1>
      %a0 = tile.move %a1 at [0, 0] {sizes=[32,16]}
        : (!tile.tile<32x16xf16, l1>) -> !tile.tile<32x16xf16, l0a>
      %b0 = tile.move %b1 at [0, 0] {sizes=[16,32]}
        : (!tile.tile<16x32xf16, l1>) -> !tile.tile<16x32xf16, l0b>
      %n = tile.mma %a0, %b0, %t at [%k] : (!tile.tile<32x16xf16, l0a>, !tile.tile<16x32xf16, l0b>,
        !tile.tile<32x32xf32, l0c>) -> !tile.tile<32x32xf32, l0c>
      scf.yield %n : !tile.tile<32x32xf32, l0c>
    }
    tile.store %acc, %o at [%i * 32, %j * 32] {sizes=[32,32]}
      : (!tile.tile<32x32xf32, l0c>, !npu.gm<50x70xf32>)
  }
}
func.func @main(%x: tensor<45x50xf16>, %w: tensor<45x70xf16>) -> tensor<50x70xf32> {
  %t = graph.transpose %x {perm=[1,0]} : (tensor<45x50xf16>) -> tensor<50x45xf16>
  %o = tile.launch @matmul %t, %w {inits=[-1]} : (tensor<50x45xf16>, tensor<45x70xf16>) -> tensor<50x70xf32>
  func.return %o : tensor<50x70xf32>
}
"""

UPDATE = """
tile.kernel @update {kind="vector", grid=[1], outputs=1, workspaces=0, slots=[1,1,1,1,1]} {
^bb0(%g: index, %s: !npu.gm<i32>, %y: !npu.gm<2x4xf32>, %o: !npu.gm<10x4xf32>):
  tile.section {core="vector", units=1} {
  ^bb1(%u: index):
    %at = tile.scalar %s at [] {low=0, high=8} : (!npu.gm<i32>) -> index
    %t = tile.load %y at [0, 0] {sizes=[2,4]} : (!npu.gm<2x4xf32>) -> !tile.tile<2x4xf32, ub>
    tile.store %t, %o at [%at, 0] {sizes=[2,4]} : (!tile.tile<2x4xf32, ub>, !npu.gm<10x4xf32>)
  }
}
func.func @main(%x: tensor<10x4xf32>, %s: tensor<i32>, %y: tensor<2x4xf32>) -> tensor<10x4xf32> {
  %o = tile.launch @update %x, %s, %y {inits=[0]}
    : (tensor<10x4xf32>, tensor<i32>, tensor<2x4xf32>) -> tensor<10x4xf32>
  func.return %o : tensor<10x4xf32>
}
"""

HOST = (
    "module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { "
    "%0 = stablehlo.sine %a : tensor<4xf32> return %0 : tensor<4xf32> } }"
)

CONTROL = f"""
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<i32>) {{
  %zero = graph.constant {{value = #graph.data<i32, [], (0)>}} : () -> tensor<i32>
  %one = graph.constant {{value = #graph.data<i32, [], (1)>}} : () -> tensor<i32>
  %h = graph.host %x {{op = "sine", module = "{HOST}"}} : (tensor<4xf32>) -> tensor<4xf32>
  %y, %i = graph.while %h, %zero : (tensor<4xf32>, tensor<i32>) -> (tensor<4xf32>, tensor<i32>) {{
  ^bb0(%a: tensor<4xf32>, %k: tensor<i32>):
    %go = graph.lt %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %go : (tensor<i1>)
  }} {{
  ^bb0(%a: tensor<4xf32>, %k: tensor<i32>):
    %b = graph.add %a, %x : tensor<4xf32>
    %l = graph.add %k, %one : tensor<i32>
    graph.yield %b, %l : (tensor<4xf32>, tensor<i32>)
  }}
  %z = graph.case %i : (tensor<i32>) -> tensor<4xf32> {{
    graph.yield %x : (tensor<4xf32>)
  }} {{
    %m = graph.neg %y : tensor<4xf32>
    graph.yield %m : (tensor<4xf32>)
  }}
  func.return %z, %i : tensor<4xf32>, tensor<i32>
}}
"""


def parse(text: str) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    module.verify()
    return module


def random(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def test_tiled_matmul_with_odd_edges() -> None:
    x, w = random(45, 50, dtype=np.float16), random(45, 70, dtype=np.float16)
    (got,) = run_tile(parse(MATMUL), x, w)
    want = x.T.astype(np.float32) @ w.astype(np.float32)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("start", [-3, 4, 99])
def test_update_in_place_at_a_clamped_scalar(start: int) -> None:
    x, y = random(10, 4), random(2, 4) + 5
    (got,) = run_tile(parse(UPDATE), x, np.int32(start), y)
    want = x.copy()
    at = min(max(start, 0), 8)
    want[at : at + 2] = y
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("runner", [run_graph, run_tile])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_control_flow_around_host_ops(runner, count: int) -> None:
    x = random(4)
    got, trips = runner(parse(CONTROL), x, np.int32(count))
    assert int(trips) == count
    want = np.sin(x)
    for _ in range(count):
        want = want + x
    np.testing.assert_allclose(np.asarray(got), x if count == 0 else -want, rtol=1e-6)


def test_int64_survives() -> None:
    text = """
func.func @main(%x: tensor<2xi64>) -> tensor<2xi64> {
  %y = graph.mul %x, %x : tensor<2xi64>
  func.return %y : tensor<2xi64>
}
"""
    (got,) = run_graph(parse(text), np.array([3_000_000_000, -2], np.int64))
    np.testing.assert_array_equal(np.asarray(got), np.array([9 * 10**18, 4], np.int64))


def test_conv_and_contract_accumulate_wide() -> None:
    text = """
func.func @main(%x: tensor<1x6x6x3xi8>, %w: tensor<3x3x3x5xi8>) -> tensor<1x4x4x5xi32> {
  %y = graph.conv %x, %w {strides=[1,1], low=[0,0], high=[0,0], lhs_dilation=[1,1], rhs_dilation=[1,1],
    lhs_layout=[0,3,1,2], rhs_layout=[2,3,0,1], out_layout=[0,3,1,2], groups=1}
    : (tensor<1x6x6x3xi8>, tensor<3x3x3x5xi8>) -> tensor<1x4x4x5xi32>
  func.return %y : tensor<1x4x4x5xi32>
}
"""
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (1, 6, 6, 3), np.int8), rng.integers(-128, 128, (3, 3, 3, 5), np.int8)
    (got,) = run_graph(parse(text), x, w)
    want = jax.lax.conv_general_dilated(
        x.astype(np.float64),
        w.astype(np.float64),
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want).astype(np.int32))


def test_a_narrow_conv_wraps() -> None:
    text = """
func.func @main(%x: tensor<1x6x3xi8>, %w: tensor<1x3x1xi8>) -> tensor<1x6x1xi8> {
  %y = graph.conv %x, %w {strides=[1], low=[0], high=[0], lhs_dilation=[1], rhs_dilation=[1],
    lhs_layout=[0,2,1], rhs_layout=[1,2,0], out_layout=[0,2,1], groups=1}
    : (tensor<1x6x3xi8>, tensor<1x3x1xi8>) -> tensor<1x6x1xi8>
  func.return %y : tensor<1x6x1xi8>
}
"""
    x, w = np.full((1, 6, 3), 50, np.int8), np.full((1, 3, 1), 3, np.int8)
    (got,) = run_graph(parse(text), x, w)
    np.testing.assert_array_equal(np.asarray(got), np.full((1, 6, 1), 450 - 512, np.int8))


def test_a_kernel_without_inputs_in_a_loop() -> None:
    def fn(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda i, c: c + jnp.full((40,), 2.0)[::-1].cumsum(), x)

    module = tw.compile(fn, random(40)).module("tile")
    (got,) = run_tile(module, random(40))
    np.testing.assert_allclose(np.asarray(got), random(40) + 6 * np.arange(1, 41), rtol=1e-6)


def test_an_unknown_kernel_is_named() -> None:
    module = parse(MATMUL)
    (launch,) = (op for op in module.walk() if isinstance(op, LaunchOp))
    launch.properties["callee"] = SymbolRefAttr("other")  # the verifier refuses it, too
    with pytest.raises(VerifyException, match="calls @other, which does not exist"):
        run_tile(module, random(45, 50, dtype=np.float16), random(45, 70, dtype=np.float16))


def test_zeros_in_a_loop_keep_their_sign() -> None:
    """-0 + 0 is 0, where a loop is one computation of XLA, too."""

    def fn(x: jax.Array) -> jax.Array:
        return jax.lax.map(lambda row: jax.lax.add(row, jax.lax.full_like(row, 0)), x)

    x = -jnp.zeros((3, 5), jnp.float16)
    program = tw.compile(fn, x)
    (got,) = run_tile(program.module("tile"), x)
    for y in (got, program(x)):
        assert np.asarray(y).tobytes() == bytes(2 * 15)


@pytest.mark.parametrize(
    ("bound", "other", "says"),
    [("to %c3", "to %i", "needs constant bounds"), ("step %c1", "step %c0", "needs a step of 1 or more, not 0")],
)
def test_loops_that_nobody_can_count(bound: str, other: str, says: str) -> None:
    module = parse(MATMUL.replace(bound, other))
    with pytest.raises(VerifyException, match=says):
        run_tile(module, random(45, 50, dtype=np.float16), random(45, 70, dtype=np.float16))
