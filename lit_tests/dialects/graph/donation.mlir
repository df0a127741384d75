// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// An argument that is donated says so, at every level.
func.func @main(%cache: tensor<8x64xf16> {graph.donated}, %x: tensor<64xf16>) -> tensor<8x64xf16> {
  func.return %cache : tensor<8x64xf16>
}
// CHECK: @main
// CHECK-SAME: graph.donated

// -----

func.func @main(%x: tensor<64xf16>, %cache: !npu.gm<8x64xf16> {graph.donated}) -> !npu.gm<8x64xf16> {
  func.return %cache : !npu.gm<8x64xf16>
}
// CHECK: @main
// CHECK-SAME: graph.donated
