// RUN: tilewright-opt %s -p graph-strips --split-input-file | filecheck %s

// Attention and its gradient: four products take what is made of the same scores. Three get scores of their own, with
// the maxima of rows and the inverses of their sums. Half of them is exact, too. The sum of weights times their gradient is one over %o.
func.func @main(%q: tensor<2048x4xf32>, %k: tensor<4112x4xf32>, %v: tensor<4112x4xf32>, %d: tensor<2048x4xf32>) -> (tensor<2048x4xf32>, tensor<2048x4xf32>, tensor<4112x4xf32>, tensor<4112x4xf32>) {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<2048x4xf32>, tensor<4112x4xf32>) -> tensor<2048x4112xf32>
  %m = graph.reduce %s {dims = [1], kind = "max"} : (tensor<2048x4112xf32>) -> tensor<2048xf32>
  %mm = graph.broadcast %m {dims = [0]} : (tensor<2048xf32>) -> tensor<2048x4112xf32>
  %x = graph.sub %s, %mm : tensor<2048x4112xf32>
  %e = graph.exp %x : tensor<2048x4112xf32>
  %l = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<2048x4112xf32>) -> tensor<2048xf32>
  %ll = graph.broadcast %l {dims = [0]} : (tensor<2048xf32>) -> tensor<2048x4112xf32>
  %p = graph.div %e, %ll : tensor<2048x4112xf32>
  %o = graph.contract %p, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<2048x4112xf32>, tensor<4112x4xf32>) -> tensor<2048x4xf32>
  %dv = graph.contract %p, %d {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<2048x4112xf32>, tensor<2048x4xf32>) -> tensor<4112x4xf32>
  %g = graph.contract %d, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<2048x4xf32>, tensor<4112x4xf32>) -> tensor<2048x4112xf32>
  %pg = graph.mul %p, %g : tensor<2048x4112xf32>
  %r = graph.reduce %pg {dims = [1], kind = "sum"} : (tensor<2048x4112xf32>) -> tensor<2048xf32>
  %rr = graph.broadcast %r {dims = [0]} : (tensor<2048xf32>) -> tensor<2048x4112xf32>
  %c = graph.sub %g, %rr : tensor<2048x4112xf32>
  %dp = graph.mul %p, %c : tensor<2048x4112xf32>
  %two = graph.constant {value = #graph.data<f32, [2048, 4112], splat 2.0>} : () -> tensor<2048x4112xf32>
  %ds = graph.div %dp, %two : tensor<2048x4112xf32>
  %dq = graph.contract %ds, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<2048x4112xf32>, tensor<4112x4xf32>) -> tensor<2048x4xf32>
  %dk = graph.contract %ds, %q {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<2048x4112xf32>, tensor<2048x4xf32>) -> tensor<4112x4xf32>
  func.return %o, %dq, %dk, %dv : tensor<2048x4xf32>, tensor<2048x4xf32>, tensor<4112x4xf32>, tensor<4112x4xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: graph.while
// CHECK: %m = graph.reduce %s {dims = [1], kind = "max"}
// CHECK: %l = graph.reduce %e {dims = [1], kind = "sum"}
// CHECK: %[[ONE:.*]] = graph.constant {value = #graph.data<f32, [2048], splat 1.0>}
// CHECK: %o = graph.contract %p, %v {{.*}} attributes {own_scores}
// CHECK-NEXT: %[[M:.*]] = graph.broadcast %m {dims = [0]}
// CHECK-NEXT: %[[INVERSE:.*]] = graph.div %[[ONE]], %l : tensor<2048xf32>
// CHECK-NEXT: %[[S:.*]] = graph.contract %q, %k
// CHECK-NEXT: %[[X:.*]] = graph.sub %[[S]], %[[M]]
// CHECK-NEXT: %[[E:.*]] = graph.exp %[[X]]
// CHECK-NEXT: %[[L:.*]] = graph.broadcast %[[INVERSE]] {dims = [0]}
// CHECK-NEXT: %[[P:.*]] = graph.mul %[[E]], %[[L]]
// CHECK-NEXT: %dv = graph.contract %[[P]], %d {{.*}} attributes {own_scores}
// CHECK-NEXT: %[[PRODUCT:.*]] = graph.mul %o, %d : tensor<2048x4xf32>
// CHECK-NEXT: %r_without_g = graph.reduce %[[PRODUCT]] {dims = [1], kind = "sum"} : (tensor<2048x4xf32>) -> tensor<2048xf32>
// CHECK-NEXT: graph.contract %q, %k
// CHECK: graph.exp
// CHECK: %[[P2:.*]] = graph.mul %{{.*}}, %{{.*}} : tensor<2048x4112xf32>
// CHECK-NEXT: %[[G:.*]] = graph.contract %d, %v
// CHECK-NEXT: %[[R:.*]] = graph.broadcast %r_without_g {dims = [0]}
// CHECK-NEXT: %[[C:.*]] = graph.sub %[[G]], %[[R]]
// CHECK-NEXT: %[[DP:.*]] = graph.mul %[[P2]], %[[C]]
// CHECK-NEXT: %[[HALF:.*]] = graph.constant {value = #graph.data<f32, [2048, 4112], splat 0.5>}
// CHECK-NEXT: %[[DS:.*]] = graph.mul %[[DP]], %[[HALF]]
// CHECK-NEXT: %dq = graph.contract %[[DS]], %k {{.*}} attributes {own_scores}
// CHECK-NEXT: graph.contract %q, %k
// CHECK: graph.contract %d, %v
// CHECK: %dk = graph.contract %{{.*}}, %q {{.*}} attributes {own_scores}
// CHECK: func.return %o, %dq, %dk, %dv

// -----

// Another sum of what the weights become is none of the result: all is made in strips.
func.func @main(%q: tensor<2048x4xf32>, %k: tensor<4112x4xf32>) -> (tensor<2048x4xf32>, tensor<4112x4xf32>, tensor<2048xf32>) {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<2048x4xf32>, tensor<4112x4xf32>) -> tensor<2048x4112xf32>
  %e = graph.tanh %s : tensor<2048x4112xf32>
  %l = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<2048x4112xf32>) -> tensor<2048xf32>
  %a = graph.contract %e, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<2048x4112xf32>, tensor<4112x4xf32>) -> tensor<2048x4xf32>
  %b = graph.contract %e, %q {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<2048x4112xf32>, tensor<2048x4xf32>) -> tensor<4112x4xf32>
  func.return %a, %b, %l : tensor<2048x4xf32>, tensor<4112x4xf32>, tensor<2048xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: own_scores
// CHECK: graph.while
