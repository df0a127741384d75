// RUN: INVALID

%x = "test.op"() : () -> index
%y = graph.abs %x : index
// CHECK: 'graph.abs' operand 'x' at position 0 does not verify: index should be of base attribute tensor

// -----

%x = "test.op"() : () -> index
%y = graph.reverse %x {dims = []} : index
// CHECK: 'graph.reverse' needs tensors, got index

// -----

%x = "test.op"() : () -> tensor<?xf32>
%y = graph.abs %x : tensor<?xf32>
// CHECK: 'graph.abs' needs static shapes, or open sizes with names, got tensor<?xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.abs %x : (tensor<4xf32>) -> tensor<5xf32>
// CHECK: 'graph.abs' should give tensor<4xf32>, but is written as tensor<5xf32>

// -----

%x, %y = "test.op"() : () -> (tensor<4xf32>, tensor<5xf32>)
%z = graph.add %x, %y : (tensor<4xf32>, tensor<5xf32>) -> tensor<4xf32>
// CHECK: 'graph.add' operand shapes differ: {{\[\[4\], \[5\]\]}}

// -----

%x, %y = "test.op"() : () -> (tensor<4xf32>, tensor<4xf16>)
%z = graph.add %x, %y : (tensor<4xf32>, tensor<4xf16>) -> tensor<4xf32>
// CHECK: 'graph.add' operand element types differ: f32, f16

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.select %x, %x, %x : tensor<4xf32>
// CHECK: 'graph.select' operand 0 must be i1, got f32

// -----

