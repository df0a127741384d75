// RUN: tilewright-opt %s -p 'graph-schedule{schedule="base_m=256,base_n=256"},graph-to-tile' --verify-diagnostics | filecheck %s --check-prefix FULL
// RUN: tilewright-opt %s -p 'graph-schedule{schedule="contract_3:base_m=64"},graph-to-tile' --verify-diagnostics | filecheck %s --check-prefix NAME
// RUN: tilewright-opt %s -p 'graph-schedule{schedule="base_q=64"},graph-to-tile' --verify-diagnostics | filecheck %s --check-prefix FIELD

func.func @main(%x: tensor<256x512xf16>, %w: tensor<512x512xf16>) -> tensor<256x512xf16> {
  %r = graph.fusion %x, %w {domain = [256, 512], kind = "cube"}
    : (tensor<256x512xf16>, tensor<512x512xf16>) -> tensor<256x512xf16> {
  ^bb0(%a: tensor<256x512xf16>, %b: tensor<512x512xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>}
      : (tensor<256x512xf16>, tensor<512x512xf16>) -> tensor<256x512xf16>
    graph.yield %c : (tensor<256x512xf16>)
  }
  func.return %r : tensor<256x512xf16>
}
// FULL: @contract_0 cannot obey its pinned schedule: an accumulator of 256 x 256 takes 262144 bytes of l0c, and ascend-910b1 has 131072
// NAME: schedule: there is no kernel 'contract_3'; there are contract_0
// FIELD: schedule: there is no choice 'base_q'; did you mean base_
