// RUN: tilewright-opt %s -p graph-simplify,graph-fuse,graph-schedule,graph-to-tile --split-input-file | tilewright-opt --split-input-file | filecheck %s

// A matmul: a loop over k accumulates in l0c; tiles go gm -> l1 -> l0a, l0b.
func.func @main(%x: tensor<256x2048xf16>, %w: tensor<2048x512xf16>) -> tensor<256x512xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x2048xf16>, tensor<2048x512xf16>) -> tensor<256x512xf16>
  func.return %y : tensor<256x512xf16>
}
// CHECK: tile.launch @contract_0 %x, %w {inits = [-1]}
// CHECK: tile.kernel @contract_0 {grid = [{{.*}}], kind = "cube", outputs = 1, slots = [{{.*}}], workspaces = 0}
// CHECK: tile.section {core = "cube", units = 1}
// CHECK: %[[ZERO:.*]] = tile.zero : () -> !tile.tile<{{.*}}xf32, l0c>
// CHECK: scf.for %[[K:.*]] = {{.*}} iter_args(%{{.*}} = %[[ZERO]])
// CHECK: tile.load {{.*}} at [%[[K]] * {{.*}}] {{.*}} -> !tile.tile<{{.*}}xf16, l1>
// CHECK: tile.load {{.*}} at [{{.*}}%[[K]] * {{.*}}] {{.*}} -> !tile.tile<{{.*}}xf16, l1>
// CHECK: tile.move {{.*}} -> !tile.tile<{{.*}}xf16, l0a>
// CHECK: tile.move {{.*}} -> !tile.tile<{{.*}}xf16, l0b>
// CHECK: tile.mma
// CHECK: scf.yield
// CHECK: tile.store %{{.*}} (!tile.tile<{{.*}}xf32, l0c>, !npu.gm<256x512xf16>)

// -----

// matmul + bias + relu on split cores: the cube section stores to a workspace, the vector section finishes.
func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>, %b: tensor<48xf16>) -> tensor<64x48xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
  %c = graph.broadcast %b {dims = [1]} : (tensor<48xf16>) -> tensor<64x48xf16>
  %s = graph.add %y, %c : tensor<64x48xf16>
  %z = graph.constant {value = #graph.data<f16, [], (0.0)>} : () -> tensor<f16>
  %zz = graph.broadcast %z {dims = []} : (tensor<f16>) -> tensor<64x48xf16>
  %r = graph.max %s, %zz : tensor<64x48xf16>
  func.return %r : tensor<64x48xf16>
}
// CHECK: tile.kernel @contract_0 {{{.*}}kind = "mix", outputs = 1, {{.*}}workspaces = 1}
// CHECK-NEXT: ^{{.*}}, %[[OUT:.*]]: !npu.gm<64x48xf16>, %[[WORK:.*]]: !npu.gm<64x48xf16>):
// CHECK: tile.section {core = "cube", units = 1}
// CHECK: tile.mma
// CHECK: tile.store %{{.*}}, %[[WORK]] at
// CHECK: tile.section {core = "vector", units = 2}
// CHECK-NEXT: ^{{.*}}(%[[UNIT:.*]]: index):
// CHECK: tile.load %[[WORK]] at [{{.*}}%[[UNIT]]{{.*}}]
// CHECK: tile.add
// CHECK: tile.max
// CHECK: tile.store %{{.*}}, %[[OUT]] at

// -----

// Softmax: a row at a time, load once, store once.
func.func @main(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<64x128xf32>) -> tensor<64xf32>
  %mb = graph.broadcast %m {dims = [0]} : (tensor<64xf32>) -> tensor<64x128xf32>
  %d = graph.sub %x, %mb : tensor<64x128xf32>
  %e = graph.exp %d : tensor<64x128xf32>
  %s = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<64x128xf32>) -> tensor<64xf32>
  %sb = graph.broadcast %s {dims = [0]} : (tensor<64xf32>) -> tensor<64x128xf32>
  %r = graph.div %e, %sb : tensor<64x128xf32>
  func.return %r : tensor<64x128xf32>
}
// CHECK: tile.kernel @reduce_0
// CHECK: tile.load
// CHECK: tile.reduce {{.*}}kind = "max"
// CHECK: tile.sub
// CHECK: tile.exp
// CHECK: tile.reduce {{.*}}kind = "sum"
// CHECK-NOT: tile.load
// CHECK: tile.div
// CHECK: tile.store
// CHECK-NOT: tile.kernel
// CHECK: {{^// --+$}}

