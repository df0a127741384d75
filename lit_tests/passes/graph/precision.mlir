// RUN: tilewright-opt %s -p 'graph-precision{precision=mixed_float16}' --split-input-file | tilewright-opt --split-input-file | filecheck %s

// Products are cast; the bias is repeated for its sum, so it is cast before that; the maximum follows. The last product
// gives f32, in which it adds up. A weight is cast once, however often it is taken.
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x8xf32>, %b: tensor<8xf32>, %v: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %c = graph.broadcast %b {dims = [1]} : (tensor<8xf32>) -> tensor<8x8xf32>
  %s = graph.add %y, %c : tensor<8x8xf32>
  %z = graph.constant {value = #graph.data<f32, [8, 8], splat 0.0>} : () -> tensor<8x8xf32>
  %m = graph.max %s, %z : tensor<8x8xf32>
  %t = graph.transpose %v {perm = [1, 0]} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = graph.contract %m, %t {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %r = graph.contract %p, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %r : tensor<8x8xf32>
}
// CHECK: kept = [], mode = "mixed_float16", narrow = 5 : i64, products = 3 : i64
// CHECK-LABEL: @main(%x: tensor<8x16xf32>, %w: tensor<16x8xf32>, %b: tensor<8xf32>, %v: tensor<8x8xf32>) -> tensor<8x8xf32>
// CHECK-DAG: %[[X:.*]] = graph.convert %x : (tensor<8x16xf32>) -> tensor<8x16xf16>
// CHECK-DAG: %[[W:.*]] = graph.convert %w : (tensor<16x8xf32>) -> tensor<16x8xf16>
// CHECK-DAG: %[[B:.*]] = graph.convert %b : (tensor<8xf32>) -> tensor<8xf16>
// CHECK-DAG: %[[V:.*]] = graph.convert %v : (tensor<8x8xf32>) -> tensor<8x8xf16>
// CHECK: %[[Y:.*]] = graph.contract %[[X]], %[[W]] {{.*}} -> tensor<8x8xf16>
// CHECK: %[[C:.*]] = graph.broadcast %[[B]] {dims = [1]} : (tensor<8xf16>) -> tensor<8x8xf16>
// CHECK: %[[S:.*]] = graph.add %[[Y]], %[[C]] : tensor<8x8xf16>
// CHECK: %[[Z:.*]] = graph.constant {value = #graph.data<f16, [8, 8], splat 0.0>}
// CHECK: %[[M:.*]] = graph.max %[[S]], %[[Z]] : tensor<8x8xf16>
// CHECK: %[[T:.*]] = graph.transpose %[[V]] {perm = [1, 0]} : tensor<8x8xf16>
// CHECK: %[[P:.*]] = graph.contract %[[M]], %[[T]] {{.*}} : tensor<8x8xf16>
// CHECK: %[[R:.*]] = graph.contract %[[P]], %[[V]] {{.*}} -> tensor<8x8xf32>
// CHECK-NEXT: func.return %[[R]] : tensor<8x8xf32>

// -----

// A softmax between two products stays f32, and so does what only it takes: the first product is not rounded.
func.func @main(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>) -> tensor<4x8xf32> {
  %y = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %e = graph.exp %y : tensor<4x4xf32>
  %s = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<4x4xf32>) -> tensor<4xf32>
  %b = graph.broadcast %s {dims = [0]} : (tensor<4xf32>) -> tensor<4x4xf32>
  %p = graph.div %e, %b : tensor<4x4xf32>
  %r = graph.contract %p, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<4x8xf32>
  func.return %r : tensor<4x8xf32>
}
// CHECK: "graph.exp", "its results grow beyond narrow types, and with them the errors of its operand", 1 : i64, "{{[^"]*}}precision.mlir:{{[0-9]+}}"
// CHECK-SAME: "graph.reduce", "it adds up many numbers", 1 : i64
// CHECK-SAME: "graph.div", "it may divide by a small number", 1 : i64
// CHECK-LABEL: @main
// CHECK: graph.contract {{.*}} : (tensor<4x8xf16>, tensor<8x4xf16>) -> tensor<4x4xf32>
// CHECK: graph.exp {{.*}} : tensor<4x4xf32>
// CHECK: %[[P:.*]] = graph.div {{.*}} : tensor<4x4xf32>
// CHECK-NEXT: %[[N:.*]] = graph.convert %[[P]] : (tensor<4x4xf32>) -> tensor<4x4xf16>
// CHECK-NEXT: graph.contract %[[N]], {{.*}} -> tensor<4x8xf32>

