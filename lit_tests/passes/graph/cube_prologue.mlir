// RUN: tilewright-opt %s -p graph-schedule | filecheck %s
// RUN: tilewright-opt %s -p graph-schedule | tilewright-opt | filecheck %s
// RUN: tilewright-opt %s -p 'graph-schedule{without=cube-prologue}' | filecheck %s --check-prefix=APART
// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile | filecheck %s --check-prefix=TILE
// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile,tile-to-npu,npu-allocate,npu-synchronize | filecheck %s --check-prefix=NPU

// RUN: tilewright-opt %s -p graph-schedule -t stages | filecheck %s --check-prefix=STAGES

// Weights that are widened and scaled before a product of 64 rows: vector cores do that beside the cube, tile by tile.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<64x4096xf16>, %q: tensor<4096x4096xi8>, %s: tensor<4096xf16>) -> tensor<64x4096xf16> {
    %w = graph.fusion %q, %s {domain = [4096, 4096], kind = "vector"}
      : (tensor<4096x4096xi8>, tensor<4096xf16>) -> tensor<4096x4096xf16> {
    ^bb0(%a: tensor<4096x4096xi8>, %b: tensor<4096xf16>):
      %c = graph.convert %a attributes {axes = array<i64: 0, 1>} : (tensor<4096x4096xi8>) -> tensor<4096x4096xf16>
      %d = graph.broadcast %b {dims = [1]} : (tensor<4096xf16>) -> tensor<4096x4096xf16>
      %e = graph.mul %c, %d attributes {axes = array<i64: 0, 1>} : tensor<4096x4096xf16>
      graph.yield %e : (tensor<4096x4096xf16>)
    }
    %r = graph.fusion %x, %w {domain = [64, 4096], kind = "cube"}
      : (tensor<64x4096xf16>, tensor<4096x4096xf16>) -> tensor<64x4096xf16> {
    ^bb0(%a: tensor<64x4096xf16>, %b: tensor<4096x4096xf16>):
      %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: 0, 1>} : (tensor<64x4096xf16>, tensor<4096x4096xf16>) -> tensor<64x4096xf16>
      graph.yield %c : (tensor<64x4096xf16>)
    }
    func.return %r : tensor<64x4096xf16>
  }
}

// One load of the left operand covers four pieces of the one that is made.

// CHECK:      %r = graph.fusion %q, %s, %x {domain = [64, 4096], kind = "mix", schedule = #graph.cube_schedule<
// CHECK-SAME: lhs = [64, 256, 512], rhs = [64, 256, 128]
// CHECK:        graph.convert {{.*}} attributes {prologue = array<i64: 0, 1>}
// CHECK:        %[[W:.*]] = graph.mul {{.*}} attributes {prologue = array<i64: 0, 1>} : tensor<4096x4096xf16>
// CHECK-NEXT:   graph.contract %{{.*}}, %[[W]] {{.*}} attributes {axes = array<i64: 0, 1>}
// CHECK:      func.return %r

// APART:      graph.fusion %q, %s {domain = [4096, 4096], kind = "vector", schedule
// APART:      graph.contract

// STAGES:      // prologue:
// STAGES-NEXT: stages {
// STAGES-NEXT:   %0 = load {input = 0,
// STAGES-NEXT:   %1 = apply(%0) {of = "convert"}
// STAGES:        %4 = apply(%1, %3) {of = "mul"}
// STAGES:      // product:
// STAGES:        %1 = given {name = "rhs", counts_as = "load", along = [2, 1]} : f16 over [1, 2]
// STAGES:        store_sums(%5) {box = [64 by 4096 at 0, 4096 by 1 at 1]} over [0, 1]

// A ring has a room for each of a few pieces. Each of two vector cores makes a half of one.

// TILE:      tile.section {core = "mixed", units = 2}
// TILE:        %[[LHS:.*]] = tile.load {{.*}} -> !tile.tile<{{.*}}xf16, l1>
// TILE:        scf.for %[[TURN:[0-9]+]] =
// TILE:          tile.convert {{.*}}xi8, ub>
// TILE:          %[[MADE:[0-9]+]] = tile.mul {{.*}}xf16, ub>
// TILE:          tile.store %[[MADE]], %[[RING:[0-9]+]] at [{{.*}}, %[[TURN]], {{.*}}]
// TILE:          tile.load %[[RING]] at [{{.*}}, %[[TURN]], 0, 0] {{.*}} l1>

// The cube says which rooms are free, first all of them, and waits for what is in them; so do the vector cores.

// NPU:       npu.section {core = "cube"
// NPU:         npu.set_cross {event = 1, source = "MTE2"}
// NPU:         npu.wait_cross {event = 0, target = "MTE2"}
// NPU-NEXT:    npu.load_nd2nz
// NPU-NEXT:    npu.set_cross {event = 1, source = "MTE2"}
// NPU:       npu.section {core = "vector"
// NPU:         npu.wait_cross {event = 1, target = "MTE3"}
// NPU-NEXT:    npu.store_nd
// NPU-NEXT:    npu.set_cross {event = 0, source = "MTE3"}
