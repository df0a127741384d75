// RUN: tilewright-opt %s -p 'graph-simplify,graph-fuse,graph-schedule{without=transposed,pitch}' --split-input-file | filecheck %s

// A contraction: steps, loads, grid and buffers for each axis of the loops. Neighbours are walked as one.
func.func @main(%x: tensor<256x512xf16>, %w: tensor<512x512xf16>) -> tensor<256x512xf16> {
  %r = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x512xf16>, tensor<512x512xf16>) -> tensor<256x512xf16>
  func.return %r : tensor<256x512xf16>
}
// CHECK: states = ["stored", "real", "fused", "scheduled"]
// CHECK: graph.fusion %x, %w {domain = [256, 512], kind = "cube", schedule = #graph.cube_schedule<axes = {{\[\[0], \[1], \[2]]}}, step = [{{.*}}], lhs = [{{.*}}], rhs = [{{.*}}], grid = [{{.*}}, 1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = {{.}}, ub = 2>}

// -----

// With an epilogue, the tile of the vector cores is chosen too.
func.func @main(%x: tensor<256x512xf16>, %w: tensor<512x512xf16>) -> tensor<256x512xf16> {
  %c = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x512xf16>, tensor<512x512xf16>) -> tensor<256x512xf16>
  %r = graph.exp %c : tensor<256x512xf16>
  func.return %r : tensor<256x512xf16>
}
// CHECK: kind = "mix", schedule = #graph.cube_schedule<{{.*}}, ub = 2, epilogue = [{{.*}}]>

// -----

// Rows of a reduction stay whole; the domain of the other kernel is one axis.
func.func @main(%x: tensor<4096x64xf32>) -> (tensor<4096xf32>, tensor<4096x64xf32>) {
  %r = graph.reduce %x {dims = [1], kind = "sum"} : (tensor<4096x64xf32>) -> tensor<4096xf32>
  %b = graph.broadcast %r {dims = [0]} : (tensor<4096xf32>) -> tensor<4096x64xf32>
  %s = graph.reverse %x {dims = [1]} : tensor<4096x64xf32>
  %y = graph.sub %s, %b : tensor<4096x64xf32>
  func.return %r, %y : tensor<4096xf32>, tensor<4096x64xf32>
}
// CHECK: schedule = #graph.vector_schedule<axes = {{\[\[0], \[1]]}}, tile = [{{.*}}, 64], grid = [{{.*}}, 1], ub = 2>

// -----

// A concatenation is a launch for each part.
func.func @main(%x: tensor<40x64xf32>, %y: tensor<8x64xf32>) -> tensor<48x64xf32> {
  %r = graph.concat %x, %y {dim = 0} : (tensor<40x64xf32>, tensor<8x64xf32>) -> tensor<48x64xf32>
  func.return %r : tensor<48x64xf32>
}
// CHECK: schedule = [#graph.vector_schedule<tile = [{{.*}}], grid = [{{.*}}], ub = 2>, #graph.vector_schedule<{{.*}}>]

// -----

// A long sum of few results, the gradient of weights: a part of it for each cube core, added up by a kernel behind it.
func.func @main(%x: tensor<8192x64xf16>, %y: tensor<8192x48xf16>) -> tensor<64x48xf16> {
  %r = graph.contract %x, %y {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : (tensor<8192x64xf16>, tensor<8192x48xf16>) -> tensor<64x48xf16>
  func.return %r : tensor<64x48xf16>
}
// CHECK: schedule = [#graph.cube_schedule<axes = {{\[\[0], \[1], \[2], \[3]]}}, {{.*}}, split_k = 16>, #graph.vector_schedule<{{.*}}>]
// CHECK: graph.contract {{.*}} -> tensor<64x48xf16>

// -----

// The same with a sum of rows behind it, which joins the kernel that adds up the parts.
func.func @main(%x: tensor<64x3072xf16>, %w: tensor<3072x768xf16>, %b: tensor<64x768xf16>) -> (tensor<64x768xf16>, tensor<64xf32>) {
  %c = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x3072xf16>, tensor<3072x768xf16>) -> tensor<64x768xf16>
  %y = graph.add %c, %b : tensor<64x768xf16>
  %f = graph.convert %y : (tensor<64x768xf16>) -> tensor<64x768xf32>
  %q = graph.mul %f, %f : tensor<64x768xf32>
  %s = graph.reduce %q {dims = [1], kind = "sum"} : (tensor<64x768xf32>) -> tensor<64xf32>
  func.return %y, %s : tensor<64x768xf16>, tensor<64xf32>
}
// CHECK: %y, %s = graph.fusion {{.*}} kind = "mix", schedule = [#graph.cube_schedule<{{.*}}, split_k = 2>, #graph.vector_schedule<{{.*}}>]}
// CHECK: graph.contract
// CHECK: graph.reduce
// CHECK-NOT: graph.fusion
// CHECK: func.return

// -----

// 8192 columns on 24 cores: 47 steps of 176 columns, two for each core, which no other core reads.
func.func @main(%x: tensor<8192x8192xf16>, %w: tensor<8192x8192xf16>) -> tensor<8192x8192xf16> {
  %r = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8192x8192xf16>, tensor<8192x8192xf16>) -> tensor<8192x8192xf16>
  func.return %r : tensor<8192x8192xf16>
}
// CHECK: step = [175, 176, 64], lhs = [175, 176, 256], rhs = [175, 176, 256], grid = [1, 24, 1], inner = n

// -----

// Of both operands k lies side by side: columns need not be whole lines, and a square step loads least. Its loads begin
// at lines.
func.func @main(%x: tensor<8192x8192xf16>, %w: tensor<8192x8192xf16>) -> tensor<8192x8192xf16> {
  %r = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<8192x8192xf16>, tensor<8192x8192xf16>) -> tensor<8192x8192xf16>
  func.return %r : tensor<8192x8192xf16>
}
// CHECK: step = [171, 176, 64], lhs = [171, 176, 256], rhs = [171, 176, 256], grid = [24, 1, 1], inner = m

// -----

// Rows of 8000 do not begin at lines, and longer loads straddle fewer of them: those of the left operand are longer, and
// neither length divides the sums.
func.func @main(%x: tensor<4096x8000xf16>, %w: tensor<8000x4096xf16>) -> tensor<4096x4096xf16> {
  %r = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4096x8000xf16>, tensor<8000x4096xf16>) -> tensor<4096x4096xf16>
  func.return %r : tensor<4096x4096xf16>
}
// CHECK: step = [125, 256, 64], lhs = [125, 256, 512], rhs = [125, 256, 256], grid = [3, 8, 1]

// -----

// Columns in blocks of 16: a step has several blocks.
func.func @main(%x: tensor<160x2048xf16>, %w: tensor<384x2048x16xf16>) -> tensor<160x384x16xf16> {
  %r = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<160x2048xf16>, tensor<384x2048x16xf16>) -> tensor<160x384x16xf16>
  func.return %r : tensor<160x384x16xf16>
}
// CHECK: step = [160, 8, 16, 64], lhs = [160, 8, 16, 256], rhs = [160, 8, 16, 256], grid = [1, 24, 1, 1]
