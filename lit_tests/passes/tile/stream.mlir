// RUN: tilewright-opt %s -p graph-fuse,graph-schedule,graph-to-tile --split-input-file --verify-diagnostics | filecheck %s

// The sums of the last 32 rows are cut into two parts. Those before them are a product of their own, which stores into
// the same tensor as the kernel that adds up the parts.
func.func @main(%x: tensor<96x64xf16>, %w: tensor<64x32xf16>) -> tensor<96x32xf16> {
  %r = graph.fusion %x, %w {domain = [96, 32], kind = "cube", schedule = #graph.cube_schedule<split_k = 2, stream_m = 32>}
    : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16> {
  ^bb0(%a: tensor<96x64xf16>, %b: tensor<64x32xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16>
    graph.yield %c : (tensor<96x32xf16>)
  }
  func.return %r : tensor<96x32xf16>
}
// CHECK: func.func @main
// CHECK-DAG: [[P:%.+]] = tile.launch @contract_{{[01]}} %x, %w {{.*}} -> tensor<2x32x32xf32>
// CHECK-DAG: [[F:%.+]] = tile.launch @contract_{{[01]}} %x, %w {{.*}} -> tensor<96x32xf16>
// CHECK: tile.launch @contract_part_reduce_0 [[P]], [[F]] {inits = [1]} {{.*}} -> tensor<96x32xf16>
// CHECK: tile.kernel @contract_part_reduce_0
// CHECK: tile.store {{.*}} offset 2048

// -----

// The last 16 columns.
func.func @main(%x: tensor<96x64xf16>, %w: tensor<64x32xf16>) -> tensor<96x32xf16> {
  %r = graph.fusion %x, %w {domain = [96, 32], kind = "cube", schedule = #graph.cube_schedule<split_k = 4, stream_n = 16>}
    : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16> {
  ^bb0(%a: tensor<96x64xf16>, %b: tensor<64x32xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16>
    graph.yield %c : (tensor<96x32xf16>)
  }
  func.return %r : tensor<96x32xf16>
}
// CHECK: func.func @main
// CHECK-DAG: [[P:%.+]] = tile.launch @contract_{{[01]}} %x, %w {{.*}} -> tensor<4x96x16xf32>
// CHECK-DAG: [[F:%.+]] = tile.launch @contract_{{[01]}} %x, %w {{.*}} -> tensor<96x32xf16>
// CHECK: tile.launch @contract_part_reduce_0 [[P]], [[F]] {inits = [1]} {{.*}} -> tensor<96x32xf16>

// -----

// All rows are no last ones.
func.func @main(%x: tensor<96x64xf16>, %w: tensor<64x32xf16>) -> tensor<96x32xf16> {
  %r = graph.fusion %x, %w {domain = [96, 32], kind = "cube", schedule = #graph.cube_schedule<split_k = 2, stream_m = 96>}
    : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16> {
  ^bb0(%a: tensor<96x64xf16>, %b: tensor<64x32xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16>
    graph.yield %c : (tensor<96x32xf16>)
  }
  func.return %r : tensor<96x32xf16>
}
// CHECK: @contract_0 cannot obey its pinned schedule: stream_m=96: its last tiles cannot be cut, as there are 96 of them

// -----

func.func @main(%x: tensor<96x64xf16>, %w: tensor<64x32xf16>) -> tensor<96x32xf16> {
  %r = graph.fusion %x, %w {domain = [96, 32], kind = "cube", schedule = #graph.cube_schedule<stream_m = 32>}
    : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16> {
  ^bb0(%a: tensor<96x64xf16>, %b: tensor<64x32xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16>
    graph.yield %c : (tensor<96x32xf16>)
  }
  func.return %r : tensor<96x32xf16>
}
// CHECK: stream_m needs split_k, the parts of the sums

// -----

func.func @main(%x: tensor<96x64xf16>, %w: tensor<64x32xf16>) -> tensor<96x32xf16> {
  %r = graph.fusion %x, %w {domain = [96, 32], kind = "cube", schedule = #graph.cube_schedule<split_k = 2, stream_m = 32, stream_n = 16>}
    : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16> {
  ^bb0(%a: tensor<96x64xf16>, %b: tensor<64x32xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<96x64xf16>, tensor<64x32xf16>) -> tensor<96x32xf16>
    graph.yield %c : (tensor<96x32xf16>)
  }
  func.return %r : tensor<96x32xf16>
}
// CHECK: sums are cut of the last rows or of the last columns: give stream_m or stream_n

// -----

// Results of a convolution share what lies at the border of two parts.
func.func @main(%x: tensor<1x8x8x32xf16>, %w: tensor<3x3x32x16xf16>) -> tensor<1x8x8x16xf16> {
  %r = graph.fusion %x, %w {domain = [1, 8, 8, 16], kind = "cube", schedule = #graph.cube_schedule<split_k = 2, stream_m = 32>}
    : (tensor<1x8x8x32xf16>, tensor<3x3x32x16xf16>) -> tensor<1x8x8x16xf16> {
  ^bb0(%a: tensor<1x8x8x32xf16>, %b: tensor<3x3x32x16xf16>):
    %c = graph.conv %a, %b {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]}
      attributes {axes = array<i64: 0, 1, 2, 3>} : (tensor<1x8x8x32xf16>, tensor<3x3x32x16xf16>) -> tensor<1x8x8x16xf16>
    graph.yield %c : (tensor<1x8x8x16xf16>)
  }
  func.return %r : tensor<1x8x8x16xf16>
}
// CHECK: @conv_0 cannot obey its pinned schedule: stream_m=32: its last tiles cannot be cut, as it is no product of matrices
