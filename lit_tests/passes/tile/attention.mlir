// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1}' | filecheck %s --check-prefix FUSED
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule,graph-to-tile' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-310}' | filecheck %s --check-prefix APART

// Two products and the softmax between them are one kernel. Scores go from the cube core to its vector cores through a
// workspace, and weights come back. There is one piece of keys, so no loop.
func.func @main(%q: tensor<2x32x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
  %s = graph.contract %q, %k {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x64xf32>
  %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
  %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x32x64xf32>
  %x = graph.mul %s, %cs : tensor<2x32x64xf32>
  %m = graph.reduce %x {dims = [2], kind = "max"} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
  %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
  %d = graph.sub %x, %mb : tensor<2x32x64xf32>
  %e = graph.exp %d : tensor<2x32x64xf32>
  %l = graph.reduce %e {dims = [2], kind = "sum"} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
  %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
  %p = graph.div %e, %lb : tensor<2x32x64xf32>
  %w = graph.convert %p : (tensor<2x32x64xf32>) -> tensor<2x32x64xf16>
  %o = graph.contract %w, %v {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : (tensor<2x32x64xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16>
  func.return %o : tensor<2x32x16xf16>
}

// FUSED: graph.fusion %q, %k, %v {domain = [2, 32, 64, 16], kind = "mix"}
// FUSED: graph.contract
// FUSED: graph.contract
// FUSED: graph.yield
// FUSED-NOT: graph.fusion

// Rows of scores lie along the last dimension of a tile: what each row has is one line, which is repeated as it is.
// CHECK: tile.launch @attention_0 %q, %k, %v
// CHECK: tile.kernel @attention_0 {grid = [2], kind = "mix", outputs = 1, slots = [2, 2, 2, 2, 1], workspaces = 3}
// CHECK: %[[SCORES:[0-9]+]] = tile.view %5
// CHECK: %[[PARTS:[0-9]+]] = tile.view %7
// CHECK: tile.section {core = "mixed", units = 2}
// CHECK: tile.mma
// CHECK: tile.store %{{.*}}, %[[SCORES]] at [%0, 0, 0, 0, 0] {sizes = [1, 1, 64, 2, 16]}
// CHECK: tile.load %5 at [%0, 0, %10, 0, 0] {sizes = [1, 1, 1, 64, 16]}
// CHECK: %[[PEAK:[0-9]+]] = tile.reduce %{{.*}} {dims = [1], kind = "max"}
// CHECK: tile.max %[[PEAK]]
// CHECK: tile.sub %{{.*}} attributes {in_place} : (!tile.tile<1x64x16xf32, ub>, !tile.tile<1x1x16xf32, ub>)
// CHECK: tile.exp %{{.*}} attributes {in_place}
// CHECK: tile.reduce %{{.*}} {dims = [1], kind = "sum"}
// CHECK: tile.store %{{.*}}, %6 at [%0, 0, 0, %10 * 16] {sizes = [1, 1, 64, 16]}
// CHECK: tile.load %6 at [%0, 0, 0, 0] {sizes = [1, 1, 64, 32]}
// CHECK: tile.mma
// CHECK: tile.store %{{.*}}, %[[PARTS]] at [%0, 0, 0, 0, 0] {sizes = [1, 1, 16, 2, 16]}
// CHECK: tile.div
// CHECK: tile.transpose
// CHECK: tile.store %{{.*}}, %4 at [%0, %10 * 16, 0] {sizes = [1, 16, 16]}

// On a chip whose cores have both units no path brings weights back to the cube: the products stay apart.
// APART: graph.fusion
// APART: graph.fusion
