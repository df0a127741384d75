// RUN: tilewright compile %s --emit graph | filecheck %s

// A size that data decides is clamped to its bound, and becomes a result. A sum sees zeros behind it; a sum of the
// squares of numbers that all count needs none.
func.func @main(%x: tensor<16x4xf32>, %n: tensor<i32>)
    -> (tensor<?x4xf32, #stablehlo.bounds<16, ?>>, tensor<4xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.set_dimension_size %x, %n, dim = 0
    : (tensor<16x4xf32>, tensor<i32>) -> tensor<?x4xf32, #stablehlo.bounds<16, ?>>
  %1 = stablehlo.tanh %0 : tensor<?x4xf32, #stablehlo.bounds<16, ?>>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?x4xf32, #stablehlo.bounds<16, ?>>, tensor<f32>) -> tensor<4xf32>
  %3 = stablehlo.get_dimension_size %1, dim = 0 : (tensor<?x4xf32, #stablehlo.bounds<16, ?>>) -> tensor<i32>
  return %1, %2, %3 : tensor<?x4xf32, #stablehlo.bounds<16, ?>>, tensor<4xf32>, tensor<i32>
}
// CHECK: func.func @main
// CHECK-SAME: -> (tensor<16x4xf32> {graph.extents = array<i64: 3, -1>}, tensor<4xf32>, tensor<i32>, tensor<i32>)
// CHECK: graph.max
// CHECK: graph.min
// CHECK: graph.select
// CHECK: graph.reduce
