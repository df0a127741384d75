// RUN: tilewright-opt %s -p graph-simplify --split-input-file | filecheck %s

// As JAX counts the places of an open dimension: 0 + 1 * i.
func.func @main(%x: tensor<8xi32>) -> tensor<8xi32> {
  %0 = graph.constant {value = #graph.data<i32, [8], splat 0>} : () -> tensor<8xi32>
  %1 = graph.constant {value = #graph.data<i32, [8], splat 1>} : () -> tensor<8xi32>
  %i = graph.iota {dim = 0} : () -> tensor<8xi32>
  %m = graph.mul %1, %i : tensor<8xi32>
  %a = graph.add %0, %m : tensor<8xi32>
  %d = graph.div %a, %1 : tensor<8xi32>
  %s = graph.sub %d, %0 : tensor<8xi32>
  %r = graph.mul %s, %x : tensor<8xi32>
  func.return %r : tensor<8xi32>
}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[I:.*]] = graph.iota
// CHECK-NEXT: %[[R:.*]] = graph.mul %[[I]], %x
// CHECK-NEXT: func.return %[[R]]

// -----

// -0 plus 0 is 0, 0 minus a number is another one, and 1 by a number, too: these stay. A float times 1 is this float.
func.func @main(%x: tensor<8xf32>, %n: tensor<8xi32>) -> (tensor<8xf32>, tensor<8xi32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = graph.constant {value = #graph.data<f32, [8], splat 0.0>} : () -> tensor<8xf32>
  %1 = graph.constant {value = #graph.data<f32, [8], splat 1.0>} : () -> tensor<8xf32>
  %z = graph.constant {value = #graph.data<i32, [8], splat 0>} : () -> tensor<8xi32>
  %a = graph.add %x, %0 : tensor<8xf32>
  %b = graph.sub %z, %n : tensor<8xi32>
  %c = graph.div %1, %x : tensor<8xf32>
  %d = graph.mul %x, %1 : tensor<8xf32>
  func.return %a, %b, %c, %d : tensor<8xf32>, tensor<8xi32>, tensor<8xf32>, tensor<8xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]] = graph.add %x
// CHECK: %[[B:.*]] = graph.sub
// CHECK: %[[C:.*]] = graph.div
// CHECK-NEXT: func.return %[[A]], %[[B]], %[[C]], %x
