// RUN: tilewright-opt %s -p 'graph-simplify{target=ascend-950pr},graph-fuse{target=ascend-950pr},graph-schedule,graph-to-tile{target=ascend-950pr}' --split-input-file | filecheck %s

// Sums of 8-bit floats that are scaled and clamped to what is stored leave the cube so: no vector core takes part.
func.func @main(%x: tensor<64x64xf8E4M3FN>, %w: tensor<64x48xf8E5M2>) -> tensor<64x48xf8E4M3FN> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf8E4M3FN>, tensor<64x48xf8E5M2>) -> tensor<64x48xf32>
  %f = graph.constant {value = #graph.data<f32, [64, 48], splat 0.25>} : () -> tensor<64x48xf32>
  %s = graph.mul %y, %f : tensor<64x48xf32>
  %low = graph.constant {value = #graph.data<f32, [64, 48], splat -448.0>} : () -> tensor<64x48xf32>
  %high = graph.constant {value = #graph.data<f32, [64, 48], splat 448.0>} : () -> tensor<64x48xf32>
  %c = graph.clamp %low, %s, %high : tensor<64x48xf32>
  %q = graph.convert %c : (tensor<64x48xf32>) -> tensor<64x48xf8E4M3FN>
  func.return %q : tensor<64x48xf8E4M3FN>
}
// CHECK: tile.kernel {{.*}} kind = "cube"
// CHECK: tile.mma {{.*}}xf8E4M3FN, l0a>, {{.*}}xf8E5M2, l0b>, {{.*}}xf32, l0c>
// CHECK: tile.store {{.*}} {factor = 2.500000e-01 : f32, sizes = [{{.*}}]} : (!tile.tile<{{.*}}xf32, l0c>, !npu.gm<64x48xf8E4M3FN>)
// CHECK-NEXT: }
// CHECK-NEXT: }

// -----

// Without the clamp, sums that are too large are NaN: the vector cores convert them.
func.func @main(%x: tensor<64x64xf8E4M3FN>, %w: tensor<64x48xf8E5M2>) -> tensor<64x48xf8E4M3FN> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x64xf8E4M3FN>, tensor<64x48xf8E5M2>) -> tensor<64x48xf32>
  %f = graph.constant {value = #graph.data<f32, [64, 48], splat 0.25>} : () -> tensor<64x48xf32>
  %s = graph.mul %y, %f : tensor<64x48xf32>
  %q = graph.convert %s : (tensor<64x48xf32>) -> tensor<64x48xf8E4M3FN>
  func.return %q : tensor<64x48xf8E4M3FN>
}
// CHECK: tile.section {core = "vector"
// CHECK: tile.convert {{.*}} -> !tile.tile<{{.*}}xf8E4M3FN, ub>
