// RUN: tilewright-opt %s -p graph-simplify,graph-fuse,graph-schedule,graph-to-tile | tilewright-opt | filecheck %s

// At each place of a window, half the input features are loaded, and a byte of positions for each eight.
func.func @main(%x: tensor<1x8x8x32xi8>, %v: tensor<3x3x16x16xi8>, %i: tensor<3x3x4x16xi8>) -> tensor<1x6x6x16xi32> {
  %w = graph.expand %v, %i {dim = 2} : (tensor<3x3x16x16xi8>, tensor<3x3x4x16xi8>) -> tensor<3x3x32x16xi8>
  %y = graph.conv %x, %w {strides = [1, 1], low = [0, 0], high = [0, 0], lhs_dilation = [1, 1], rhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2], groups = 1} : (tensor<1x8x8x32xi8>, tensor<3x3x32x16xi8>) -> tensor<1x6x6x16xi32>
  func.return %y : tensor<1x6x6x16xi32>
}
// CHECK: tile.launch @conv_0 %v, %i, %x {inits = [-1]}
// CHECK: tile.load {{.*}} -> !tile.tile<3x3x16x16xi8, l1>
// CHECK: tile.load {{.*}} -> !tile.tile<3x3x4x16xi8, l1>
// CHECK: tile.move {{.*}}window = [3, 3, 1]{{.*}} -> !tile.tile<36x288xi8, l0a>
// CHECK: tile.move {{.*}} -> !tile.tile<144x16xi8, l0b>
// CHECK: tile.move {{.*}} -> !tile.tile<36x16xi8, l0b>
// CHECK: tile.mma %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} at
