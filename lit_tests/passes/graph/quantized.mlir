// RUN: tilewright-opt %s -p graph-quantized --split-input-file | tilewright-opt --split-input-file | filecheck %s

// Numbers times the inverse of the scale, rounded, with the zero point added, saturated.
func.func @main(%x: tensor<8xf32>) -> tensor<8x!graph.quantized<i8<-127:127>:f32, 0.5:3>> {
  %q = graph.quantize %x : (tensor<8xf32>) -> tensor<8x!graph.quantized<i8<-127:127>:f32, 0.5:3>>
  func.return %q : tensor<8x!graph.quantized<i8<-127:127>:f32, 0.5:3>>
}
// CHECK: states = ["stored", "real"]
// CHECK-LABEL: @main(%x: tensor<8xf32>) -> tensor<8xi8>
// CHECK: %[[TWO:.*]] = graph.constant {value = #graph.data<f32, [8], splat 2.0>}
// CHECK: %[[SCALED:.*]] = graph.mul %x, %[[TWO]] : tensor<8xf32>
// CHECK: %[[THREE:.*]] = graph.constant {value = #graph.data<f32, [8], splat 3.0>}
// CHECK: %[[WHOLE:.*]] = graph.round_even %[[SCALED]] : tensor<8xf32>
// CHECK: %[[MOVED:.*]] = graph.add %[[WHOLE]], %[[THREE]] : tensor<8xf32>
// CHECK: %[[LOW:.*]] = graph.constant {value = #graph.data<f32, [8], splat -127.0>}
// CHECK: %[[HIGH:.*]] = graph.constant {value = #graph.data<f32, [8], splat 127.0>}
// CHECK: %[[WITHIN:.*]] = graph.clamp %[[LOW]], %[[MOVED]], %[[HIGH]] : tensor<8xf32>
// CHECK: %{{.*}} = graph.convert %[[WITHIN]] : (tensor<8xf32>) -> tensor<8xi8>

// -----

// Groups: a dimension is two while scales are applied. The scale is an operand, the zero point is 0.
func.func @main(%q: tensor<64x8x!graph.quantized<i8:f16:{0:32, 1:1}, ?>>, %s: tensor<2x8xf16>) -> tensor<64x8xf16> {
  %x = graph.dequantize %q, %s : (tensor<64x8x!graph.quantized<i8:f16:{0:32, 1:1}, ?>>, tensor<2x8xf16>) -> tensor<64x8xf16>
  func.return %x : tensor<64x8xf16>
}
// CHECK-LABEL: @main(%q: tensor<64x8xi8>, %s: tensor<2x8xf16>)
// CHECK-NEXT: %[[WIDE:.*]] = graph.convert %q : (tensor<64x8xi8>) -> tensor<64x8xf16>
// CHECK-NEXT: %[[SPLIT:.*]] = graph.reshape %[[WIDE]] : (tensor<64x8xf16>) -> tensor<2x32x8xf16>
// CHECK-NEXT: %[[SCALE:.*]] = graph.broadcast %s {dims = [0, 2]} : (tensor<2x8xf16>) -> tensor<2x32x8xf16>
// CHECK-NEXT: %[[SCALED:.*]] = graph.mul %[[SPLIT]], %[[SCALE]] : tensor<2x32x8xf16>
// CHECK-NEXT: %{{.*}} = graph.reshape %[[SCALED]] : (tensor<2x32x8xf16>) -> tensor<64x8xf16>

// -----

