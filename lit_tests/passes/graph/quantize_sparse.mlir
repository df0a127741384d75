// RUN: tilewright-opt %s -p 'graph-quantize{config=w8a8-dynamic-sparse}' --split-input-file | filecheck %s

// Two of four weights are kept, with their positions; the product takes what they stand for.
func.func @main(%x: tensor<32x64xf32>, %w: tensor<64x10xf32> {graph.weight}) -> tensor<32x10xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<32x64xf32>, tensor<64x10xf32>) -> tensor<32x10xf32>
  func.return %y : tensor<32x10xf32>
}
// CHECK-LABEL: @main
// CHECK: graph.quantize %{{.*}} -> tensor<64x10x!graph.quantized<i8<-127:127>:f32:1, ?>>
// CHECK: %[[V:.*]] = graph.reshape %{{.*}} attributes {graph.packed} : (tensor<10x16x2xi8>) -> tensor<10x32xi8>
// CHECK: %[[P:.*]] = graph.transpose %{{.*}} {perm = [1, 0]} attributes {graph.packed} : (tensor<10x8xi8>) -> tensor<8x10xi8>
// CHECK: %[[I:.*]] = graph.transpose %[[P]] {perm = [1, 0]} : (tensor<8x10xi8>) -> tensor<10x8xi8>
// CHECK: %[[D:.*]] = graph.expand %[[V]], %[[I]] {dim = 1} : (tensor<10x32xi8>, tensor<10x8xi8>) -> tensor<10x64xi8>
// CHECK: graph.transpose %[[D]] {perm = [1, 0]}
// CHECK: graph.contract

// -----

// A summed dimension of no whole bytes of positions: all weights are kept.
func.func @main(%x: tensor<8x60xf32>, %w: tensor<60x10xf32> {graph.weight}) -> tensor<8x10xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x60xf32>, tensor<60x10xf32>) -> tensor<8x10xf32>
  func.return %y : tensor<8x10xf32>
}
// CHECK-LABEL: @main
// CHECK-NOT: graph.expand
// CHECK: graph.contract

// -----

// Few rows: positions lie along the summed dimension, too.
func.func @main(%x: tensor<1x64xf32>, %w: tensor<64x10xf32> {graph.weight}) -> tensor<1x10xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<1x64xf32>, tensor<64x10xf32>) -> tensor<1x10xf32>
  func.return %y : tensor<1x10xf32>
}
// CHECK-LABEL: @main
// CHECK: %[[I:.*]] = graph.or %{{.*}} attributes {graph.packed} : tensor<10x8xi8>
// CHECK: graph.expand %{{.*}}, %[[I]] {dim = 1}
