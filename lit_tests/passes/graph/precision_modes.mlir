// RUN: tilewright-opt %s -p 'graph-precision{precision=float16}' --split-input-file | tilewright-opt --split-input-file | filecheck %s

// All that can be is cast; an argument or a result is f32 still. A sum with a constant below f16's range stays f32.
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = graph.exp %x : tensor<4x8xf32>
  %s = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %c = graph.constant {value = #graph.data<f32, [4], splat 1.0e-06>} : () -> tensor<4xf32>
  %a = graph.add %s, %c : tensor<4xf32>
  %b = graph.broadcast %a {dims = [0]} : (tensor<4xf32>) -> tensor<4x8xf32>
  %d = graph.div %e, %b : tensor<4x8xf32>
  func.return %d : tensor<4x8xf32>
}
// CHECK: kept = {{\[\[}}"graph.add", "a constant is outside f16's range", 1 : i64, {{.*}}, mode = "float16", narrow = 3 : i64, products = 0 : i64
// CHECK-LABEL: @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: %[[X:.*]] = graph.convert %x : (tensor<4x8xf32>) -> tensor<4x8xf16>
// CHECK-NEXT: %[[E:.*]] = graph.exp %[[X]] : tensor<4x8xf16>
// CHECK-NEXT: %[[S:.*]] = graph.reduce %[[E]] {{.*}} : (tensor<4x8xf16>) -> tensor<4xf16>
// CHECK-NEXT: %[[WIDE:.*]] = graph.convert %[[S]] : (tensor<4xf16>) -> tensor<4xf32>
// CHECK: %[[A:.*]] = graph.add %[[WIDE]], %{{.*}} : tensor<4xf32>
// CHECK-NEXT: %[[N:.*]] = graph.convert %[[A]] : (tensor<4xf32>) -> tensor<4xf16>
// CHECK-NEXT: %[[B:.*]] = graph.broadcast %[[N]] {{.*}} : (tensor<4xf16>) -> tensor<4x8xf16>
// CHECK-NEXT: %[[D:.*]] = graph.div %[[E]], %[[B]] : tensor<4x8xf16>
// CHECK-NEXT: %[[R:.*]] = graph.convert %[[D]] : (tensor<4x8xf16>) -> tensor<4x8xf32>
// CHECK-NEXT: func.return %[[R]] : tensor<4x8xf32>

// -----

// Rows are taken of a table before they are cast: the table is larger.
func.func @main(%t: tensor<1000x8xf32>, %i: tensor<4xi32>) -> tensor<4x8xf32> {
  %r = graph.gather %t, %i {collapsed_dims = [0], index_dim = 1, indices_batch = [], offset_dims = [1], slice_sizes = [1, 8], start_map = [0], x_batch = []} : (tensor<1000x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %e = graph.exp %r : tensor<4x8xf32>
  func.return %e : tensor<4x8xf32>
}
// CHECK-LABEL: @main
// CHECK: %[[G:.*]] = graph.gather %t, %i {{.*}} -> tensor<4x8xf32>
// CHECK-NEXT: graph.convert %[[G]] : (tensor<4x8xf32>) -> tensor<4x8xf16>
