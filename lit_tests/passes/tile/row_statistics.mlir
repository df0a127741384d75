// RUN: tilewright-opt %s -p graph-schedule | filecheck %s --check-prefix=SCHEDULED
// RUN: tilewright-opt %s -p 'graph-schedule{without=row-epilogue}' | filecheck %s --check-prefix=APART
// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile | tilewright-opt | filecheck %s --check-prefix=TILE
// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile,tile-to-npu,npu-allocate,npu-synchronize,npu-plan-memory,npu-check | filecheck %s --check-prefix=NPU

// A product whose rows are reduced behind it, as one fusion: a core has all columns of its rows, in blocks of 16.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>) -> (tensor<64x48xf16>, tensor<64x48xf16>) {
    %y = graph.fusion %x, %w {domain = [64, 48], kind = "cube",
      schedule = #graph.cube_schedule<base_m = 16, base_n = 16, cores = 2, tail = 1>}
      : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16> {
    ^bb0(%a: tensor<64x32xf16>, %b: tensor<32x48xf16>):
      %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: 0, 1>} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
      graph.yield %c : (tensor<64x48xf16>)
    }
    %r = graph.fusion %y {domain = [64, 48], kind = "vector"} : tensor<64x48xf16> {
    ^bb0(%d: tensor<64x48xf16>):
      %m = graph.reduce %d {dims = [1], kind = "max"} attributes {axes = array<i64: 0, 1>}
        : (tensor<64x48xf16>) -> tensor<64xf16>
      %n = graph.broadcast %m {dims = [0]} : (tensor<64xf16>) -> tensor<64x48xf16>
      %e = graph.sub %d, %n attributes {axes = array<i64: 0, 1>} : tensor<64x48xf16>
      graph.yield %e : (tensor<64x48xf16>)
    }
    func.return %y, %r : tensor<64x48xf16>, tensor<64x48xf16>
  }
}
// SCHEDULED: graph.fusion %x, %w {domain = [64, 48], kind = "mix"
// SCHEDULED-SAME: step = [16, 16, 32]
// SCHEDULED-SAME: grid = [2, 1, 1], inner = n
// SCHEDULED-SAME: epilogue = [8, 48]
// SCHEDULED: graph.contract
// SCHEDULED: graph.reduce
// SCHEDULED: graph.yield %{{.*}}, %{{.*}} : (tensor<64x48xf16>, tensor<64x48xf16>)
// SCHEDULED-NOT: graph.fusion

// The pin goes before the option.
// APART: graph.fusion %x, %w {domain = [64, 48], kind = "mix"

// TILE: tile.kernel @contract_0 {grid = [2], kind = "mix", outputs = 2
// TILE: tile.section {core = "cube"
// TILE: scf.for %[[ROWS:.*]] = %{{.*}} to %[[TWO:.*]] step
// TILE: scf.for %[[COLUMNS:.*]] = %{{.*}} to %[[THREE:.*]] step
// TILE: tile.store %{{.*}}, %{{.*}} at [%{{.*}} * 32 + %[[ROWS]] * 16, %[[COLUMNS]] * 16] {sizes = [16, 16]}
// TILE: tile.section {core = "vector", units = 2}
// TILE: scf.for %[[ROW:.*]] = %{{.*}} to %[[TWO]] step
// TILE-NEXT: tile.load %{{.*}} at [%{{.*}} * 32 + %{{.*}} * 8 + %[[ROW]] * 16, 0] {sizes = [8, 48]}
// TILE-NOT: scf.for
// TILE: tile.reduce
// TILE: tile.broadcast
// TILE: tile.sub

// The cube tells once for all columns of a block, inside the loop that both sections have.
// NPU: npu.fixpipe {{.*}}unit_flag
// NPU-NEXT: }
// NPU-NEXT: npu.set_cross {event = 0, source = "FIX"}
// NPU-NEXT: }
// NPU: npu.section {core = "vector", units = 2}
// NPU: scf.for
// NPU-NEXT: npu.{{.*}}
// NPU: npu.wait_cross {event = 0, target = "MTE2"}
// NPU: npu.vreduce
