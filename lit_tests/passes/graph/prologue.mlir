// RUN: tilewright-opt %s -p 'graph-schedule{without=cube-prologue}' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-schedule{without=cube-prologue}' | tilewright-opt | filecheck %s
// RUN: tilewright-opt %s -p graph-schedule | filecheck %s --check-prefix=LEAST
// RUN: tilewright-opt %s -p 'graph-schedule{without=prologue,cube-prologue}' | filecheck %s --check-prefix=APART

// Weights that are widened and scaled before a product of one row: vector cores do all of it where they load them.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<1x4096xf16>, %q: tensor<4096x4096xi8>, %s: tensor<4096xf16>) -> tensor<1x4096xf16> {
    %w = graph.fusion %q, %s {domain = [4096, 4096], kind = "vector"}
      : (tensor<4096x4096xi8>, tensor<4096xf16>) -> tensor<4096x4096xf16> {
    ^bb0(%a: tensor<4096x4096xi8>, %b: tensor<4096xf16>):
      %c = graph.convert %a attributes {axes = array<i64: 0, 1>} : (tensor<4096x4096xi8>) -> tensor<4096x4096xf16>
      %d = graph.broadcast %b {dims = [1]} : (tensor<4096xf16>) -> tensor<4096x4096xf16>
      %e = graph.mul %c, %d attributes {axes = array<i64: 0, 1>} : tensor<4096x4096xf16>
      graph.yield %e : (tensor<4096x4096xf16>)
    }
    %r = graph.fusion %x, %w {domain = [1, 4096], kind = "cube"}
      : (tensor<1x4096xf16>, tensor<4096x4096xf16>) -> tensor<1x4096xf16> {
    ^bb0(%a: tensor<1x4096xf16>, %b: tensor<4096x4096xf16>):
      %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: -1, 1>} : (tensor<1x4096xf16>, tensor<4096x4096xf16>) -> tensor<1x4096xf16>
      graph.yield %c : (tensor<1x4096xf16>)
    }
    func.return %r : tensor<1x4096xf16>
  }
}

// CHECK:      %r = graph.fusion %q, %s, %x {domain = [1, 4096, 4096], kind = "vector", schedule = #graph.vector_schedule<
// CHECK:        %[[W:.*]] = graph.mul {{.*}} attributes {axes = array<i64: 1, 2>} : tensor<4096x4096xf16>
// CHECK:        graph.convert {{.*}} : (tensor<4096x4096xf16>) -> tensor<4096x4096xf32>
// CHECK:        graph.reduce {{.*}} {dims = [2], kind = "sum"} attributes {axes = array<i64: -1, 2, 1>, spread}
// CHECK:      func.return %r

// APART:      %w = graph.fusion %q, %s {domain = [4096, 4096], kind = "vector", schedule
// APART:      graph.contract

// With both prologues the one that takes least is taken, though it is not the first: on the cube.
// LEAST:      %r = graph.fusion %q, %s, %x {domain = [1, 4096], kind = "mix", schedule = #graph.cube_schedule<
