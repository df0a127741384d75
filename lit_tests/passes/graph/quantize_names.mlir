// RUN: tilewright-opt %s -p 'graph-quantize{config=w8a8-dynamic}' --print-debuginfo | filecheck %s
// RUN: tilewright-opt %s -p 'graph-quantize{config=origin}' --print-debuginfo | filecheck %s --check-prefix ORIGIN

// The location of a product says what it is called and which mode was chosen for it; what is around it does not.
func.func @main(%x: tensor<8x64xf32>, %w: tensor<64x10xf32> {graph.path = "w"}) -> tensor<8x10xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x64xf32>, tensor<64x10xf32>) -> tensor<8x10xf32> loc("model.py":7:3)
  func.return %y : tensor<8x10xf32>
}
// CHECK: graph.quantize %x
// CHECK-SAME: loc("model.py":7:3)
// CHECK: graph.contract
// CHECK-SAME: loc("tilewright.product w8a8-dynamic w"("model.py":7:3))
// ORIGIN: graph.contract
// ORIGIN-SAME: loc("tilewright.product origin w"("model.py":7:3))
