// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-310},graph-schedule' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-310},graph-schedule{turned=false}' | filecheck %s --check-prefix=OFF
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-310},graph-schedule{schedule="base_m=128"}' | filecheck %s --check-prefix=PIN

// Rows of 509 numbers begin at no lines. A kernel stores the right side with what is summed over side by side, and the
// product sees through the transpose back.

// CHECK-LABEL: func.func @main
// CHECK: %[[T:.*]] = graph.fusion %w {domain = [509, 1024], kind = "move", {{.*}} : (tensor<1024x509xf16>) -> tensor<509x1024xf16>
// CHECK: graph.transpose {{.*}} {perm = [1, 0]} : (tensor<1024x509xf16>) -> tensor<509x1024xf16>
// CHECK: graph.fusion %x, %[[T]] {domain = [896, 509], kind = "cube", {{.*}} : (tensor<896x1024xf16>, tensor<509x1024xf16>)
// CHECK: %[[W:.*]] = graph.transpose %{{.*}} {perm = [1, 0]} : (tensor<509x1024xf16>) -> tensor<1024x509xf16>
// CHECK: graph.contract %{{.*}}, %[[W]]
// OFF-LABEL: func.func @main
// PIN: kind = "move"
// PIN: graph.transpose
// PIN: step = [128,
// OFF-NOT: graph.transpose
func.func @main(%x: tensor<896x1024xf16>, %w: tensor<1024x509xf16>) -> tensor<896x509xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<896x1024xf16>, tensor<1024x509xf16>) -> tensor<896x509xf16>
  func.return %y : tensor<896x509xf16>
}
