// RUN: tilewright-opt %s -p 'graph-quantize{config=w4a16-g4}' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-quantize{config=w4a16-g4},graph-quantized,graph-simplify,graph-hoist,graph-partition,graph-fuse' | filecheck %s --check-prefix FUSED

// Two weights side by side in memory are a pair, which one instruction unpacks; their scales join its kernel.
func.func @main(%x: tensor<64x16xf16>, %w: tensor<16x64xf16> {graph.weight}) -> tensor<64x64xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x16xf16>, tensor<16x64xf16>) -> tensor<64x64xf16>
  func.return %y : tensor<64x64xf16>
}

// CHECK: %[[PAIRS:.*]] = graph.bitcast %{{.*}} attributes {graph.packed} : (tensor<4x4x32xi8>) -> tensor<4x4x32x!graph.i4x2>
// CHECK: graph.unpack %[[PAIRS]] : (tensor<4x4x32x!graph.i4x2>) -> tensor<4x4x64xf16>
// CHECK: graph.mul %{{.*}}, %{{.*}} : tensor<4x4x64xf32>
// CHECK: graph.convert %{{.*}} : (tensor<4x4x64xf32>) -> tensor<4x4x64xf16>
// CHECK: graph.reshape %{{.*}} : (tensor<4x4x64xf16>) -> tensor<16x64xf16>
// CHECK: graph.contract %x,

// FUSED: graph.fusion {{.*}} {domain = [4, 4, 64], kind = "vector"}
// FUSED: graph.unpack %{{.*}} attributes {axes = array<i64: 0, 1, 2>}
// FUSED: graph.mul
// FUSED: graph.convert %{{.*}} -> tensor<4x4x64xf16>
// FUSED-NEXT: graph.yield
