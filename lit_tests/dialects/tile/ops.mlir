// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%x, %w = "test.op"() : () -> (tensor<64x32xf16>, tensor<32x48xf16>)
%y = tile.launch @matmul %x, %w {inits = [-1]} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
// CHECK: tile.launch @matmul %{{.*}}, %{{.*}} {inits = [-1]} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
%z = tile.launch @bump %x {inits = [0]} : tensor<64x32xf16>
// CHECK: tile.launch @bump %{{.*}} {inits = [0]} : tensor<64x32xf16>
%again = tile.launch @bump %x {again, inits = [0]} : tensor<64x32xf16>
// CHECK: tile.launch @bump %{{.*}} {again, inits = [0]} : tensor<64x32xf16>

tile.kernel @bump {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %gx: !npu.gm<64x32xf16>):
}

tile.kernel @matmul {grid = [4], kind = "mix", outputs = 1, slots = [2, 2, 2, 1, 2], workspaces = 0} {
^bb0(%i: index, %gx: !npu.gm<64x32xf16>, %gw: !npu.gm<32x48xf16>, %gy: !npu.gm<64x48xf16>):
  // CHECK: tile.kernel @matmul {grid = [4], kind = "mix", outputs = 1, slots = [2, 2, 2, 1, 2], workspaces = 0} {
  // CHECK-NEXT: ^{{.*}}(%{{.*}}: index, %{{.*}}: !npu.gm<64x32xf16>, {{.*}}):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %t = tile.view %gw : (!npu.gm<32x48xf16>) -> !npu.gm<48x32xf16, strides [1, 48], offset 0>
  // CHECK: tile.view %{{.*}} : (!npu.gm<32x48xf16>) -> !npu.gm<48x32xf16, strides [1, 48], offset 0>
  tile.section {core = "fused", units = 1} {
  ^bb1(%unit: index):
    // CHECK: tile.section {core = "fused", units = 1} {
    %acc = tile.zero : () -> !tile.tile<16x48xf32, l0c>
    // CHECK: tile.zero : () -> !tile.tile<16x48xf32, l0c>
    %sum = scf.for %k = %zero to %two step %one iter_args(%a = %acc) -> (!tile.tile<16x48xf32, l0c>) {
      %a1 = tile.load %gx at [%i * 16, %k * 16] {fill = 0.0 : f64, sizes = [16, 16]} : (!npu.gm<64x32xf16>) -> !tile.tile<16x16xf16, l1>
      // CHECK: tile.load %{{.*}} at [%{{.*}} * 16, %{{.*}} * 16] {fill = 0.0{{.*}}, sizes = [16, 16]} : (!npu.gm<64x32xf16>) -> !tile.tile<16x16xf16, l1>
      %b1 = tile.load %gw at [%k * 16, 0] {sizes = [16, 48], steps = [1, 1]} : (!npu.gm<32x48xf16>) -> !tile.tile<16x48xf16, l1>
      // CHECK: tile.load %{{.*}} at [%{{.*}} * 16, 0] {sizes = [16, 48], steps = [1, 1]}
      %a0 = tile.move %a1 at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xf16, l1>) -> !tile.tile<16x16xf16, l0a>
      // CHECK: tile.move %{{.*}} at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xf16, l1>) -> !tile.tile<16x16xf16, l0a>
      %b0 = tile.move %b1 at [0, 0] {sizes = [16, 48], transpose = 0} : (!tile.tile<16x48xf16, l1>) -> !tile.tile<16x48xf16, l0b>
      // CHECK: tile.move %{{.*}} at [0, 0] {sizes = [16, 48], transpose = 0}
      %next = tile.mma %a0, %b0, %a at [%k] : (!tile.tile<16x16xf16, l0a>, !tile.tile<16x48xf16, l0b>, !tile.tile<16x48xf32, l0c>) -> !tile.tile<16x48xf32, l0c>
      // CHECK: tile.mma %{{.*}}, %{{.*}}, %{{.*}} at [%{{.*}}] : (!tile.tile<16x16xf16, l0a>, !tile.tile<16x48xf16, l0b>, !tile.tile<16x48xf32, l0c>) -> !tile.tile<16x48xf32, l0c>
      scf.yield %next : !tile.tile<16x48xf32, l0c>
    }
    %u = tile.drain %sum at [0, 0] {sizes = [16, 48]} : (!tile.tile<16x48xf32, l0c>) -> !tile.tile<16x48xf16, ub>
    // CHECK: tile.drain %{{.*}} at [0, 0] {sizes = [16, 48]} : (!tile.tile<16x48xf32, l0c>) -> !tile.tile<16x48xf16, ub>
    tile.store %u, %gy at [%i * 16 + %unit * 8 + -3, 0] {sizes = [16, 48]} : (!tile.tile<16x48xf16, ub>, !npu.gm<64x48xf16>)
    // CHECK: tile.store %{{.*}}, %{{.*}} at [%{{.*}} * 16 + %{{.*}} * 8 + -3, 0] {sizes = [16, 48]}
    tile.barrier
    // CHECK: tile.barrier
  }
}

