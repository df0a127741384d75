// RUN: tilewright-opt %s -p graph-schedule --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile --split-input-file | filecheck %s --check-prefix=TILE
// RUN: tilewright-opt %s -p "graph-schedule{without=recompute},graph-to-tile" --split-input-file | filecheck %s --check-prefix=OFF

// A norm of one row, which one core has in a moment, and a product whose cores each read a part of it. Its fusion stands
// inside that of the product, whose cores make all of the row, as each element depends on all.
func.func @main(%x: tensor<1x512xf16>, %w: tensor<512x384xf16>) -> tensor<1x384xf16> {
  %n = graph.fusion %x {domain = [1, 512], kind = "vector"} : tensor<1x512xf16> {
  ^bb0(%0: tensor<1x512xf16>):
    %m = graph.reduce %0 {dims = [1], kind = "max"} attributes {axes = array<i64: -1, 1>} : (tensor<1x512xf16>) -> tensor<1xf16>
    %b = graph.broadcast %m {dims = [0]} : (tensor<1xf16>) -> tensor<1x512xf16>
    %s = graph.sub %0, %b attributes {axes = array<i64: -1, 1>} : tensor<1x512xf16>
    graph.yield %s : (tensor<1x512xf16>)
  }
  %y = graph.fusion %n, %w {domain = [1, 384], kind = "cube"} : (tensor<1x512xf16>, tensor<512x384xf16>) -> tensor<1x384xf16> {
  ^bb0(%0: tensor<1x512xf16>, %1: tensor<512x384xf16>):
    %c = graph.contract %0, %1 {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} attributes {axes = array<i64: 0, 1>} : (tensor<1x512xf16>, tensor<512x384xf16>) -> tensor<1x384xf16>
    graph.yield %c : (tensor<1x384xf16>)
  }
  func.return %y : tensor<1x384xf16>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[PARTS:.*]] = graph.fusion %x, %w {domain = [8, 1, 384], kind = "cube", schedule = #graph.vector_schedule<{{.*}}>}
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<1x512xf16>, %[[W:.*]]: tensor<512x384xf16>):
// CHECK-NEXT: %[[N:.*]] = graph.fusion %[[X]] {domain = [1, 512], kind = "vector"}
// CHECK: graph.sub
// CHECK: %[[P:.*]] = graph.fusion %[[N]], %[[W]] {domain = [8, 1, 384], kind = "cube"}
// CHECK: graph.contract
// CHECK: graph.yield %[[P]]
// CHECK: graph.fusion %[[PARTS]] {domain = [8, 1, 384], kind = "vector"{{.*}}} attributes {part_of = "contract_part"}
// TILE: func.func @main
// TILE-NEXT: %[[P:.*]] = tile.launch @contract_0 %w, %x
// TILE-NEXT: tile.launch @contract_part_reduce_0 %[[P]]
// TILE: tile.kernel @contract_0 {grid = [8]
// TILE: ^bb0(%[[I:[0-9]+]]: index,
// TILE: tile.load {{.*}} at [0] {sizes = [512]} : (!npu.gm<512xf16>) -> !tile.tile<1x1x512xf16, ub>
// TILE-NEXT: tile.reduce {{.*}} {dims = [2], kind = "max"}
// TILE-NEXT: %[[ROW:.*]] = tile.sub
// TILE-NEXT: scf.for %[[K:[0-9]+]] =
// TILE-NEXT: %[[CUT:.*]] = tile.extract %[[ROW]] at [0, 0, %[[K]] * 16 + %[[I]] * 64] {sizes = [1, 1, 16], steps = [1, 1, 1]}
// TILE-NEXT: tile.transpose %[[CUT]] {perm = [0, 2, 1]}
// OFF: func.func @main
// OFF-NEXT: tile.launch @reduce_0
// OFF-NEXT: tile.launch @contract_0
// OFF-NEXT: tile.launch @contract_part_reduce_0

// -----

