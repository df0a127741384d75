// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1}' | filecheck %s --check-prefix FUSED
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="rows=128,keys=256,places=2"},graph-to-tile' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="rows=128,keys=256,places=1"},graph-to-tile' | filecheck %s --check-prefix TURNS
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1 without=attention}' | filecheck %s --check-prefix APART

// Two products, with 256 MiB of what is elementwise between them: one kernel. The sums of all pieces of the keys stay in
// l0c, those of the last two are added behind the loop, and the result is stored once.
func.func @main(%q: tensor<8x4096x64xf16>, %k: tensor<8x4096x64xf16>, %v: tensor<8x4096x64xf16>) -> tensor<8x4096x64xf16> {
  %s = graph.contract %q, %k {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} : (tensor<8x4096x64xf16>, tensor<8x4096x64xf16>) -> tensor<8x4096x4096xf16>
  %w = graph.tanh %s : tensor<8x4096x4096xf16>
  %r = graph.contract %w, %v {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : (tensor<8x4096x4096xf16>, tensor<8x4096x64xf16>) -> tensor<8x4096x64xf16>
  func.return %r : tensor<8x4096x64xf16>
}

// FUSED: graph.fusion %q, %k, %v {domain = [8, 4096, 4096, 64], kind = "mix"}
// FUSED: graph.contract
// FUSED-NEXT: graph.tanh
// FUSED-NEXT: graph.contract
// FUSED-NEXT: graph.yield
// FUSED-NOT: graph.fusion

// CHECK: tile.launch @chain_0 %q, %k, %v
// CHECK: tile.section {core = "mixed", units = 2}
// CHECK: %[[NONE:[0-9]+]] = tile.zero : () -> !tile.tile<64x128xf32, l0c>
// CHECK: %[[SUMS:[0-9]+]] = scf.for {{.*}} iter_args(%{{.*}} = %[[NONE]])
// CHECK: tile.mma
// CHECK: tile.mma %{{.*}}, %{{.*}}, %{{.*}} at [%{{[0-9]+}} * 2 + %{{[0-9]+}} + %{{[0-9]+}}]
// CHECK: tile.tanh
// CHECK: %[[ALL:[0-9]+]] = scf.for {{.*}} iter_args(%{{.*}} = %[[SUMS]])
// CHECK: tile.mma %{{.*}}, %{{.*}}, %{{.*}} at [%{{[0-9]+}} + %{{[0-9]+}} + 16]
// CHECK: tile.store %[[ALL]], %{{.*}} {sizes = [1, 1, 1, 64, 2, 64]}
// CHECK: tile.transpose
// CHECK: tile.store %{{.*}}, %5

// With one place for the second product the loop has two turns more, and the weights of the last ones are not used.
// TURNS: tile.mma
// TURNS: tile.tanh
// TURNS-NOT: tile.mma
// TURNS: tile.transpose

// APART: graph.fusion
// APART: graph.fusion
