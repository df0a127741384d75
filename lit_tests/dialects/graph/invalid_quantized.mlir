// RUN: INVALID

%x = "test.op"() : () -> tensor<4x!graph.quantized<f32:f32, 0.5>>
// CHECK: a quantized type stores f32; numbers are stored as integers or 8-bit floats

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:i32, 0.5>>
// CHECK: a quantized type stands for i32, which is not a float type

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32:{0:0}, {0.5}>>
// CHECK: a quantized type has blocks {0: 0}; each dimension has one block of at least 1

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32, 0.0>>
// CHECK: a quantized type has the scale 0.0; scales are positive and finite

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32, -0.5>>
// CHECK: a quantized type has the scale -0.5; scales are positive and finite

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32, 1.0e400>>
// CHECK: a quantized type has the scale inf; scales are positive and finite

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32:0, {0.5, 1.0e39, 0.5, 0.5}>>
// CHECK: a quantized type has the scale 1e+39, which f32 does not hold

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f16, 1.0e-9>>
// CHECK: a quantized type has the scale 1e-09, which f16 does not hold

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8<5:5>:f32, 0.5>>
// CHECK: a quantized type stores numbers from 5 to 5

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8<-127:128>:f32, 0.5>>
// CHECK: a quantized type stores -127 to 128, which i8 does not hold

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32, 0.5:200>>
// CHECK: a quantized type has the zero point 200, which is not stored (-128 to 127)

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32, 0.5>>
%y = graph.abs %x : tensor<4x!graph.quantized<i8:f32, 0.5>>
// CHECK: 'graph.abs' does not work on quantized numbers (!graph.quantized<i8:f32, 0.5>): dequantize them before

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.quantize %x : (tensor<4xf32>) -> tensor<4x!graph.quantized<i8:f32:{0:3}, {0.5}>>
// CHECK: 'graph.quantize' has !graph.quantized<i8:f32:{0:3}, {0.5}>, but [4] has no whole number of blocks of 3 along dimension 0

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.quantize %x : (tensor<4xf32>) -> tensor<4x!graph.quantized<i8:f32:0, {0.5, 0.25}>>
// CHECK: 'graph.quantize' has !graph.quantized<i8:f32:0, {0.5, 0.25}>, but [4] has 4 blocks, and 2 scales are given

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.quantize %x : (tensor<4xf32>) -> tensor<4xi8>
// CHECK: 'graph.quantize' needs quantized numbers, got i8

// -----

%x = "test.op"() : () -> tensor<4xf16>
%y = graph.quantize %x : (tensor<4xf16>) -> tensor<4x!graph.quantized<i8:f32, 0.5>>
// CHECK: 'graph.quantize' takes f32, which the result stands for, not f16

// -----

%x, %s = "test.op"() : () -> (tensor<4xf32>, tensor<4xf32>)
%y = graph.quantize %x, %s : (tensor<4xf32>, tensor<4xf32>) -> tensor<4x!graph.quantized<i8:f32, ?>>
// CHECK: 'graph.quantize' needs tensor<f32> behind x for !graph.quantized<i8:f32, ?>, got tensor<4xf32>

// -----

%x, %s = "test.op"() : () -> (tensor<4x!graph.quantized<i8:f32, 0.5>>, tensor<f32>)
%y = graph.dequantize %x, %s : (tensor<4x!graph.quantized<i8:f32, 0.5>>, tensor<f32>) -> tensor<4xf32>
// CHECK: 'graph.dequantize' needs neither scales nor zero points behind x for !graph.quantized<i8:f32, 0.5>, got tensor<f32>

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32, 0.5>>
%y = graph.requantize %x : (tensor<4x!graph.quantized<i8:f32, 0.5>>) -> tensor<4x!graph.quantized<i8:f16, 0.5>>
// CHECK: 'graph.requantize' takes numbers that stand for f32 to such of f16

// -----

%x = "test.op"() : () -> tensor<4x4x!graph.quantized<i8:f32:0, {1.0, 2.0, 1.0, 1.0}>>
%y = graph.requantize %x : (tensor<4x4x!graph.quantized<i8:f32:0, {1.0, 2.0, 1.0, 1.0}>>) -> tensor<4x4x!graph.quantized<i8:f32:1, {1.0, 2.0, 1.0, 1.0}>>
// CHECK: 'graph.requantize' has scales of other blocks on either side

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.storage %x : tensor<4xf32>
// CHECK: 'graph.storage' is between quantized numbers and what is stored for them