// -----

// Layer norm with scale: two row reductions in one kernel.
func.func @main(%x: tensor<32x256xf32>, %g: tensor<256xf32>) -> tensor<32x256xf32> {
  %n = graph.constant {value = #graph.data<f32, [], (0.00390625)>} : () -> tensor<f32>
  %nb = graph.broadcast %n {dims = []} : (tensor<f32>) -> tensor<32xf32>
  %s = graph.reduce %x {dims = [1], kind = "sum"} : (tensor<32x256xf32>) -> tensor<32xf32>
  %mean = graph.mul %s, %nb : tensor<32xf32>
  %mb = graph.broadcast %mean {dims = [0]} : (tensor<32xf32>) -> tensor<32x256xf32>
  %d = graph.sub %x, %mb : tensor<32x256xf32>
  %sq = graph.mul %d, %d : tensor<32x256xf32>
  %v = graph.reduce %sq {dims = [1], kind = "sum"} : (tensor<32x256xf32>) -> tensor<32xf32>
  %var = graph.mul %v, %nb : tensor<32xf32>
  %i = graph.rsqrt %var : tensor<32xf32>
  %ib = graph.broadcast %i {dims = [0]} : (tensor<32xf32>) -> tensor<32x256xf32>
  %y = graph.mul %d, %ib : tensor<32x256xf32>
  %gb = graph.broadcast %g {dims = [1]} : (tensor<256xf32>) -> tensor<32x256xf32>
  %z = graph.mul %y, %gb : tensor<32x256xf32>
  func.return %z : tensor<32x256xf32>
}
// CHECK: tile.kernel @reduce_0
// CHECK: tile.reduce {{.*}}kind = "sum"
// CHECK: tile.reduce {{.*}}kind = "sum"
// CHECK: tile.rsqrt %{{.*}} : !tile.tile<{{.*}}x1xf32, ub>
// CHECK: tile.store
// CHECK-NOT: tile.kernel
// CHECK: {{^// --+$}}

// -----

// A convolution: image to column on the way from l1 to l0a.
func.func @main(%x: tensor<1x16x16x32xf16>, %k: tensor<3x3x32x64xf16>) -> tensor<1x16x16x64xf16> {
  %y = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]} : (tensor<1x16x16x32xf16>, tensor<3x3x32x64xf16>) -> tensor<1x16x16x64xf16>
  func.return %y : tensor<1x16x16x64xf16>
}
// CHECK: tile.kernel @conv_0
// CHECK: tile.load {{.*}} at [{{.*}} + -1, -1, 0]
// CHECK: tile.move {{.*}}window = [{{.*}}], window_steps = [{{.*}}]} {{.*}} -> !tile.tile<{{.*}}, l0a>
// CHECK: tile.mma
// CHECK: tile.store

// -----

// The result has one column, so that its windows are all there is of the image along it: they are a window of the move
// all the same, inside the one along rows, as the filter has them.
func.func @main(%x: tensor<1x16x1x32xf16>, %k: tensor<2x2x32x64xf16>) -> tensor<1x16x1x64xf16> {
  %y = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [0, 0], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]} : (tensor<1x16x1x32xf16>, tensor<2x2x32x64xf16>) -> tensor<1x16x1x64xf16>
  func.return %y : tensor<1x16x1x64xf16>
}
// CHECK: tile.kernel @conv_0
// CHECK: tile.move {{.*}} {sizes = [16, 1, 32], window = [2, 2, 1], window_steps = [1, 1, 1]} : {{.*}} -> !tile.tile<16x128xf16, l0a>
// CHECK: tile.move {{.*}} {sizes = [2, 2, 32, {{.*}} -> !tile.tile<128x{{.*}}xf16, l0b>

// -----

