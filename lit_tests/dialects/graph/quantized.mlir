// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%f, %h, %rows, %zeros, %groups = "test.op"() : () -> (tensor<4x6xf32>, tensor<4x6xf16>, tensor<4xf32>, tensor<4xi8>, tensor<2x6xf16>)

%tensor = graph.quantize %f : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<i8:f32, 0.5:3>>
// CHECK: graph.quantize %{{.*}} : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<i8:f32, 0.5:3>>
%narrow = graph.quantize %f : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<i8<-127:127>:f32, 1.0e-20>>
// CHECK: graph.quantize %{{.*}} : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<i8<-127:127>:f32, 1.0{{.*}}e-20>>
%channel = graph.quantize %f : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<ui8:f32:0, {0.5, 0.25:3, 1.0, 2.0:255}>>
// CHECK: graph.quantize %{{.*}} : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<ui8:f32:0, {0.5, 0.25:3, 1.0, 2.0:255}>>
%nested = graph.quantize %f : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<i16:f32:{0:2, 1:3}, {{1.0, 2.0:5}, {3.0, 4.0}}>>
// CHECK: graph.quantize %{{.*}} : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<i16:f32:{0:2, 1:3}, {1.0, 2.0:5, 3.0, 4.0}>>
%float = graph.quantize %f : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<f8E4M3FN:f32, 0.125>>
// CHECK: graph.quantize %{{.*}} : (tensor<4x6xf32>) -> tensor<4x6x!graph.quantized<f8E4M3FN:f32, 0.125>>
%tokens = graph.quantize %f, %rows : (tensor<4x6xf32>, tensor<4xf32>) -> tensor<4x6x!graph.quantized<i8:f32:0, ?>>
// CHECK: graph.quantize %{{.*}}, %{{.*}} : (tensor<4x6xf32>, tensor<4xf32>) -> tensor<4x6x!graph.quantized<i8:f32:0, ?>>
%affine = graph.quantize %f, %rows, %zeros : (tensor<4x6xf32>, tensor<4xf32>, tensor<4xi8>) -> tensor<4x6x!graph.quantized<i8:f32:0, ?:?>>
// CHECK: graph.quantize %{{.*}}, %{{.*}}, %{{.*}} : (tensor<4x6xf32>, tensor<4xf32>, tensor<4xi8>) -> tensor<4x6x!graph.quantized<i8:f32:0, ?:?>>
%grouped = graph.quantize %h, %groups : (tensor<4x6xf16>, tensor<2x6xf16>) -> tensor<4x6x!graph.quantized<i4:f16:{0:2, 1:1}, ?>>
// CHECK: graph.quantize %{{.*}}, %{{.*}} : (tensor<4x6xf16>, tensor<2x6xf16>) -> tensor<4x6x!graph.quantized<i4:f16:{0:2, 1:1}, ?>>
%numbers = graph.dequantize %tensor : (tensor<4x6x!graph.quantized<i8:f32, 0.5:3>>) -> tensor<4x6xf32>
// CHECK: graph.dequantize %{{.*}} : (tensor<4x6x!graph.quantized<i8:f32, 0.5:3>>) -> tensor<4x6xf32>
%halves = graph.dequantize %grouped, %groups : (tensor<4x6x!graph.quantized<i4:f16:{0:2, 1:1}, ?>>, tensor<2x6xf16>) -> tensor<4x6xf16>
// CHECK: graph.dequantize %{{.*}}, %{{.*}} : (tensor<4x6x!graph.quantized<i4:f16:{0:2, 1:1}, ?>>, tensor<2x6xf16>) -> tensor<4x6xf16>
%again = graph.requantize %channel : (tensor<4x6x!graph.quantized<ui8:f32:0, {0.5, 0.25:3, 1.0, 2.0:255}>>) -> tensor<4x6x!graph.quantized<i8:f32, 0.5:3>>
// CHECK: graph.requantize %{{.*}} : (tensor<4x6x!graph.quantized<ui8:f32:0, {0.5, 0.25:3, 1.0, 2.0:255}>>) -> tensor<4x6x!graph.quantized<i8:f32, 0.5:3>>
%stored = graph.storage %tensor : (tensor<4x6x!graph.quantized<i8:f32, 0.5:3>>) -> tensor<4x6xi8>
// CHECK: graph.storage %{{.*}} : (tensor<4x6x!graph.quantized<i8:f32, 0.5:3>>) -> tensor<4x6xi8>
%back = graph.storage %stored : (tensor<4x6xi8>) -> tensor<4x6x!graph.quantized<i8:f32, 0.25>>
// CHECK: graph.storage %{{.*}} : (tensor<4x6xi8>) -> tensor<4x6x!graph.quantized<i8:f32, 0.25>>

// What moves elements takes the dimension of several scales along.
%transposed = graph.transpose %channel {perm = [1, 0]} : (tensor<4x6x!graph.quantized<ui8:f32:0, {0.5, 0.25:3, 1.0, 2.0:255}>>) -> tensor<6x4x!graph.quantized<ui8:f32:1, {0.5, 0.25:3, 1.0, 2.0:255}>>
// CHECK: graph.transpose %{{.*}} -> tensor<6x4x!graph.quantized<ui8:f32:1, {0.5, 0.25:3, 1.0, 2.0:255}>>
%shaped = graph.reshape %channel : (tensor<4x6x!graph.quantized<ui8:f32:0, {0.5, 0.25:3, 1.0, 2.0:255}>>) -> tensor<4x2x3x!graph.quantized<ui8:f32:0, {0.5, 0.25:3, 1.0, 2.0:255}>>
// CHECK: graph.reshape %{{.*}} -> tensor<4x2x3x!graph.quantized<ui8:f32:0, {0.5, 0.25:3, 1.0, 2.0:255}>>

// A product of integers gives numbers, or quantized ones.
%w = graph.storage %stored : (tensor<4x6xi8>) -> tensor<4x6x!graph.quantized<i8:f32:1, {1.0, 2.0, 1.0, 1.0, 1.0, 0.5}>>
// CHECK: graph.storage
%sums = graph.contract %back, %w {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<4x6x!graph.quantized<i8:f32, 0.25>>, tensor<4x6x!graph.quantized<i8:f32:1, {1.0, 2.0, 1.0, 1.0, 1.0, 0.5}>>) -> tensor<6x6x!graph.quantized<i32:f32:1, {0.25, 0.5, 0.25, 0.25, 0.25, 0.125}>>
// CHECK: graph.contract {{.*}} -> tensor<6x6x!graph.quantized<i32:f32:1, {0.25, 0.5, 0.25, 0.25, 0.25, 0.125}>>
%floats = graph.contract %back, %w {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<4x6x!graph.quantized<i8:f32, 0.25>>, tensor<4x6x!graph.quantized<i8:f32:1, {1.0, 2.0, 1.0, 1.0, 1.0, 0.5}>>) -> tensor<6x6xf32>
// CHECK: graph.contract {{.*}} -> tensor<6x6xf32>
