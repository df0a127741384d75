// RUN: tilewright-opt %s -p graph-to-tile --split-input-file --verify-diagnostics | filecheck %s

// A complete schedule written by hand is obeyed as it is.
func.func @main(%x: tensor<64x96xf32>) -> tensor<64x96xf32> {
  %r = graph.fusion %x {domain = [64, 96], kind = "vector",
    schedule = #graph.vector_schedule<axes = [[0], [1]], tile = [4, 32], grid = [8, 3], ub = 1>} : (tensor<64x96xf32>) -> tensor<64x96xf32> {
  ^bb0(%a: tensor<64x96xf32>):
    %b = graph.exp %a attributes {axes = array<i64: 0, 1>} : tensor<64x96xf32>
    graph.yield %b : (tensor<64x96xf32>)
  }
  func.return %r : tensor<64x96xf32>
}
// CHECK: tile.kernel @exp_0 {grid = [8, 3], {{.*}} slots = [1, 1, 1, 1, 1]
// CHECK: tile.load {{.*}} {sizes = [4, 32]}

// -----

// Refused: cores without work.
func.func @main(%x: tensor<64x96xf32>) -> tensor<64x96xf32> {
  %r = graph.fusion %x {domain = [64, 96], kind = "vector",
    schedule = #graph.vector_schedule<axes = [[0], [1]], tile = [4, 32], grid = [7, 3], ub = 1>} : (tensor<64x96xf32>) -> tensor<64x96xf32> {
  ^bb0(%a: tensor<64x96xf32>):
    %b = graph.exp %a attributes {axes = array<i64: 0, 1>} : tensor<64x96xf32>
    graph.yield %b : (tensor<64x96xf32>)
  }
  func.return %r : tensor<64x96xf32>
}
// CHECK: @exp_0 cannot obey its pinned schedule: axis 0 cannot be split over 7 cores, as it has 16 tiles

// -----

// Refused: axes that are not side by side.
func.func @main(%x: tensor<64x96xf32>) -> tensor<96x64xf32> {
  %r = graph.fusion %x {domain = [96, 64], kind = "vector",
    schedule = #graph.vector_schedule<axes = [[0, 1]], tile = [64], grid = [1], ub = 2>} : (tensor<64x96xf32>) -> tensor<96x64xf32> {
  ^bb0(%a: tensor<64x96xf32>):
    %t = graph.transpose %a {perm = [1, 0]} : (tensor<64x96xf32>) -> tensor<96x64xf32>
    %b = graph.exp %t attributes {axes = array<i64: 0, 1>} : tensor<96x64xf32>
    graph.yield %b : (tensor<96x64xf32>)
  }
  func.return %r : tensor<96x64xf32>
}
// CHECK: its schedule walks the axes as {{\[\[0, 1]]}}, and they must be {{\[\[0], \[1]]}} or parts of these, in order

// -----

// Refused: a schedule of a contraction for a kernel of the vector cores.
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %r = graph.fusion %x {domain = [64], kind = "vector",
    schedule = #graph.cube_schedule<axes = [[0]], step = [64], lhs = [64], rhs = [64], grid = [1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = 2, ub = 2>}
    : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64xf32>):
    %b = graph.exp %a attributes {axes = array<i64: 0>} : tensor<64xf32>
    graph.yield %b : (tensor<64xf32>)
  }
  func.return %r : tensor<64xf32>
}
// CHECK: @exp_0 cannot obey its pinned schedule: it is a kernel of the vector cores, and its schedule a cube_schedule

// -----

// Refused: nothing is chosen, or only a part.
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %r = graph.fusion %x {domain = [64], kind = "vector", schedule = #graph.vector_schedule<tile = [64]>} : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64xf32>):
    %b = graph.exp %a attributes {axes = array<i64: 0>} : tensor<64xf32>
    graph.yield %b : (tensor<64xf32>)
  }
  func.return %r : tensor<64xf32>
}
// CHECK: graph-to-tile needs a module that is scheduled: run graph-schedule before it

// -----

// Refused: loads of a contraction that are not whole steps.
func.func @main(%x: tensor<32x100xf16>, %w: tensor<100x16xf16>) -> tensor<32x16xf16> {
  %r = graph.fusion %x, %w {domain = [32, 16], kind = "cube",
    schedule = #graph.cube_schedule<axes = [[0], [1], [2]], step = [32, 16, 48], lhs = [32, 16, 64], rhs = [32, 16, 64], grid = [1, 1, 1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = 2, ub = 2>}
    : (tensor<32x100xf16>, tensor<100x16xf16>) -> tensor<32x16xf16> {
  ^bb0(%a: tensor<32x100xf16>, %b: tensor<100x16xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<32x100xf16>, tensor<100x16xf16>) -> tensor<32x16xf16>
    graph.yield %c : (tensor<32x16xf16>)
  }
  func.return %r : tensor<32x16xf16>
}
// CHECK: @contract_0 cannot obey its pinned schedule: lhs loads 64 along axis 2, which is no multiple of the step's 48
