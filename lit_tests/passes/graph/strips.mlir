// RUN: tilewright-opt %s -p 'graph-strips{strips=4096}' --split-input-file | filecheck %s

// Rows of the exponentials are made in strips of 16: one result is put together from its strips, the other added up.
func.func @main(%q: tensor<64x4xf32>, %k: tensor<64x4xf32>, %v: tensor<64x4xf32>) -> (tensor<64x4xf32>, tensor<64x4xf32>) {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<64x4xf32>, tensor<64x4xf32>) -> tensor<64x64xf32>
  %e = graph.exp %s : tensor<64x64xf32>
  %t = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<64x64xf32>) -> tensor<64xf32>
  %u = graph.broadcast %t {dims = [0]} : (tensor<64xf32>) -> tensor<64x64xf32>
  %w = graph.div %e, %u : tensor<64x64xf32>
  %a = graph.contract %w, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf32>, tensor<64x4xf32>) -> tensor<64x4xf32>
  %b = graph.contract %w, %q {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf32>, tensor<64x4xf32>) -> tensor<64x4xf32>
  func.return %a, %b : tensor<64x4xf32>, tensor<64x4xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: %{{.*}}, %a, %b = graph.while {{.*}} {counter = 0, trip_count = 4}
// CHECK: } {
// CHECK-NEXT: ^bb0(%[[I:.*]]: tensor<i32>, %[[A:.*]]: tensor<64x4xf32>, %[[B:.*]]: tensor<64x4xf32>):
// CHECK: %[[LENGTH:.*]] = graph.constant {value = #graph.data<i32, [], (16)>}
// CHECK-NEXT: %[[AT:.*]] = graph.mul %[[I]], %[[LENGTH]]
// CHECK: %[[Q:.*]] = graph.dynamic_slice %q, %[[AT]]
// CHECK-NEXT: graph.contract %[[Q]], %k {{.*}} -> tensor<16x64xf32>
// CHECK: %[[W:.*]] = graph.div {{.*}} : tensor<16x64xf32>
// CHECK-NEXT: %[[X:.*]] = graph.contract %[[W]], %v
// CHECK-NEXT: %[[Y:.*]] = graph.contract %[[W]], %[[Q]] {{.*}} -> tensor<64x4xf32>
// CHECK-NEXT: %[[PUT:.*]] = graph.dynamic_update_slice %[[A]], %[[X]], %[[AT]]
// CHECK-NEXT: %[[SUM:.*]] = graph.add %[[B]], %[[Y]]
// CHECK: graph.yield %{{.*}}, %[[PUT]], %[[SUM]]
// CHECK: func.return %a, %b

// -----

// Heads come before rows: nothing of them is added up. A mask of positions is made anew, f16 is added up in f32.
func.func @main(%q: tensor<4x32x2xf16>, %k: tensor<4x32x2xf16>) -> (tensor<4x32x2xf16>, tensor<32x2xf16>) {
  %s = graph.contract %q, %k {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} : (tensor<4x32x2xf16>, tensor<4x32x2xf16>) -> tensor<4x32x32xf16>
  %i = graph.iota {dim = 0} : () -> tensor<32xi32>
  %r = graph.broadcast %i {dims = [1]} : (tensor<32xi32>) -> tensor<4x32x32xi32>
  %c = graph.broadcast %i {dims = [2]} : (tensor<32xi32>) -> tensor<4x32x32xi32>
  %m = graph.le %c, %r : (tensor<4x32x32xi32>, tensor<4x32x32xi32>) -> tensor<4x32x32xi1>
  %z = graph.constant {value = #graph.data<f16, [4, 32, 32], splat 0.0>} : () -> tensor<4x32x32xf16>
  %x = graph.select %m, %s, %z : (tensor<4x32x32xi1>, tensor<4x32x32xf16>, tensor<4x32x32xf16>) -> tensor<4x32x32xf16>
  %a = graph.contract %x, %k {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : (tensor<4x32x32xf16>, tensor<4x32x2xf16>) -> tensor<4x32x2xf16>
  %b = graph.contract %x, %q {lhs_batch = [], lhs_contract = [0, 1], rhs_batch = [], rhs_contract = [0, 1]} : (tensor<4x32x32xf16>, tensor<4x32x2xf16>) -> tensor<32x2xf16>
  func.return %a, %b : tensor<4x32x2xf16>, tensor<32x2xf16>
}
// CHECK-LABEL: func.func @main
// CHECK: graph.while {{.*}} {counter = 0, trip_count = 2} : (tensor<i32>, tensor<4x32x2xf16>, tensor<32x2xf32>)
// CHECK: graph.dynamic_slice %q, %{{.*}} {sizes = [2, 32, 2]}
// CHECK: graph.dynamic_slice %k, %{{.*}} {sizes = [2, 32, 2]}
// CHECK: graph.contract {{.*}} -> tensor<2x32x32xf16>
// CHECK: graph.le {{.*}} -> tensor<2x32x32xi1>
// CHECK: graph.constant {value = #graph.data<f16, [2, 32, 32], splat 0.0>}
// CHECK: graph.contract {{.*}} -> tensor<32x2xf32>
// CHECK: graph.convert {{.*}} : (tensor<32x2xf32>) -> tensor<32x2xf16>

// -----

// What is left over of 67 rows is a strip of its own, behind the loop.
func.func @main(%q: tensor<67x4xf32>, %k: tensor<67x4xf32>) -> tensor<67x4xf32> {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<67x4xf32>, tensor<67x4xf32>) -> tensor<67x67xf32>
  %e = graph.tanh %s : tensor<67x67xf32>
  %a = graph.contract %e, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<67x67xf32>, tensor<67x4xf32>) -> tensor<67x4xf32>
  func.return %a : tensor<67x4xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: graph.while {{.*}} {counter = 0, trip_count = 4}
// CHECK: %[[FROM:.*]] = graph.constant {value = #graph.data<i32, [], (56)>}
// CHECK: graph.dynamic_slice %q, %[[FROM]], %{{.*}} {sizes = [11, 4]}
// CHECK: %[[ALL:.*]] = graph.dynamic_update_slice %{{.*}}, %{{.*}}, %[[FROM]]
// CHECK: func.return %[[ALL]]

// -----

// What follows from the first results needs the large values again: they are computed again, in strips of their own.
// The negation, which stood between the two, comes behind the first loop.
func.func @main(%q: tensor<64x4xf32>, %k: tensor<64x4xf32>) -> tensor<64x4xf32> {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<64x4xf32>, tensor<64x4xf32>) -> tensor<64x64xf32>
  %e = graph.tanh %s : tensor<64x64xf32>
  %a = graph.contract %e, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf32>, tensor<64x4xf32>) -> tensor<64x4xf32>
  %n = graph.neg %a : tensor<64x4xf32>
  %b = graph.contract %n, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<64x4xf32>, tensor<64x4xf32>) -> tensor<64x64xf32>
  %d = graph.mul %b, %e : tensor<64x64xf32>
  %c = graph.contract %d, %q {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf32>, tensor<64x4xf32>) -> tensor<64x4xf32>
  %f = graph.add %c, %n : tensor<64x4xf32>
  func.return %f : tensor<64x4xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: %{{.*}}, %[[A:.*]] = graph.while