// -----

%t, %g, %m, %index = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !npu.gm<100x16xf32>, !npu.gm<4xi32>, !tile.tile<8x1xi32, ub>)
%i = "test.op"() : () -> index

%indirect = tile.load_indirect %g, %index {sizes = [1, 16]} : (!npu.gm<100x16xf32>, !tile.tile<8x1xi32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: tile.load_indirect %{{.*}}, %{{.*}} {sizes = [1, 16]}
%scalar = tile.scalar %m at [%i] {high = 3, low = 0} : (!npu.gm<4xi32>) -> index
// CHECK: tile.scalar %{{.*}} at [%{{.*}}] {high = 3, low = 0} : (!npu.gm<4xi32>) -> index
%half = tile.round_to %t {mode = "odd"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf16, ub>
// CHECK: tile.round_to %{{.*}} {mode = "odd"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf16, ub>
%bytes = tile.round_to %half {mode = "even"} : (!tile.tile<8x16xf16, ub>) -> !tile.tile<8x16xi8, ub>
// CHECK: tile.round_to %{{.*}} {mode = "even"} : (!tile.tile<8x16xf16, ub>) -> !tile.tile<8x16xi8, ub>
%broadcast = tile.broadcast %index : (!tile.tile<8x1xi32, ub>) -> !tile.tile<8x16xi32, ub>
// CHECK: tile.broadcast %{{.*}} : (!tile.tile<8x1xi32, ub>) -> !tile.tile<8x16xi32, ub>
%reduce = tile.reduce %t {dims = [1], kind = "max"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x1xf32, ub>
// CHECK: tile.reduce %{{.*}} {dims = [1], kind = "max"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x1xf32, ub>
%best, %where = tile.arg_reduce %t {dim = 1, kind = "max"} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x1xf32, ub>, !tile.tile<8x1xi32, ub>)
// CHECK: tile.arg_reduce %{{.*}} {dim = 1, kind = "max"} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x1xf32, ub>, !tile.tile<8x1xi32, ub>)
%transpose = tile.transpose %t {perm = [1, 0]} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<16x8xf32, ub>
// CHECK: tile.transpose %{{.*}} {perm = [1, 0]} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<16x8xf32, ub>
%iota = tile.iota at [%i * 8 + 1] {dim = 0, step = 2} : () -> !tile.tile<8x16xi32, ub>
// CHECK: tile.iota at [%{{.*}} * 8 + 1] {dim = 0, step = 2} : () -> !tile.tile<8x16xi32, ub>
%fill = tile.fill {value = 1.5 : f64} : () -> !tile.tile<8x16xf32, ub>
// CHECK: tile.fill {value = 1.5{{.*}} : f64} : () -> !tile.tile<8x16xf32, ub>
%mask = tile.mask %t at [%i * 8, 0] {bounds = [100, 16], value = 0.0 : f64} : !tile.tile<8x16xf32, ub>
// CHECK: tile.mask %{{.*}} at [%{{.*}} * 8, 0] {bounds = [100, 16], value = 0.0{{.*}}} : !tile.tile<8x16xf32, ub>
%extract = tile.extract %t at [0, %i] {sizes = [8, 4], steps = [1, 2]} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x4xf32, ub>
// CHECK: tile.extract %{{.*}} at [0, %{{.*}}] {sizes = [8, 4], steps = [1, 2]}
%one = tile.fill {value = 2.0 : f64} : () -> !tile.tile<1x1xf32, ub>
%scaled = tile.mul %t, %one : (!tile.tile<8x16xf32, ub>, !tile.tile<1x1xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: tile.mul %{{.*}}, %{{.*}} : (!tile.tile<8x16xf32, ub>, !tile.tile<1x1xf32, ub>) -> !tile.tile<8x16xf32, ub>
%image = "test.op"() : () -> !tile.tile<1x6x6x16xf16, l1>
%columns = tile.move %image at [0, 0, 0, 0] {sizes = [1, 4, 4, 16], steps = [1, 1, 1, 1], window = [1, 3, 3, 1], window_steps = [1, 1, 1, 1]} : (!tile.tile<1x6x6x16xf16, l1>) -> !tile.tile<16x144xf16, l0a>
// CHECK: tile.move %{{.*}} at [0, 0, 0, 0] {{{.*}}window = [1, 3, 3, 1]{{.*}}} : (!tile.tile<1x6x6x16xf16, l1>) -> !tile.tile<16x144xf16, l0a>
%sorted, %work = tile.sort %t {descending = [0], keys = [0], total = [0]} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x4xf32, ub>, !tile.tile<8x64xui32, ub>)
// CHECK: tile.sort %{{.*}} {descending = [0], keys = [0], total = [0]} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x4xf32, ub>, !tile.tile<8x64xui32, ub>)
%places, %rows = "test.op"() : () -> (!tile.tile<5xi32, ub>, !tile.tile<5x16xf32, ub>)
%scattered = tile.scatter %t, %places, %rows at [%i * 8] {kind = "set"} : (!tile.tile<8x16xf32, ub>, !tile.tile<5xi32, ub>, !tile.tile<5x16xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: tile.scatter %{{.*}}, %{{.*}}, %{{.*}} at [%{{.*}} * 8] {kind = "set"}
%spots = "test.op"() : () -> !tile.tile<4x3xi32, ub>
%picked = tile.gather %t, %spots : (!tile.tile<8x16xf32, ub>, !tile.tile<4x3xi32, ub>) -> !tile.tile<4x3xf32, ub>
// CHECK: tile.gather %{{.*}}, %{{.*}} : (!tile.tile<8x16xf32, ub>, !tile.tile<4x3xi32, ub>) -> !tile.tile<4x3xf32, ub>
%sums = tile.cumulate %t {dim = 1, kind = "max", reverse = 0} : !tile.tile<8x16xf32, ub>
// CHECK: tile.cumulate %{{.*}} {dim = 1, kind = "max", reverse = 0} : !tile.tile<8x16xf32, ub>

// -----

%rows, %sums, %bytes_a, %bytes_b, %out = "test.op"() : () -> (!tile.tile<64xi32, l1>, !tile.tile<16x16xi32, l0c>, !tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !npu.gm<16x16xi8>)
%words = "test.op"() : () -> !tile.tile<1x16xui64, fb>
%bias = tile.move_row %rows at [48] {sizes = [16]} : (!tile.tile<64xi32, l1>) -> !tile.tile<1x16xi32, bt>
// CHECK: tile.move_row %{{.*}} at [48] {sizes = [16]} : (!tile.tile<64xi32, l1>) -> !tile.tile<1x16xi32, bt>
%wide = "test.op"() : () -> !tile.tile<16x16xf32, l0c>
%operand = tile.hand_on %wide {relu} : (!tile.tile<16x16xf32, l0c>) -> !tile.tile<16x16xf16, l1>
// CHECK: tile.hand_on %{{.*}} {relu} : (!tile.tile<16x16xf32, l0c>) -> !tile.tile<16x16xf16, l1>
%acc = tile.mma %bytes_a, %bytes_b, %sums, %bias at [0] : (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xi32, bt>) -> !tile.tile<16x16xi32, l0c>
// CHECK: tile.mma %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at [0] : (!tile.tile<16x32xi8, l0a>
tile.store %acc, %out, %words at [0, 0] {relu, sizes = [16, 16], zero = 3} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>, !tile.tile<1x16xui64, fb>)
// CHECK: tile.store %{{.*}}, %{{.*}}, %{{.*}} at [0, 0] {relu, sizes = [16, 16], zero = 3}

// What cores of two kinds do, in one order
tile.kernel @turns {grid = [2], kind = "mix", outputs = 1, slots = [2, 2, 2, 1, 2], workspaces = 1} {
^bb0(%block: index, %in: !npu.gm<16x16xf32>, %o: !npu.gm<16x16xf32>, %work: !npu.gm<2x16x16xf32>):
  tile.section {core = "mixed", units = 2} {
  ^bb1(%unit: index):
    %part = tile.load %work at [%block, %unit * 8, 0] {sizes = [1, 8, 16]} : (!npu.gm<2x16x16xf32>) -> !tile.tile<1x8x16xf32, ub>
  }
}
// CHECK: tile.kernel @turns {grid = [2], kind = "mix", outputs = 1, slots = [2, 2, 2, 1, 2], workspaces = 1} {
// CHECK: tile.section {core = "mixed", units = 2} {
// CHECK-NEXT: ^{{.*}}(%{{.*}}: index):
// CHECK-NEXT: tile.load
