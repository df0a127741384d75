// RUN: tilewright-opt %s -p 'graph-simplify{only=merge-broadcast}' --verify-diagnostics | filecheck %s

func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  func.return %x : tensor<8xf32>
}
// CHECK: error: graph-simplify: no pattern is called 'merge-broadcast'; did you mean merge-broadcasts?
