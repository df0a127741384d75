// RUN: tilewright-opt %s -p "graph-fuse,graph-schedule,graph-to-tile,tile-fit{memory_limit=1400000}" | tilewright-opt | filecheck %s
// RUN: tilewright-opt %s -p "graph-fuse,graph-schedule,graph-to-tile,tile-fit{memory_limit=1600000}" | tilewright-opt | filecheck %s --check-prefix=ROOM
// RUN: tilewright-opt %s -p "graph-fuse,graph-schedule,graph-to-tile,tile-fit" | tilewright-opt | filecheck %s --check-prefix=NONE

// The sum of %a and %b is used at both ends of a chain of products: it is made again for its last use.
func.func @main(%a: tensor<256x256xf32>, %b: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %s = graph.add %a, %b : tensor<256x256xf32>
  %p = graph.contract %s, %s {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %q = graph.contract %p, %p {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %r = graph.contract %p, %q {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %t = graph.contract %r, %q {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %u = graph.contract %t, %s {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %u : tensor<256x256xf32>
}
// CHECK: func.func @main({{.*}}) -> tensor<256x256xf32> attributes {npu.memory_limit = 1400000 : i64} {
// CHECK-NEXT: %[[S:.*]] = tile.launch @add_0 %a, %b {inits = [-1]}
// CHECK-NEXT: %[[P:.*]] = tile.launch @contract_0 %[[S]] {inits = [-1]}
// CHECK-NEXT: %[[Q:.*]] = tile.launch @contract_0 %[[P]] {inits = [-1]}
// CHECK-NEXT: %[[R:.*]] = tile.launch @contract_1 %[[P]], %[[Q]] {inits = [-1]}
// CHECK-NEXT: %[[T:.*]] = tile.launch @contract_1 %[[R]], %[[Q]] {inits = [-1]}
// CHECK-NEXT: %[[AGAIN:.*]] = tile.launch @add_0 %a, %b {again, inits = [-1]}
// CHECK-NEXT: %[[U:.*]] = tile.launch @contract_1 %[[T]], %[[AGAIN]] {inits = [-1]}
// CHECK-NEXT: func.return %[[U]]

// Where there is room all stays as it is, and without a limit nothing is said of one.
// ROOM: npu.memory_limit = 1600000
// ROOM-NOT: again
// NONE-NOT: npu.memory_limit
// NONE-NOT: again
