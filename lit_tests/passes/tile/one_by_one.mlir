// RUN: tilewright-opt %s -p graph-simplify,graph-fuse,graph-schedule,graph-to-tile --split-input-file | filecheck %s

// The vendor's IR has no move that unrolls windows: a convolution loads one place of the windows at a time, with their
// steps, and its moves are those of a plain product.
module attributes {tilewright.hivm} {
  func.func @main(%x: tensor<1x16x16x32xf16>, %k: tensor<3x3x32x64xf16>) -> tensor<1x8x8x64xf16> {
    %y = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [2, 2]} : (tensor<1x16x16x32xf16>, tensor<3x3x32x64xf16>) -> tensor<1x8x8x64xf16>
    func.return %y : tensor<1x8x8x64xf16>
  }
}
// CHECK: tile.kernel @conv_0
// CHECK: tile.load {{.*}} at [{{.*}} + -1, %{{[0-9]+}} + -1, 0] {sizes = [{{[0-9]+}}, 8, 32], steps = [2, 2, 1]}
// CHECK-NOT: window
// CHECK: tile.mma

// -----

// A row of one channel: its places are rows of the matrix, not columns, as these begin at blocks.
module attributes {tilewright.hivm} {
  func.func @main(%x: tensor<2x8x8x1xf16>, %k: tensor<3x3x1x16xf16>) -> tensor<2x8x8x16xf16> {
    %y = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]} : (tensor<2x8x8x1xf16>, tensor<3x3x1x16xf16>) -> tensor<2x8x8x16xf16>
    func.return %y : tensor<2x8x8x16xf16>
  }
}
// CHECK: tile.kernel @conv_0
// CHECK: tile.load {{.*}} {sizes = [{{.*}}, 8, 1]}
// CHECK-NOT: transpose
// CHECK: tile.mma
