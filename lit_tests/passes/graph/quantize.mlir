// RUN: tilewright-opt %s -p 'graph-quantize{config=w8a8-dynamic}' --split-input-file | filecheck %s

// Each row of the input is scaled by its largest number, each feature of the weights by its own.
func.func @main(%x: tensor<8x64xf32>, %w: tensor<64x10xf32> {graph.path = "w"}) -> tensor<8x10xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x64xf32>, tensor<64x10xf32>) -> tensor<8x10xf32>
  func.return %y : tensor<8x10xf32>
}
// CHECK-LABEL: @main
// CHECK-SAME: graph.weight
// CHECK: graph.quantize %w, %{{.*}} : (tensor<64x10xf32>, tensor<10xf32>) -> tensor<64x10x!graph.quantized<i8<-127:127>:f32:1, ?>>
// CHECK: graph.quantize %x, %{{.*}} : (tensor<8x64xf32>, tensor<8xf32>) -> tensor<8x64x!graph.quantized<i8<-127:127>:f32:0, ?>>
// CHECK: %[[Y:.*]] = graph.contract
// CHECK: func.return %[[Y]]

// -----

// A batch norm goes into the weights before they are rounded.
func.func @main(%x: tensor<8x64xf32>, %w: tensor<64x10xf32> {graph.weight}, %g: tensor<10xf32> {graph.weight}) -> tensor<8x10xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x64xf32>, tensor<64x10xf32>) -> tensor<8x10xf32>
  %s = graph.broadcast %g {dims = [1]} : (tensor<10xf32>) -> tensor<8x10xf32>
  %z = graph.mul %y, %s : tensor<8x10xf32>
  func.return %z : tensor<8x10xf32>
}
// CHECK-LABEL: @main
// CHECK: %[[G:.*]] = graph.broadcast %g {dims = [1]} : (tensor<10xf32>) -> tensor<64x10xf32>
// CHECK: %[[W:.*]] = graph.mul %w, %[[G]] : tensor<64x10xf32>
// CHECK: graph.quantize %[[W]],
// CHECK: %[[Y:.*]] = graph.contract
// CHECK-NOT: graph.mul
// CHECK: func.return %[[Y]]
