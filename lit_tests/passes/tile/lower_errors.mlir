// RUN: tilewright-opt %s -p 'graph-fuse,graph-schedule,graph-to-tile' --split-input-file --verify-diagnostics | filecheck %s

// A window that does not fit the unified buffer.
func.func @main(%x: tensor<1x1024x1024x8xf32>) -> tensor<1x1x1x8xf32> {
  %y = graph.reduce_window %x {dilation = [1, 1, 1, 1], high = [0, 0, 0, 0], kind = "max", low = [0, 0, 0, 0], strides = [1, 1, 1, 1], window = [1, 1024, 1024, 1]} : (tensor<1x1024x1024x8xf32>) -> tensor<1x1x1x8xf32>
  func.return %y : tensor<1x1x1x8xf32>
}
// CHECK: 'graph.reduce_window' ({{.*}}lower_errors.mlir:5): a window of {{.*}} does not fit ub of ascend-910b1

// -----

// A table beyond 32-bit offsets.
func.func @main(%t: tensor<65536x65536xf16>, %ids: tensor<5x1xi32>) -> tensor<5x65536xf16> {
  %g = graph.gather %t, %ids {collapsed_dims = [0], index_dim = 1, indices_batch = [], offset_dims = [1], slice_sizes = [1, 65536], start_map = [0], x_batch = []} : (tensor<65536x65536xf16>, tensor<5x1xi32>) -> tensor<5x65536xf16>
  func.return %g : tensor<5x65536xf16>
}
// CHECK: 'graph.gather' ({{.*}}): a table of 4294967296 elements is beyond 32-bit offsets

// -----

// A convolution whose window does not fit l1: its positions are loaded one by one.
func.func @main(%x: tensor<1x2048x2048x64xf16>, %k: tensor<2x2x64x16xf16>) -> tensor<1x48x48x16xf16> {
  %y = graph.conv %x, %k {groups = 1, high = [0, 0], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [0, 0], out_layout = [0, 3, 1, 2], rhs_dilation = [2000, 2000], rhs_layout = [2, 3, 0, 1], strides = [1, 1]} : (tensor<1x2048x2048x64xf16>, tensor<2x2x64x16xf16>) -> tensor<1x48x48x16xf16>
  func.return %y : tensor<1x48x48x16xf16>
}
// CHECK: tile.kernel @conv_0
// CHECK: tile.load {{.*}} : (!npu.gm<2048x2048x64xf16>) -> !tile.tile<3x48x64xf16, l1>

// -----

// A host op is no part of a kernel.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.fusion %x {domain = [4], kind = "vector"} : tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %h = graph.host %a {module = "m", op = "sort"} attributes {axes = array<i64: 0>} : tensor<4xf32>
    graph.yield %h : (tensor<4xf32>)
  }
  func.return %y : tensor<4xf32>
}
// CHECK: 'graph.host' ({{.*}}) cannot be part of a vector kernel

// -----

// Products in a type that no cube has: what graph-simplify would have written otherwise.
func.func @main(%x: tensor<4x8xi64>, %y: tensor<8x4xi64>) -> tensor<4x4xi64> {
  %z = graph.contract %x, %y {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8xi64>, tensor<8x4xi64>) -> tensor<4x4xi64>
  func.return %z : tensor<4x4xi64>
}
// CHECK: 'graph.contract' ({{.*}}): the cube of ascend-910b1 has no i64 products: run graph-simplify for that target before graph-fuse

// -----

// A function of two levels.
func.func @main(%x: !npu.gm<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = graph.exp %y : tensor<8xf32>
  func.return %0 : tensor<8xf32>
}
// CHECK: 'graph.exp' ({{.*}}) is of the graph level, and the function takes or gives !npu.gm, which is of the npu level: give it tensors
