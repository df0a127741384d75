// RUN: INVALID

%v, %i = "test.op"() : () -> (tensor<4x8xf16>, tensor<1x8xi8>)
%d = graph.expand %v, %i {dim = 0} : (tensor<4x8xf16>, tensor<1x8xi8>) -> tensor<8x8xf16>
// CHECK: 'graph.expand' expands i8 by an i8 index, not f16 by i8

// -----

%v, %i = "test.op"() : () -> (tensor<4x8xi8>, tensor<1x8xi8>)
%d = graph.expand %v, %i {dim = 2} : (tensor<4x8xi8>, tensor<1x8xi8>) -> tensor<8x8xi8>
// CHECK: 'graph.expand' has no dimension 2 of [4, 8]

// -----

%v, %i = "test.op"() : () -> (tensor<2x8xi8>, tensor<1x8xi8>)
%d = graph.expand %v, %i {dim = 0} : (tensor<2x8xi8>, tensor<1x8xi8>) -> tensor<4x8xi8>
// CHECK: 'graph.expand' needs an index byte for each 4 values along dimension 0: [1, 8] does not fit [2, 8]

// -----

%v, %i = "test.op"() : () -> (tensor<8x8xi8>, tensor<4x8xi8>)
%d = graph.expand %v, %i {dim = 0} : (tensor<8x8xi8>, tensor<4x8xi8>) -> tensor<16x8xi8>
// CHECK: 'graph.expand' needs an index byte for each 4 values along dimension 0: [4, 8] does not fit [8, 8]

// -----

%v, %i = "test.op"() : () -> (tensor<8x8xi8>, tensor<2x8xi8>)
%d = graph.expand %v, %i {dim = 0} : (tensor<8x8xi8>, tensor<2x8xi8>) -> tensor<8x8xi8>
// CHECK: 'graph.expand' should give tensor<16x8xi8>, but is written as tensor<8x8xi8>