// A transposed, sliced operand is a strided view, not a copy.
func.func @main(%x: tensor<32x64xf32>, %y: tensor<40x40xf32>) -> tensor<40x40xf32> {
  %s = graph.slice %x {limits = [30, 60], starts = [10, 20], strides = [1, 2]} : (tensor<32x64xf32>) -> tensor<20x20xf32>
  %p = graph.transpose %s {perm = [1, 0]} : (tensor<20x20xf32>) -> tensor<20x20xf32>
  %v = graph.slice %y {limits = [20, 20], starts = [0, 0], strides = [1, 1]} : (tensor<40x40xf32>) -> tensor<20x20xf32>
  %a = graph.add %p, %v : tensor<20x20xf32>
  %z = graph.constant {value = #graph.data<f32, [], (0.0)>} : () -> tensor<f32>
  %w = graph.pad %a, %z {high = [20, 20], interior = [0, 0], low = [0, 0]} : (tensor<20x20xf32>, tensor<f32>) -> tensor<40x40xf32>
  func.return %w : tensor<40x40xf32>
}
// CHECK: tile.kernel @add_0
// CHECK: tile.view {{.*}} : (!npu.gm<32x64xf32>) -> !npu.gm<20x20xf32, strides [2, 64], offset 660>
// CHECK: tile.load {{.*}}strides [2, 64], offset 660
// CHECK: tile.kernel @move_0
// CHECK: tile.load {{.*}} (!npu.gm<20x20xf32>)
// CHECK: tile.store

// -----

// Concatenation: one copy for each part, into one tensor that each launch updates in place.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<6x8xf32>) -> tensor<10x8xf32> {
  %c = graph.concat %x, %y {dim = 0} : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<10x8xf32>
  func.return %c : tensor<10x8xf32>
}
// CHECK: %[[A:.*]] = tile.launch @concat_0 %x {inits = [-1]} : (tensor<4x8xf32>) -> tensor<10x8xf32>
// CHECK: tile.launch @concat_1 %y, %[[A]] {inits = [1]}
// CHECK: tile.kernel @concat_0
// CHECK: tile.kernel @concat_1
// CHECK: tile.view %{{.*}} : (!npu.gm<10x8xf32>) -> !npu.gm<6x8xf32, strides [8, 1], offset 32>
// CHECK: tile.store

// -----

