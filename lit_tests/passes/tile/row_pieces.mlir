// RUN: tilewright-opt %s -p graph-to-tile --split-input-file | tilewright-opt --split-input-file | filecheck %s

// Softmax in pieces: a walk for the maxima, one for the sums, and one that stores.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused", "scheduled"]} {
  func.func @main(%x: tensor<6x100xf32>) -> tensor<6x100xf32> {
    %r = graph.fusion %x {domain = [6, 100], kind = "vector",
      schedule = #graph.vector_schedule<axes = [[0], [1]], tile = [2, 32], grid = [3, 1], ub = 2>}
      : (tensor<6x100xf32>) -> tensor<6x100xf32> {
    ^bb0(%a: tensor<6x100xf32>):
      %m = graph.reduce %a {dims = [1], kind = "max"} attributes {axes = array<i64: 0, 1>} : (tensor<6x100xf32>) -> tensor<6xf32>
      %mb = graph.broadcast %m {dims = [0]} : (tensor<6xf32>) -> tensor<6x100xf32>
      %d = graph.sub %a, %mb attributes {axes = array<i64: 0, 1>} : tensor<6x100xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1>} : tensor<6x100xf32>
      %s = graph.reduce %e {dims = [1], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<6x100xf32>) -> tensor<6xf32>
      %sb = graph.broadcast %s {dims = [0]} : (tensor<6xf32>) -> tensor<6x100xf32>
      %q = graph.div %e, %sb attributes {axes = array<i64: 0, 1>} : tensor<6x100xf32>
      graph.yield %q : (tensor<6x100xf32>)
    }
    func.return %r : tensor<6x100xf32>
  }
}
// CHECK: tile.kernel @reduce_0 {grid = [3]
// CHECK: tile.fill {value = 0xfff0000000000000 : f64} : () -> !tile.tile<2x32xf32, ub>
// CHECK: %[[BEST:.*]] = scf.for
// CHECK: tile.load
// CHECK: tile.mask {{.*}} {bounds = [2, 100], value = 0xfff0000000000000 : f64}
// CHECK: tile.max
// CHECK: scf.yield
// CHECK: %[[MAX:.*]] = tile.reduce %[[BEST]] {dims = [1], kind = "max"}
// CHECK: %[[ALL:.*]] = scf.for
// CHECK: tile.load
// CHECK: tile.broadcast %[[MAX]]
// CHECK: tile.exp
// CHECK: tile.mask {{.*}} {bounds = [2, 100], value = 0.000000e+00 : f64}
// CHECK: tile.add
// CHECK: scf.yield
// CHECK: %[[SUM:.*]] = tile.reduce %[[ALL]] {dims = [1], kind = "sum"}
// CHECK: scf.for
// CHECK: tile.load
// CHECK: tile.exp
// CHECK: tile.broadcast %[[SUM]]
// CHECK: tile.div
// CHECK: tile.store
// CHECK-NOT: scf.for

// -----

// Two reductions in one walk, what is stored along the rows in the earliest one, and what is narrow behind it.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused", "scheduled"]} {
  func.func @main(%x: tensor<6x96xf32>) -> (tensor<6x96xf32>, tensor<6xf32>) {
    %r:2 = graph.fusion %x {domain = [6, 96], kind = "vector",
      schedule = #graph.vector_schedule<axes = [[0], [1]], tile = [2, 32], grid = [3, 1], ub = 2>}
      : (tensor<6x96xf32>) -> (tensor<6x96xf32>, tensor<6xf32>) {
    ^bb0(%a: tensor<6x96xf32>):
      %p = graph.mul %a, %a attributes {axes = array<i64: 0, 1>} : tensor<6x96xf32>
      %s = graph.reduce %a {dims = [1], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<6x96xf32>) -> tensor<6xf32>
      %t = graph.reduce %p {dims = [1], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<6x96xf32>) -> tensor<6xf32>
      %u = graph.div %t, %s attributes {axes = array<i64: 0>} : tensor<6xf32>
      graph.yield %p, %u : (tensor<6x96xf32>, tensor<6xf32>)
    }
    func.return %r#0, %r#1 : tensor<6x96xf32>, tensor<6xf32>
  }
}
// CHECK: tile.kernel @reduce_0 {grid = [3]
// CHECK: scf.for {{.*}} -> (!tile.tile<2x32xf32, ub>, !tile.tile<2x32xf32, ub>)
// CHECK: tile.load
// CHECK: tile.mul
// CHECK: tile.add
// CHECK: tile.add
// CHECK: tile.store
// CHECK: scf.yield
// CHECK: tile.reduce
// CHECK: tile.reduce
// CHECK: tile.div
// CHECK: tile.store
// CHECK-NOT: scf.for
