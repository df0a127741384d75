// RUN: tilewright-opt %s -p graph-winograd --split-input-file --verify-diagnostics | filecheck %s

func.func @main(%x: tensor<1x6x6x8xf32>, %w: tensor<3x3x8x4xf32>) -> tensor<1x3x3x4xf32> {
  %y = graph.conv %x, %w {groups = 1, low = [1, 1], high = [1, 1], strides = [2, 2], lhs_dilation = [1, 1], rhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2]} attributes {graph.winograd = 2 : i64} : (tensor<1x6x6x8xf32>, tensor<3x3x8x4xf32>) -> tensor<1x3x3x4xf32>
  func.return %y : tensor<1x3x3x4xf32>
}
// CHECK: cannot be computed by F(2, 3): it has strides or dilations

// -----

func.func @main(%x: tensor<1x6x6x8xf32>, %w: tensor<3x3x8x4xf32>) -> tensor<1x6x6x4xf32> {
  %y = graph.conv %x, %w {groups = 1, low = [1, 1], high = [1, 1], strides = [1, 1], lhs_dilation = [1, 1], rhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2]} attributes {graph.winograd = 3 : i64} : (tensor<1x6x6x8xf32>, tensor<3x3x8x4xf32>) -> tensor<1x6x6x4xf32>
  func.return %y : tensor<1x6x6x4xf32>
}
// CHECK: graph.winograd must be 0, 2 or 4, not 3