// A dynamic slice reads its start as a clamped scalar; a dynamic update writes in place.
func.func @main(%x: tensor<16x8xf32>, %u: tensor<2x8xf32>, %i: tensor<i32>) -> (tensor<2x8xf32>, tensor<16x8xf32>) {
  %z = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
  %s = graph.dynamic_slice %x, %i, %z {sizes = [2, 8]} : (tensor<16x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  %w = graph.dynamic_update_slice %x, %u, %i, %z : (tensor<16x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
  func.return %s, %w : tensor<2x8xf32>, tensor<16x8xf32>
}
// CHECK: tile.launch @slice_0 %x, %i {inits = [-1]}
// CHECK: tile.launch @update_0 %u, %i, %x {inits = [2]}
// CHECK: tile.kernel @slice_0
// CHECK: %[[AT:.*]] = tile.scalar %{{.*}} {high = 14, low = 0}
// CHECK: tile.load %{{.*}} at [%[[AT]], 0] {sizes = [2, 8]}
// CHECK: tile.kernel @update_0
// CHECK: %[[AT:.*]] = tile.scalar %{{.*}} {high = 14, low = 0}
// CHECK: tile.store %{{.*}} at [%[[AT]], 0] {sizes = [2, 8]}

// -----

// Equal fusions share one kernel.
func.func @main(%x: tensor<64x64xf16>, %w: tensor<64x64xf16>) -> (tensor<64x64xf16>, tensor<64x64xf16>) {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : tensor<64x64xf16>
  %z = graph.contract %w, %x {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : tensor<64x64xf16>
  func.return %y, %z : tensor<64x64xf16>, tensor<64x64xf16>
}
// CHECK: tile.launch @contract_0 %x, %w
// CHECK: tile.launch @contract_0 %w, %x
// CHECK: tile.kernel @contract_0
// CHECK-NOT: tile.kernel
// CHECK: {{^// --+$}}

// -----

// A gather of rows: one indirect load for the indices of a tile.
func.func @main(%t: tensor<100x32xf16>, %ids: tensor<5x1xi32>) -> tensor<5x32xf16> {
  %g = graph.gather %t, %ids {collapsed_dims = [0], index_dim = 1, indices_batch = [], offset_dims = [1], slice_sizes = [1, 32], start_map = [0], x_batch = []} : (tensor<100x32xf16>, tensor<5x1xi32>) -> tensor<5x32xf16>
  func.return %g : tensor<5x32xf16>
}
// CHECK: tile.kernel @gather_0
// CHECK: tile.load {{.*}} -> !tile.tile<5xi32, ub>
// CHECK: tile.max
// CHECK: tile.min
// CHECK: tile.load_indirect
// CHECK: tile.store

// -----

// Pooling.
func.func @main(%x: tensor<1x8x8x16xf32>) -> tensor<1x4x4x16xf32> {
  %y = graph.reduce_window %x {dilation = [1, 1, 1, 1], high = [0, 0, 0, 0], kind = "max", low = [0, 0, 0, 0], strides = [1, 2, 2, 1], window = [1, 2, 2, 1]} : (tensor<1x8x8x16xf32>) -> tensor<1x4x4x16xf32>
  func.return %y : tensor<1x4x4x16xf32>
}
// CHECK: tile.kernel @reduce_window_0
// CHECK: tile.extract {{.*}} {sizes = [1, 4, 4, 16], steps = [1, 2, 2, 1]}
// CHECK: tile.max
// CHECK: tile.store

// -----

// A row too long for the unified buffer is reduced piece by piece: pieces lane by lane, and lanes at the end.
func.func @main(%x: tensor<4x1048576xf32>) -> tensor<4xf32> {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<4x1048576xf32>) -> tensor<4xf32>
  func.return %m : tensor<4xf32>
}
// CHECK: tile.kernel @reduce_0
// CHECK: %[[START:.*]] = tile.fill {value = 0xfff0000000000000 : f64} : () -> !tile.tile<1x8192xf32, ub>
// CHECK: %[[ALL:.*]] = scf.for {{.*}} iter_args(%[[BEST:.*]] = %[[START]])
// CHECK: %[[PIECE:.*]] = tile.load
// CHECK: tile.max %[[BEST]], %[[PIECE]]
// CHECK: scf.yield
// CHECK: tile.reduce %[[ALL]]
// CHECK: tile.store

// -----

// Loops of the program keep their shape around the launches.
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %i, %v = graph.while %n, %x {counter = 0, trip_count = 3} : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  ^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
    %three = graph.constant {value = #graph.data<i32, [], (3)>} : () -> tensor<i32>
    %more = graph.lt %j, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
    %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
    %k = graph.add %j, %one : tensor<i32>
    %c = graph.sin %b : tensor<4xf32>
    graph.yield %k, %c : (tensor<i32>, tensor<4xf32>)
  }
  func.return %v : tensor<4xf32>
}
// CHECK: graph.while
// CHECK: tile.launch @lt_0
// CHECK: graph.yield
// CHECK: } {
// CHECK: tile.launch @add_0
// CHECK: tile.launch @sin_0
// CHECK: graph.yield
// CHECK: tile.kernel @lt_0

// -----

// A sort: whole rows in ub, with room for two lists of (key, place).
func.func @main(%x: tensor<64x100xf32>) -> tensor<64x100xf32> {
  %y = graph.sort %x {descending = [0], dim = 1, keys = [0], total = [0]} : tensor<64x100xf32>
  func.return %y : tensor<64x100xf32>
}
// CHECK: tile.launch @sort_0 %x
// CHECK: tile.load
// CHECK: tile.sort %{{.*}} {descending = [0], keys = [0], total = [0]} : (!tile.tile<{{.*}}x100xf32, ub>) -> (!tile.tile<{{.*}}x100xf32, ub>, !tile.tile<{{.*}}x400xui32, ub>)
// CHECK: tile.store

// -----

// A scatter: a part of the target stays in ub while the updates pass by.
func.func @main(%x: tensor<300x130xf32>, %i: tensor<1500xi32>, %u: tensor<1500x130xf32>) -> tensor<300x130xf32> {
  %y = graph.scatter %x, %i, %u {kind = "sum"} : (tensor<300x130xf32>, tensor<1500xi32>, tensor<1500x130xf32>) -> tensor<300x130xf32>
  func.return %y : tensor<300x130xf32>
}
// CHECK: tile.launch @scatter_0 %x, %i, %u
// CHECK: %[[TARGET:.*]] = tile.load {{.*}} -> !tile.tile<[[TILE:.*]], ub>
// CHECK: scf.for {{.*}} iter_args(%[[STATE:.*]] = %[[TARGET]])
// CHECK: tile.load {{.*}}fill = -1
// CHECK: tile.scatter %[[STATE]]
// CHECK: scf.yield
// CHECK: tile.store

// -----

// A batch of scatters: a part is some batches, and reads their updates only.
func.func @main(%x: tensor<96x8xf32>, %i: tensor<480xi32>, %u: tensor<480x8xf32>) -> tensor<96x8xf32> {
  %y = graph.scatter %x, %i, %u {groups = 48, kind = "sum"} : (tensor<96x8xf32>, tensor<480xi32>, tensor<480x8xf32>) -> tensor<96x8xf32>
  func.return %y : tensor<96x8xf32>
}
// CHECK: tile.launch @scatter_0 %x, %i, %u
// CHECK: tile.load {{.*}} at [%[[C:.*]] * 2, 0] {sizes = [2, 8]}
// CHECK: tile.load {{.*}} at [%[[C]] * 10] {fill = -1
// CHECK: tile.load {{.*}} at [%[[C]] * 10, 0] {sizes = [10, 8]}
// CHECK: tile.scatter {{.*}} at [%[[C]] * 2]

// -----

// A cumulative sum of rows that do not fit: pieces carry what came before them.
func.func @main(%x: tensor<4x90000xf32>) -> tensor<4x90000xf32> {
  %y = graph.cumulate %x {dim = 1, kind = "sum", reverse = 0} : tensor<4x90000xf32>
  func.return %y : tensor<4x90000xf32>
}
// CHECK: tile.launch @cumulate_0 %x
// CHECK: %[[ZERO:.*]] = tile.fill
// CHECK: scf.for {{.*}} iter_args(%[[CARRY:.*]] = %[[ZERO]])
// CHECK: tile.cumulate
// CHECK: tile.broadcast %[[CARRY]]
// CHECK: tile.add
// CHECK: tile.extract
// CHECK: tile.store

// -----

// The gradient of pooling: what each window selects, then what its windows have for each element; no scatter.
func.func @main(%x: tensor<2x8x8x16xf32>, %s: tensor<2x4x4x16xf32>) -> tensor<2x8x8x16xf32> {
  %y = graph.select_and_scatter %x, %s {high = [0, 0, 0, 0], kind = "sum", low = [0, 0, 0, 0], select = "ge", strides = [1, 2, 2, 1], window = [1, 2, 2, 1]} : (tensor<2x8x8x16xf32>, tensor<2x4x4x16xf32>) -> tensor<2x8x8x16xf32>
  func.return %y : tensor<2x8x8x16xf32>
}
// CHECK: tile.launch @select_and_scatter_0 %x, %s
// CHECK: %[[X:.*]] = tile.load
// CHECK: %[[S:.*]] = tile.load
// CHECK: tile.extract %[[X]]
// CHECK: tile.ge
// CHECK: %[[PLACE:.*]] = tile.select
// CHECK: tile.eq
// CHECK: tile.select {{.*}}%[[S]]
// CHECK-COUNT-4: tile.store

// -----

// Sums that are scaled by a number of few bits, rounded and saturated leave the cube so: no vector core works on them.
func.func @main(%a: tensor<16x32xi8>, %w: tensor<32x16xi8>) -> tensor<16x16xi8> {
  %f = graph.constant {value = #graph.data<f32, [16, 16], splat 0.125>} : () -> tensor<16x16xf32>
  %z = graph.constant {value = #graph.data<f32, [16, 16], splat -3.0>} : () -> tensor<16x16xf32>
  %low = graph.constant {value = #graph.data<f32, [16, 16], splat -128.0>} : () -> tensor<16x16xf32>
  %high = graph.constant {value = #graph.data<f32, [16, 16], splat 127.0>} : () -> tensor<16x16xf32>
  %s = graph.contract %a, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<16x32xi8>, tensor<32x16xi8>) -> tensor<16x16xi32>
  %x = graph.convert %s : (tensor<16x16xi32>) -> tensor<16x16xf32>
  %y = graph.mul %x, %f : tensor<16x16xf32>
  %r = graph.round_even %y : tensor<16x16xf32>
  %m = graph.add %r, %z : tensor<16x16xf32>
  %c = graph.clamp %low, %m, %high : tensor<16x16xf32>
  %q = graph.convert %c : (tensor<16x16xf32>) -> tensor<16x16xi8>
  func.return %q : tensor<16x16xi8>
}
// CHECK: tile.kernel @contract_0 {grid = {{.*}}, kind = "cube"
// CHECK: tile.store {{.*}} {factor = 1.25{{.*}} : f32, sizes = {{.*}}, zero = -3} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>)

// -----

// Negative sums leave the cube as 0, where that is all that stands behind a product.
func.func @main(%a: tensor<16x32xf16>, %w: tensor<32x16xf16>) -> tensor<16x16xf16> {
  %z = graph.constant {value = #graph.data<f16, [16, 16], splat 0.0>} : () -> tensor<16x16xf16>
  %s = graph.contract %a, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<16x32xf16>, tensor<32x16xf16>) -> tensor<16x16xf16>
  %y = graph.max %z, %s : tensor<16x16xf16>
  func.return %y : tensor<16x16xf16>
}
// CHECK: tile.kernel @contract_0 {grid = {{.*}}, kind = "cube"
// CHECK: tile.store {{.*}} {relu, sizes = {{.*}}} : (!tile.tile<16x16xf32, l0c>, !npu.gm<16x16xf16>)

// -----

// A bias of integers is where the sums begin. The factors of columns are words in fb, brought there once for all rows.
func.func @main(%a: tensor<300x32xi8>, %w: tensor<32x16xi8>, %b: tensor<16xi32>) -> tensor<300x16xi8> {
  %n = graph.constant {value = #graph.data<f32, [16], "AACAPwAAAEAAAIA/AAAAQAAAgD8AAABAAACAPwAAAEAAAIA/AAAAQAAAgD8AAABAAACAPwAAAEAAAIA/AAAAQA==">} : () -> tensor<16xf32>
  %f = graph.broadcast %n {dims = [1]} : (tensor<16xf32>) -> tensor<300x16xf32>
  %c = graph.broadcast %b {dims = [1]} : (tensor<16xi32>) -> tensor<300x16xi32>
  %low = graph.constant {value = #graph.data<f32, [300, 16], splat 0.0>} : () -> tensor<300x16xf32>
  %high = graph.constant {value = #graph.data<f32, [300, 16], splat 127.0>} : () -> tensor<300x16xf32>
  %s = graph.contract %a, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<300x32xi8>, tensor<32x16xi8>) -> tensor<300x16xi32>
  %t = graph.add %s, %c : tensor<300x16xi32>
  %x = graph.convert %t : (tensor<300x16xi32>) -> tensor<300x16xf32>
  %y = graph.mul %x, %f : tensor<300x16xf32>
  %r = graph.round_even %y : tensor<300x16xf32>
  %l = graph.clamp %low, %r, %high : tensor<300x16xf32>
  %q = graph.convert %l : (tensor<300x16xf32>) -> tensor<300x16xi8>
  func.return %q : tensor<300x16xi8>
}
// CHECK: %[[WORDS:.*]] = graph.constant {value = #graph.data<ui64, [16], {{.*}}>} : () -> tensor<16xui64>
// CHECK: tile.launch @contract_0 %a, %w, %b, %[[WORDS]]
// CHECK: tile.kernel @contract_0 {grid = {{.*}}, kind = "cube"
// CHECK: %[[B:.*]] = tile.load {{.*}} -> !tile.tile<16xi32, l1>
// CHECK: %[[F:.*]] = tile.load {{.*}} -> !tile.tile<16xui64, l1>
// CHECK: %[[BIAS:.*]] = tile.move_row %[[B]] at [0] {sizes = [16]} : (!tile.tile<16xi32, l1>) -> !tile.tile<1x16xi32, bt>
// CHECK: %[[SCALES:.*]] = tile.move_row %[[F]] at [0] {sizes = [16]} : (!tile.tile<16xui64, l1>) -> !tile.tile<1x16xui64, fb>
// CHECK: %[[ACC:.*]] = tile.mma {{.*}}, %[[BIAS]] at [0]
// CHECK: tile.store %[[ACC]], {{.*}}, %[[SCALES]] at {{.*}} {relu, sizes = {{.*}}} :

// -----

// Parts of one tensor are stored where they lie in it.
func.func @main(%x: tensor<8x32xf32>, %o: tensor<8x32xf32>) -> tensor<8x64xf32> {
  %a = graph.exp %x : tensor<8x32xf32>
  %y = graph.concat %a, %o {dim = 1} : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x64xf32>
  func.return %y : tensor<8x64xf32>
}
// CHECK: tile.launch @exp_0 %x, %o
// CHECK-NOT: tile.launch
// CHECK: tile.kernel @exp_0
// CHECK: %[[FIRST:.*]] = tile.view %{{.*}} : (!npu.gm<8x64xf32>) -> !npu.gm<8x32xf32, strides [64, 1], offset 0>
// CHECK: %[[SECOND:.*]] = tile.view %{{.*}} : (!npu.gm<8x64xf32>) -> !npu.gm<8x32xf32, strides [64, 1], offset 32>
// CHECK: tile.store %{{.*}}, %[[FIRST]]
// CHECK: tile.store %{{.*}}, %[[SECOND]]
