// RUN: tilewright-opt %s -p graph-to-tile --split-input-file --verify-diagnostics | filecheck %s

// A step that begins inside a byte of positions.
func.func @main(%x: tensor<16x64xi8>, %v: tensor<32x16xi8>, %i: tensor<8x16xi8>) -> tensor<16x16xi32> {
  %r = graph.fusion %x, %v, %i {domain = [16, 16], kind = "cube",
    schedule = #graph.cube_schedule<axes = [[0], [1], [2]], step = [16, 16, 20], lhs = [16, 16, 20], rhs = [16, 16, 20],
      grid = [1, 1, 1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = 1, ub = 2>} : (tensor<16x64xi8>, tensor<32x16xi8>, tensor<8x16xi8>) -> tensor<16x16xi32> {
  ^bb0(%a: tensor<16x64xi8>, %b: tensor<32x16xi8>, %c: tensor<8x16xi8>):
    %d = graph.expand %b, %c {dim = 0} : (tensor<32x16xi8>, tensor<8x16xi8>) -> tensor<64x16xi8>
    %y = graph.contract %a, %d {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} attributes {axes = array<i64: 0, 1>} : (tensor<16x64xi8>, tensor<64x16xi8>) -> tensor<16x16xi32>
    graph.yield %y : (tensor<16x16xi32>)
  }
  func.return %r : tensor<16x16xi32>
}
// CHECK: @contract_0 cannot obey its pinned schedule: a step of 20 along axis 2, of which 8 elements have their positions in one byte
