// RUN: tilewright-opt %s -p graph-winograd --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p 'graph-winograd{winograd="4"}' --split-input-file | filecheck %s --check-prefix ASKED

// What an op says of itself is obeyed, whatever is asked for: tiles of 2 x 2 places are 16 products.
func.func @main(%x: tensor<1x6x6x8xf32>, %w: tensor<3x3x8x4xf32>) -> tensor<1x6x6x4xf32> {
  %y = graph.conv %x, %w {groups = 1, low = [1, 1], high = [1, 1], strides = [1, 1], lhs_dilation = [1, 1], rhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2]} attributes {graph.winograd = 2 : i64} : (tensor<1x6x6x8xf32>, tensor<3x3x8x4xf32>) -> tensor<1x6x6x4xf32>
  func.return %y : tensor<1x6x6x4xf32>
}
// CHECK: func.func @main
// CHECK: graph.pad %x, %{{.*}} {high = [0, 1, 1, 0], interior = [0, 0, 0, 0], low = [0, 1, 1, 0]} : {{.*}} -> tensor<1x8x8x8xf32>
// CHECK: graph.slice %{{.*}} {{{.*}}strides = [1, 1, 2, 1, 1]}
// CHECK: %[[V:.*]] = graph.concat {{.*}} {dim = 0} : {{.*}} -> tensor<16x1x3x3x8xf32>
// CHECK: %[[ROWS:.*]] = graph.reshape %[[V]] : (tensor<16x1x3x3x8xf32>) -> tensor<16x9x8xf32>
// CHECK: graph.concat {{.*}} {dim = 0} : {{.*}} -> tensor<16x8x4xf32>
// CHECK: %[[U:.*]] = graph.reshape {{.*}} attributes {graph.packed}
// CHECK: graph.contract %[[ROWS]], %[[U]] {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]}
// CHECK: graph.concat {{.*}} {dim = 5}
// CHECK: graph.concat {{.*}} {dim = 3} : {{.*}} -> tensor<1x1x3x2x3x2x4xf32>
// CHECK: graph.reshape {{.*}} -> tensor<1x6x6x4xf32>
// CHECK-NOT: graph.conv
// ASKED: graph.contract {{.*}} : (tensor<16x9x8xf32>, tensor<16x8x4xf32>) -> tensor<16x9x4xf32>

// -----

// One that says 0 stays; one that says nothing gets what is asked for: by default nothing, here tiles of 4 x 4 places.
// Their 36 parts are made along one dimension after the other, and what is more than the result is cut off.
func.func @main(%x: tensor<1x6x6x8xf32>, %w: tensor<3x3x8x4xf32>) -> (tensor<1x6x6x4xf32>, tensor<1x6x6x4xf32>) {
  %y = graph.conv %x, %w {groups = 1, low = [1, 1], high = [1, 1], strides = [1, 1], lhs_dilation = [1, 1], rhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2]} attributes {graph.winograd = 0 : i64} : (tensor<1x6x6x8xf32>, tensor<3x3x8x4xf32>) -> tensor<1x6x6x4xf32>
  %z = graph.conv %x, %w {groups = 1, low = [1, 1], high = [1, 1], strides = [1, 1], lhs_dilation = [1, 1], rhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2]} : (tensor<1x6x6x8xf32>, tensor<3x3x8x4xf32>) -> tensor<1x6x6x4xf32>
  func.return %y, %z : tensor<1x6x6x4xf32>, tensor<1x6x6x4xf32>
}
// CHECK: func.func @main
// CHECK: graph.conv
// CHECK: graph.conv
// CHECK-NOT: graph.contract
// ASKED: func.func @main
// ASKED: graph.conv
// ASKED: graph.concat {{.*}} {dim = 0} : {{.*}} -> tensor<6x1x2x10x8xf32>
// ASKED: graph.concat {{.*}} {dim = 1} : {{.*}} -> tensor<6x6x1x2x2x8xf32>
// ASKED: graph.contract {{.*}} : (tensor<36x4x8xf32>, tensor<36x8x4xf32>) -> tensor<36x4x4xf32>
// ASKED: graph.slice {{.*}} : (tensor<1x8x8x4xf32>) -> tensor<1x6x8x4xf32>

// -----

// Weights that are known are transformed here.
func.func @main(%x: tensor<1x5x1xf16>) -> tensor<1x5x1xf16> {
  %w = graph.constant {value = #graph.data<f16, [3, 1, 1], (1.0, 2.0, 4.0)>} : () -> tensor<3x1x1xf16>
  %y = graph.conv %x, %w {groups = 1, low = [1], high = [1], strides = [1], lhs_dilation = [1], rhs_dilation = [1], lhs_layout = [0, 2, 1], rhs_layout = [1, 2, 0], out_layout = [0, 2, 1]} attributes {graph.winograd = 2 : i64} : (tensor<1x5x1xf16>, tensor<3x1x1xf16>) -> tensor<1x5x1xf16>
  func.return %y : tensor<1x5x1xf16>
}
// CHECK: func.func @main
// CHECK: graph.convert {{.*}} : (tensor<1x1x3x1xf16>) -> tensor<1x1x3x1xf32>
// CHECK: graph.constant {value = #graph.data<f16, [4, 1, 1], (-1.0, 3.5, 1.5, 4.0)>}
// CHECK: graph.contract {{.*}} : (tensor<4x3x1xf16>, tensor<4x1x1xf16>) -> tensor<4x3x1xf32>
