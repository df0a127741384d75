"""Programs for several devices are refused in one sentence; what one device does alone is compiled."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

X = np.arange(32, dtype=np.float32).reshape(4, 8)

SHARDED = """
module @m {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
        manual_axes={"x"} (%b: tensor<1x8xf32>) {
      %1 = stablehlo.add %b, %b : tensor<1x8xf32>
      sdy.return %1 : tensor<1x8xf32>
    } : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}"""


def collective(op: str, groups: str, shape: str, body: bool, result: str = "4x8", more: str = "") -> str:
    region = """({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
      })"""
    return f"""
func.func public @main(%a: tensor<4x8xf32>) -> tensor<{result}xf32> {{
  %0 = "stablehlo.{op}"(%a) <{{{more}replica_groups = dense<{groups}> : tensor<{shape}xi64>}}>
    {region if body else ""}
    : (tensor<4x8xf32>) -> tensor<{result}xf32>
  return %0 : tensor<{result}xf32>
}}"""


def refusal(text: str) -> str:
    with pytest.raises(tw.CompileError) as caught:
        tw.compile(text, X)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_part_for_each_device_is_refused() -> None:
    said = refusal(SHARDED)
    assert "sdy.manual_computation" in said
    assert "divides the program among devices; Tilewright compiles for one device" in said


@pytest.mark.parametrize(
    ("op", "body", "result", "more"),
    [
        ("all_reduce", True, "4x8", ""),
        ("all_gather", False, "8x8", "all_gather_dim = 0 : i64, "),
        ("reduce_scatter", True, "2x8", "scatter_dimension = 0 : i64, "),
    ],
)
def test_collectives_of_several_devices_are_refused(op: str, body: bool, result: str, more: str) -> None:
    said = refusal(collective(op, "[[0, 1]]", "1x2", body, result, more))
    assert f"stablehlo.{op}" in said
    assert "exchanges data among 2 devices" in said


def test_a_sum_over_one_device_is_what_it_is_of() -> None:
    program = tw.compile(collective("all_reduce", "[[0]]", "1x1", True), X)
    np.testing.assert_array_equal(program(X), X)
    assert "graph.host" not in program.ir("graph")
