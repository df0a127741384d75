// RUN: tilewright-opt %s -p graph-to-tile --split-input-file --verify-diagnostics | filecheck %s

// Tiles of 2 x 8 windows of 3 x 3, each of 5 x 17 rows of the product, of which two tiles side by side share some: each
// has room of its own in the workspace. What lies above and left of the image is masked, also where that is negative.
func.func @main(%x: tensor<1x16x16x16xf16>, %w: tensor<3x3x16x32xf16>) -> tensor<1x8x8x32xf16> {
  %r = graph.fusion %x, %w {domain = [1, 16, 16, 32], kind = "mix",
    schedule = #graph.cube_schedule<axes = [[1], [2], [3], [4], [5], [6]], step = [5, 17, 32, 1, 1, 16],
      lhs = [5, 17, 32, 3, 3, 16], rhs = [5, 17, 32, 3, 3, 16], grid = [2, 1, 1, 1, 1, 1], inner = m, l1 = 2, l0a = 2,
      l0b = 2, l0c = 2, ub = 2, epilogue = [1, 8, 32]>}
    : (tensor<1x16x16x16xf16>, tensor<3x3x16x32xf16>) -> tensor<1x8x8x32xf16> {
  ^bb0(%a: tensor<1x16x16x16xf16>, %b: tensor<3x3x16x32xf16>):
    %c = graph.conv %a, %b {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1],
      out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]}
      attributes {axes = array<i64: 0, 1, 2, 3>}
      : (tensor<1x16x16x16xf16>, tensor<3x3x16x32xf16>) -> tensor<1x16x16x32xf16>
    %t = graph.tanh %c attributes {axes = array<i64: 0, 1, 2, 3>} : tensor<1x16x16x32xf16>
    %p = graph.reduce_window %t {dilation = [1, 1, 1, 1], high = [0, 1, 1, 0], kind = "max", low = [0, 1, 1, 0],
      strides = [1, 2, 2, 1], window = [1, 3, 3, 1]} attributes {axes = array<i64: 0, 1, 2, 3>}
      : (tensor<1x16x16x32xf16>) -> tensor<1x8x8x32xf16>
    graph.yield %p : (tensor<1x8x8x32xf16>)
  }
  func.return %r : tensor<1x8x8x32xf16>
}
// CHECK: tile.launch @conv_0 %x, %w
// CHECK: tile.kernel @conv_0 {grid = [2], kind = "mix", outputs = 1
// CHECK: ^bb0(%[[C:.*]]: index, {{.*}}: !npu.gm<1x8x8x32xf16>, %[[W:.*]]: !npu.gm<20x17x32xf16>):
// CHECK: tile.section {core = "cube"
// CHECK: tile.load {{.*}} at [%[[C]] * 8 + %{{.*}} * 4 + -2, -2, 0] {sizes = [7, 19, 16]}
// CHECK: tile.store {{.*}}, %[[W]] at [%[[C]] * 10 + %{{.*}} * 5, 0, 0] {sizes = [5, 17, 32]}
// CHECK: tile.section {core = "vector", units = 2}
// CHECK: tile.load %[[W]] at [%[[C]] * 10 + %{{.*}} * 2 + %{{.*}} * 5, 0, 0] {sizes = [3, 17, 32]}
// CHECK: tile.mask {{.*}} at [{{.*}} + -1, -1, 0] {bounds = [16, 16, 32], value = 0xfff0
// CHECK: tile.extract {{.*}} {sizes = [1, 17, 32], steps = [2, 1, 1]} : (!tile.tile<3x17x32xf16, ub>)
// CHECK: tile.extract {{.*}} {sizes = [1, 8, 32], steps = [1, 2, 1]}
// CHECK: tile.max
// CHECK: tile.store {{.*}} {sizes = [1, 8, 32]}

// -----

// A step of 4 rows holds no windows of 3, two apart.
func.func @main(%x: tensor<16x16x64xf16>, %w: tensor<64x32xf16>) -> tensor<7x7x32xf16> {
  %r = graph.fusion %x, %w {domain = [16, 16, 32], kind = "mix",
    schedule = #graph.cube_schedule<axes = [[0], [1], [2], [3]], step = [4, 15, 32, 64], lhs = [4, 15, 32, 64],
      rhs = [4, 15, 32, 64], grid = [1, 1, 1, 1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = 2, ub = 2,
      epilogue = [1, 7, 32]>}
    : (tensor<16x16x64xf16>, tensor<64x32xf16>) -> tensor<7x7x32xf16> {
  ^bb0(%a: tensor<16x16x64xf16>, %b: tensor<64x32xf16>):
    %c = graph.contract %a, %b {lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]}
      attributes {axes = array<i64: 0, 1, 2>} : (tensor<16x16x64xf16>, tensor<64x32xf16>) -> tensor<16x16x32xf16>
    %p = graph.reduce_window %c {dilation = [1, 1, 1], high = [0, 0, 0], kind = "sum", low = [0, 0, 0],
      strides = [2, 2, 1], window = [3, 3, 1]} attributes {axes = array<i64: 0, 1, 2>}
      : (tensor<16x16x32xf16>) -> tensor<7x7x32xf16>
    graph.yield %p : (tensor<7x7x32xf16>)
  }
  func.return %r : tensor<7x7x32xf16>
}
// CHECK: @contract_0 cannot obey its pinned schedule: a step of 4 along axis 0 is not as long as windows of 3 are together