%z = graph.constant {value = #graph.data<f32, [2], (1.0, 2.0)>} : () -> tensor<2xf16>
// CHECK: 'graph.constant' should give tensor<2xf32>, but is written as tensor<2xf16>

// -----

%z = graph.iota {dim = 2} : () -> tensor<2x3xi32>
// CHECK: 'graph.iota' dim 2 is outside the result's rank

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.broadcast %x {dims = []} : (tensor<4xf32>) -> tensor<4x5xf32>
// CHECK: 'graph.broadcast' dims [] must name a result dimension for each of 1 operand dims

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.broadcast %x {dims = [1]} : (tensor<4xf32>) -> tensor<4x5xf32>
// CHECK: 'graph.broadcast' cannot broadcast {{\[4\] into \[4, 5\] along dims \[1\]}}

// -----

%x = "test.op"() : () -> tensor<4x5xf32>
%z = graph.transpose %x {perm = [0, 0]} : (tensor<4x5xf32>) -> tensor<4x4xf32>
// CHECK: 'graph.transpose' perm {{\[0, 0\]}} is not a permutation of 2 dimensions

// -----

%x = "test.op"() : () -> tensor<4x5xf32>
%z = graph.reshape %x : (tensor<4x5xf32>) -> tensor<4x4xf32>
// CHECK: 'graph.reshape' cannot reshape {{\[4, 5\] into \[4, 4\]}}: element counts differ

// -----

%x = "test.op"() : () -> tensor<4x3xf32>
%z = graph.view %x : (tensor<4x3xf32>) -> tensor<4xcomplex<f32>>
// CHECK: 'graph.view' cannot view tensor<4x3xf32> as tensor<4xcomplex<f32>>: one has the parts of the other's complex numbers

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.real %x : tensor<4xf32>
// CHECK: 'graph.real' takes complex<f32>, got f32

// -----

%x = "test.op"() : () -> tensor<4xf16>
%z = graph.complex %x, %x : (tensor<4xf16>, tensor<4xf16>) -> tensor<4xcomplex<f32>>
// CHECK: 'graph.complex' takes f32, got f16

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.slice %x {limits = [3, 3], starts = [0, 0], strides = [1, 1]} : (tensor<4xf32>) -> tensor<3xf32>
// CHECK: 'graph.slice' needs a start, a limit and a stride for each of 1 dimensions

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.slice %x {limits = [3], starts = [0, 0], strides = [1]} : (tensor<4xf32>) -> tensor<3xf32>
// CHECK: 'graph.slice' needs a start, a limit and a stride for each of 1 dimensions

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.slice %x {limits = [5], starts = [0], strides = [1]} : (tensor<4xf32>) -> tensor<5xf32>
// CHECK: 'graph.slice' slice {{\[0:5:1\]}} is outside a dimension of 4

// -----

%x, %v = "test.op"() : () -> (tensor<4xf32>, tensor<f32>)
%z = graph.pad %x, %v {high = [1], interior = [0], low = [1]} : (tensor<4xf32>, tensor<f32>) -> tensor<7xf32>
// CHECK: 'graph.pad' should give tensor<6xf32>, but is written as tensor<7xf32>

// -----

%x, %v = "test.op"() : () -> (tensor<4xf32>, tensor<f32>)
%z = graph.pad %x, %v {high = [1, 1], interior = [0], low = [1]} : (tensor<4xf32>, tensor<f32>) -> tensor<7xf32>
// CHECK: 'graph.pad' needs low, high and interior padding for each of 1 dimensions

// -----

%x, %v = "test.op"() : () -> (tensor<4xf32>, tensor<f16>)
%z = graph.pad %x, %v {high = [1], interior = [0], low = [1]} : (tensor<4xf32>, tensor<f16>) -> tensor<6xf32>
// CHECK: 'graph.pad' pads tensor<4xf32> with tensor<f16>

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [4], kind = "vector"} : (tensor<4xf32>) -> tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  %b = graph.widen %a {row = 4} : tensor<4xf32>
  graph.yield %b : (tensor<4xf32>)
}
// CHECK: 'graph.widen' gives tensor<4xf32> rows of 4 elements: they are to be longer than they are

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.widen %x {row = 8} : (tensor<4xf32>) -> tensor<8xf32>
// CHECK: 'graph.widen' expects parent op 'graph.fusion'

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [8], kind = "vector"} : (tensor<4xf32>) -> tensor<8xf32> {
^bb0(%a: tensor<4xf32>):
  %b = graph.widen %a {row = 8} : (tensor<4xf32>) -> tensor<8xf32>
  %c = graph.exp %b attributes {axes = array<i64: 0>} : tensor<8xf32>
  graph.yield %c : (tensor<8xf32>)
}
// CHECK: 'graph.widen' is for graph.yield alone: whatever else reads it would read what nothing defines

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [4], kind = "vector"} : (tensor<4xf32>) -> tensor<7xf32> {
^bb0(%a: tensor<4xf32>):
  %b = graph.place %a {dim = 1, start = 0, extent = 7} : (tensor<4xf32>) -> tensor<7xf32>
  graph.yield %b : (tensor<7xf32>)
}
// CHECK: 'graph.place' dim 1 is outside the operand's rank

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [4], kind = "vector"} : (tensor<4xf32>) -> tensor<7xf32> {
^bb0(%a: tensor<4xf32>):
  %b = graph.place %a {dim = 0, start = 4, extent = 7} : (tensor<4xf32>) -> tensor<7xf32>
  graph.yield %b : (tensor<7xf32>)
}
// CHECK: 'graph.place' has no room for 4 places from 4 on among 7

// -----

%x, %y = "test.op"() : () -> (tensor<4xf32>, tensor<8xf32>)
%z = graph.fusion %x, %y {domain = [4], kind = "vector"} : (tensor<4xf32>, tensor<8xf32>) -> tensor<7xf32> {
^bb0(%a: tensor<4xf32>, %base: tensor<8xf32>):
  %b = graph.place %a, %base {dim = 0, start = 0, extent = 7} : (tensor<4xf32>, tensor<8xf32>) -> tensor<7xf32>
  graph.yield %b : (tensor<7xf32>)
}
// CHECK: 'graph.place' gives tensor<7xf32>, and the others of its places are those of tensor<8xf32>

// -----