// -----

%x = "test.op"() : () -> tensor<4xi16>
%y = graph.storage %x : (tensor<4xi16>) -> tensor<4x!graph.quantized<i8:f32, 0.5>>
// CHECK: 'graph.storage' takes i8, which !graph.quantized<i8:f32, 0.5> stores, not i16

// -----

%x = "test.op"() : () -> tensor<4x2x!graph.quantized<i8:f32:{0:2, 1:1}, {1.0, 2.0, 3.0, 4.0}>>
%y = graph.transpose %x {perm = [1, 0]} : (tensor<4x2x!graph.quantized<i8:f32:{0:2, 1:1}, {1.0, 2.0, 3.0, 4.0}>>) -> tensor<2x4xi8>
// CHECK: 'graph.transpose' changes the order of dimensions along which scales differ

// -----

%x = "test.op"() : () -> tensor<4x6x!graph.quantized<i8:f32:0, ?>>
%y = graph.reshape %x : (tensor<4x6x!graph.quantized<i8:f32:0, ?>>) -> tensor<24x!graph.quantized<i8:f32:0, ?>>
// CHECK: 'graph.reshape' cannot reshape [4, 6] into [24]: scales differ along dimension 0

// -----

%x = "test.op"() : () -> tensor<4x!graph.quantized<i8:f32:0, ?>>
%y = graph.reverse %x {dims = [0]} : tensor<4x!graph.quantized<i8:f32:0, ?>>
// CHECK: 'graph.reverse' moves elements along dimension 0, along which the scales of !graph.quantized<i8:f32:0, ?> differ

// -----

%x, %w = "test.op"() : () -> (tensor<4x4x!graph.quantized<i8:f32, 0.5>>, tensor<4x4xi8>)
%y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4x!graph.quantized<i8:f32, 0.5>>, tensor<4x4xi8>) -> tensor<4x4xf32>
// CHECK: 'graph.contract' multiplies quantized numbers by others: dequantize them, or quantize the others

// -----

%x, %w = "test.op"() : () -> (tensor<4x4x!graph.quantized<i8:f32, 0.5>>, tensor<4x4x!graph.quantized<i8:f32, ?>>)
%y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4x!graph.quantized<i8:f32, 0.5>>, tensor<4x4x!graph.quantized<i8:f32, ?>>) -> tensor<4x4xf32>
// CHECK: 'graph.contract' multiplies !graph.quantized<i8:f32, ?>: products are of integers whose scales are known; for others take what is stored (graph.storage) and multiply by the scales

// -----

%x, %w = "test.op"() : () -> (tensor<2x4x!graph.quantized<i8:f32:0, {1.0, 2.0}>>, tensor<4x4x!graph.quantized<i8:f32, 0.5>>)
%y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<2x4x!graph.quantized<i8:f32:0, {1.0, 2.0}>>, tensor<4x4x!graph.quantized<i8:f32, 0.5>>) -> tensor<2x4xf32>
// CHECK: 'graph.contract' has several scales for its first operand, !graph.quantized<i8:f32:0, {1.0, 2.0}>

// -----

%x, %w = "test.op"() : () -> (tensor<2x2x!graph.quantized<i8:f32, 0.5>>, tensor<2x4x!graph.quantized<i8:f32:0, {1.0, 2.0}>>)
%y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<2x2x!graph.quantized<i8:f32, 0.5>>, tensor<2x4x!graph.quantized<i8:f32:0, {1.0, 2.0}>>) -> tensor<2x4xf32>
// CHECK: 'graph.contract' has scales along a dimension of !graph.quantized<i8:f32:0, {1.0, 2.0}> that is no feature of the result

// -----

%x, %w = "test.op"() : () -> (tensor<2x2x!graph.quantized<i8:f32, 0.5>>, tensor<2x4x!graph.quantized<i8:f32, 0.5>>)
%y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<2x2x!graph.quantized<i8:f32, 0.5>>, tensor<2x4x!graph.quantized<i8:f32, 0.5>>) -> tensor<2x4xf16>
// CHECK: 'graph.contract' multiplies !graph.quantized<i8:f32, 0.5> by !graph.quantized<i8:f32, 0.5> into f16: they stand for different types