// CHECK: graph.tanh {{.*}} : tensor<16x64xf32>
// CHECK: %[[N:.*]] = graph.neg %[[A]]
// CHECK: %{{.*}}, %[[C:.*]] = graph.while
// CHECK: %[[E:.*]] = graph.tanh {{.*}} : tensor<16x64xf32>
// CHECK: graph.dynamic_slice %[[N]]
// CHECK: graph.mul %{{.*}}, %[[E]]
// CHECK: graph.add %[[C]], %[[N]]

// -----

// Attention of one kernel stays whole, as long as nothing else needs its scores.
func.func @main(%q: tensor<64x16xf32>, %k: tensor<64x16xf32>, %v: tensor<64x16xf32>) -> tensor<64x16xf32> {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x64xf32>
  %m = graph.reduce %s {dims = [1], kind = "max"} : (tensor<64x64xf32>) -> tensor<64xf32>
  %n = graph.broadcast %m {dims = [0]} : (tensor<64xf32>) -> tensor<64x64xf32>
  %x = graph.sub %s, %n : tensor<64x64xf32>
  %e = graph.exp %x : tensor<64x64xf32>
  %t = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<64x64xf32>) -> tensor<64xf32>
  %u = graph.broadcast %t {dims = [0]} : (tensor<64xf32>) -> tensor<64x64xf32>
  %w = graph.div %e, %u : tensor<64x64xf32>
  %a = graph.contract %w, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
  func.return %a : tensor<64x16xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: graph.while
// CHECK: func.return

// -----

// What somebody else needs whole is not made in strips, and neither is what is hardly larger than what it is made of.
func.func @main(%q: tensor<64x4xf32>, %k: tensor<64x4xf32>, %x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x4xf32>, tensor<64x4xf32>) {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<64x4xf32>, tensor<64x4xf32>) -> tensor<64x64xf32>
  %e = graph.tanh %s : tensor<64x64xf32>
  %a = graph.contract %e, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf32>, tensor<64x4xf32>) -> tensor<64x4xf32>
  %y = graph.contract %x, %x {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %f = graph.tanh %y : tensor<64x64xf32>
  %b = graph.contract %f, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf32>, tensor<64x4xf32>) -> tensor<64x4xf32>
  func.return %e, %a, %b : tensor<64x64xf32>, tensor<64x4xf32>, tensor<64x4xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: graph.while
// CHECK: func.return

// -----

// Wide sums that an epilogue reads are not stored, and what is has half of their bytes.
func.func @main(%q: tensor<64x4xf16>, %k: tensor<64x4xf16>) -> tensor<64x64xf16> {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<64x4xf16>, tensor<64x4xf16>) -> tensor<64x64xf32>
  %e = graph.tanh %s : tensor<64x64xf32>
  %r = graph.convert %e : (tensor<64x64xf32>) -> tensor<64x64xf16>
  func.return %r : tensor<64x64xf16>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: graph.while
// CHECK: func.return
