"""Quantized tensors (`!quant.uniform`) and custom calls through the frontend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiering import sampled

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


def seen(q: np.ndarray) -> np.ndarray:
    """The numbers that stored ones of type Q stand for."""
    return (q.astype(np.float32) - 3) * 0.5


def stored(x: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(np.asarray(x) * 2) + 3, -128, 127).astype(np.int8)


LOOP = f"""func.func @main(%a: tensor<4x{Q}>) -> tensor<4x{Q}> {{
  %c = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %c, %x = %a) : tensor<i32>, tensor<4x{Q}> cond {{
    %n = stablehlo.constant dense<3> : tensor<i32>
    %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  }} do {{
    %o = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %o : tensor<i32>
    %y = stablehlo.add %x, %x : tensor<4x{Q}>
    stablehlo.return %j, %y : tensor<i32>, tensor<4x{Q}>
  }}
  return %r#1 : tensor<4x{Q}>
}}"""

CALLS = f"""func.func private @f(%x: tensor<4x{Q}>) -> tensor<4x{Q}> {{
  %0 = stablehlo.tanh %x : tensor<4x{Q}>
  return %0 : tensor<4x{Q}>
}}
func.func @main(%a: tensor<4x{Q}>) -> tensor<4x{Q}> {{
  %0 = call @f(%a) : (tensor<4x{Q}>) -> tensor<4x{Q}>
  %1 = call @f(%0) : (tensor<4x{Q}>) -> tensor<4x{Q}>
  return %1 : tensor<4x{Q}>
}}"""

SUMS = f"""func.func @main(%a: tensor<4x5x{Q}>, %b: tensor<{Q}>) -> tensor<4x{Q}> {{
  %0 = stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [1]
    : (tensor<4x5x{Q}>, tensor<{Q}>) -> tensor<4x{Q}>
  return %0 : tensor<4x{Q}>
}}"""

POOL = f"""func.func @main(%a: tensor<4x6x{Q}>, %b: tensor<{Q}>) -> tensor<2x3x{Q}> {{
  %0 = "stablehlo.reduce_window"(%a, %b) ({{
  ^bb0(%x: tensor<{Q}>, %y: tensor<{Q}>):
    %m = stablehlo.maximum %x, %y : tensor<{Q}>
    stablehlo.return %m : tensor<{Q}>
  }}) {{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}}
    : (tensor<4x6x{Q}>, tensor<{Q}>) -> tensor<2x3x{Q}>
  return %0 : tensor<2x3x{Q}>
}}"""

GREATER = f"""func.func @main(%a: tensor<9x{Q}>, %b: tensor<9x{Q}>) -> tensor<9xi1> {{
  %0 = stablehlo.compare GT, %a, %b : (tensor<9x{Q}>, tensor<9x{Q}>) -> tensor<9xi1>
  return %0 : tensor<9xi1>
}}"""

UNSIGNED = """func.func @main(%a: tensor<4xf32>) -> tensor<4x!quant.uniform<u8:f32, 0.5:7>> {
  %0 = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> tensor<4x!quant.uniform<u8:f32, 0.5:7>>
  return %0 : tensor<4x!quant.uniform<u8:f32, 0.5:7>>
}"""

MIXED = f"""func.func @main(%a: tensor<2x3xf32>, %w: tensor<3x4x{W}>) -> tensor<2x4xf32> {{
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
    : (tensor<2x3xf32>, tensor<3x4x{W}>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}}"""


def doubled(q: np.ndarray) -> np.ndarray:
    for _ in range(3):
        q = stored(seen(q) * 2)
    return q


@sampled(4)
@pytest.mark.parametrize(
    ("text", "model"),
    [
        (LOOP, doubled),
        (CALLS, lambda q: stored(np.tanh(seen(stored(np.tanh(seen(q))))))),
        (SUMS, lambda q, b: stored(seen(q).sum(1) + seen(b))),
        (POOL, lambda q, b: np.maximum(q.reshape(2, 2, 3, 2).max((1, 3)), b)),
        (GREATER, lambda q, r: q > r),
        (UNSIGNED, lambda x: np.clip(np.rint(x * 2) + 7, 0, 255).astype(np.uint8)),
        (MIXED, lambda x, w: x @ (w.astype(np.float32) * 0.25)),
    ],
    ids=["loop", "calls", "sums", "pool", "greater", "unsigned", "mixed"],
)
def test_programs_follow_what_the_numbers_stand_for(text: str, model: Any) -> None:
    program = tw.compile(text)
    assert all(op.name != "graph.host" for op in program.module("graph").walk())
    args = [
        RNG.integers(-60, 60, shape).astype(np.int8)
        if dtype == "i8"
        else RNG.normal(size=shape).astype(np.float32) * 40
        for shape, dtype in program.inputs
    ]
    for memory in ("typed", "bytes"):
        (got,) = program.executable(memory)(*args)
        np.testing.assert_allclose(np.asarray(got), model(*args), rtol=1e-6)
    assert tw.verify(text, *args).ok


def test_a_scale_of_zero_is_refused() -> None:
    kind = "tensor<4x!quant.uniform<i8:f32, 0.0>>"
    text = f"func.func @main(%a: {kind}) -> {kind} {{ return %a : {kind} }}"
    with pytest.raises(FrontendError, match=r"^model.mlir:1:\d+: not valid StableHLO: scale 0.0.* out of"):
        lower(text)
