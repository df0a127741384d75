// RUN: tilewright-opt %s -p npu-synchronize --split-input-file --verify-diagnostics | filecheck %s

// A pair of pipes has eight events: nine loads that are used one after the other need nine.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %b0 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b1 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b2 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b3 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b4 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b5 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b6 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b7 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b8 = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %b0 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b0, %b0 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %x, %b1 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b1, %b1 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %x, %b2 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b2, %b2 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %x, %b3 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b3, %b3 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %x, %b4 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b4, %b4 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %x, %b5 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b5, %b5 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %x, %b6 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b6, %b6 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %x, %b7 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b7, %b7 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %x, %b8 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %b8, %b8 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
  }
}
// CHECK: 'npu.section' ({{.*}}) needs 9 events from MTE2 to V; the core has 8: use fewer buffers in flight

// -----

// The sections of a mix kernel walk the tiles in the same order, at the same depth.
npu.kernel @k {grid = [1], kind = "mix", outputs = 0, workspaces = 1} {
^bb0(%i: index, %w: !npu.gm<64x64xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %c = npu.alloc : () -> !npu.buffer<16x64xf32, l0c>
    scf.for %j = %zero to %four step %one {
      npu.fixpipe %c, %w at [%j * 16, 0] {sizes = [16, 64]} : (!npu.buffer<16x64xf32, l0c>, !npu.gm<64x64xf32>)
    }
  }
  npu.section {core = "vector", units = 2} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<64x64xf32, ub>
    npu.load_nd %w, %a at [0, 0] {sizes = [64, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<64x64xf32, ub>)
  }
}
// CHECK: 'npu.kernel' ({{.*}}) @k: its sections walk the tiles differently
