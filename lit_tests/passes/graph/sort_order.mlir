// RUN: tilewright-opt %s -p 'graph-simplify{target=ascend-910b1 only=sort-backwards,sort-keeps}' --split-input-file | filecheck %s

// Reversed before and behind: the other order, in which equals stay as they are.
func.func @main(%x: tensor<3x8xf32>, %i: tensor<3x8xi32>) -> (tensor<3x8xf32>, tensor<3x8xi32>) {
  %a = graph.reverse %x {dims = [1]} : tensor<3x8xf32>
  %b = graph.reverse %i {dims = [1]} : tensor<3x8xi32>
  %c, %d = graph.sort %a, %b {descending = [0], dim = 1, keys = [0], total = [0]} : (tensor<3x8xf32>, tensor<3x8xi32>) -> (tensor<3x8xf32>, tensor<3x8xi32>)
  %e = graph.reverse %c {dims = [1]} : tensor<3x8xf32>
  %f = graph.reverse %d {dims = [1]} : tensor<3x8xi32>
  func.return %e, %f : tensor<3x8xf32>, tensor<3x8xi32>
}
// CHECK: graph.sort %x, %i {descending = [1], dim = 1, keys = [0], total = [0]}
// CHECK-NEXT: func.return

// -----

// One operand is not reversed: nothing is said of where it goes.
func.func @main(%x: tensor<3x8xf32>, %i: tensor<3x8xi32>) -> tensor<3x8xf32> {
  %a = graph.reverse %x {dims = [1]} : tensor<3x8xf32>
  %c, %d = graph.sort %a, %i {descending = [0], dim = 1, keys = [0], total = [0]} : (tensor<3x8xf32>, tensor<3x8xi32>) -> (tensor<3x8xf32>, tensor<3x8xi32>)
  %e = graph.reverse %c {dims = [1]} : tensor<3x8xf32>
  func.return %e : tensor<3x8xf32>
}
// CHECK: graph.sort %{{.*}}, %i {descending = [0], dim = 1, keys = [0], total = [0]}

// -----

// Only the first positions are wanted: of one result two, of the other three.
func.func @main(%x: tensor<3x8xf32>, %i: tensor<3x8xi32>) -> (tensor<3x2xf32>, tensor<3x3xi32>) {
  %c, %d = graph.sort %x, %i {descending = [1], dim = 1, keys = [0], total = [0]} : (tensor<3x8xf32>, tensor<3x8xi32>) -> (tensor<3x8xf32>, tensor<3x8xi32>)
  %e = graph.slice %c {limits = [3, 2], starts = [0, 0], strides = [1, 1]} : (tensor<3x8xf32>) -> tensor<3x2xf32>
  %f = graph.slice %d {limits = [3, 3], starts = [0, 0], strides = [1, 1]} : (tensor<3x8xi32>) -> tensor<3x3xi32>
  func.return %e, %f : tensor<3x2xf32>, tensor<3x3xi32>
}
// CHECK: %[[S:.*]], %[[I:.*]] = graph.sort %x, %i {descending = [1], dim = 1, keep = 3, keys = [0], total = [0]}
// CHECK-NEXT: graph.slice %[[S]] {limits = [3, 2]
// CHECK-NEXT: func.return

// -----

// Not the first ones.
func.func @main(%x: tensor<3x8xf32>) -> tensor<3x2xf32> {
  %c = graph.sort %x {descending = [0], dim = 1, keys = [0], total = [0]} : tensor<3x8xf32>
  %e = graph.slice %c {limits = [3, 8], starts = [0, 6], strides = [1, 1]} : (tensor<3x8xf32>) -> tensor<3x2xf32>
  func.return %e : tensor<3x2xf32>
}
// CHECK: graph.sort %x {descending = [0], dim = 1, keys = [0], total = [0]} : tensor<3x8xf32>
