// RUN: tilewright-opt %s -p 'acme-expand{target=ascend-910b1}' | filecheck %s
// RUN: tilewright-opt %s -p 'acme-expand{target=acme-1}' | filecheck %s --check-prefix=KEPT

func.func @main(%x: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %y = acme.prefix_xor %x : tensor<2x4xi32>
  func.return %y : tensor<2x4xi32>
}
// CHECK-NOT: acme.prefix_xor
// CHECK-COUNT-2: graph.xor
// KEPT: acme.prefix_xor