%x, %y = "test.op"() : () -> (tensor<4xf32>, tensor<7xf32>)
%z = graph.fusion %x, %y {domain = [4], kind = "vector"} : (tensor<4xf32>, tensor<7xf32>) -> tensor<7xf32> {
^bb0(%a: tensor<4xf32>, %base: tensor<7xf32>):
  %e = graph.exp %base attributes {axes = array<i64: 0>} : tensor<7xf32>
  %b = graph.place %a, %e {dim = 0, start = 0, extent = 7} : (tensor<4xf32>, tensor<7xf32>) -> tensor<7xf32>
  graph.yield %b : (tensor<7xf32>)
}
// CHECK: 'graph.place' has a base that is no argument of the fusion, or that something else reads, too

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.place %x {dim = 0, start = 0, extent = 7} : (tensor<4xf32>) -> tensor<7xf32>
// CHECK: 'graph.place' expects parent op 'graph.fusion'

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [7], kind = "vector"} : (tensor<4xf32>) -> tensor<7xf32> {
^bb0(%a: tensor<4xf32>):
  %b = graph.place %a {dim = 0, start = 0, extent = 7} : (tensor<4xf32>) -> tensor<7xf32>
  %c = graph.exp %b attributes {axes = array<i64: 0>} : tensor<7xf32>
  graph.yield %c : (tensor<7xf32>)
}
// CHECK: 'graph.place' is for graph.yield alone: whatever else reads it would read what nothing defines

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.reverse %x {dims = [1]} : tensor<4xf32>
// CHECK: 'graph.reverse' dims [1] are outside the operand's rank

// -----

%z = graph.concat {dim = 0} : () -> tensor<4xf32>
// CHECK: 'graph.concat' needs an operand

// -----

%x, %y = "test.op"() : () -> (tensor<4x2xf32>, tensor<5x3xf32>)
%z = graph.concat %x, %y {dim = 0} : (tensor<4x2xf32>, tensor<5x3xf32>) -> tensor<9x2xf32>
// CHECK: 'graph.concat' shapes {{.*}} do not agree outside dim 0

// -----

%x, %y = "test.op"() : () -> (tensor<4xf32>, tensor<5xf16>)
%z = graph.concat %x, %y {dim = 0} : (tensor<4xf32>, tensor<5xf16>) -> tensor<9xf32>
// CHECK: 'graph.concat' operand element types differ: f32, f16

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.reduce %x {dims = [0], kind = "mean"} : (tensor<4xf32>) -> tensor<f32>
// CHECK: 'graph.reduce' kind 'mean' is not one of sum, prod, max, min, and, or

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.reduce %x {dims = [0, 0], kind = "sum"} : (tensor<4xf32>) -> tensor<f32>
// CHECK: 'graph.reduce' dims [0, 0] do not name distinct dimensions of [4]

// -----

%x = "test.op"() : () -> tensor<4xf32>
%v, %i = graph.arg_reduce %x {dim = 0, kind = "sum"} : (tensor<4xf32>) -> (tensor<f32>, tensor<i32>)
// CHECK: 'graph.arg_reduce' kind 'sum' is not one of max, min

// -----

%x = "test.op"() : () -> tensor<6x0xf32>
%v, %i = graph.arg_reduce %x {dim = 1, kind = "max"} : (tensor<6x0xf32>) -> (tensor<6xf32>, tensor<6xi32>)
// CHECK: 'graph.arg_reduce' dimension 1 of [6, 0] has no elements, so no largest or smallest

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.reduce_window %x {dilation = [1], high = [0], kind = "mean", low = [0], strides = [1], window = [2]} : (tensor<4xf32>) -> tensor<3xf32>
// CHECK: 'graph.reduce_window' kind 'mean' is not one of

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.reduce_window %x {dilation = [1], high = [0], kind = "max", low = [0], strides = [1, 1], window = [2]} : (tensor<4xf32>) -> tensor<3xf32>
// CHECK: 'graph.reduce_window' needs window, stride, dilation, low and high padding for each of 1 dimensions

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.reduce_window %x {dilation = [1], high = [0], kind = "max", low = [0], strides = [0], window = [2]} : (tensor<4xf32>) -> tensor<3xf32>
// CHECK: 'graph.reduce_window' needs windows, strides and dilations of at least 1

