"""What the frontend computes of constants."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_reference import run_stablehlo

import tilewright as tw
from tilewright.frontends import lower_stablehlo

jax.config.update("jax_platforms", "cpu")


def names(text: str) -> list[str]:
    return [op.name for op in lower_stablehlo(text).walk() if op.name.startswith("graph.")]


def conversion(values: str, n: int, source: str, target: str) -> str:
    return f"""func.func @main() -> tensor<{n}x{target}> {{
      %c = stablehlo.constant dense<{values}> : tensor<{n}x{source}>
      %0 = stablehlo.convert %c : (tensor<{n}x{source}>) -> tensor<{n}x{target}>
      return %0 : tensor<{n}x{target}>
    }}"""


@pytest.mark.parametrize(
    ("values", "n", "source", "target", "folded"),
    [
        ("[0.1, -0.0, 1.5e300, 1.0e-300, 0x7FF8000000000000]", 5, "f64", "f32", True),
        ("[0.1, 65519.0, 65520.0, 6.0e-8, -2.5]", 5, "f32", "f16", True),
        ("[0.1, 1.00390625, 1.01171875, 3.4e38]", 4, "f32", "bf16", True),
        ("[1.9, -1.9, 127.0, -128.0]", 4, "f32", "i8", True),
        ("[1.0e10, 0.0]", 2, "f32", "i32", False),  # numpy does not saturate
        ("[0x7FC00000, 0.0]", 2, "f32", "i32", False),
        ("[0.1, 1.0]", 2, "f64", "bf16", False),  # numpy rounds twice
        ("[16777217, -16777219, 5]", 3, "i32", "f32", True),
        ("[4294967297, -1]", 2, "i64", "i32", False),  # wraps
        ("[4294967295, 7]", 2, "ui32", "i64", True),
        ("[0.0, -0.0, 0.5, 0x7FC00000]", 4, "f32", "i1", True),
        ("[true, false]", 2, "i1", "f32", True),
        ("[-8, 7]", 2, "i4", "i32", True),
        ("7", 1000, "i64", "i32", True),
    ],
)
def test_conversions_of_constants(values: str, n: int, source: str, target: str, folded: bool):
    text = conversion(values, n, source, target)
    assert ("graph.convert" not in names(text) and "graph.host" not in names(text)) is folded
    (want,) = run_stablehlo(text, [])
    got = np.asarray(tw.compile(text)())
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int8, jnp.bool_, jnp.complex64])
def test_constants_without_elements(dtype: type) -> None:
    want = np.zeros((0, 13), dtype)
    got = tw.compile(lambda: (jnp.asarray(want), jnp.reshape(jnp.asarray(want), (13, 0))))()
    assert [(x.shape, x.dtype) for x in got] == [((0, 13), want.dtype), ((13, 0), want.dtype)]


def test_a_uniform_constant_of_another_type_is_spread_without_the_host():
    text = """func.func @main(%a: tensor<2xf32>) -> tensor<3x2xf64> {
      %c = stablehlo.constant dense<5.0> : tensor<f64>
      %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f64>) -> tensor<3x2xf64>
      return %0 : tensor<3x2xf64>
    }"""
    assert names(text) == ["graph.constant", "graph.constant"]
    np.testing.assert_array_equal(np.asarray(tw.compile(text)(np.zeros(2, np.float32))), np.full((3, 2), 5))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.int8])
def test_padding_by_default_is_one_kernel(dtype: type):
    program = tw.compile(lambda x: jnp.pad(x, ((1, 0), (0, 2))), jnp.ones((4, 5), dtype))
    assert sum(op.name == "npu.launch" for op in program.module().walk()) == 1


def test_a_block_has_each_constant_once():
    """So that a network does not have the constants of its layers once for each of them; a loop has its own."""
    text = """func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
      %a = stablehlo.constant dense<2.0> : tensor<f32>
      %b = stablehlo.constant dense<2.0> : tensor<f32>
      %c = stablehlo.constant dense<3.0> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %1 = stablehlo.multiply %x, %0 : tensor<4xf32>
      %2 = stablehlo.broadcast_in_dim %b, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %3 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %4 = stablehlo.add %2, %3 : tensor<4xf32>
      %5 = stablehlo.multiply %1, %4 : tensor<4xf32>
      %i = stablehlo.constant dense<0> : tensor<i32>
      %6:2 = stablehlo.while(%j = %i, %y = %5) : tensor<i32>, tensor<4xf32>
      cond {
        %t = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %t : tensor<i1>
      } do {
        %d = stablehlo.constant dense<2.0> : tensor<f32>
        %7 = stablehlo.broadcast_in_dim %d, dims = [] : (tensor<f32>) -> tensor<4xf32>
        %8 = stablehlo.subtract %y, %7 : tensor<4xf32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %9 = stablehlo.add %j, %one : tensor<i32>
        stablehlo.return %9, %8 : tensor<i32>, tensor<4xf32>
      }
      return %6#1 : tensor<4xf32>
    }"""
    found = names(text)
    assert (found.count("graph.constant"), found.count("graph.broadcast")) == (5, 3)
    x = np.arange(4, dtype=np.float32)
    for memory in ("typed", "bytes"):
        program = tw.compile(text, options=tw.Options(memory=memory))
        np.testing.assert_array_equal(np.asarray(program(x, np.int32(3))), x * 2 * 5 - 6)
