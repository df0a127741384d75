"""Quantized tensors (`!quant.uniform`) and custom calls through the frontend."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontends import FrontendError, lower_stablehlo

Q = "!quant.uniform<i8:f32, 0.5:3>"
W = "!quant.uniform<i8:f32, 0.25>"
SUM = "!quant.uniform<i32:f32, 0.125>"
RNG = np.random.default_rng(0)


def lower(text: str) -> list[str]:
    """Names of the graph ops of a file `model.mlir`."""
    return [op.name for op in lower_stablehlo(text, "model.mlir").walk()]


def test_products_of_quantized_tensors_are_products_of_integers():
    text = f"""func.func @main(%a: tensor<2x3x{Q}>, %b: tensor<3x4x{W}>) -> tensor<2x4x{SUM}> {{
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<2x3x{Q}>, tensor<3x4x{W}>) -> tensor<2x4x{SUM}>
      return %0 : tensor<2x4x{SUM}>
    }}"""
    program = tw.compile(text)
    assert program.inputs == (((2, 3), "i8"), ((3, 4), "i8"))
    contraction = next(op for op in program.module("graph").walk() if op.name == "graph.contract")
    assert str(contraction.results[0].type) == "tensor<2x4xi32>"
    a, b = RNG.integers(-128, 128, (2, 3), np.int8), RNG.integers(-127, 128, (3, 4), np.int8)
    # 0.5 (a - 3) times 0.25 b, in units of 0.125
    np.testing.assert_array_equal(program(a, b), (a.astype(np.int32) - 3) @ b.astype(np.int32))


def test_functions_of_quantized_tensors_are_computed_in_floats():
    text = f"""func.func @main(%a: tensor<7xf32>) -> tensor<7xf32> {{
      %0 = stablehlo.uniform_quantize %a : (tensor<7xf32>) -> tensor<7x{Q}>
      %1 = stablehlo.abs %0 : tensor<7x{Q}>
      %2 = stablehlo.uniform_dequantize %1 : (tensor<7x{Q}>) -> tensor<7xf32>
      return %2 : tensor<7xf32>
    }}"""
    x = np.array([-1000, -3.2, -0.2, 0, 0.3, 40, 1000], np.float32)
    # from -65.5 to 62 in steps of 0.5, and |-65.5| does not fit
    np.testing.assert_array_equal(tw.compile(text)(x), np.float32([62, 3, 0, 0, 0.5, 40, 62]))


def test_numbers_are_sorted_as_what_they_stand_for():
    body = f"tensor<{Q}>, tensor<{Q}>"
    text = f"""func.func @main(%a: tensor<3x{Q}>) -> tensor<3x{Q}> {{
      %0 = "stablehlo.sort"(%a) ({{
      ^bb0(%x: tensor<{Q}>, %y: tensor<{Q}>):
        %c = stablehlo.compare LT, %x, %y : ({body}) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }}) : (tensor<3x{Q}>) -> tensor<3x{Q}>
      return %0 : tensor<3x{Q}>
    }}"""
    np.testing.assert_array_equal(tw.compile(text)(np.int8([5, -128, 127])), np.int8([-128, 5, 127]))


def test_an_op_without_a_meaning_is_refused_with_its_line():
    text = f"""func.func @main(%a: tensor<2x2x{Q}>) -> tensor<2x2x{Q}> {{
      %0 = stablehlo.cholesky %a, lower = true : tensor<2x2x{Q}>
      return %0 : tensor<2x2x{Q}>
    }}"""
    with pytest.raises(
        FrontendError, match=r"^'stablehlo.cholesky' \(model.mlir:2\) has no definition for quantized tensors"
    ):
        lower(text)


@pytest.mark.parametrize(("other", "equal"), [([1, 2], True), ([1, 3], False)])
def test_assertions_are_values(other: list[float], equal: bool):
    text = """func.func @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<i1> {
      %0 = stablehlo.custom_call @check.eq(%a, %b) : (tensor<2xf32>, tensor<2xf32>) -> tensor<i1>
      return %0 : tensor<i1>
    }"""
    assert bool(tw.compile(text)(np.float32([1, 2]), np.float32(other))) == equal


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "%0 = stablehlo.custom_call @nobody.knows(%a) : (tensor<2xf32>) -> tensor<2xf32>",
            r"'stablehlo.custom_call' \(model.mlir:2\) calls 'nobody.knows', which neither the device nor the "
            "host has",
        ),
        (
            '%0 = "check.unheard_of"(%a) : (tensor<2xf32>) -> tensor<2xf32>',
            r"model.mlir:2:\d+: not valid StableHLO: 'check.unheard_of' is an operation of an unknown dialect",
        ),
    ],
)
def test_what_nobody_knows_is_refused_by_its_name(line: str, message: str):
    with pytest.raises(FrontendError, match=f"^{message}$"):
        lower(
            f"func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{\n  {line}\n  return %0 : tensor<2xf32>\n}}"
        )
