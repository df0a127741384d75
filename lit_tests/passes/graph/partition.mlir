// RUN: tilewright-opt %s -p graph-partition --split-input-file | tilewright-opt --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p graph-partition,graph-partition --split-input-file | tilewright-opt --split-input-file | filecheck %s

// The counter, the condition and the start of the slice are the host's; the device gets the start as it is.
func.func @main(%x: tensor<8x4xf32>) -> (tensor<i32>, tensor<1x4xf32>) {
  %zero = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
  %s = graph.constant {value = #graph.data<f32, [1, 4], splat 0.0>} : () -> tensor<1x4xf32>
  %i, %t = graph.while %zero, %s : (tensor<i32>, tensor<1x4xf32>) -> (tensor<i32>, tensor<1x4xf32>) {
  ^bb0(%j: tensor<i32>, %u: tensor<1x4xf32>):
    %eight = graph.constant {value = #graph.data<i32, [], (8)>} : () -> tensor<i32>
    %more = graph.lt %j, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>, %u: tensor<1x4xf32>):
    %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
    %start = graph.mul %j, %j : tensor<i32>
    %row = graph.dynamic_slice %x, %start, %zero {sizes = [1, 4]} : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %v = graph.add %u, %row : tensor<1x4xf32>
    %k = graph.add %j, %one : tensor<i32>
    graph.yield %k, %v : (tensor<i32>, tensor<1x4xf32>)
  }
  func.return %i, %t : tensor<i32>, tensor<1x4xf32>
}
// CHECK-LABEL: @main
// CHECK: graph.while %{{.*}}, %{{.*}} {host = [0]}
// CHECK: ^{{.*}}(%[[J:.*]]: tensor<i32>, %{{.*}}
// CHECK-NEXT: %[[MORE:.*]] = graph.fusion %[[J]] {domain = [], kind = "scalar"} : (tensor<i32>) -> tensor<i1> {
// CHECK: graph.constant
// CHECK-NEXT: graph.lt
// CHECK: graph.yield %[[MORE]]
// CHECK: ^{{.*}}(%[[J:.*]]: tensor<i32>, %[[U:.*]]: tensor<1x4xf32>):
// CHECK-NEXT: %[[START:.*]], %[[K:.*]] = graph.fusion %[[J]] {domain = [], kind = "scalar"}
// CHECK: graph.mul
// CHECK: graph.add
// CHECK: graph.dynamic_slice %x, %[[START]],
// CHECK-NEXT: %[[V:.*]] = graph.add
// CHECK-NEXT: graph.yield %[[K]], %[[V]]

// -----

// A limit that is an argument is read once, before the loop; a number that the device computes in every round is
// read where it is made, and compared by the host.
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
  %i, %y = graph.while %zero, %x : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  ^bb0(%j: tensor<i32>, %u: tensor<4xf32>):
    %few = graph.lt %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %sum = graph.reduce %u {dims = [0], kind = "sum"} : (tensor<4xf32>) -> tensor<f32>
    %limit = graph.constant {value = #graph.data<f32, [], (1.0)>} : () -> tensor<f32>
    %large = graph.gt %sum, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %more = graph.and %few, %large : tensor<i1>
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>, %u: tensor<4xf32>):
    %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
    %k = graph.add %j, %one : tensor<i32>
    %v = graph.mul %u, %u : tensor<4xf32>
    graph.yield %k, %v : (tensor<i32>, tensor<4xf32>)
  }
  func.return %y : tensor<4xf32>
}
// CHECK-LABEL: @main
// CHECK-NEXT: %[[N:.*]] = graph.to_host %n : tensor<i32>
// CHECK: graph.while {{.*}} {host = [0]}
// CHECK: %[[FEW:.*]] = graph.fusion %{{.*}}, %[[N]] {domain = [], kind = "scalar"}
// CHECK: %[[SUM:.*]] = graph.reduce
// CHECK-NEXT: %[[READ:.*]] = graph.to_host %[[SUM]] : tensor<f32>
// CHECK-NEXT: %[[MORE:.*]] = graph.fusion %[[READ]], %[[FEW]] {domain = [], kind = "scalar"} : (tensor<f32>, tensor<i1>) -> tensor<i1> {
// CHECK: graph.gt
// CHECK: graph.and
// CHECK: graph.yield %[[MORE]] : (tensor<i1>)

// -----

// Branches give numbers, too. One that the device makes is read for the choice only.
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> (tensor<i32>, tensor<f32>) {
  %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
  %two = graph.add %one, %one : tensor<i32>
  %i, %s = graph.case %n : (tensor<i32>) -> (tensor<i32>, tensor<f32>) {
    %sum = graph.reduce %x {dims = [0], kind = "sum"} : (tensor<4xf32>) -> tensor<f32>
    graph.yield %one, %sum : (tensor<i32>, tensor<f32>)
  } {
    %max = graph.reduce %x {dims = [0], kind = "max"} : (tensor<4xf32>) -> tensor<f32>
    graph.yield %two, %max : (tensor<i32>, tensor<f32>)
  }
  func.return %i, %s : tensor<i32>, tensor<f32>
}
// CHECK-LABEL: @main
// CHECK: %[[TWO:.*]] = graph.fusion {domain = [], kind = "scalar"} : () -> tensor<i32> {
// CHECK: %[[N:.*]] = graph.to_host %n : tensor<i32>
// CHECK: %[[I:.*]], %[[S:.*]] = graph.case %[[N]] {host = [0]}
// CHECK: graph.reduce
// CHECK: graph.yield %{{.*}}, %{{.*}}
// CHECK: graph.yield %[[TWO]], %{{.*}}
// CHECK: func.return %[[I]], %[[S]]

// -----

// What only the device can have, and what steers nothing, stays there.
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> (tensor<2xf32>, tensor<f32>) {
  %m = graph.add %n, %n : tensor<i32>
  %y = graph.dynamic_slice %x, %m {sizes = [2]} : (tensor<4xf32>, tensor<i32>) -> tensor<2xf32>
  %s = graph.reduce %x {dims = [0], kind = "sum"} : (tensor<4xf32>) -> tensor<f32>
  %r = graph.mul %s, %s : tensor<f32>
  func.return %y, %r : tensor<2xf32>, tensor<f32>
}
// CHECK-LABEL: @main
// CHECK-NEXT: graph.add
// CHECK-NEXT: graph.dynamic_slice
// CHECK-NEXT: graph.reduce
// CHECK-NEXT: graph.mul
// CHECK-NEXT: func.return
