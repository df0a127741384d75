// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{without=pitch,cube-prologue}' | filecheck %s

// What computes the right side stores it transposed, and no kernel transposes it.

// CHECK-LABEL: func.func @main
// CHECK: %[[T:.*]] = graph.fusion %w {{.*}}kind = "vector"{{.*}} -> tensor<1009x1024xf32> {
// CHECK: %[[E:.*]] = graph.exp
// CHECK: %[[R:.*]] = graph.transpose %[[E]] {perm = [1, 0]} : (tensor<1024x1009xf32>) -> tensor<1009x1024xf32>
// CHECK: graph.yield %[[R]]
// CHECK: graph.fusion %x, %[[T]] {{.*}}kind = "cube"
// CHECK-NOT: kind = "move"
func.func @main(%x: tensor<256x1024xf32>, %w: tensor<1024x1009xf32>) -> tensor<256x1009xf32> {
  %e = graph.exp %w : tensor<1024x1009xf32>
  %y = graph.contract %x, %e {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x1024xf32>, tensor<1024x1009xf32>) -> tensor<256x1009xf32>
  func.return %y : tensor<256x1009xf32>
}

// What something else reads in its own order alone, as the caller does, keeps it.

// CHECK-LABEL: func.func @also_returned
// CHECK-NOT: graph.transpose
func.func @also_returned(%x: tensor<256x1024xf32>, %w: tensor<1024x1009xf32>) -> (tensor<256x1009xf32>, tensor<1024x1009xf32>) {
  %e = graph.exp %w : tensor<1024x1009xf32>
  %y = graph.contract %x, %e {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x1024xf32>, tensor<1024x1009xf32>) -> tensor<256x1009xf32>
  func.return %y, %e : tensor<256x1009xf32>, tensor<1024x1009xf32>
}
