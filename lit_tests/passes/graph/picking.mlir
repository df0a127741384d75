// RUN: tilewright-opt %s -p graph-simplify --split-input-file | filecheck %s

// One logarithm of each row is picked before it is computed: of the scores, and of the rows' own numbers, which are
// alike in all columns.
func.func @main(%x: tensor<6x40xf32>, %l: tensor<6x1xf32>, %i: tensor<6x1x1xi32>) -> tensor<6x1xf32> {
  %b = graph.broadcast %l {dims = [0, 1]} : (tensor<6x1xf32>) -> tensor<6x40xf32>
  %c = graph.constant {value = #graph.data<f32, [6, 40], splat 2.0>} : () -> tensor<6x40xf32>
  %d = graph.mul %x, %c : tensor<6x40xf32>
  %s = graph.sub %d, %b : tensor<6x40xf32>
  %g = graph.gather %s, %i {offset_dims = [], collapsed_dims = [1], x_batch = [0], indices_batch = [0], start_map = [1], index_dim = 2, slice_sizes = [1, 1]} : (tensor<6x40xf32>, tensor<6x1x1xi32>) -> tensor<6x1xf32>
  func.return %g : tensor<6x1xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[X:.*]] = graph.gather %x, %i {{.*}} -> tensor<6x1xf32>
// CHECK: %[[D:.*]] = graph.mul %[[X]], %{{.*}} : tensor<6x1xf32>
// CHECK: %[[L:.*]] = graph.reshape %l : (tensor<6x1xf32>) -> tensor<6xf32>
// CHECK: %[[B:.*]] = graph.broadcast %[[L]] {dims = [0]} : (tensor<6xf32>) -> tensor<6x1xf32>
// CHECK: %[[S:.*]] = graph.sub %[[D]], %[[B]]
// CHECK-NEXT: func.return %[[S]]

// -----

// What is picked of a function of two tensors stays, and so does what is hardly less than there is.
func.func @main(%x: tensor<6x40xf32>, %y: tensor<6x40xf32>, %i: tensor<6x1x1xi32>, %j: tensor<6x20x1xi32>) -> (tensor<6x1xf32>, tensor<6x20xf32>) {
  %s = graph.sub %x, %y : tensor<6x40xf32>
  %g = graph.gather %s, %i {offset_dims = [], collapsed_dims = [1], x_batch = [0], indices_batch = [0], start_map = [1], index_dim = 2, slice_sizes = [1, 1]} : (tensor<6x40xf32>, tensor<6x1x1xi32>) -> tensor<6x1xf32>
  %e = graph.exp %x : tensor<6x40xf32>
  %h = graph.gather %e, %j {offset_dims = [], collapsed_dims = [1], x_batch = [0], indices_batch = [0], start_map = [1], index_dim = 2, slice_sizes = [1, 1]} : (tensor<6x40xf32>, tensor<6x20x1xi32>) -> tensor<6x20xf32>
  func.return %g, %h : tensor<6x1xf32>, tensor<6x20xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[S:.*]] = graph.sub %x, %y
// CHECK-NEXT: graph.gather %[[S]], %i
// CHECK-NEXT: %[[E:.*]] = graph.exp %x
// CHECK-NEXT: graph.gather %[[E]], %j

// -----

// One update for each row of ten, at the place that the index says within the row; none where it is outside.
func.func @main(%i: tensor<6xi32>, %u: tensor<6x1xf32>) -> tensor<6x10xf32> {
  %z = graph.constant {value = #graph.data<f32, [60, 1], splat 1.5>} : () -> tensor<60x1xf32>
  %n = graph.iota {dim = 0} : () -> tensor<6xi32>
  %t = graph.constant {value = #graph.data<i32, [6], splat 10>} : () -> tensor<6xi32>
  %f = graph.mul %n, %t : tensor<6xi32>
  %at = graph.add %f, %i : tensor<6xi32>
  %s = graph.scatter %z, %at, %u {kind = "sum", groups = 6} : (tensor<60x1xf32>, tensor<6xi32>, tensor<6x1xf32>) -> tensor<60x1xf32>
  %r = graph.reshape %s : (tensor<60x1xf32>) -> tensor<6x10xf32>
  func.return %r : tensor<6x10xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[AT:.*]] = graph.add
// CHECK: %[[PLACE:.*]] = graph.sub %[[AT]], %{{.*}} : tensor<6xi32>
// CHECK: %[[HERE:.*]] = graph.eq
// CHECK: %[[NEW:.*]] = graph.add
// CHECK: %[[R:.*]] = graph.select %[[HERE]], %[[NEW]]
// CHECK-NEXT: func.return %[[R]] : tensor<6x10xf32>

// -----

// Several updates for a group may meet.
func.func @main(%i: tensor<12xi32>, %u: tensor<12x1xf32>) -> tensor<60x1xf32> {
  %z = graph.constant {value = #graph.data<f32, [60, 1], splat 0.0>} : () -> tensor<60x1xf32>
  %s = graph.scatter %z, %i, %u {kind = "sum", groups = 6} : (tensor<60x1xf32>, tensor<12xi32>, tensor<12x1xf32>) -> tensor<60x1xf32>
  func.return %s : tensor<60x1xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: graph.scatter

// -----

// Reshapes that follow each other are one, or none.
func.func @main(%x: tensor<6x10xf32>) -> (tensor<6x10xf32>, tensor<10x6xf32>) {
  %a = graph.reshape %x : (tensor<6x10xf32>) -> tensor<60xf32>
  %b = graph.reshape %a : (tensor<60xf32>) -> tensor<6x10xf32>
  %c = graph.reshape %a : (tensor<60xf32>) -> tensor<10x6xf32>
  func.return %b, %c : tensor<6x10xf32>, tensor<10x6xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[C:.*]] = graph.reshape %x : (tensor<6x10xf32>) -> tensor<10x6xf32>
// CHECK-NEXT: func.return %x, %[[C]]

// -----

// Places with one dimension more are another view of them, for the gather; the sum reads them as they are spread.
func.func @main(%x: tensor<90x8xf32>, %i: tensor<6xi32>) -> (tensor<6x8xf32>, tensor<6x1xi32>) {
  %b = graph.broadcast %i {dims = [0]} : (tensor<6xi32>) -> tensor<6x1xi32>
  %g = graph.gather %x, %b {offset_dims = [1], collapsed_dims = [0], x_batch = [], indices_batch = [], start_map = [0], index_dim = 1, slice_sizes = [1, 8]} : (tensor<90x8xf32>, tensor<6x1xi32>) -> tensor<6x8xf32>
  %s = graph.add %b, %b : tensor<6x1xi32>
  func.return %g, %s : tensor<6x8xf32>, tensor<6x1xi32>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[I:.*]] = graph.reshape %i : (tensor<6xi32>) -> tensor<6x1xi32>
// CHECK-NEXT: %[[B:.*]] = graph.broadcast %i {dims = [0]}
// CHECK-NEXT: graph.gather %x, %[[I]]
// CHECK-NEXT: graph.add %[[B]], %[[B]]

// -----

// Places that follow from positions, 0, 0, 2, 2, 4, 4, and one place from the end on: slices, repeated and turned around.
func.func @main(%x: tensor<7x3xf32>) -> (tensor<6x3xf32>, tensor<4x3xf32>) {
  %p = graph.iota {dim = 0} : () -> tensor<6xi32>
  %c = graph.constant {value = #graph.data<i32, [6], splat 2>} : () -> tensor<6xi32>
  %d = graph.div %p, %c : tensor<6xi32>
  %e = graph.mul %d, %c : tensor<6xi32>
  %i = graph.reshape %e : (tensor<6xi32>) -> tensor<6x1xi32>
  %g = graph.gather %x, %i {offset_dims = [1], collapsed_dims = [0], x_batch = [], indices_batch = [], start_map = [0], index_dim = 1, slice_sizes = [1, 3]} : (tensor<7x3xf32>, tensor<6x1xi32>) -> tensor<6x3xf32>
  %j = graph.constant {value = #graph.data<i32, [4, 1], (6, 5, 4, 3)>} : () -> tensor<4x1xi32>
  %h = graph.gather %x, %j {offset_dims = [1], collapsed_dims = [0], x_batch = [], indices_batch = [], start_map = [0], index_dim = 1, slice_sizes = [1, 3]} : (tensor<7x3xf32>, tensor<4x1xi32>) -> tensor<4x3xf32>
  func.return %g, %h : tensor<6x3xf32>, tensor<4x3xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[S:.*]] = graph.slice %x {limits = [5, 3], starts = [0, 0], strides = [2, 1]}
// CHECK-NEXT: %[[B:.*]] = graph.broadcast %[[S]] {dims = [0, 2]} : (tensor<3x3xf32>) -> tensor<3x2x3xf32>
// CHECK-NEXT: %[[G:.*]] = graph.reshape %[[B]] : (tensor<3x2x3xf32>) -> tensor<6x3xf32>
// CHECK-NEXT: %[[T:.*]] = graph.slice %x {limits = [7, 3], starts = [3, 0], strides = [1, 1]}
// CHECK-NEXT: %[[H:.*]] = graph.reverse %[[T]] {dims = [0]}
// CHECK-NEXT: func.return %[[G]], %[[H]]

// -----

// Uneven places are read.
func.func @main(%x: tensor<7x3xf32>) -> tensor<3x3xf32> {
  %j = graph.constant {value = #graph.data<i32, [3, 1], (0, 1, 3)>} : () -> tensor<3x1xi32>
  %h = graph.gather %x, %j {offset_dims = [1], collapsed_dims = [0], x_batch = [], indices_batch = [], start_map = [0], index_dim = 1, slice_sizes = [1, 3]} : (tensor<7x3xf32>, tensor<3x1xi32>) -> tensor<3x3xf32>
  func.return %h : tensor<3x3xf32>
}
// CHECK: graph.gather
