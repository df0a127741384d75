// RUN: tilewright-opt %s -p graph-schedule | filecheck %s
// RUN: tilewright-opt %s -p graph-schedule | tilewright-opt | filecheck %s
// RUN: tilewright-opt %s -p 'graph-schedule{without=column-epilogue}' | filecheck %s --check-prefix=APART
// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile | filecheck %s --check-prefix=TILE
// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile,tile-to-npu,npu-allocate,npu-synchronize,npu-plan-memory,npu-schedule-host,npu-join-launches,npu-check | filecheck %s --check-prefix=NPU
// RUN: tilewright-opt %s -p graph-schedule -t stages | filecheck %s --check-prefix=STAGES

// A rotary embedding of 16 heads behind the product that makes them.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<128x1024xf16>, %w: tensor<1024x1024xf16>, %c: tensor<128x32xf16>, %s: tensor<128x32xf16>)
    -> tensor<128x16x64xf16> {
    %y = graph.fusion %x, %w {domain = [128, 1024], kind = "cube"}
      : (tensor<128x1024xf16>, tensor<1024x1024xf16>) -> tensor<128x1024xf16> {
    ^bb0(%a: tensor<128x1024xf16>, %b: tensor<1024x1024xf16>):
      %d = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: 0, 1>} : (tensor<128x1024xf16>, tensor<1024x1024xf16>) -> tensor<128x1024xf16>
      graph.yield %d : (tensor<128x1024xf16>)
    }
    %r = graph.fusion %y, %c, %s {domain = [128, 16, 32], kind = "vector"}
      : (tensor<128x1024xf16>, tensor<128x32xf16>, tensor<128x32xf16>) -> tensor<128x16x64xf16> {
    ^bb0(%a: tensor<128x1024xf16>, %b: tensor<128x32xf16>, %d: tensor<128x32xf16>):
      %e = graph.reshape %a : (tensor<128x1024xf16>) -> tensor<128x16x64xf16>
      %f = graph.slice %e {limits = [128, 16, 32], starts = [0, 0, 0], strides = [1, 1, 1]}
        : (tensor<128x16x64xf16>) -> tensor<128x16x32xf16>
      %g = graph.slice %e {limits = [128, 16, 64], starts = [0, 0, 32], strides = [1, 1, 1]}
        : (tensor<128x16x64xf16>) -> tensor<128x16x32xf16>
      %cos = graph.broadcast %b {dims = [0, 2]} : (tensor<128x32xf16>) -> tensor<128x16x32xf16>
      %sin = graph.broadcast %d {dims = [0, 2]} : (tensor<128x32xf16>) -> tensor<128x16x32xf16>
      %h = graph.mul %f, %cos attributes {axes = array<i64: 0, 1, 2>} : tensor<128x16x32xf16>
      %i = graph.mul %g, %sin attributes {axes = array<i64: 0, 1, 2>} : tensor<128x16x32xf16>
      %j = graph.sub %h, %i attributes {axes = array<i64: 0, 1, 2>} : tensor<128x16x32xf16>
      %k = graph.mul %g, %cos attributes {axes = array<i64: 0, 1, 2>} : tensor<128x16x32xf16>
      %l = graph.mul %f, %sin attributes {axes = array<i64: 0, 1, 2>} : tensor<128x16x32xf16>
      %m = graph.add %k, %l attributes {axes = array<i64: 0, 1, 2>} : tensor<128x16x32xf16>
      %n = graph.concat %j, %m {dim = 2} : (tensor<128x16x32xf16>, tensor<128x16x32xf16>) -> tensor<128x16x64xf16>
      graph.yield %n : (tensor<128x16x64xf16>)
    }
    func.return %r : tensor<128x16x64xf16>
  }
}

// The columns are parted: heads, the halves of each, and a place in a half, along which the epilogue has no axis.
// CHECK:      graph.fusion %x, %w, %c, %s {domain = [128, 16, 2, 32], kind = "mix"
// CHECK:      [[W:%[0-9]+]] = graph.reshape %{{[0-9]+}} : (tensor<1024x1024xf16>) -> tensor<1024x16x2x32xf16>
// CHECK-NEXT: [[Y:%[0-9]+]] = graph.contract %{{[0-9]+}}, [[W]] {{.*}} attributes {axes = array<i64: 0, 1, 2, 3>}
// CHECK:      graph.mul {{.*}} attributes {axes = array<i64: 0, 1, 3>} : tensor<128x16x32xf16>
// CHECK:      graph.concat
// CHECK-NOT:  graph.fusion

// APART:     graph.fusion %x, %w {domain = [128, 1024], kind = "cube"
// APART:     graph.fusion %y, %c, %s {domain = [128, 16, 32], kind = "vector"

// Of a tile of sums, which has both halves, a vector core takes one after the other; both results are boxes of one view.
// TILE:      tile.kernel @contract_0 {{.*}}kind = "mix"
// TILE:      [[R:%[0-9]+]] = tile.view %{{[0-9]+}} : (!npu.gm<128x16x64xf16>)
// TILE-SAME:   -> !npu.gm<2x128x16x32xf16, strides [32, 1024, 64, 1], offset 0>
// TILE:      tile.section {core = "vector", units = 2}
// TILE:      [[T:%[0-9]+]] = tile.load
// TILE:      tile.extract [[T]] at [0, 0, 0, 0]
// TILE:      tile.extract [[T]] at [0, 0, 1, 0]
// TILE:      tile.store {{.*}} at [0, 
// TILE:      tile.store {{.*}} at [1, 

// STAGES:    extract(%0) {taken = [(2, 0, 1)]} : f16 over [0, 1, 3]
// STAGES:    extract(%0) {taken = [(2, 1, 1)]} : f16 over [0, 1, 3]
// STAGES:    box = [2 by 32 from 1, 128 by 1024 at 0, 16 by 64 at 1, 32 by 1 at 3]

// NPU:       npu.wait_cross
// NPU:       npu.vextract
