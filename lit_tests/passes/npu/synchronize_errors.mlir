// RUN: tilewright-opt %s -p npu-synchronize --split-input-file --verify-diagnostics | filecheck %s

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
