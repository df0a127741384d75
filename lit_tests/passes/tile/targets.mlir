// RUN: tilewright-opt %s -p 'graph-simplify{target=ascend-310},graph-fuse{target=ascend-310},graph-schedule,graph-to-tile{target=ascend-310}' | filecheck %s --check-prefix FUSED
// RUN: tilewright-opt %s -p 'graph-simplify,graph-fuse,graph-schedule,graph-to-tile{target=ascend-910b1}' | filecheck %s --check-prefix SPLIT

// Fused cores drain the accumulator into the unified buffer; split cores go through device memory.
func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>) -> tensor<64x48xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
  %r = graph.exp %y : tensor<64x48xf16>
  func.return %r : tensor<64x48xf16>
}

// FUSED: workspaces = 0
// FUSED: tile.section {core = "fused", units = 1}
// FUSED: tile.mma
// FUSED: tile.drain {{.*}} -> !tile.tile<{{.*}}, ub>
// FUSED: tile.exp
// FUSED: tile.store
// FUSED-NOT: tile.section

// SPLIT: workspaces = 1
// SPLIT: tile.section {core = "cube", units = 1}
// SPLIT: tile.mma
// SPLIT-NOT: tile.drain
// SPLIT: tile.section {core = "vector", units = 2}
// SPLIT: tile.exp