// -----

%x, %y = "test.op"() : () -> (tensor<4x6xf32>, tensor<5x3xf32>)
%z = graph.contract %x, %y {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x6xf32>, tensor<5x3xf32>) -> tensor<4x3xf32>
// CHECK: 'graph.contract' lhs dim 1 of [4, 6] does not match rhs dim 0 of [5, 3]

// -----

%x, %y = "test.op"() : () -> (tensor<4x6xf32>, tensor<6x3xf32>)
%z = graph.contract %x, %y {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0, 1]} : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
// CHECK: 'graph.contract' needs as many batch and contracted dimensions of lhs as of rhs

// -----

%x, %k = "test.op"() : () -> (tensor<1x8x8x4xf32>, tensor<3x4x16xf32>)
%z = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [2, 2]} : (tensor<1x8x8x4xf32>, tensor<3x4x16xf32>) -> tensor<1x4x4x16xf32>
// CHECK: 'graph.conv' ranks of lhs [1, 8, 8, 4], rhs [3, 4, 16] and the layouts differ

// -----

%x, %k = "test.op"() : () -> (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
%z = graph.conv %x, %k {groups = 3, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [2, 2]} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x4x4x16xf32>
// CHECK: 'graph.conv' features of lhs [1, 8, 8, 4] and rhs [3, 3, 4, 16] do not fit 3 group(s)

// -----

%x, %k = "test.op"() : () -> (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
%z = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 4, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [2, 2]} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x4x4x16xf32>
// CHECK: 'graph.conv' layout {{.*}} is not a permutation of 4 dimensions

// -----

%x, %k = "test.op"() : () -> (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
%z = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [2]} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x4x4x16xf32>
// CHECK: 'graph.conv' needs stride, padding and dilations for each of 2 spatial dims

// -----

%x, %k = "test.op"() : () -> (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
%z = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [0, 2]} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x4x4x16xf32>
// CHECK: 'graph.conv' needs groups, strides and dilations of at least 1

// -----

%t, %i = "test.op"() : () -> (tensor<100x32xf16>, tensor<5x1xi32>)
%z = graph.gather %t, %i {collapsed_dims = [0], index_dim = 1, indices_batch = [], offset_dims = [1], slice_sizes = [1, 64], start_map = [0], x_batch = []} : (tensor<100x32xf16>, tensor<5x1xi32>) -> tensor<5x32xf16>
// CHECK: 'graph.gather' slice_sizes [1, 64] do not fit the operand [100, 32]

// -----

%t, %i = "test.op"() : () -> (tensor<100x32xf16>, tensor<5x1xi32>)
%z = graph.gather %t, %i {collapsed_dims = [0], index_dim = 1, indices_batch = [], offset_dims = [], slice_sizes = [1, 32], start_map = [0], x_batch = []} : (tensor<100x32xf16>, tensor<5x1xi32>) -> tensor<5x32xf16>
// CHECK: 'graph.gather' offset_dims [] must name a result dimension for each of 1 slice dims

// -----

%t, %i = "test.op"() : () -> (tensor<100x32xf16>, tensor<5x1xi32>)
%z = graph.gather %t, %i {collapsed_dims = [0], index_dim = 1, indices_batch = [], offset_dims = [1], slice_sizes = [1, 32], start_map = [0, 1], x_batch = []} : (tensor<100x32xf16>, tensor<5x1xi32>) -> tensor<5x32xf16>
// CHECK: 'graph.gather' start_map

// -----

%x, %i = "test.op"() : () -> (tensor<4x6xf32>, tensor<i32>)
%z = graph.dynamic_slice %x, %i {sizes = [2, 6]} : (tensor<4x6xf32>, tensor<i32>) -> tensor<2x6xf32>
// CHECK: 'graph.dynamic_slice' sizes [2, 6] with 1 starts do not fit [4, 6]

// -----

%x, %u, %i = "test.op"() : () -> (tensor<4xf32>, tensor<6xf32>, tensor<i32>)
%z = graph.dynamic_update_slice %x, %u, %i : (tensor<4xf32>, tensor<6xf32>, tensor<i32>) -> tensor<4xf32>
// CHECK: 'graph.dynamic_update_slice' update [6] with 1 starts does not fit [4]

// -----

%x, %u, %i = "test.op"() : () -> (tensor<4xf32>, tensor<2xf16>, tensor<i32>)
%z = graph.dynamic_update_slice %x, %u, %i : (tensor<4xf32>, tensor<2xf16>, tensor<i32>) -> tensor<4xf32>
// CHECK: 'graph.dynamic_update_slice' writes f16 into tensor<4xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [4], kind = "warp"} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: 'graph.fusion' kind 'warp' is not one of vector, cube, mix, move, index

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [4], kind = "vector"} : tensor<4xf32> {
^bb0(%a: tensor<5xf32>):
  graph.yield %a : (tensor<5xf32>)
}
// CHECK: 'graph.fusion' block arguments must have the inputs' types

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [4], kind = "vector"} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield
}
// CHECK: 'graph.fusion' region 0 yields nothing where tensor<4xf32> is expected

