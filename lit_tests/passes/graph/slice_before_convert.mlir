// RUN: tilewright-opt %s -p graph-simplify --split-input-file | filecheck %s

// The halves of a gated unit, along the rows.
func.func @main(%x: tensor<80x64xf16>) -> tensor<40x64xf32> {
  %w = graph.convert %x : (tensor<80x64xf16>) -> tensor<80x64xf32>
  %a = graph.slice %w {limits = [40, 64], starts = [0, 0], strides = [1, 1]} : (tensor<80x64xf32>) -> tensor<40x64xf32>
  %b = graph.slice %w {limits = [80, 64], starts = [40, 0], strides = [1, 1]} : (tensor<80x64xf32>) -> tensor<40x64xf32>
  %y = graph.mul %a, %b : tensor<40x64xf32>
  func.return %y : tensor<40x64xf32>
}
// CHECK-DAG: %[[A:.*]] = graph.slice %x {limits = [40, 64], {{.*}} -> tensor<40x64xf16>
// CHECK-DAG: %[[B:.*]] = graph.slice %x {limits = [80, 64], {{.*}} -> tensor<40x64xf16>
// CHECK-DAG: %[[WA:.*]] = graph.convert %[[A]]
// CHECK-DAG: %[[WB:.*]] = graph.convert %[[B]]
// CHECK: graph.mul %[[WA]], %[[WB]]

// -----

// Overlapping parts would be converted more than once, and a result is needed as it is.
func.func @main(%x: tensor<80x64xf16>, %z: tensor<80x64xf16>) -> (tensor<50x64xf32>, tensor<50x64xf32>, tensor<40x64xf32>, tensor<80x64xf32>) {
  %w = graph.convert %x : (tensor<80x64xf16>) -> tensor<80x64xf32>
  %a = graph.slice %w {limits = [50, 64], starts = [0, 0], strides = [1, 1]} : (tensor<80x64xf32>) -> tensor<50x64xf32>
  %b = graph.slice %w {limits = [80, 64], starts = [30, 0], strides = [1, 1]} : (tensor<80x64xf32>) -> tensor<50x64xf32>
  %v = graph.convert %z : (tensor<80x64xf16>) -> tensor<80x64xf32>
  %c = graph.slice %v {limits = [40, 64], starts = [0, 0], strides = [1, 1]} : (tensor<80x64xf32>) -> tensor<40x64xf32>
  func.return %a, %b, %c, %v : tensor<50x64xf32>, tensor<50x64xf32>, tensor<40x64xf32>, tensor<80x64xf32>
}
// CHECK: graph.convert %x
// CHECK: graph.slice {{.*}} -> tensor<50x64xf32>
// CHECK: graph.slice {{.*}} -> tensor<50x64xf32>
// CHECK: graph.convert %z
// CHECK: graph.slice {{.*}} -> tensor<40x64xf32>
