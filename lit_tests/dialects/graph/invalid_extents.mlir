// RUN: INVALID

func.func private @part(%x: tensor<4xf32>, %n: tensor<i32>)
    -> (tensor<4xf32> {graph.extents = array<i64: 1>}, tensor<i32>) {
  func.return %x, %n : tensor<4xf32>, tensor<i32>
}
// CHECK: result 0 of @part is bounded; only the results of @main can be

// -----

func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32> {graph.extents = 1 : i64}, tensor<i32>) {
  func.return %x, %n : tensor<4xf32>, tensor<i32>
}
// CHECK: result 0 of @main: graph.extents is an array of the results that are extents, not 1 : i64

// -----

func.func @main(%x: tensor<4xf32>, %n: tensor<i32>)
    -> (tensor<4xf32> {graph.extents = array<i64: 1, -1>}, tensor<i32>) {
  func.return %x, %n : tensor<4xf32>, tensor<i32>
}
// CHECK: result 0 of @main: graph.extents has 2 entries for 1 dimensions

// -----

func.func @main(%x: tensor<4xf32>, %n: tensor<i32>)
    -> (tensor<4xf32> {graph.extents = array<i64: 2>}, tensor<i32>) {
  func.return %x, %n : tensor<4xf32>, tensor<i32>
}
// CHECK: result 0 of @main: its extent is a result behind it, and there is none of number 2

// -----

func.func @main(%x: tensor<4xf32>, %n: tensor<i64>)
    -> (tensor<4xf32> {graph.extents = array<i64: 1>}, tensor<i64>) {
  func.return %x, %n : tensor<4xf32>, tensor<i64>
}
// CHECK: result 0 of @main: its extent, result 1, must be an i32 of rank 0

// -----

func.func @main(%x: tensor<4xf32>, %n: tensor<i32>)
    -> (tensor<4xf32> {graph.extents = array<i64: 1>}, tensor<i32>, tensor<4xf32>) {
  func.return %x, %n, %x : tensor<4xf32>, tensor<i32>, tensor<4xf32>
}
// CHECK: the results of @main that are extents must be the last ones