// -----

%x = "test.op"() : () -> tensor<4xf32>
%z = graph.fusion %x {domain = [4], kind = "vector"} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  "test.termop"() : () -> ()
}
// CHECK: 'graph.fusion' region 0 must end with graph.yield

// -----

%x = "test.op"() : () -> tensor<i32>
%z = graph.while %x : (tensor<i32>) -> tensor<f32> {
^bb0(%a: tensor<i32>):
  %c = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
  graph.yield %c : (tensor<i1>)
} {
^bb0(%a: tensor<i32>):
  graph.yield %a : (tensor<i32>)
}
// CHECK: 'graph.while' results must have the types of the initial values

// -----

%x = "test.op"() : () -> tensor<i32>
%z = graph.while %x : (tensor<i32>) -> tensor<i32> {
^bb0(%a: tensor<f32>):
  %c = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
  graph.yield %c : (tensor<i1>)
} {
^bb0(%a: tensor<i32>):
  graph.yield %a : (tensor<i32>)
}
// CHECK: 'graph.while' block arguments must have the types of the initial values

// -----

%x = "test.op"() : () -> tensor<i32>
%z = graph.while %x : (tensor<i32>) -> tensor<i32> {
^bb0(%a: tensor<i32>):
  %c = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
  graph.yield %c, %c : (tensor<i1>, tensor<i1>)
} {
^bb0(%a: tensor<i32>):
  graph.yield %a : (tensor<i32>)
}
// CHECK: 'graph.while' condition must yield one tensor<i1>

// -----

%x = "test.op"() : () -> tensor<i32>
%z = graph.while %x : (tensor<i32>) -> tensor<i32> {
^bb0(%a: tensor<i32>):
  %c = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
  graph.yield %a : (tensor<i32>)
} {
^bb0(%a: tensor<i32>):
  graph.yield %a : (tensor<i32>)
}
// CHECK: 'graph.while' condition must yield one tensor<i1>

// -----

%x = "test.op"() : () -> tensor<i32>
%z = graph.while %x : (tensor<i32>) -> tensor<i32> {
^bb0(%a: tensor<i32>):
  %c = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
  graph.yield %c : (tensor<i1>)
} {
^bb0(%a: tensor<i32>):
  graph.yield 
}
// CHECK: 'graph.while' region 1 yields {{.*}} where tensor<i32> is expected

// -----

