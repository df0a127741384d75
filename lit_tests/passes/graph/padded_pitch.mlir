// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule,graph-to-tile,tile-to-npu' | filecheck %s --check-prefix=NPU
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{without=pitch}' | filecheck %s --check-prefix=OFF

// Rows of 1000 numbers of two bytes begin at no lines: what the first product gives gets rows of 1024, and the second
// one reads a slice of them. The relu stays what the cube does on the way out.

// CHECK-LABEL: func.func @main
// CHECK: %[[H:.*]] = graph.fusion %x, %w {domain = [1536, 1000], kind = "mix"{{.*}} -> tensor<1536x1024xf16> {
// CHECK: %[[R:.*]] = graph.max
// CHECK: %[[W:.*]] = graph.widen %[[R]] {row = 1024} : (tensor<1536x1000xf16>) -> tensor<1536x1024xf16>
// CHECK: graph.yield %[[W]]
// CHECK: graph.fusion %[[H]], %v {domain = [1536, 1000], kind = "cube"
// CHECK: %[[S:.*]] = graph.slice %{{.*}} {limits = [1536, 1000], starts = [0, 0], strides = [1, 1]} : (tensor<1536x1024xf16>) -> tensor<1536x1000xf16>
// CHECK: graph.contract %[[S]], %
// NPU: npu.kernel @contract_0 {grid = [{{.*}}], kind = "cube"
// NPU: npu.view %{{.*}} : (!npu.gm<1536x1024xf16>) -> !npu.gm<1536x1000xf16, strides [1024, 1], offset 0>
// NPU: npu.fixpipe %{{.*}} : (!npu.buffer<{{.*}}xf32, l0c>, !npu.gm<1536x1000xf16, strides [1024, 1], offset 0>)
// OFF-LABEL: func.func @main
// OFF-NOT: graph.widen
// OFF-LABEL: func.func @whole_lines
func.func @main(%x: tensor<1536x1000xf16>, %w: tensor<1000x1000xf16>, %v: tensor<1000x1000xf16>) -> tensor<1536x1000xf16> {
  %h = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<1536x1000xf16>, tensor<1000x1000xf16>) -> tensor<1536x1000xf16>
  %z = graph.constant {value = #graph.data<f16, [], (0.0)>} : () -> tensor<f16>
  %b = graph.broadcast %z {dims = []} : (tensor<f16>) -> tensor<1536x1000xf16>
  %r = graph.max %h, %b : tensor<1536x1000xf16>
  %y = graph.contract %r, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<1536x1000xf16>, tensor<1000x1000xf16>) -> tensor<1536x1000xf16>
  func.return %y : tensor<1536x1000xf16>
}

// Rows of whole lines stay.

// CHECK-LABEL: func.func @whole_lines
// CHECK-NOT: graph.widen
func.func @whole_lines(%x: tensor<1536x1024xf16>, %w: tensor<1024x1024xf16>, %v: tensor<1024x1024xf16>) -> tensor<1536x1024xf16> {
  %h = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<1536x1024xf16>, tensor<1024x1024xf16>) -> tensor<1536x1024xf16>
  %y = graph.contract %h, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<1536x1024xf16>, tensor<1024x1024xf16>) -> tensor<1536x1024xf16>
  func.return %y : tensor<1536x1024xf16>
}
