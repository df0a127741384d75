// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile --split-input-file --verify-diagnostics | filecheck %s

// Columns are reduced, and a core has some rows of each.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>) -> tensor<48xf16> {
    %y = graph.fusion %x, %w {domain = [64, 48], kind = "cube", schedule = #graph.cube_schedule<tail = 1>}
      : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16> {
    ^bb0(%a: tensor<64x32xf16>, %b: tensor<32x48xf16>):
      %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: 0, 1>} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
      graph.yield %c : (tensor<64x48xf16>)
    }
    %r = graph.fusion %y {domain = [64, 48], kind = "vector"} : (tensor<64x48xf16>) -> tensor<48xf16> {
    ^bb0(%d: tensor<64x48xf16>):
      %m = graph.reduce %d {dims = [0], kind = "max"} attributes {axes = array<i64: 0, 1>}
        : (tensor<64x48xf16>) -> tensor<48xf16>
      graph.yield %m : (tensor<48xf16>)
    }
    func.return %r : tensor<48xf16>
  }
}
// CHECK: cannot obey its pinned schedule: tail=1: it sums over rows of a product, of which each core has some

// -----

// Nothing is reduced.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>) -> tensor<64x48xf16> {
    %y = graph.fusion %x, %w {domain = [64, 48], kind = "cube", schedule = #graph.cube_schedule<tail = 1>}
      : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16> {
    ^bb0(%a: tensor<64x32xf16>, %b: tensor<32x48xf16>):
      %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: 0, 1>} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
      graph.yield %c : (tensor<64x48xf16>)
    }
    func.return %y : tensor<64x48xf16>
  }
}
// CHECK: tail=1: no kernel behind it reduces its rows

// -----

// No core has a part of the columns.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>) -> tensor<64xf16> {
    %y = graph.fusion %x, %w {domain = [64, 48], kind = "mix",
      schedule = #graph.cube_schedule<axes = [[0], [1], [2]], step = [16, 16, 32], lhs = [16, 16, 32],
        rhs = [16, 16, 32], grid = [2, 3, 1], inner = n, l1 = 2, l0a = 2, l0b = 2, l0c = 2, ub = 2,
        epilogue = [8, 48]>}
      : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64xf16> {
    ^bb0(%a: tensor<64x32xf16>, %b: tensor<32x48xf16>):
      %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: 0, 1>} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
      %m = graph.reduce %c {dims = [1], kind = "max"} attributes {axes = array<i64: 0, 1>}
        : (tensor<64x48xf16>) -> tensor<64xf16>
      graph.yield %m : (tensor<64xf16>)
    }
    func.return %y : tensor<64xf16>
  }
}
// CHECK: axis 1 cannot be split over 3 cores, as rows along it are reduced

// -----

// The loop over columns is the inner one.
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>) -> tensor<64xf16> {
    %y = graph.fusion %x, %w {domain = [64, 48], kind = "mix",
      schedule = #graph.cube_schedule<axes = [[0], [1], [2]], step = [16, 16, 32], lhs = [16, 16, 32],
        rhs = [16, 16, 32], grid = [2, 1, 1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = 2, ub = 2,
        epilogue = [8, 48]>}
      : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64xf16> {
    ^bb0(%a: tensor<64x32xf16>, %b: tensor<32x48xf16>):
      %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: 0, 1>} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
      %m = graph.reduce %c {dims = [1], kind = "max"} attributes {axes = array<i64: 0, 1>}
        : (tensor<64x48xf16>) -> tensor<64xf16>
      graph.yield %m : (tensor<64xf16>)
    }
    func.return %y : tensor<64xf16>
  }
}
// CHECK: rows are reduced once all their columns are there: the inner loop must be n, not m
