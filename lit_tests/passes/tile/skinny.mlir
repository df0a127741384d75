// RUN: tilewright-opt %s -p graph-fuse,graph-schedule,graph-to-tile --split-input-file --verify-diagnostics | filecheck %s

// One row: the vector cores multiply each weight where it is loaded, in pieces of its rows; what is left of them is a
// piece of its own. A vector_schedule of a product says so.
func.func @main(%x: tensor<1x100xf16>, %w: tensor<100x256xf16>) -> tensor<1x256xf16> {
  %r = graph.fusion %x, %w {domain = [1, 256], kind = "cube",
      schedule = #graph.vector_schedule<tile = [32, 128], grid = [1, 2]>}
    : (tensor<1x100xf16>, tensor<100x256xf16>) -> tensor<1x256xf16> {
  ^bb0(%a: tensor<1x100xf16>, %b: tensor<100x256xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: -1, 1>} : (tensor<1x100xf16>, tensor<100x256xf16>) -> tensor<1x256xf16>
    graph.yield %c : (tensor<1x256xf16>)
  }
  func.return %r : tensor<1x256xf16>
}
// CHECK: tile.launch @contract_0 %x, %w
// CHECK: tile.kernel @contract_0 {grid = [2], kind = "vector"
// CHECK: tile.load {{.*}} {sizes = [32, 128]}
// CHECK: tile.mul {{.*}} !tile.tile<32x128xf32, ub>
// CHECK: tile.reduce {{.*}} {dims = [0], kind = "sum"}
// CHECK: tile.load {{.*}} {sizes = [4, 128]}
// CHECK-NOT: tile.mask
// CHECK: tile.convert {{.*}} !tile.tile<1x128xf16, ub>
// CHECK: tile.store

// -----

// Sums in two parts, and a kernel that adds them up with what stands behind the product.
func.func @main(%x: tensor<1x512xf16>, %w: tensor<512x256xf16>) -> tensor<1x256xf16> {
  %r = graph.fusion %x, %w {domain = [1, 256], kind = "mix", schedule = #graph.vector_schedule<split_k = 2>}
    : (tensor<1x512xf16>, tensor<512x256xf16>) -> tensor<1x256xf16> {
  ^bb0(%a: tensor<1x512xf16>, %b: tensor<512x256xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: -1, 1>} : (tensor<1x512xf16>, tensor<512x256xf16>) -> tensor<1x256xf16>
    %d = graph.exp %c attributes {axes = array<i64: -1, 1>} : tensor<1x256xf16>
    graph.yield %d : (tensor<1x256xf16>)
  }
  func.return %r : tensor<1x256xf16>
}
// CHECK: [[P:%.+]] = tile.launch @contract_0 %x, %w {{.*}} -> tensor<2x1x256xf32>
// CHECK-NEXT: tile.launch @contract_part_reduce_0 [[P]] {{.*}} -> tensor<1x256xf16>
// CHECK: tile.kernel @contract_0 {{.*}} kind = "vector"
// CHECK: tile.kernel @contract_part_reduce_0 {{.*}} kind = "vector"
// CHECK: tile.exp

// -----

// Weights that lie along the sums: their axis is the last one.
func.func @main(%x: tensor<1x100xf32>, %w: tensor<256x100xf32>) -> tensor<1x256xf32> {
  %r = graph.fusion %x, %w {domain = [1, 256], kind = "cube", schedule = #graph.vector_schedule<tile = [16, 100]>}
    : (tensor<1x100xf32>, tensor<256x100xf32>) -> tensor<1x256xf32> {
  ^bb0(%a: tensor<1x100xf32>, %b: tensor<256x100xf32>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]}
      attributes {axes = array<i64: -1, 1>} : (tensor<1x100xf32>, tensor<256x100xf32>) -> tensor<1x256xf32>
    graph.yield %c : (tensor<1x256xf32>)
  }
  func.return %r : tensor<1x256xf32>
}
// CHECK: tile.reduce {{.*}} {dims = [1], kind = "sum"} : (!tile.tile<16x100xf32, ub>) -> !tile.tile<16x1xf32, ub>

// -----

// More rows are the cube's.
func.func @main(%x: tensor<16x100xf16>, %w: tensor<100x256xf16>) -> tensor<16x256xf16> {
  %r = graph.fusion %x, %w {domain = [16, 256], kind = "cube", schedule = #graph.vector_schedule<ub = 2>}
    : (tensor<16x100xf16>, tensor<100x256xf16>) -> tensor<16x256xf16> {
  ^bb0(%a: tensor<16x100xf16>, %b: tensor<100x256xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>} : (tensor<16x100xf16>, tensor<100x256xf16>) -> tensor<16x256xf16>
    graph.yield %c : (tensor<16x256xf16>)
  }
  func.return %r : tensor<16x256xf16>
}
// CHECK: @contract_0 cannot obey its pinned schedule: the vector cores do not compute it, as its product has more than 4 rows and columns
