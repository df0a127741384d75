// RUN: tilewright-opt %s -p 'npu-allocate{target=ascend-310}' --split-input-file --verify-diagnostics | filecheck %s

// What does not fit: the space, the bytes, the machine, and the largest buffers with the lines they come from.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %big = npu.alloc : () -> !npu.buffer<512x512xf32, ub>
    %small = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    npu.vexp %big, %big : (!npu.buffer<512x512xf32, ub>, !npu.buffer<512x512xf32, ub>)
    %s = npu.slot %small at [0] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %s at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
  }
}
// CHECK: kernel @k needs 1052672 bytes of ub, but ascend-310 has 253952: live buffers !npu.buffer<512x512xf32, ub> 1048576 bytes ({{.*}}allocate_errors.mlir:8); !npu.buffer<8x64xf32, ub, 2 slots> 4096 bytes ({{.*}}); use smaller tiles

// -----

// A space that the machine does not have.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x8xf32, bt>
  }
}
// CHECK: kernel @k uses bt, which ascend-310 does not have
