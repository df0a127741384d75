// RUN: tilewright-opt %s -p 'graph-quantize{config=w4a16-g4 target=ascend-310}' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-quantize{config=w4a16-g4 target=ascend-310},graph-quantized{target=ascend-310},graph-simplify{target=ascend-310},graph-hoist,graph-partition,graph-fuse{target=ascend-310}' | filecheck %s --check-prefix FUSED

// Without an instruction that unpacks: a byte has a weight of the first half of the summed dimension below one of the second. What is done to it is of one
// shape, from the bytes on, and becomes one kernel.
func.func @main(%x: tensor<64x16xf16>, %w: tensor<16x64xf16> {graph.weight}) -> tensor<64x64xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x16xf16>, tensor<16x64xf16>) -> tensor<64x64xf16>
  func.return %y : tensor<64x64xf16>
}

// CHECK: %[[BYTES:.*]] = graph.or %{{.*}}, %{{.*}} attributes {graph.packed} : tensor<8x64xi8>
// CHECK: %[[SPLIT:.*]] = graph.reshape %[[BYTES]] : (tensor<8x64xi8>) -> tensor<2x4x64xi8>
// CHECK: graph.broadcast %[[SPLIT]] {dims = [1, 2, 3]} : (tensor<2x4x64xi8>) -> tensor<2x2x4x64xi8>
// CHECK: graph.constant {value = #graph.data<i16, [2], (12, 8)>}
// CHECK: graph.shl %{{.*}}, %{{.*}} : tensor<2x2x4x64xi16>
// CHECK: graph.shr_arithmetic %{{.*}}, %{{.*}} : tensor<2x2x4x64xi16>
// CHECK: graph.mul %{{.*}}, %{{.*}} : tensor<2x2x4x64xf32>
// CHECK: graph.convert %{{.*}} : (tensor<2x2x4x64xf32>) -> tensor<2x2x4x64xf16>
// CHECK: graph.reshape %{{.*}} : (tensor<2x2x4x64xf16>) -> tensor<16x64xf16>
// CHECK: graph.contract %x,

// FUSED: graph.fusion {{.*}} {domain = [2, 2, 4, 64], kind = "vector"}
// FUSED: graph.shl
// FUSED: graph.shr_arithmetic
// FUSED: graph.mul
// FUSED: graph.convert %{{.*}} -> tensor<2x2x4x64xf16>
// FUSED-NEXT: graph.yield