// -----

// Who follows: a sum with an f32 argument of full size is f32; a division by a constant that is not small follows, one
// by a small constant does not; a mask of i1 becomes f16 at once; a comparison takes what there is.
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>, %i: tensor<4x4xi1>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xi1>) {
  %a = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %f = graph.add %a, %x : tensor<4x4xf32>
  %8 = graph.constant {value = #graph.data<f32, [4, 4], splat 8.0>} : () -> tensor<4x4xf32>
  %g = graph.div %a, %8 : tensor<4x4xf32>
  %m = graph.convert %i : (tensor<4x4xi1>) -> tensor<4x4xf32>
  %n = graph.mul %g, %m : tensor<4x4xf32>
  %h = graph.contract %n, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = graph.constant {value = #graph.data<f32, [4, 4], splat 0.125>} : () -> tensor<4x4xf32>
  %j = graph.div %a, %1 : tensor<4x4xf32>
  %l = graph.contract %j, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = graph.lt %a, %8 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>
  func.return %f, %h, %l, %c : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xi1>
}
// CHECK: "graph.add", "an operand is f32"
// CHECK-SAME: "graph.div", "it may divide by a small number"
// CHECK-LABEL: @main
// CHECK: %[[A:.*]] = graph.contract {{.*}} : tensor<4x4xf16>
// CHECK-NEXT: %[[WIDE:.*]] = graph.convert %[[A]] : (tensor<4x4xf16>) -> tensor<4x4xf32>
// CHECK-NEXT: graph.add %[[WIDE]], %x : tensor<4x4xf32>
// CHECK: graph.div %[[A]], %{{.*}} : tensor<4x4xf16>
// CHECK: graph.convert %i : (tensor<4x4xi1>) -> tensor<4x4xf16>
// CHECK: graph.mul {{.*}} : tensor<4x4xf16>
// CHECK: %[[J:.*]] = graph.div %[[WIDE]], %{{.*}} : tensor<4x4xf32>
// CHECK: graph.convert %[[J]] : (tensor<4x4xf32>) -> tensor<4x4xf16>
// CHECK: graph.lt %[[A]], %{{.*}} : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xi1>

// -----

// A constant outside of f16's range keeps its op f32; the program's own f16 is not cast there and back.
func.func @main(%x: tensor<4x4xf16>, %w: tensor<4x4xf32>, %i: tensor<4x4xi1>) -> (tensor<4x4xf16>, tensor<4x4xf32>) {
  %a = graph.convert %x : (tensor<4x4xf16>) -> tensor<4x4xf32>
  %b = graph.contract %a, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = graph.convert %b : (tensor<4x4xf32>) -> tensor<4x4xf16>
  %l = graph.constant {value = #graph.data<f32, [], (-1.0e+09)>} : () -> tensor<f32>
  %m = graph.broadcast %l {dims = []} : (tensor<f32>) -> tensor<4x4xf32>
  %d = graph.contract %a, %w {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = graph.select %i, %d, %m : (tensor<4x4xi1>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = graph.contract %s, %w {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %c, %e : tensor<4x4xf16>, tensor<4x4xf32>
}
// CHECK: "graph.select", "a constant is outside f16's range"
// CHECK-LABEL: @main
// CHECK: %[[C:.*]] = graph.contract %x, %{{.*}} : tensor<4x4xf16>
// CHECK-NOT: graph.convert %[[C]]
// CHECK: graph.data<f32, [], (-1000000000.0)>
// CHECK: %[[D:.*]] = graph.contract %x, %{{.*}} -> tensor<4x4xf32>
// CHECK: %[[S:.*]] = graph.select %i, %[[D]], %{{.*}} : (tensor<4x4xi1>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK: graph.convert %[[S]] : (tensor<4x4xf32>) -> tensor<4x4xf16>
// CHECK: func.return %[[C]],

// -----

// What a loop carries keeps its type; inside of its body the rule holds. Calls and branches are alike.
func.func private @layer(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>, %i: tensor<i32>) -> tensor<4x4xf32> {
  %0 = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
  %n, %r, %u = graph.while %0, %x, %w {counter = 0, trip_count = 3} : (tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  ^bb0(%a: tensor<i32>, %b: tensor<4x4xf32>, %c: tensor<4x4xf32>):
    %3 = graph.constant {value = #graph.data<i32, [], (3)>} : () -> tensor<i32>
    %l = graph.lt %a, %3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %l : (tensor<i1>)
  } {
  ^bb0(%a: tensor<i32>, %b: tensor<4x4xf32>, %c: tensor<4x4xf32>):
    %1 = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
    %d = graph.add %a, %1 : tensor<i32>
    %e = graph.contract %b, %c {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %f = graph.neg %e : tensor<4x4xf32>
    %g = graph.contract %f, %c {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    graph.yield %d, %g, %c : (tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>)
  }
  %s = graph.case %i : (tensor<i32>) -> tensor<4x4xf32> {
    %o = graph.contract %r, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    graph.yield %o : (tensor<4x4xf32>)
  } {
    graph.yield %r : (tensor<4x4xf32>)
  }
  %t = func.call @layer(%s, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %t : tensor<4x4xf32>
}
// CHECK: func.func private @layer(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK: graph.contract {{.*}} : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf32>
// CHECK: graph.while {{.*}} : (tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>)
// CHECK: %[[E:.*]] = graph.contract {{.*}} : tensor<4x4xf16>
// CHECK: %[[F:.*]] = graph.neg %[[E]] : tensor<4x4xf16>
// CHECK: graph.contract %[[F]], %{{.*}} : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf32>
// CHECK: graph.case
// CHECK: graph.contract {{.*}} : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf32>
// CHECK: func.call @layer({{.*}}) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>

// -----

// f64, integers and complex numbers are left alone, and a window's maximum follows a convolution.
func.func @main(%a: tensor<4x4xf64>, %i: tensor<4x4xi32>, %c: tensor<4xcomplex<f32>>, %x: tensor<1x4x4x2xf32>, %k: tensor<3x3x2x2xf32>) -> (tensor<4x4xf64>, tensor<4x4xi32>, tensor<4xf32>, tensor<1x2x2x2xf32>) {
  %b = graph.contract %a, %a {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf64>, tensor<4x4xf64>) -> tensor<4x4xf64>
  %j = graph.add %i, %i : tensor<4x4xi32>
  %r = graph.abs %c : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
  %y = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]} : (tensor<1x4x4x2xf32>, tensor<3x3x2x2xf32>) -> tensor<1x4x4x2xf32>
  %m = graph.reduce_window %y {dilation = [1, 1, 1, 1], high = [0, 0, 0, 0], kind = "max", low = [0, 0, 0, 0], strides = [1, 2, 2, 1], window = [1, 2, 2, 1]} : (tensor<1x4x4x2xf32>) -> tensor<1x2x2x2xf32>
  %z = graph.conv %m, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]} : (tensor<1x2x2x2xf32>, tensor<3x3x2x2xf32>) -> tensor<1x2x2x2xf32>
  func.return %b, %j, %r, %z : tensor<4x4xf64>, tensor<4x4xi32>, tensor<4xf32>, tensor<1x2x2x2xf32>
}
// CHECK: graph.contract %a, %a {{.*}} : tensor<4x4xf64>
// CHECK: graph.add %i, %i : tensor<4x4xi32>
// CHECK: graph.abs %c : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
// CHECK: graph.conv {{.*}} -> tensor<1x4x4x2xf16>
// CHECK: graph.reduce_window {{.*}} : (tensor<1x4x4x2xf16>) -> tensor<1x2x2x2xf16>
// CHECK: graph.conv {{.*}} -> tensor<1x2x2x2xf32>
