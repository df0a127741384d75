// RUN: tilewright-opt %s -p npu-synchronize --split-input-file --verify-diagnostics | filecheck %s

// A pair of pipes has eight events: five double buffers that advance apart need ten.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %b0 = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %b1 = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %b2 = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %b3 = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %b4 = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    scf.for %j = %zero to %four step %one {
      %s0 = npu.slot %b0 at [%j + 0] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %s0 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %s0, %s0 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      %s1 = npu.slot %b1 at [%j + 1] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %s1 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %s1, %s1 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      %s2 = npu.slot %b2 at [%j + 2] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %s2 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %s2, %s2 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      %s3 = npu.slot %b3 at [%j + 3] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %s3 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %s3, %s3 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      %s4 = npu.slot %b4 at [%j + 4] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %s4 at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %s4, %s4 : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    }
  }
}
// CHECK: 'npu.section' ({{.*}}) needs {{.*}} events from V to MTE2; the core has 8: use fewer buffers in flight

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
