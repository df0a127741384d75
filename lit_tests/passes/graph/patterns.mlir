// RUN: tilewright-opt %s -p 'graph-simplify{only=merge-broadcasts,swap-contract-operands}' --split-input-file | filecheck %s
// RUN: tilewright-opt --list-patterns | filecheck %s --check-prefix LIST

// The patterns that are named, and no other: the empty tensor, the equal ops and the broadcast that changes nothing stay.
func.func @main(%x: tensor<8xf32>, %y: tensor<0x4xf32>, %z: tensor<4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<0x4xf32>, tensor<4x8xf32>) {
  %row = graph.broadcast %x {dims = [1]} : (tensor<8xf32>) -> tensor<1x8xf32>
  %all = graph.broadcast %row {dims = [1, 2]} : (tensor<1x8xf32>) -> tensor<2x4x8xf32>
  %a = graph.exp %all : tensor<2x4x8xf32>
  %b = graph.exp %all : tensor<2x4x8xf32>
  %none = graph.exp %y : tensor<0x4xf32>
  %same = graph.broadcast %z {dims = [0, 1]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %a, %b, %none, %same : tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<0x4xf32>, tensor<4x8xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[ALL:.*]] = graph.broadcast %x {dims = [2]} : (tensor<8xf32>) -> tensor<2x4x8xf32>
// CHECK-NEXT: %[[A:.*]] = graph.exp %[[ALL]]
// CHECK-NEXT: %[[B:.*]] = graph.exp %[[ALL]]
// CHECK-NEXT: %[[N:.*]] = graph.exp %y
// CHECK-NEXT: %[[S:.*]] = graph.broadcast %z {dims = [0, 1]}
// CHECK-NEXT: func.return %[[A]], %[[B]], %[[N]], %[[S]]

// -----

// What one pattern makes, another one takes, until none matches: the transpose is one of a product with one use only when
// the unused one is gone.
func.func @main(%x: tensor<32x16xf16>, %w: tensor<16x64xf16>) -> tensor<64x32xf16> {
  %p = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<32x16xf16>, tensor<16x64xf16>) -> tensor<32x64xf16>
  %t = graph.transpose %p {perm = [1, 0]} : (tensor<32x64xf16>) -> tensor<64x32xf16>
  %unused = graph.exp %p : tensor<32x64xf16>
  func.return %t : tensor<64x32xf16>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[P:.*]] = graph.contract %w, %x {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [1]}
// CHECK-NEXT: func.return %[[P]]

// LIST: fold-empty-results {{ *}}An op whose results have no elements is constants.
// LIST: merge-broadcasts {{ *}}A broadcast of a broadcast is one broadcast.
