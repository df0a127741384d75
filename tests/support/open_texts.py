"""StableHLO with open dimensions that more than one test compiles."""

from __future__ import annotations

ROWS_OF_FOUR = """func.func @main(%n: tensor<i32>, %x: tensor<?xf32>) -> tensor<?x4xf32> {
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %one, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = stablehlo.dynamic_reshape %x, %shape : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  func.return %y : tensor<?x4xf32>
}"""
"""Reshapes %x to rows of 4, and takes their number as a value."""
