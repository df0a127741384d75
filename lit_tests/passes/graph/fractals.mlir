// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{without=pitch}' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{without=pitch},graph-to-tile,tile-to-npu' | filecheck %s --check-prefix=NPU
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{without=pitch,nz}' | filecheck %s --check-prefix=OFF

// Rows of 4000 numbers of two bytes begin at no lines. What the first product gives leaves the cube in fractals of 16
// columns, and a kernel brings the given right side into such; the second product sums over groups of columns, and
// within them. The relu stays what the cube does on the way out.

// CHECK-LABEL: func.func @main
// CHECK: %[[R:.*]] = graph.fusion %x, %w {domain = [4096, 250, 16], kind = "mix"{{.*}} -> tensor<250x4096x16xf16> {
// CHECK: %[[W:.*]] = graph.reshape %{{.*}} : (tensor<512x4000xf16>) -> tensor<512x250x16xf16>
// CHECK: graph.contract %{{.*}}, %[[W]] {{.*}}attributes {axes = array<i64: 0, 1, 2>}
// CHECK: %[[M:.*]] = graph.max {{.*}}attributes {axes = array<i64: 0, 1, 2>} : tensor<4096x250x16xf16>
// CHECK-NEXT: %[[T:.*]] = graph.transpose %[[M]] {perm = [1, 0, 2]}
// CHECK-NEXT: graph.yield %[[T]]
// CHECK: %[[V:.*]] = graph.fusion %v {domain = [250, 4000, 16], kind = "move"{{.*}} -> tensor<250x4000x16xf16> {
// CHECK: graph.fusion %[[R]], %[[V]] {domain = [4096, 4000], kind = "cube"
// CHECK-SAME: axes = {{\[\[0\], \[1\], \[2\], \[3\]\]}}, step = [{{[0-9]+}}, {{[0-9]+}}, 4, 16]
// CHECK: graph.contract {{.*}}lhs_contract = [1, 2], rhs_batch = [], rhs_contract = [0, 1]
// NPU: npu.kernel @contract_0 {grid = [{{.*}}], kind = "cube"
// NPU: npu.fixpipe {{.*}}{relu, {{.*}}!npu.gm<4096x250x16xf16, strides [16, 65536, 1], offset 0>)
// NPU: npu.kernel @contract_1
// NPU: npu.view %{{.*}} : (!npu.gm<250x4096x16xf16>) -> !npu.gm<4096x250x16xf16, strides [16, 65536, 1], offset 0>
// OFF-LABEL: func.func @main
// OFF-NOT: x16xf16
// OFF-LABEL: func.func @several_sums
func.func @main(%x: tensor<4096x512xf16>, %w: tensor<512x4000xf16>, %v: tensor<4000x4000xf16>) -> tensor<4096x4000xf16> {
  %h = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4096x512xf16>, tensor<512x4000xf16>) -> tensor<4096x4000xf16>
  %z = graph.constant {value = #graph.data<f16, [], (0.0)>} : () -> tensor<f16>
  %b = graph.broadcast %z {dims = []} : (tensor<f16>) -> tensor<4096x4000xf16>
  %r = graph.max %h, %b : tensor<4096x4000xf16>
  %y = graph.contract %r, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4096x4000xf16>, tensor<4000x4000xf16>) -> tensor<4096x4000xf16>
  func.return %y : tensor<4096x4000xf16>
}

// A program that has fractals itself: a step spans several groups of their columns.

// CHECK-LABEL: func.func @several_sums
// CHECK: graph.fusion %x, %w {domain = [300, 80], kind = "cube", schedule = #graph.cube_schedule<axes = {{\[\[0\], \[1\], \[2\], \[3\]\]}}, step = [100, 80, 8, 16]
func.func @several_sums(%x: tensor<40x300x16xf16>, %w: tensor<40x16x80xf16>) -> tensor<300x80xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [0, 2], rhs_batch = [], rhs_contract = [0, 1]} : (tensor<40x300x16xf16>, tensor<40x16x80xf16>) -> tensor<300x80xf16>
  func.return %y : tensor<300x80xf16>
}
