// RUN: tilewright-opt %s -p 'graph-simplify{only=acme-merge-prefix-xors}' | filecheck %s

func.func @main(%x: tensor<4x9xui32>, %y: tensor<4x9xui32>) -> tensor<4x9xui32> {
  %a = acme.prefix_xor %x : tensor<4x9xui32>
  %b = acme.prefix_xor %y : tensor<4x9xui32>
  %r = graph.xor %a, %b : tensor<4x9xui32>
  func.return %r : tensor<4x9xui32>
}
// CHECK: %[[MIXED:.*]] = graph.xor %x, %y : tensor<4x9xui32>
// CHECK-NEXT: acme.prefix_xor %[[MIXED]] : tensor<4x9xui32>
// CHECK-NEXT: func.return
