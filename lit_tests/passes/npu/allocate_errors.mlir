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
// CHECK: kernel @k needs 1052672 bytes of ub, but ascend-310 has 253952: live buffers !npu.buffer<512x512xf32, ub> 1048576 bytes ({{.*}}allocate_errors.mlir:8); !npu.buffer<8x64xf32, ub, 2 slots> 4096 bytes ({{.*}}); use smaller tiles: 798720 bytes are too many

// -----

// Of the buffers with slots, one that gives up enough.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<512x512xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %wide = npu.alloc : () -> !npu.buffer<64x512xf32, ub, 2 slots>
    %small = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %a = npu.slot %wide at [0] : (!npu.buffer<64x512xf32, ub, 2 slots>) -> !npu.buffer<64x512xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [64, 512]} : (!npu.gm<512x512xf32>, !npu.buffer<64x512xf32, ub>)
    %b = npu.slot %small at [0] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %b at [0, 0] {sizes = [8, 64]} : (!npu.gm<512x512xf32>, !npu.buffer<8x64xf32, ub>)
  }
}
// CHECK: kernel @k needs 266240 bytes of ub, but ascend-310 has 253952: {{.*}}; it fits with 1 slot in the place of !npu.buffer<64x512xf32, ub, 2 slots> ({{.*}}allocate_errors.mlir:24)

// -----

// Without slots to give up, the tile that has to shrink least.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<512x512xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %wide = npu.alloc : () -> !npu.buffer<96x512xf32, ub>
    %other = npu.alloc : () -> !npu.buffer<32x512xf32, ub>
    npu.load_nd %x, %wide at [0, 0] {sizes = [96, 512]} : (!npu.gm<512x512xf32>, !npu.buffer<96x512xf32, ub>)
    npu.load_nd %x, %other at [0, 0] {sizes = [32, 512]} : (!npu.gm<512x512xf32>, !npu.buffer<32x512xf32, ub>)
  }
}
// CHECK: kernel @k needs 262144 bytes of ub, but ascend-310 has 253952: {{.*}}; it fits with a tile half as large in the place of !npu.buffer<32x512xf32, ub> ({{.*}}allocate_errors.mlir:42)

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
