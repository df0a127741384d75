// RUN: tilewright-opt %s -p graph-fuse,graph-schedule,graph-to-tile --split-input-file --verify-diagnostics | filecheck %s

// A pinned split that does not divide the sum: a product of three parts, one of the element that is left, and their sum.
func.func @main(%x: tensor<32x100xf16>, %w: tensor<100x16xf16>) -> tensor<32x16xf16> {
  %r = graph.fusion %x, %w {domain = [32, 16], kind = "cube", schedule = #graph.cube_schedule<split_k = 3, base_m = 16>}
    : (tensor<32x100xf16>, tensor<100x16xf16>) -> tensor<32x16xf16> {
  ^bb0(%a: tensor<32x100xf16>, %b: tensor<100x16xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<32x100xf16>, tensor<100x16xf16>) -> tensor<32x16xf16>
    graph.yield %c : (tensor<32x16xf16>)
  }
  func.return %r : tensor<32x16xf16>
}
// CHECK: func.func @main
// CHECK-NEXT: [[P:%.+]] = tile.launch @contract_0 %x, %w {{.*}} -> tensor<3x32x16xf32>
// CHECK-NEXT: [[Q:%.+]] = tile.launch @contract_1 %x, %w {{.*}} -> tensor<32x16xf32>
// CHECK-NEXT: tile.launch @contract_part_reduce_0 [[P]], [[Q]] {{.*}} -> tensor<32x16xf16>
// CHECK: tile.kernel @contract_0
// CHECK: tile.mma {{.*}} -> !tile.tile<16x16xf32, l0c>

// -----

// More parts than there are elements of k.
func.func @main(%x: tensor<32x100xf16>, %w: tensor<100x16xf16>) -> tensor<32x16xf16> {
  %r = graph.fusion %x, %w {domain = [32, 16], kind = "cube", schedule = #graph.cube_schedule<split_k = 101>}
    : (tensor<32x100xf16>, tensor<100x16xf16>) -> tensor<32x16xf16> {
  ^bb0(%a: tensor<32x100xf16>, %b: tensor<100x16xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<32x100xf16>, tensor<100x16xf16>) -> tensor<32x16xf16>
    graph.yield %c : (tensor<32x16xf16>)
  }
  func.return %r : tensor<32x16xf16>
}
// CHECK: @contract_0 cannot obey its pinned schedule: split_k=101 is not between 2 and the 100 of k that there are

// -----

// The gradient of a first layer's weights: the images are shared out over the cube cores, as groups, which
// the loads take from where they are.
func.func @main(%x: tensor<32x32x32x3xf16>, %y: tensor<32x32x32x64xf16>) -> tensor<3x3x3x64xf16> {
  %r = graph.conv %x, %y {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [3, 0, 1, 2], low = [1, 1], out_layout = [2, 3, 0, 1], rhs_dilation = [1, 1], rhs_layout = [0, 3, 1, 2], strides = [1, 1]} : (tensor<32x32x32x3xf16>, tensor<32x32x32x64xf16>) -> tensor<3x3x3x64xf16>
  func.return %r : tensor<3x3x3x64xf16>
}
// CHECK: func.func @main
// CHECK-NEXT: tile.launch @conv_0 %x, %y {{.*}} -> tensor<3x3x3x1024xf32>
// CHECK-NEXT: tile.launch @conv_part_reduce_0 {{.*}} -> tensor<3x3x3x64xf16>
