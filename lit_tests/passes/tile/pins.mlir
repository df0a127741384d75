// RUN: tilewright-opt %s -p 'graph-schedule{schedule="base_m=64,base_n=128,base_k=32,step_k_a=8,step_k_b=4,split_m=2,split_n=4,l1=1,inner=n,copy_length=2048,ub=1"},graph-to-tile' --split-input-file --verify-diagnostics | filecheck %s

// Base blocks, steps for each load and the split over cores are as pinned: a load of lhs covers eight steps of 32,
// one of rhs four; each core has 2 x 1 tiles, and the loop over columns would be the inner one.
func.func @main(%x: tensor<256x512xf16>, %w: tensor<512x512xf16>) -> tensor<256x512xf16> {
  %r = graph.fusion %x, %w {domain = [256, 512], kind = "cube"}
    : (tensor<256x512xf16>, tensor<512x512xf16>) -> tensor<256x512xf16> {
  ^bb0(%a: tensor<256x512xf16>, %b: tensor<512x512xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1>}
      : (tensor<256x512xf16>, tensor<512x512xf16>) -> tensor<256x512xf16>
    graph.yield %c : (tensor<256x512xf16>)
  }
  func.return %r : tensor<256x512xf16>
}
// CHECK: tile.kernel @contract_0 {grid = [2, 4], kind = "cube", outputs = 1, slots = [1, 2, 2, 2, 1]
// CHECK: tile.zero : () -> !tile.tile<64x128xf32, l0c>
// CHECK: scf.for [[K:%.*]] = {{.*}} iter_args
// CHECK: tile.load {{.*}} {sizes = [64, 256]} {{.*}} -> !tile.tile<64x256xf16, l1>
// CHECK: scf.for [[HALF:%.*]] = {{.*}} iter_args
// CHECK: tile.load {{.*}} {sizes = [128, 128]} {{.*}} -> !tile.tile<128x128xf16, l1>
// CHECK: scf.for [[STEP:%.*]] = {{.*}} iter_args
// CHECK: tile.move {{.*}} at [0, [[HALF]] * 128 + [[STEP]] * 32] {sizes = [64, 32]}
// CHECK: tile.move {{.*}} at [[[STEP]] * 32, 0] {sizes = [32, 128]}
// CHECK: tile.mma {{.*}} at [[[K]] + [[HALF]] + [[STEP]]]

// -----

// Vector kernels obey the length of a copy and the number of buffers.
func.func @main(%x: tensor<4096x64xf32>) -> tensor<4096x64xf32> {
  %r = graph.fusion %x {domain = [4096, 64], kind = "vector"} : (tensor<4096x64xf32>) -> tensor<4096x64xf32> {
  ^bb0(%a: tensor<4096x64xf32>):
    %b = graph.exp %a attributes {axes = array<i64: 0, 1>} : tensor<4096x64xf32>
    graph.yield %b : (tensor<4096x64xf32>)
  }
  func.return %r : tensor<4096x64xf32>
}
// CHECK: tile.kernel @exp_0 {{.*}} slots = [1, 1, 1, 1, 1]
// CHECK: tile.load {{.*}} {sizes = [2048]}

// -----

// A copy is filled from the innermost axis outwards; reduced axes stay whole.
func.func @main(%x: tensor<2048x8xf32>) -> tensor<2048xf32> {
  %r = graph.fusion %x {domain = [2048, 8], kind = "vector"} : (tensor<2048x8xf32>) -> tensor<2048xf32> {
  ^bb0(%a: tensor<2048x8xf32>):
    %b = graph.reduce %a {dims = [1], kind = "sum"} attributes {axes = array<i64: 0, 1>}
      : (tensor<2048x8xf32>) -> tensor<2048xf32>
    graph.yield %b : (tensor<2048xf32>)
  }
  func.return %r : tensor<2048xf32>
}
// CHECK: tile.load {{.*}} {sizes = [256, 8]}
