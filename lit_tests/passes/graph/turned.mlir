// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{without=transposed}' | filecheck %s --check-prefix=OFF
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="base_m=128"}' | filecheck %s --check-prefix=PIN

// Rows of 333 numbers begin at no lines. A kernel stores the right side with what is summed over side by side, and the
// product sees through the transpose back.

// CHECK-LABEL: func.func @main
// CHECK: %[[T:.*]] = graph.fusion %w {domain = [333, 4096], kind = "move", {{.*}} : (tensor<4096x333xf16>) -> tensor<333x4096xf16>
// CHECK: graph.transpose {{.*}} {perm = [1, 0]} : (tensor<4096x333xf16>) -> tensor<333x4096xf16>
// CHECK: graph.fusion %x, %[[T]] {domain = [8192, 333], kind = "cube", {{.*}} : (tensor<8192x4096xf16>, tensor<333x4096xf16>)
// CHECK: %[[W:.*]] = graph.transpose %{{.*}} {perm = [1, 0]} : (tensor<333x4096xf16>) -> tensor<4096x333xf16>
// CHECK: graph.contract %{{.*}}, %[[W]]
// OFF-LABEL: func.func @main
// PIN: kind = "move"
// PIN: graph.transpose
// PIN: step = [128,
// OFF-NOT: graph.transpose
func.func @main(%x: tensor<8192x4096xf16>, %w: tensor<4096x333xf16>) -> tensor<8192x333xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8192x4096xf16>, tensor<4096x333xf16>) -> tensor<8192x333xf16>
  func.return %y : tensor<8192x333xf16>
}
