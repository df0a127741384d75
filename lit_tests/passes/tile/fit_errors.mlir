// RUN: not tilewright-opt %s -p "graph-fuse,graph-schedule,graph-to-tile,tile-fit{memory_limit=1000000}" 2>&1 | filecheck %s

func.func @main(%a: tensor<256x256xf32>, %b: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %s = graph.add %a, %b : tensor<256x256xf32>
  %p = graph.contract %s, %s {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %q = graph.contract %p, %s {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %q : tensor<256x256xf32>
}
// CHECK: error: memory_limit: the program does not fit into 1,000,000 bytes of device memory; the least that was reached, with values that are computed again or wait on the host, is 1,310,720, at 'tile.launch' ({{.*}}fit_errors.mlir:6), where there are tensor<256x256xf32>, 262144 bytes
// CHECK-SAME: 524288 bytes of it are constants and arguments that are not donated
