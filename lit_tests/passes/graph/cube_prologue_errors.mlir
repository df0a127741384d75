// RUN: not tilewright-opt %s -p graph-schedule --split-input-file 2>&1 | filecheck %s

// What stands behind a product of which vector cores make an operand is a kernel of its own.
// CHECK: something stands behind a product of which vector cores make an operand
module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} {
  func.func @main(%x: tensor<64x256xf16>, %w: tensor<256x128xf16>) -> tensor<64x128xf16> {
    %r = graph.fusion %x, %w {domain = [64, 128], kind = "mix"}
      : (tensor<64x256xf16>, tensor<256x128xf16>) -> tensor<64x128xf16> {
    ^bb0(%a: tensor<64x256xf16>, %b: tensor<256x128xf16>):
      %t = graph.tanh %b attributes {prologue = array<i64: 0, 1>} : tensor<256x128xf16>
      %c = graph.contract %a, %t {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
        attributes {axes = array<i64: 0, 1>} : (tensor<64x256xf16>, tensor<256x128xf16>) -> tensor<64x128xf16>
      %e = graph.exp %c attributes {axes = array<i64: 0, 1>} : tensor<64x128xf16>
      graph.yield %e : (tensor<64x128xf16>)
    }
    func.return %r : tensor<64x128xf16>
  }
}
