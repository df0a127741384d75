// RUN: tilewright-opt %s -p graph-simplify,graph-fuse --split-input-file | filecheck %s

// The right side of a product of integers stays as it is stored; the cube's kernel reads its values and their positions.
func.func @main(%x: tensor<8x64xi8>, %v: tensor<16x32xi8>, %i: tensor<16x8xi8>) -> tensor<8x16xi32> {
  %d = graph.expand %v, %i {dim = 1} : (tensor<16x32xi8>, tensor<16x8xi8>) -> tensor<16x64xi8>
  %w = graph.transpose %d {perm = [1, 0]} : (tensor<16x64xi8>) -> tensor<64x16xi8>
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x64xi8>, tensor<64x16xi8>) -> tensor<8x16xi32>
  func.return %y : tensor<8x16xi32>
}
// CHECK-LABEL: func.func @main
// CHECK: graph.fusion %v, %i, %x {domain = [8, 16], kind = "cube"}
// CHECK-NEXT: ^{{.*}}(%[[V:.*]]: tensor<16x32xi8>, %[[I:.*]]: tensor<16x8xi8>, %[[X:.*]]: tensor<8x64xi8>):
// CHECK-NEXT: %[[D:.*]] = graph.expand %[[V]], %[[I]] {dim = 1}
// CHECK-NEXT: %[[W:.*]] = graph.transpose %[[D]] {perm = [1, 0]}
// CHECK-NEXT: graph.contract %[[X]], %[[W]]

// -----

// Two products read it: each has it in its own kernel.
func.func @main(%x: tensor<8x64xi8>, %v: tensor<16x32xi8>, %i: tensor<16x8xi8>) -> (tensor<8x16xi32>, tensor<8x16xi32>) {
  %d = graph.expand %v, %i {dim = 1} : (tensor<16x32xi8>, tensor<16x8xi8>) -> tensor<16x64xi8>
  %w = graph.transpose %d {perm = [1, 0]} : (tensor<16x64xi8>) -> tensor<64x16xi8>
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x64xi8>, tensor<64x16xi8>) -> tensor<8x16xi32>
  %x2 = graph.reverse %x {dims = [0]} : tensor<8x64xi8>
  %y2 = graph.contract %x2, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x64xi8>, tensor<64x16xi8>) -> tensor<8x16xi32>
  func.return %y, %y2 : tensor<8x16xi32>, tensor<8x16xi32>
}
// CHECK-LABEL: func.func @main
// CHECK: graph.fusion
// CHECK: graph.expand
// CHECK: graph.fusion
// CHECK: graph.expand
// CHECK-NOT: graph.select

// -----

// What is read otherwise is written out.
func.func @main(%x: tensor<8x64xi8>, %v: tensor<16x32xi8>, %i: tensor<16x8xi8>) -> (tensor<8x16xi32>, tensor<16x64xi8>) {
  %d = graph.expand %v, %i {dim = 1} : (tensor<16x32xi8>, tensor<16x8xi8>) -> tensor<16x64xi8>
  %w = graph.transpose %d {perm = [1, 0]} : (tensor<16x64xi8>) -> tensor<64x16xi8>
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x64xi8>, tensor<64x16xi8>) -> tensor<8x16xi32>
  func.return %y, %d : tensor<8x16xi32>, tensor<16x64xi8>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: graph.expand
// CHECK: graph.select
// CHECK: graph.contract

// -----

// So is the left side of a product, and all where the cube has no such products.
func.func @main(%x: tensor<64x16xi8>, %v: tensor<16x32xi8>, %i: tensor<16x8xi8>) -> tensor<16x16xi32> {
  %d = graph.expand %v, %i {dim = 1} : (tensor<16x32xi8>, tensor<16x8xi8>) -> tensor<16x64xi8>
  %y = graph.contract %d, %x {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<16x64xi8>, tensor<64x16xi8>) -> tensor<16x16xi32>
  func.return %y : tensor<16x16xi32>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: graph.expand
// CHECK: graph.select
// CHECK: graph.contract

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
func.func @main(%x: tensor<8x64xi8>, %v: tensor<16x32xi8>, %i: tensor<16x8xi8>) -> tensor<8x16xi32> {
  %d = graph.expand %v, %i {dim = 1} : (tensor<16x32xi8>, tensor<16x8xi8>) -> tensor<16x64xi8>
  %w = graph.transpose %d {perm = [1, 0]} : (tensor<16x64xi8>) -> tensor<64x16xi8>
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x64xi8>, tensor<64x16xi8>) -> tensor<8x16xi32>
  func.return %y : tensor<8x16xi32>
}
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: graph.expand
// CHECK: graph.select
// CHECK: graph.contract
