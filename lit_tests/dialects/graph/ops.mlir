// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%f, %s, %i, %w = "test.op"() : () -> (tensor<4x6xf32>, tensor<f32>, tensor<i32>, tensor<6x5xf32>)

%constant = graph.constant {value = #graph.data<f32, [2, 2], (1.0, -2.5, 3.0, 1.0e-30)>} : () -> tensor<2x2xf32>
// CHECK: graph.constant {value = #graph.data<f32, [2, 2], (1.0, -2.5, 3.0, 1.0{{.*}}e-30)>} : () -> tensor<2x2xf32>
%splat = graph.constant {value = #graph.data<i8, [8, 8], splat -3>} : () -> tensor<8x8xi8>
// CHECK: graph.constant {value = #graph.data<i8, [8, 8], splat -3>} : () -> tensor<8x8xi8>
%scalar = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
// CHECK: graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
%infinite = graph.constant {value = #graph.data<f32, [], "AACA/w==" splat>} : () -> tensor<f32>
// CHECK: graph.constant {value = #graph.data<f32, [], "AACA/w==" splat>} : () -> tensor<f32>
%large = graph.constant {value = #graph.data<i8, [9], "AAECAwQFBgcI">} : () -> tensor<9xi8>
// CHECK: graph.constant {value = #graph.data<i8, [9], "AAECAwQFBgcI">} : () -> tensor<9xi8>
%short = graph.constant {value = #graph.data<f64, [2], (1.0e-07, 1.0e+20)>} : () -> tensor<2xf64>
// CHECK: graph.constant {value = #graph.data<f64, [2], (1.0e-07, 1.0e+20)>} : () -> tensor<2xf64>
%empty = graph.constant {value = #graph.data<f32, [0, 3], "">} : () -> tensor<0x3xf32>
// CHECK: graph.constant {value = #graph.data<f32, [0, 3], "">} : () -> tensor<0x3xf32>
%iota = graph.iota {dim = 1} : () -> tensor<2x3xi32>
// CHECK: graph.iota {dim = 1} : () -> tensor<2x3xi32>
%broadcast = graph.broadcast %f {dims = [0, 2]} : (tensor<4x6xf32>) -> tensor<4x9x6xf32>
// CHECK: graph.broadcast %{{.*}} {dims = [0, 2]} : (tensor<4x6xf32>) -> tensor<4x9x6xf32>
%transpose = graph.transpose %f {perm = [1, 0]} : (tensor<4x6xf32>) -> tensor<6x4xf32>
// CHECK: graph.transpose %{{.*}} {perm = [1, 0]} : (tensor<4x6xf32>) -> tensor<6x4xf32>
%reshape = graph.reshape %f : (tensor<4x6xf32>) -> tensor<24xf32>
// CHECK: graph.reshape %{{.*}} : (tensor<4x6xf32>) -> tensor<24xf32>
%slice = graph.slice %f {limits = [3, 6], starts = [1, 0], strides = [1, 2]} : (tensor<4x6xf32>) -> tensor<2x3xf32>
// CHECK: graph.slice %{{.*}} {limits = [3, 6], starts = [1, 0], strides = [1, 2]} : (tensor<4x6xf32>) -> tensor<2x3xf32>
%pad = graph.pad %f, %s {high = [0, -1], interior = [1, 0], low = [2, 0]} : (tensor<4x6xf32>, tensor<f32>) -> tensor<9x5xf32>
// CHECK: graph.pad %{{.*}} {high = [0, -1], interior = [1, 0], low = [2, 0]} : (tensor<4x6xf32>, tensor<f32>) -> tensor<9x5xf32>
%reverse = graph.reverse %f {dims = [0]} : tensor<4x6xf32>
// CHECK: graph.reverse %{{.*}} {dims = [0]} : tensor<4x6xf32>
%concat = graph.concat %f, %f {dim = 1} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>
// CHECK: graph.concat %{{.*}} {dim = 1} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>
%reduce = graph.reduce %f {dims = [1], kind = "sum"} : (tensor<4x6xf32>) -> tensor<4xf32>
// CHECK: graph.reduce %{{.*}} {dims = [1], kind = "sum"} : (tensor<4x6xf32>) -> tensor<4xf32>
%best, %where = graph.arg_reduce %f {dim = 1, kind = "max"} : (tensor<4x6xf32>) -> (tensor<4xf32>, tensor<4xi32>)
// CHECK: %{{.*}}, %{{.*}} = graph.arg_reduce %{{.*}} {dim = 1, kind = "max"} : (tensor<4x6xf32>) -> (tensor<4xf32>, tensor<4xi32>)
%window = graph.reduce_window %f {dilation = [1, 1], high = [0, 0], kind = "max", low = [0, 0], strides = [2, 2], window = [2, 2]} : (tensor<4x6xf32>) -> tensor<2x3xf32>
// CHECK: graph.reduce_window %{{.*}} {{{.*}}kind = "max"{{.*}}window = [2, 2]} : (tensor<4x6xf32>) -> tensor<2x3xf32>
%contract = graph.contract %f, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
// CHECK: graph.contract %{{.*}} {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
%dynamic_slice = graph.dynamic_slice %f, %i, %i {sizes = [2, 6]} : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x6xf32>
// CHECK: graph.dynamic_slice %{{.*}} {sizes = [2, 6]} : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x6xf32>
%update = graph.dynamic_update_slice %f, %slice, %i, %i {strides = [1, 2]} : (tensor<4x6xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
// CHECK: graph.dynamic_update_slice %{{.*}} {strides = [1, 2]} : (tensor<4x6xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>

// -----

%x, %k = "test.op"() : () -> (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
%conv = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [2, 2]} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x4x4x16xf32>
// CHECK: graph.conv %{{.*}}, %{{.*}} {groups = 1, {{.*}}strides = [2, 2]} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x4x4x16xf32>

// -----

%t, %ids = "test.op"() : () -> (tensor<100x32xf16>, tensor<5x1xi32>)
%gather = graph.gather %t, %ids {collapsed_dims = [0], index_dim = 1, indices_batch = [], offset_dims = [1], slice_sizes = [1, 32], start_map = [0], x_batch = []} : (tensor<100x32xf16>, tensor<5x1xi32>) -> tensor<5x32xf16>
// CHECK: graph.gather %{{.*}}, %{{.*}} {collapsed_dims = [0], index_dim = 1, {{.*}}} : (tensor<100x32xf16>, tensor<5x1xi32>) -> tensor<5x32xf16>

// -----

// An op without operands does not take the name of the next one for its own.
%lonely = graph.iota {dim = 0} : () -> tensor<4xi32>
%next = graph.abs %lonely attributes {note = "kept"} : tensor<4xi32>
// CHECK: graph.abs %{{.*}} attributes {note = "kept"} : tensor<4xi32>

// -----

%k, %v = "test.op"() : () -> (tensor<4x9xf32>, tensor<4x9xi32>)
%sorted, %places = graph.sort %k, %v {descending = [1], dim = 1, keep = 3, keys = [0], total = [1]} : (tensor<4x9xf32>, tensor<4x9xi32>) -> (tensor<4x3xf32>, tensor<4x3xi32>)
// CHECK: graph.sort %{{.*}}, %{{.*}} {descending = [1], dim = 1, keep = 3, keys = [0], total = [1]} : (tensor<4x9xf32>, tensor<4x9xi32>) -> (tensor<4x3xf32>, tensor<4x3xi32>)

// -----

%table, %ids, %rows = "test.op"() : () -> (tensor<31x17xf32>, tensor<5xi32>, tensor<5x17xf32>)
%scattered = graph.scatter %table, %ids, %rows {kind = "sum"} : (tensor<31x17xf32>, tensor<5xi32>, tensor<5x17xf32>) -> tensor<31x17xf32>
// CHECK: graph.scatter %{{.*}}, %{{.*}}, %{{.*}} {kind = "sum"} : (tensor<31x17xf32>, tensor<5xi32>, tensor<5x17xf32>) -> tensor<31x17xf32>
%batches, %two = "test.op"() : () -> (tensor<6x17xf32>, tensor<2xi32>)
%both = "test.op"() : () -> tensor<2x17xf32>
%apart = graph.scatter %batches, %two, %both {groups = 2, kind = "max"} : (tensor<6x17xf32>, tensor<2xi32>, tensor<2x17xf32>) -> tensor<6x17xf32>
// CHECK: graph.scatter %{{.*}}, %{{.*}}, %{{.*}} {groups = 2, kind = "max"} : (tensor<6x17xf32>, tensor<2xi32>, tensor<2x17xf32>) -> tensor<6x17xf32>

// -----

%row = "test.op"() : () -> tensor<4x9xf32>
%sums = graph.cumulate %row {dim = 1, kind = "sum", reverse = 1} : tensor<4x9xf32>
// CHECK: graph.cumulate %{{.*}} {dim = 1, kind = "sum", reverse = 1} : tensor<4x9xf32>

// -----

%image, %pooled = "test.op"() : () -> (tensor<1x7x8x3xf32>, tensor<1x4x4x3xf32>)
%spread = graph.select_and_scatter %image, %pooled {high = [0, 1, 0, 0], kind = "sum", low = [0, 0, 0, 0], select = "ge", strides = [1, 2, 2, 1], window = [1, 2, 2, 1]} : (tensor<1x7x8x3xf32>, tensor<1x4x4x3xf32>) -> tensor<1x7x8x3xf32>
// CHECK: graph.select_and_scatter %{{.*}}, %{{.*}} {high = [0, 1, 0, 0], kind = "sum", low = [0, 0, 0, 0], select = "ge", strides = [1, 2, 2, 1], window = [1, 2, 2, 1]} : (tensor<1x7x8x3xf32>, tensor<1x4x4x3xf32>) -> tensor<1x7x8x3xf32>

// What graph-precision records on a module.
builtin.module attributes {tilewright.precision = {kept = [["graph.exp", "its results grow", 4 : i64, "model.py:7"], ["graph.log", "it is steep", 1 : i64, ""]], mode = "mixed_float16", narrow = 9 : i64, products = 2 : i64}} {
}
// CHECK: builtin.module attributes {tilewright.precision = {kept = {{\[\[}}"graph.exp", "its results grow", 4 : i64, "model.py:7"{{\], \[}}"graph.log", "it is steep", 1 : i64, ""{{\]\]}}, mode = "mixed_float16", narrow = 9 : i64, products = 2 : i64}} {