// A product of integers; the zero point of the first operand times the sums of the second is taken out. A loop carries
// what is stored.
func.func @main(%a: tensor<4x8x!graph.quantized<i8:f32, 0.5:3>>, %w: tensor<8x4x!graph.quantized<i8:f32:1, {0.5, 1.0, 2.0, 4.0}>>) -> tensor<4x4x!graph.quantized<i8:f32, 1.0>> {
  %r = graph.contract %a, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8x!graph.quantized<i8:f32, 0.5:3>>, tensor<8x4x!graph.quantized<i8:f32:1, {0.5, 1.0, 2.0, 4.0}>>) -> tensor<4x4x!graph.quantized<i8:f32, 1.0>>
  func.return %r : tensor<4x4x!graph.quantized<i8:f32, 1.0>>
}
// CHECK-LABEL: @main(%a: tensor<4x8xi8>, %w: tensor<8x4xi8>) -> tensor<4x4xi8>
// CHECK: %[[SUMS:.*]] = graph.contract %a, %w {{.*}} -> tensor<4x4xi32>
// CHECK: %[[COLUMNS:.*]] = graph.reduce %{{.*}} {dims = [0], kind = "sum"} : (tensor<8x4xi32>) -> tensor<4xi32>
// CHECK: %[[EACH:.*]] = graph.broadcast %[[COLUMNS]] {dims = [1]}
// CHECK: %[[EXTRA:.*]] = graph.mul %[[EACH]], %{{.*}} : tensor<4x4xi32>
// CHECK: %[[TOTAL:.*]] = graph.sub %[[SUMS]], %[[EXTRA]] : tensor<4x4xi32>
// CHECK: graph.convert %[[TOTAL]] : (tensor<4x4xi32>) -> tensor<4x4xf32>
// CHECK: graph.data<f32, [4], (0.25, 0.5, 1.0, 2.0)>

// -----

// Both operands have zero points, the second one for each column: 8 terms of 3 times these were taken out twice.
func.func @main(%a: tensor<4x8x!graph.quantized<i8:f32, 0.5:3>>, %w: tensor<8x4x!graph.quantized<i8:f32:1, {0.5:1, 1.0:-2, 2.0, 4.0:5}>>) -> tensor<4x4x!graph.quantized<i8:f32, 1.0>> {
  %r = graph.contract %a, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8x!graph.quantized<i8:f32, 0.5:3>>, tensor<8x4x!graph.quantized<i8:f32:1, {0.5:1, 1.0:-2, 2.0, 4.0:5}>>) -> tensor<4x4x!graph.quantized<i8:f32, 1.0>>
  func.return %r : tensor<4x4x!graph.quantized<i8:f32, 1.0>>
}
// CHECK-LABEL: @main(%a: tensor<4x8xi8>, %w: tensor<8x4xi8>) -> tensor<4x4xi8>
// CHECK: %[[SUMS:.*]] = graph.contract %a, %w {{.*}} -> tensor<4x4xi32>
// CHECK: %[[LESS_COLUMNS:.*]] = graph.sub %[[SUMS]], %{{.*}} : tensor<4x4xi32>
// CHECK: %[[LESS_ROWS:.*]] = graph.sub %[[LESS_COLUMNS]], %{{.*}} : tensor<4x4xi32>
// CHECK: %[[BOTH:.*]] = graph.constant {value = #graph.data<i32, [4], (-24, 48, 0, -120)>}
// CHECK: %[[EACH:.*]] = graph.broadcast %[[BOTH]] {dims = [1]}
// CHECK: graph.sub %[[LESS_ROWS]], %[[EACH]] : tensor<4x4xi32>

// -----

// What is stored, under two names; numbers in another type.
func.func @main(%a: tensor<4xi8>) -> tensor<4x!graph.quantized<i8:f32, 1.0>> {
  %q = graph.storage %a : (tensor<4xi8>) -> tensor<4x!graph.quantized<i8:f32, 0.5:7>>
  %r = graph.requantize %q : (tensor<4x!graph.quantized<i8:f32, 0.5:7>>) -> tensor<4x!graph.quantized<i8:f32, 1.0>>
  func.return %r : tensor<4x!graph.quantized<i8:f32, 1.0>>
}
// CHECK-LABEL: @main(%a: tensor<4xi8>) -> tensor<4xi8>
// CHECK: graph.convert %a : (tensor<4xi8>) -> tensor<4xi32>
// CHECK: graph.sub %{{.*}}, %{{.*}} : tensor<4xi32>
// CHECK: graph.convert %{{.*}} : (tensor<4xi32>) -> tensor<4xf32>
// CHECK-NOT: graph.storage