%i = "test.op"() : () -> tensor<i32>
%z = graph.case %i : (tensor<i32>) -> tensor<4xf32>
// CHECK: 'graph.case' needs a branch

// -----

%i = "test.op"() : () -> tensor<i32>
%z = graph.case %i : (tensor<i32>) -> tensor<4xf32> {
  graph.yield %i : (tensor<i32>)
}
// CHECK: 'graph.case' region 0 yields tensor<i32> where tensor<4xf32> is expected

// -----

%z = graph.constant {value = #graph.data<f99, [2], (1.0, 2.0)>} : () -> tensor<2xf32>
// CHECK: element type f99 is not supported

// -----

%z = graph.constant {value = #graph.data<f32, [3], (1.0, 2.0)>} : () -> tensor<3xf32>
// CHECK: data of 8 bytes does not fill f32[3]

// -----

%z = graph.constant {value = #graph.data<f32, [3], "no base64!">} : () -> tensor<3xf32>
// CHECK: the data is not base64

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.abs %x {sizes = [1]} : tensor<4xf32>
// CHECK: 'graph.abs' has no property 'sizes'

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.add %x, %x : (tensor<4xf32>) -> tensor<4xf32>
// CHECK: 'graph.add' has 2 operands but 1 operand types

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.add %x : tensor<4xf32>
// CHECK: 'graph.add' {{.*}}1

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.reduce %x {dims = [0]} : (tensor<4xf32>) -> tensor<f32>
// CHECK: 'graph.reduce' {{.*}}kind

// -----

%x = "test.op"() : () -> tensor<4xf32>
%r = graph.to_host %x : tensor<4xf32>
// CHECK: 'graph.to_host' reads tensor<4xf32>; it reads tensors of rank 0

// -----

%x = "test.op"() : () -> tensor<f32>
%r = graph.offload %x : tensor<f32>
// CHECK: 'graph.offload' moves tensor<f32>; it moves tensors that have dimensions

// -----

%x = "test.op"() : () -> tensor<4xf32>
%r = graph.offload %x : tensor<4xf32>
%y = graph.abs %r : tensor<4xf32>
// CHECK: 'graph.offload' is for graph.restore, and 'graph.abs' {{.*}} uses it

// -----

%x = "test.op"() : () -> tensor<4xf32>
%r = graph.restore %x : tensor<4xf32>
// CHECK: 'graph.restore' takes what a graph.offload brought to the host

// -----

%x = "test.op"() : () -> tensor<4xf32>
%r = graph.fusion %x {domain = [], kind = "scalar"} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: 'graph.fusion' of kind 'scalar' takes and gives tensors of rank 0

// -----

%n, %x = "test.op"() : () -> (tensor<i32>, tensor<4xf32>)
%r = graph.case %n {host = [0]} : (tensor<i32>) -> tensor<4xf32> {
  graph.yield %x : (tensor<4xf32>)
}
// CHECK: 'graph.case' host [0] must name results of rank 0

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.bitcast %x : (tensor<4xf32>) -> tensor<4xi16>
// CHECK: 'graph.bitcast' {{.*}}cannot take the bits of f32 for those of i16

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.sort %x {descending = [0], dim = 0, keys = [1], total = [0]} : tensor<4xf32>
// CHECK: 'graph.sort' {{.*}}keys [1] are not among 1 operands

// -----

%x, %i, %u = "test.op"() : () -> (tensor<4x3xf32>, tensor<2xi32>, tensor<2x4xf32>)
%y = graph.scatter %x, %i, %u {kind = "sum"} : (tensor<4x3xf32>, tensor<2xi32>, tensor<2x4xf32>) -> tensor<4x3xf32>
// CHECK: 'graph.scatter' {{.*}}cannot put rows of [2, 4] at [2] into [4, 3]

// -----

%x, %i, %u = "test.op"() : () -> (tensor<4x3xf32>, tensor<3xi32>, tensor<3x3xf32>)
%y = graph.scatter %x, %i, %u {groups = 2, kind = "sum"} : (tensor<4x3xf32>, tensor<3xi32>, tensor<3x3xf32>) -> tensor<4x3xf32>
// CHECK: 'graph.scatter' {{.*}}4 rows and 3 updates are not 2 equal groups

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.cumulate %x {dim = 1, kind = "sum", reverse = 0} : tensor<4xf32>
// CHECK: 'graph.cumulate' {{.*}}dim 1 is outside the rank of [4]

// -----

%x, %s = "test.op"() : () -> (tensor<7xf32>, tensor<4xf32>)
%y = graph.select_and_scatter %x, %s {high = [0], kind = "sum", low = [0], select = "ge", strides = [2], window = [2]} : (tensor<7xf32>, tensor<4xf32>) -> tensor<7xf32>
// CHECK: 'graph.select_and_scatter' {{.*}}has windows tensor<3xf32>, but a source tensor<4xf32>

// -----

%x, %s = "test.op"() : () -> (tensor<7xf32>, tensor<3xf32>)
%y = graph.select_and_scatter %x, %s {high = [0], kind = "sum", low = [0], select = "eq", strides = [2], window = [2]} : (tensor<7xf32>, tensor<3xf32>) -> tensor<7xf32>
// CHECK: 'graph.select_and_scatter' {{.*}}select 'eq' is not one of ge, gt, le, lt

// -----

func.func @main(%x: tensor<4xf32> {graph.donated = 1 : i64}) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
// CHECK: argument 0 of @main: graph.donated takes no value

// -----

func.func private @layer(%w: tensor<4xf32>, %x: tensor<4xf32> {graph.donated}) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
// CHECK: argument 1 of @layer is donated; only the arguments of @main can be

// -----

%x = "test.op"() : () -> tensor<?xf32>
%y = graph.host %x {module = "module {}", op = "sort"} : tensor<?xf32>
// CHECK: 'graph.host' needs static shapes, or open sizes with names, got tensor<?xf32>

// -----

%x = "test.op"() : () -> tensor<4x4xf32>
%y = graph.contract %x, %x {lhs_batch = [0], lhs_contract = [0], rhs_batch = [0], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4x4xf32>
// CHECK: 'graph.contract' batch and contracted dimensions [0, 0] name one twice

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.cumulate %x {dim = 0, kind = "mean", reverse = 0} : tensor<4xf32>
// CHECK: 'graph.cumulate' kind 'mean' is not one of sum, prod, max, min, and, or

// -----

%t, %i = "test.op"() : () -> (tensor<100x32xf16>, tensor<5x1xi32>)
%z = graph.gather %t, %i {collapsed_dims = [0], index_dim = 3, indices_batch = [], offset_dims = [1], slice_sizes = [1, 32], start_map = [0], x_batch = []} : (tensor<100x32xf16>, tensor<5x1xi32>) -> tensor<5x32xf16>
// CHECK: 'graph.gather' index_dim 3 is outside the rank of [5, 1]

// -----

%x, %v = "test.op"() : () -> (tensor<4xf32>, tensor<f32>)
%z = graph.pad %x, %v {high = [-3], interior = [0], low = [-3]} : (tensor<4xf32>, tensor<f32>) -> tensor<0xf32>
// CHECK: 'graph.pad' crops more than there is of [4]

// -----

%x, %i, %u = "test.op"() : () -> (tensor<4x3xf32>, tensor<2xi32>, tensor<2x3xf32>)
%y = graph.scatter %x, %i, %u {kind = "and"} : (tensor<4x3xf32>, tensor<2xi32>, tensor<2x3xf32>) -> tensor<4x3xf32>
// CHECK: 'graph.scatter' kind 'and' is not one of set, sum, prod, max, min

// -----

%x, %i, %u = "test.op"() : () -> (tensor<4x3xf32>, tensor<2xi64>, tensor<2x3xf32>)
%y = graph.scatter %x, %i, %u {kind = "sum"} : (tensor<4x3xf32>, tensor<2xi64>, tensor<2x3xf32>) -> tensor<4x3xf32>
// CHECK: 'graph.scatter' cannot put tensor<2x3xf32> at tensor<2xi64> into tensor<4x3xf32>

// -----

%x, %s = "test.op"() : () -> (tensor<7xf32>, tensor<3xf32>)
%y = graph.select_and_scatter %x, %s {high = [0], kind = "sum", low = [0], select = "ge", strides = [0], window = [2]} : (tensor<7xf32>, tensor<3xf32>) -> tensor<7xf32>
// CHECK: 'graph.select_and_scatter' needs windows and strides of at least 1

// -----

graph.sort {descending = [], dim = 0, keys = [], total = []}
// CHECK: 'graph.sort' needs an operand

// -----

%x, %y = "test.op"() : () -> (tensor<4xf32>, tensor<5xf32>)
%a, %b = graph.sort %x, %y {descending = [0], dim = 0, keys = [0], total = [0]} : (tensor<4xf32>, tensor<5xf32>) -> (tensor<4xf32>, tensor<5xf32>)
// CHECK: 'graph.sort' operand shapes differ: {{\[\[4\], \[5\]\]}}

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.sort %x {descending = [0], dim = 1, keys = [0], total = [0]} : tensor<4xf32>
// CHECK: 'graph.sort' dim 1 is outside the rank of [4]

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.sort %x {descending = [0], dim = 0, keys = [], total = [0]} : tensor<4xf32>
// CHECK: 'graph.sort' needs keys, and for each whether it is descending and in total order

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.sort %x {descending = [0], dim = 0, keep = 5, keys = [0], total = [0]} : (tensor<4xf32>) -> tensor<5xf32>
// CHECK: 'graph.sort' cannot keep 5 of 4

// -----

%x = "test.op"() : () -> tensor<8x4xf32>
%y = graph.fusion %x {domain = [8], kind = "vector"} : tensor<8x4xf32> {
^bb0(%a: tensor<8x4xf32>):
  %b = graph.exp %a attributes {axes = array<i64: 0, 1>} : tensor<8x4xf32>
  graph.yield %b : (tensor<8x4xf32>)
}
// CHECK: 'graph.fusion' has a domain of 1 dimension, and 'graph.exp' {{.*}}names the axes [0, 1] of it

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.vector_schedule<tile = [0]>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: schedule: tile must be positive integers, as in [8, 512], not (0,)

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.vector_schedule<ub = 5>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: schedule: ub must be 1 to 4 buffers, not 5

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.cube_schedule<inner = k>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: schedule: inner must be m or n, not 'k'

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.cube_schedule<axes = [0]>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: schedule: axes must be lists of axes, as in {{\[\[0], \[1, 2]]}}, not (0,)

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.vector_schedule<grid = 3>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: schedule: grid must be positive integers, as in [8, 512], not 3

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.vector_schedule<base_m = 64>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: VectorSchedule has no 'base_m': there are axes, copy_length, cores, grid, piecewise, split_k, tile, ub

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = "fast"} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: 'graph.fusion' schedule: "fast" is no vector_schedule, cube_schedule, attention_schedule or row_attention_schedule

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.vector_schedule<ub = 1, ub = 2>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: ub is given twice

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.cube_schedule<base_m = 0>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: schedule: base_m must be a positive integer, not 0

// -----

builtin.module attributes {tilewright.precision = {mode = "mixed_float16", products = "all"}} {
}
// CHECK: 'builtin.module' has an attribute tilewright.precision that graph-precision did not write: take it away

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "mix", schedule = #graph.attention_schedule<base_m = 64>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: AttentionSchedule has no 'base_m': there are bands, buffered, columns, cores, features, grid, keys, l0a, l0b, l0c, l1, places, rows, scored, summed, ub

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.fusion %x {domain = [4], kind = "mix", schedule = #graph.attention_schedule<keys = 0>} : tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: schedule: keys must be a positive integer, not 0
