// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// Two numbers of 4 bits in a byte are an element; those of one side meet those of the other.

%bytes, %w = "test.op"() : () -> (tensor<8x32xi8>, tensor<16x32x!graph.i4x2>)
%x = graph.bitcast %bytes : (tensor<8x32xi8>) -> tensor<8x32x!graph.i4x2>
// CHECK: graph.bitcast %{{.*}} : (tensor<8x32xi8>) -> tensor<8x32x!graph.i4x2>
%y = graph.contract %x, %w {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1]} : (tensor<8x32x!graph.i4x2>, tensor<16x32x!graph.i4x2>) -> tensor<8x16xi32>
// CHECK: graph.contract %{{.*}}, %{{.*}} {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<8x32x!graph.i4x2>, tensor<16x32x!graph.i4x2>) -> tensor<8x16xi32>
%n = graph.unpack %w : (tensor<16x32x!graph.i4x2>) -> tensor<16x64xf16>
// CHECK: graph.unpack %{{.*}} : (tensor<16x32x!graph.i4x2>) -> tensor<16x64xf16>
