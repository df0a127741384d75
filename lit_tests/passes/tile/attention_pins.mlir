// RUN: tilewright-opt %s -p 'graph-schedule,graph-to-tile' --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p 'graph-schedule,graph-to-tile,tile-to-npu' --split-input-file | filecheck %s --check-prefix NPU

// A pinned schedule: four pieces of 16 keys, and all of it in the loop over them. Maximum, sum, two corrections, the sums
// of two pieces and the result are carried over them; parts of the result come two pieces late, so that two pieces more
// are walked, and what they make is taken and not used.
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x32x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 32, 64, 16], kind = "mix", schedule = #graph.attention_schedule<rows = 32, keys = 16, places = 1>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    ^bb0(%0: tensor<2x32x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x32x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x32x64xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16>
      graph.yield %o_1 : (tensor<2x32x16xf16>)
    }
    func.return %o : tensor<2x32x16xf16>
  }
}

// CHECK: tile.section {core = "mixed", units = 2}
// CHECK: scf.for %[[ZERO:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK: tile.store %{{.*}}, %6 at [%0, %[[ZERO]], 0, %14 * 16]
// CHECK: scf.for %[[PAIR:[0-9]+]] = %{{.*}} to %8 step {{.*}} iter_args
// CHECK: scf.for %[[SLOT:[0-9]+]] = {{.*}} iter_args
// CHECK: tile.load %2 at [%0, %[[PAIR]] * 32 + %[[SLOT]] * 16, 0]
// CHECK: tile.load %3 at [%0, %[[PAIR]] * 32 + %[[SLOT]] * 16 + -32, 0]
// CHECK: tile.load %6 at [%0, %[[SLOT]], 0, 0]
// CHECK: tile.store %{{.*}}, %6 at [%0, %[[SLOT]], 0, %14 * 16]
// CHECK: tile.mul %{{.*}} attributes {in_place} : (!tile.tile<1x16x16xf32, ub>, !tile.tile<1x1x16xf32, ub>)
// CHECK: scf.for %[[LAST:[0-9]+]] = {{.*}} {
// CHECK-NEXT: tile.load %6 at [%0, %[[LAST]], 0, 0]
// CHECK-NEXT: }

// Each kind of core gets what it runs of it, with the loops in which it has something to do.
// NPU: npu.section {core = "cube", units = 1}
// NPU-NOT: npu.vexp
// NPU: npu.mmad
// NPU: npu.section {core = "vector", units = 2}
// NPU-NOT: npu.mmad
// NPU: npu.vexp
