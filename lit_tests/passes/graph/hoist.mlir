// RUN: tilewright-opt %s -p graph-hoist --split-input-file | tilewright-opt --split-input-file | filecheck %s

// What every round hands on is not carried; work on it leaves the loop, with the layout ops it needs. A transpose for
// the product's loads stays, and so does a bias that only the kernel spreads out.
func.func @main(%w: tensor<8x8xf32>, %b: tensor<8xf32>, %x: tensor<4x8xf32>, %n: tensor<i32>) -> tensor<4x8xf32> {
  %i, %v, %y = graph.while %n, %w, %x : (tensor<i32>, tensor<8x8xf32>, tensor<4x8xf32>) -> (tensor<i32>, tensor<8x8xf32>, tensor<4x8xf32>) {
  ^bb0(%j: tensor<i32>, %u: tensor<8x8xf32>, %a: tensor<4x8xf32>):
    %zero = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
    %more = graph.gt %j, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>, %u: tensor<8x8xf32>, %a: tensor<4x8xf32>):
    %p = graph.reshape %b : (tensor<8xf32>) -> tensor<8x1xf32>
    %q = graph.exp %p : tensor<8x1xf32>
    %t = graph.transpose %u {perm = [1, 0]} : tensor<8x8xf32>
    %c = graph.contract %a, %t {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %d = graph.broadcast %b {dims = [1]} : (tensor<8xf32>) -> tensor<4x8xf32>
    %e = graph.sin %d : tensor<4x8xf32>
    %f = graph.add %c, %e : tensor<4x8xf32>
    %r = graph.reshape %q : (tensor<8x1xf32>) -> tensor<8xf32>
    %s = graph.broadcast %r {dims = [1]} : (tensor<8xf32>) -> tensor<4x8xf32>
    %g = graph.mul %f, %s : tensor<4x8xf32>
    %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
    %k = graph.sub %j, %one : tensor<i32>
    graph.yield %k, %u, %g : (tensor<i32>, tensor<8x8xf32>, tensor<4x8xf32>)
  }
  func.return %y : tensor<4x8xf32>
}
// CHECK-LABEL: @main
// CHECK-NEXT: %[[P:.*]] = graph.reshape %b
// CHECK-NEXT: %[[Q:.*]] = graph.exp %[[P]]
// CHECK-NEXT: %{{.*}}, %[[Y:.*]] = graph.while %n, %x : (tensor<i32>, tensor<4x8xf32>)
// CHECK: } {
// CHECK: %[[T:.*]] = graph.transpose %w
// CHECK-NEXT: graph.contract %{{.*}}, %[[T]]
// CHECK-NEXT: graph.broadcast %b
// CHECK-NEXT: graph.sin
// CHECK-NOT: graph.exp
// CHECK: graph.reshape %[[Q]]
// CHECK: func.return %[[Y]]

// -----

// Out of two loops, and out of a condition; a loop that is invariant itself leaves whole.
func.func @main(%x: tensor<4x4xf32>, %n: tensor<i32>) -> tensor<i32> {
  %i = graph.while %n : tensor<i32> {
  ^bb0(%j: tensor<i32>):
    %s = graph.reduce %x {dims = [0, 1], kind = "sum"} : (tensor<4x4xf32>) -> tensor<f32>
    %k = graph.convert %s : (tensor<f32>) -> tensor<i32>
    %more = graph.lt %j, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>):
    %h = graph.while %j : tensor<i32> {
    ^bb1(%l: tensor<i32>):
      %m = graph.reduce %x {dims = [0, 1], kind = "max"} : (tensor<4x4xf32>) -> tensor<f32>
      %k = graph.convert %m : (tensor<f32>) -> tensor<i32>
      %more = graph.lt %l, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
      graph.yield %more : (tensor<i1>)
    } {
    ^bb1(%l: tensor<i32>):
      %o = graph.add %l, %l : tensor<i32>
      graph.yield %o : (tensor<i32>)
    }
    %e = graph.while %n : tensor<i32> {
    ^bb1(%l: tensor<i32>):
      %more = graph.lt %l, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      graph.yield %more : (tensor<i1>)
    } {
    ^bb1(%l: tensor<i32>):
      %o = graph.add %l, %l : tensor<i32>
      graph.yield %o : (tensor<i32>)
    }
    %p = graph.add %h, %e : tensor<i32>
    graph.yield %p : (tensor<i32>)
  }
  func.return %i : tensor<i32>
}
// CHECK-LABEL: @main
// CHECK: graph.reduce %x {dims = [0, 1], kind = "sum"}
// CHECK-NEXT: graph.convert
// CHECK-NEXT: graph.reduce %x {dims = [0, 1], kind = "max"}
// CHECK-NEXT: graph.convert
// CHECK-NEXT: %[[E:.*]] = graph.while %n
// CHECK: graph.while %n
// CHECK: graph.while
// CHECK-NOT: graph.while
// CHECK: graph.add %{{.*}}, %[[E]]
