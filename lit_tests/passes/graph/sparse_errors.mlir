// RUN: tilewright-opt %s -p graph-fuse --split-input-file --verify-diagnostics | filecheck %s

func.func @main(%v: tensor<16x32xi8>, %i: tensor<16x8xi8>) -> tensor<16x64xi8> {
  %d = graph.expand %v, %i {dim = 1} : (tensor<16x32xi8>, tensor<16x8xi8>) -> tensor<16x64xi8>
  func.return %d : tensor<16x64xi8>
}
// CHECK: 'graph.expand' {{.*}}is read by more than products of integers that sum over its dimension: run graph-simplify before graph-fuse, which writes it out
