// RUN: tilewright-opt %s -p graph-simplify,graph-fuse,graph-schedule,graph-to-tile | tilewright-opt | filecheck %s

// Of pairs, half as many elements are loaded; rows that lie side by side are one axis. The cube takes pairs as they are.
func.func @main(%p: tensor<16x32x!graph.i4x2>, %x: tensor<8x32x!graph.i4x2>) -> (tensor<16x64xf16>, tensor<8x16xi32>) {
  %n = graph.unpack %p : (tensor<16x32x!graph.i4x2>) -> tensor<16x64xf16>
  %y = graph.contract %x, %p {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<8x32x!graph.i4x2>, tensor<16x32x!graph.i4x2>) -> tensor<8x16xi32>
  func.return %n, %y : tensor<16x64xf16>, tensor<8x16xi32>
}

// CHECK: tile.kernel @unpack_0
// CHECK: %[[PAIRS:.*]] = tile.load {{.*}} -> !tile.tile<512x!graph.i4x2, ub>
// CHECK-NEXT: %[[NUMBERS:.*]] = tile.unpack %[[PAIRS]] : (!tile.tile<512x!graph.i4x2, ub>) -> !tile.tile<1024xf16, ub>
// CHECK-NEXT: tile.store %[[NUMBERS]]
// CHECK: tile.kernel @contract_0
// CHECK: tile.move {{.*}} -> !tile.tile<8x32x!graph.i4x2, l0a>
// CHECK: tile.move {{.*}}transpose = 1{{.*}} -> !tile.tile<32x16x!graph.i4x2, l0b>
// CHECK: tile.mma {{.*}} -> !tile.tile<8x16xi32, l0c>
