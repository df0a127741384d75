// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1}' --split-input-file | filecheck %s --check-prefix FUSED
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="rows=64,keys=128,places=2"},graph-to-tile' --split-input-file | filecheck %s

// Two first products: each has a workspace for its scores, of f16 and f32, and both tiles are loaded for what is made of
// them. The third workspace has weights. Rows have one number for each column of a tile.
func.func @main(%q: tensor<256x64xf16>, %k: tensor<512x64xf16>, %d: tensor<256x32xf16>, %v: tensor<512x32xf16>, %m: tensor<256xf32>) -> tensor<256x64xf16> {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<256x64xf16>, tensor<512x64xf16>) -> tensor<256x512xf32>
  %g = graph.contract %d, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<256x32xf16>, tensor<512x32xf16>) -> tensor<256x512xf16>
  %mm = graph.broadcast %m {dims = [0]} : (tensor<256xf32>) -> tensor<256x512xf32>
  %x = graph.sub %s, %mm : tensor<256x512xf32>
  %e = graph.convert %x : (tensor<256x512xf32>) -> tensor<256x512xf16>
  %w = graph.mul %e, %g : tensor<256x512xf16>
  %r = graph.contract %w, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} attributes {own_scores} : (tensor<256x512xf16>, tensor<512x64xf16>) -> tensor<256x64xf16>
  func.return %r : tensor<256x64xf16>
}

// FUSED-LABEL: func.func @main
// FUSED: graph.fusion %{{.*}} {domain = [256, 512, 64], kind = "mix"}
// FUSED-COUNT-3: graph.contract
// FUSED-NOT: graph.fusion

// CHECK-LABEL: func.func @main
// CHECK: tile.launch @chain_0
// CHECK: workspaces = 4
// CHECK: !npu.gm<{{.*}}x2x128x32xf16>, %{{.*}}: !npu.gm<{{.*}}x2x128x32xf32>, %{{.*}}: !npu.gm<{{.*}}x2x128x64xf16>
// CHECK-DAG: tile.load {{.*}} -> !tile.tile<{{.*}}128x32xf32, ub>
// CHECK-DAG: tile.load {{.*}} -> !tile.tile<1x32xf32, ub>
// CHECK-DAG: tile.load {{.*}} -> !tile.tile<{{.*}}128x32xf16, ub>

// -----

// Attention whose maxima and sums something behind the result reads: three results, of which two have a line for each
// tile.
func.func @main(%q: tensor<256x64xf16>, %k: tensor<512x64xf16>, %v: tensor<512x32xf16>) -> (tensor<256x32xf16>, tensor<256xf32>) {
  %s = graph.contract %q, %k {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<256x64xf16>, tensor<512x64xf16>) -> tensor<256x512xf32>
  %m = graph.reduce %s {dims = [1], kind = "max"} : (tensor<256x512xf32>) -> tensor<256xf32>
  %mm = graph.broadcast %m {dims = [0]} : (tensor<256xf32>) -> tensor<256x512xf32>
  %x = graph.sub %s, %mm : tensor<256x512xf32>
  %e = graph.exp %x : tensor<256x512xf32>
  %l = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<256x512xf32>) -> tensor<256xf32>
  %ll = graph.broadcast %l {dims = [0]} : (tensor<256xf32>) -> tensor<256x512xf32>
  %p = graph.div %e, %ll : tensor<256x512xf32>
  %w = graph.convert %p : (tensor<256x512xf32>) -> tensor<256x512xf16>
  %o = graph.contract %w, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x512xf16>, tensor<512x32xf16>) -> tensor<256x32xf16>
  %log = graph.log %l : tensor<256xf32>
  %lse = graph.add %m, %log : tensor<256xf32>
  func.return %o, %lse : tensor<256x32xf16>, tensor<256xf32>
}

// FUSED-LABEL: func.func @main
// FUSED: graph.fusion %q, %k, %v {domain = [256, 512, 32], kind = "mix"} {{.*}} -> (tensor<256xf32>, tensor<256xf32>, tensor<256x32xf16>)
// FUSED: graph.fusion %{{.*}}, %{{.*}} {domain = [256], kind = "vector"}

// CHECK-LABEL: func.func @main
// CHECK: tile.launch @attention_0
// CHECK: outputs = 3
// CHECK: tile.store %{{.*}}, %{{.*}} at [0, %{{.*}}] {sizes = [1, 32]} : (!tile.tile<1x32xf32, ub>, !npu.gm<1x256xf32
// CHECK: tile.store %{{.*}}, %{{.*}} at [0, %{{.*}}] {sizes = [1, 32]} : (!tile.tile<1x32xf32, ub>, !npu.gm<1x256xf32
// CHECK: tile.transpose
