// RUN: INVALID

%x, %w = "test.op"() : () -> (tensor<8x32x!graph.i4x2>, tensor<16x32xi8>)
%y = graph.contract %x, %w {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1]} : (tensor<8x32x!graph.i4x2>, tensor<16x32xi8>) -> tensor<8x16xi32>
// CHECK: 'graph.contract' multiplies pairs of numbers: it takes pairs on both sides, along one summed dimension, and gives i32

// -----

%x, %w = "test.op"() : () -> (tensor<8x32x!graph.i4x2>, tensor<16x32x!graph.i4x2>)
%y = graph.contract %x, %w {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1]} : (tensor<8x32x!graph.i4x2>, tensor<16x32x!graph.i4x2>) -> tensor<8x16xf32>
// CHECK: 'graph.contract' multiplies pairs of numbers: it takes pairs on both sides, along one summed dimension, and gives i32

// -----

%x, %w = "test.op"() : () -> (tensor<8x4x8x!graph.i4x2>, tensor<16x4x8x!graph.i4x2>)
%y = graph.contract %x, %w {lhs_batch = [], rhs_batch = [], lhs_contract = [1, 2], rhs_contract = [1, 2]} : (tensor<8x4x8x!graph.i4x2>, tensor<16x4x8x!graph.i4x2>) -> tensor<8x16xi32>
// CHECK: 'graph.contract' multiplies pairs of numbers: it takes pairs on both sides, along one summed dimension, and gives i32

// -----

%x, %w = "test.op"() : () -> (tensor<1x8x8x4x!graph.i4x2>, tensor<3x3x4x8x!graph.i4x2>)
%y = graph.conv %x, %w {strides = [1, 1], low = [0, 0], high = [0, 0], lhs_dilation = [1, 1], rhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2], groups = 1} : (tensor<1x8x8x4x!graph.i4x2>, tensor<3x3x4x8x!graph.i4x2>) -> tensor<1x6x6x8xi32>
// CHECK: 'graph.conv' multiplies pairs of numbers, which only matrix products do: graph.contract

// -----

%x = "test.op"() : () -> tensor<8x!graph.i4x2>
%y = graph.add %x, %x : tensor<8x!graph.i4x2>
// CHECK: 'graph.add' computes with pairs of numbers, which only products do: graph.bitcast gives their bytes

// -----

%x = "test.op"() : () -> tensor<8xi8>
%y = graph.unpack %x : (tensor<8xi8>) -> tensor<16xf16>
// CHECK: 'graph.unpack' unpacks tensors of pairs of numbers (i4x2), not tensor<8xi8>

// -----

%x = "test.op"() : () -> tensor<8x!graph.i4x2>
%y = graph.unpack %x : (tensor<8x!graph.i4x2>) -> tensor<16xi8>
// CHECK: 'graph.unpack' should give tensor<16xf16>, but is written as tensor<16xi8>
