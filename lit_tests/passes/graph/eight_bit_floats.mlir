// RUN: tilewright-opt %s -p 'graph-quantized{target=ascend-950pr},graph-simplify{target=ascend-950pr}' --split-input-file | filecheck %s

// A product of scaled 8-bit floats is the scaled product of what is stored, also of two types.
func.func @main(%x: tensor<8x32xf8E4M3FN>, %w: tensor<32x16xf8E5M2>, %s: tensor<16xf32>) -> tensor<8x16xf32> {
  %a = graph.convert %x : (tensor<8x32xf8E4M3FN>) -> tensor<8x32xf32>
  %b = graph.convert %w : (tensor<32x16xf8E5M2>) -> tensor<32x16xf32>
  %c = graph.broadcast %s {dims = [1]} : (tensor<16xf32>) -> tensor<32x16xf32>
  %d = graph.mul %b, %c : tensor<32x16xf32>
  %y = graph.contract %a, %d {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[P:.*]] = graph.contract %x, %w {{{.*}}} : (tensor<8x32xf8E4M3FN>, tensor<32x16xf8E5M2>) -> tensor<8x16xf32>
// CHECK-NEXT: %[[S:.*]] = graph.broadcast %s {dims = [1]} : (tensor<16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT: %[[Y:.*]] = graph.mul %[[P]], %[[S]] : tensor<8x16xf32>
// CHECK-NEXT: func.return %[[Y]]

// -----

// A conversion that cuts fractions off is no such scaling, and numbers less a zero point are no floats that are stored.
func.func @main(%x: tensor<8x32xf8E4M3FN>, %w: tensor<32x16xf8E4M3FN>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %i = graph.convert %x : (tensor<8x32xf8E4M3FN>) -> tensor<8x32xi32>
  %a = graph.convert %i : (tensor<8x32xi32>) -> tensor<8x32xf32>
  %b = graph.convert %w : (tensor<32x16xf8E4M3FN>) -> tensor<32x16xf32>
  %y = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %c = graph.convert %x : (tensor<8x32xf8E4M3FN>) -> tensor<8x32xf32>
  %three = graph.constant {value = #graph.data<f32, [8, 32], splat 3.0>} : () -> tensor<8x32xf32>
  %d = graph.sub %c, %three : tensor<8x32xf32>
  %z = graph.contract %d, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  func.return %y, %z : tensor<8x16xf32>, tensor<8x16xf32>
}
// CHECK: func.func @main
// CHECK: graph.contract {{.*}} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
// CHECK: graph.contract {{.*}} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>

// -----

// Sums leave the cube as f32, and become 8-bit floats on the vector cores.
func.func @main(%x: tensor<8x32xf8E5M2>, %w: tensor<32x16xf8E5M2>) -> tensor<8x16xf8E5M2> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x32xf8E5M2>, tensor<32x16xf8E5M2>) -> tensor<8x16xf8E5M2>
  func.return %y : tensor<8x16xf8E5M2>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[P:.*]] = graph.contract %x, %w {{{.*}}} : (tensor<8x32xf8E5M2>, tensor<32x16xf8E5M2>) -> tensor<8x16xf32>
// CHECK-NEXT: %[[Y:.*]] = graph.convert %[[P]] : (tensor<8x16xf32>) -> tensor<8x16xf8E5M2>
// CHECK-NEXT: func.return %[[Y]]

// -----

// What is quantized to them saturates, and is not rounded to a whole number before.
func.func @main(%x: tensor<8x32xf32>) -> tensor<8x32x!graph.quantized<f8E4M3FN:f32, 0.5>> {
  %q = graph.quantize %x : (tensor<8x32xf32>) -> tensor<8x32x!graph.quantized<f8E4M3FN:f32, 0.5>>
  func.return %q : tensor<8x32x!graph.quantized<f8E4M3FN:f32, 0.5>>
}
// CHECK: func.func @main(%x: tensor<8x32xf32>) -> tensor<8x32xf8E4M3FN>
// CHECK: %[[M:.*]] = graph.mul %x
// CHECK-NOT: graph.round_even
// CHECK: %[[C:.*]] = graph.clamp %{{.*}}, %[[M]], %{{.*}}
// CHECK-NEXT: %[[Q:.*]] = graph.convert %[[C]] : (tensor<8x32xf32>) -> tensor<8x32xf8E4M3FN>
// CHECK-NEXT: func.return %[[Q]]
