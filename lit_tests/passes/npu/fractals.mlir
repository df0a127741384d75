// RUN: tilewright-opt %s -p npu-allocate --split-input-file | filecheck %s
// RUN: sed 's/core = "cube"/core = "fused"/' %s | tilewright-opt -p 'npu-allocate{target=ascend-310}' --split-input-file | filecheck %s
// RUN: sed 's/core = "cube"/core = "fused"/' %s | tilewright-opt -p 'npu-allocate{target=systolic-tpu1}' --split-input-file | filecheck %s --check-prefix=ROWS

// Matrices in memories of the cube take whole fractals, 16 rows of 32 bytes and 16 columns of sums: its instructions
// fill and read them. A row of numbers in l1 is no matrix. A cube that takes a row at a time has no fractals.
npu.kernel @rows {grid = [1], kind = "cube", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf16>, %w: !npu.gm<64x24xf16>, %y: !npu.gm<8x24xf16>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x64xf16, l1, 2 slots>
    %b = npu.alloc : () -> !npu.buffer<64x24xf16, l1>
    %p = npu.alloc : () -> !npu.buffer<8x64xf16, l0a>
    %q = npu.alloc : () -> !npu.buffer<64x24xf16, l0b>
    %s = npu.alloc : () -> !npu.buffer<8x24xf32, l0c>
    %as = npu.slot %a at [1] : (!npu.buffer<8x64xf16, l1, 2 slots>) -> !npu.buffer<8x64xf16, l1>
    npu.load_nd2nz %x, %as at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf16>, !npu.buffer<8x64xf16, l1>)
    npu.load_nd2nz %w, %b at [0, 0] {sizes = [64, 24]} : (!npu.gm<64x24xf16>, !npu.buffer<64x24xf16, l1>)
    npu.load_l0 %as, %p at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf16, l1>, !npu.buffer<8x64xf16, l0a>)
    npu.load_l0 %b, %q at [0, 0] {sizes = [64, 24]} : (!npu.buffer<64x24xf16, l1>, !npu.buffer<64x24xf16, l0b>)
    npu.mmad %p, %q, %s at [0] : (!npu.buffer<8x64xf16, l0a>, !npu.buffer<64x24xf16, l0b>, !npu.buffer<8x24xf32, l0c>)
  }
}
// CHECK-LABEL: npu.kernel @rows
// CHECK: %a = npu.alloc {address = 0} : () -> !npu.buffer<8x64xf16, l1, 2 slots, fractals [16, 16]>
// CHECK: %b = npu.alloc {address = 4096} : () -> !npu.buffer<64x24xf16, l1>
// CHECK: %p = npu.alloc {address = 0} : () -> !npu.buffer<8x64xf16, l0a, fractals [16, 16]>
// CHECK: %q = npu.alloc {address = 0} : () -> !npu.buffer<64x24xf16, l0b>
// CHECK: %s = npu.alloc {address = 0} : () -> !npu.buffer<8x24xf32, l0c, fractals [16, 16]>
// CHECK: %as = npu.slot %a at [1] : {{.*}} -> !npu.buffer<8x64xf16, l1, fractals [16, 16]>

// ROWS-LABEL: npu.kernel @rows
// ROWS: %a = npu.alloc {address = 0} : () -> !npu.buffer<8x64xf16, l1, 2 slots>
// ROWS: %b = npu.alloc {address = 2048} : () -> !npu.buffer<64x24xf16, l1>
// ROWS: %s = npu.alloc {address = 0} : () -> !npu.buffer<8x24xf32, l0c>

// -----

// i8 has 32 columns in a fractal in l1 and l0a, and as many rows in l0b. A matrix whose columns are two dimensions.
npu.kernel @bytes {grid = [1], kind = "cube", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<5x3x32xi8>, %w: !npu.gm<40x16xi8>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<5x3x32xi8, l1>
    %b = npu.alloc : () -> !npu.buffer<40x16xi8, l1>
    %p = npu.alloc : () -> !npu.buffer<5x96xi8, l0a>
    %q = npu.alloc : () -> !npu.buffer<40x16xi8, l0b>
    npu.load_nd2nz %x, %a at [0, 0, 0] {sizes = [5, 3, 32]} : (!npu.gm<5x3x32xi8>, !npu.buffer<5x3x32xi8, l1>)
    npu.load_nd2nz %w, %b at [0, 0] {sizes = [40, 16]} : (!npu.gm<40x16xi8>, !npu.buffer<40x16xi8, l1>)
    npu.load_l0 %a, %p at [0, 0, 0] {sizes = [5, 3, 32]} : (!npu.buffer<5x3x32xi8, l1>, !npu.buffer<5x96xi8, l0a>)
    npu.load_l0 %b, %q at [0, 0] {sizes = [40, 16]} : (!npu.buffer<40x16xi8, l1>, !npu.buffer<40x16xi8, l0b>)
  }
}
// CHECK-LABEL: npu.kernel @bytes
// CHECK: %a = npu.alloc {address = 0} : () -> !npu.buffer<5x3x32xi8, l1, fractals [16, 32, 2]>
// CHECK: %b = npu.alloc {address = 1536} : () -> !npu.buffer<40x16xi8, l1, fractals [16, 32]>
// CHECK: %p = npu.alloc {address = 0} : () -> !npu.buffer<5x96xi8, l0a, fractals [16, 32]>
// CHECK: %q = npu.alloc {address = 0} : () -> !npu.buffer<40x16xi8, l0b>

// ROWS-LABEL: npu.kernel @bytes
// ROWS: %a = npu.alloc {address = 0} : () -> !npu.buffer<5x3x32xi8, l1>
