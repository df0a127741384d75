// RUN: tilewright-opt %s -p graph-simplify,graph-fuse,graph-schedule,graph-to-tile | tilewright-opt | filecheck %s

// Of a sparse right side half the rows are loaded, and a byte of positions for each eight.
func.func @main(%x: tensor<128x512xi8>, %v: tensor<64x256xi8>, %i: tensor<64x64xi8>) -> tensor<128x64xi32> {
  %d = graph.expand %v, %i {dim = 1} : (tensor<64x256xi8>, tensor<64x64xi8>) -> tensor<64x512xi8>
  %w = graph.transpose %d {perm = [1, 0]} : (tensor<64x512xi8>) -> tensor<512x64xi8>
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<128x512xi8>, tensor<512x64xi8>) -> tensor<128x64xi32>
  func.return %y : tensor<128x64xi32>
}
// CHECK: tile.launch @contract_0 %v, %i, %x {inits = [-1]}
// CHECK: tile.load {{.*}} -> !tile.tile<[[N:[0-9]+]]x256xi8, l1>
// CHECK: tile.load {{.*}} -> !tile.tile<[[N]]x64xi8, l1>
// CHECK: tile.load {{.*}} -> !tile.tile<[[M:[0-9]+]]x512xi8, l1>
// CHECK: tile.move {{.*}} -> !tile.tile<[[M]]x[[K:[0-9]+]]xi8, l0a>
// CHECK: tile.move {{.*}}transpose = 1{{.*}} -> !tile.tile<{{.*}}x[[N]]xi8, l0b>
// CHECK: tile.move {{.*}}transpose = 1{{.*}} -> !tile.tile<{{.*}}x[[N]]xi8, l0b>
// CHECK: tile.mma %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} at
