// RUN: tilewright-opt %s -p cse --split-input-file | filecheck %s --check-prefix CSE
// RUN: tilewright-opt %s -p dce --split-input-file | filecheck %s --check-prefix DCE
// RUN: tilewright-opt %s -p canonicalize --split-input-file | filecheck %s --check-prefix CANON
// RUN: tilewright-opt %s -p licm --split-input-file | filecheck %s --check-prefix LICM

// Equal ops are one, also in a branch; unused ones go, loops and host ops too: they give values and do nothing else. A loop
// of the graph level is none that licm knows: graph-hoist is for those.
func.func @main(%x: tensor<4xf32>, %i: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %a = graph.exp %x : tensor<4xf32>
  %b = graph.exp %x : tensor<4xf32>
  %unused = graph.while %x {} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%c: tensor<4xf32>):
    %t = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
    graph.yield %t : (tensor<i1>)
  } {
  ^bb0(%c: tensor<4xf32>):
    graph.yield %c : (tensor<4xf32>)
  }
  %z = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
  %loop:2 = graph.while %z, %x {trip_count = 3, counter = 0} : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  ^bb0(%k: tensor<i32>, %c: tensor<4xf32>):
    %n = graph.constant {value = #graph.data<i32, [], (3)>} : () -> tensor<i32>
    %l = graph.lt %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %l : (tensor<i1>)
  } {
  ^bb0(%k: tensor<i32>, %c: tensor<4xf32>):
    %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
    %m = graph.add %k, %one : tensor<i32>
    %e = graph.exp %x : tensor<4xf32>
    %d = graph.mul %c, %e : tensor<4xf32>
    graph.yield %m, %d : (tensor<i32>, tensor<4xf32>)
  }
  func.return %a, %b, %loop#1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
// CSE: func.func @main
// CSE: %[[A:.*]] = graph.exp %x
// CSE-NOT: graph.exp
// CSE: graph.while
// CSE: graph.mul %{{.*}}, %[[A]]
// CSE: func.return %[[A]], %[[A]]
// DCE: func.func @main
// DCE: graph.exp
// DCE-NEXT: graph.exp
// DCE-NEXT: graph.constant
// DCE-NEXT: graph.while {{.*}}trip_count = 3
// LICM: graph.while {{.*}}trip_count = 3
// LICM: graph.add
// LICM-NEXT: graph.exp %x

// -----

// Layout ops that change nothing go, neighbours of one kind merge, and a constant has the shape it is seen in.
func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<3x2xf32>, tensor<6xf32>, tensor<3x1xf32>, tensor<2x3xf32>) {
  %t = graph.transpose %x {perm = [1, 0]} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %u = graph.transpose %t {perm = [1, 0]} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %r = graph.reshape %x : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %s = graph.reshape %r : (tensor<3x2xf32>) -> tensor<6xf32>
  %c = graph.constant {value = #graph.data<f32, [3], (1.0, 2.0, 3.0)>} : () -> tensor<3xf32>
  %d = graph.reshape %c : (tensor<3xf32>) -> tensor<3x1xf32>
  %v = graph.convert %x : tensor<2x3xf32>
  %w = graph.slice %v {limits = [2, 3], starts = [0, 0], strides = [1, 1]} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %u, %r, %s, %d, %w : tensor<2x3xf32>, tensor<3x2xf32>, tensor<6xf32>, tensor<3x1xf32>, tensor<2x3xf32>
}
// CANON: %[[R:.*]] = graph.reshape %x : (tensor<2x3xf32>) -> tensor<3x2xf32>
// CANON-NEXT: %[[S:.*]] = graph.reshape %x : (tensor<2x3xf32>) -> tensor<6xf32>
// CANON-NEXT: %[[D:.*]] = graph.constant {value = #graph.data<f32, [3, 1], (1.0, 2.0, 3.0)>} : () -> tensor<3x1xf32>
// CANON-NEXT: func.return %x, %[[R]], %[[S]], %[[D]], %x