// A row that is also a result of the program stays, and its readers make it besides: the tiles of one have one axis, and
// get a second one.
func.func @main(%x: tensor<2x1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>) {
  %n = graph.fusion %x {domain = [2, 1024], kind = "vector"} : (tensor<2x1024xf32>) -> tensor<1024xf32> {
  ^bb0(%0: tensor<2x1024xf32>):
    %s = graph.reduce %0 {dims = [0], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<2x1024xf32>) -> tensor<1024xf32>
    graph.yield %s : (tensor<1024xf32>)
  }
  %y = graph.fusion %n {domain = [1024], kind = "vector", schedule = #graph.vector_schedule<axes = [[0]], tile = [256], grid = [4], ub = 2>} : tensor<1024xf32> {
  ^bb0(%0: tensor<1024xf32>):
    %e = graph.exp %0 attributes {axes = array<i64: 0>} : tensor<1024xf32>
    graph.yield %e : (tensor<1024xf32>)
  }
  func.return %n, %y : tensor<1024xf32>, tensor<1024xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %n = graph.fusion %x
// CHECK: %y = graph.fusion %x
// CHECK: graph.fusion
// CHECK: graph.fusion
// TILE: func.func @main
// TILE-NEXT: tile.launch @reduce_0 %x
// TILE-NEXT: tile.launch @exp_0 %x
// TILE: tile.kernel @exp_0 {grid = [4]
// TILE: ^bb0(%[[I:[0-9]+]]: index,
// TILE: tile.load %{{.*}} at [0, %[[I]] * 256] {sizes = [2, 256]}
// TILE-NEXT: %[[ROW:.*]] = tile.reduce
// TILE-NEXT: tile.exp %[[ROW]] : !tile.tile<1x256xf32, ub>

// -----

// What is made of a donated argument is loaded: the memory would be taken later. So is what is no row.
func.func @main(%x: tensor<1024xf32> {graph.donated}, %z: tensor<64x512xf32>) -> (tensor<1024xf32>, tensor<64x512xf32>) {
  %n = graph.fusion %x {domain = [1024], kind = "vector", schedule = #graph.vector_schedule<axes = [[0]], tile = [1024], grid = [1], ub = 2>} : tensor<1024xf32> {
  ^bb0(%0: tensor<1024xf32>):
    %e = graph.neg %0 attributes {axes = array<i64: 0>} : tensor<1024xf32>
    graph.yield %e : (tensor<1024xf32>)
  }
  %y = graph.fusion %n {domain = [1024], kind = "vector", schedule = #graph.vector_schedule<axes = [[0]], tile = [256], grid = [4], ub = 2>} : tensor<1024xf32> {
  ^bb0(%0: tensor<1024xf32>):
    %e = graph.exp %0 attributes {axes = array<i64: 0>} : tensor<1024xf32>
    graph.yield %e : (tensor<1024xf32>)
  }
  %t = graph.fusion %z {domain = [512, 64], kind = "move", schedule = #graph.vector_schedule<axes = [[0], [1]], tile = [64, 64], grid = [8, 1], ub = 2>} : (tensor<64x512xf32>) -> tensor<512x64xf32> {
  ^bb0(%0: tensor<64x512xf32>):
    %e = graph.transpose %0 {perm = [1, 0]} : (tensor<64x512xf32>) -> tensor<512x64xf32>
    graph.yield %e : (tensor<512x64xf32>)
  }
  %u = graph.fusion %t {domain = [512, 64], kind = "vector", schedule = #graph.vector_schedule<axes = [[0], [1]], tile = [64, 64], grid = [8, 1], ub = 2>} : (tensor<512x64xf32>) -> tensor<64x512xf32> {
  ^bb0(%0: tensor<512x64xf32>):
    %e = graph.tanh %0 attributes {axes = array<i64: 0, 1>} : tensor<512x64xf32>
    %f = graph.transpose %e {perm = [1, 0]} : (tensor<512x64xf32>) -> tensor<64x512xf32>
    graph.yield %f : (tensor<64x512xf32>)
  }
  func.return %y, %u : tensor<1024xf32>, tensor<64x512xf32>
}
// TILE: func.func @main
// TILE-NEXT: tile.launch @neg_0
// TILE-NEXT: tile.launch @move_0
// TILE-NEXT: tile.launch @exp_0
// TILE-NEXT: tile.launch @tanh_0
