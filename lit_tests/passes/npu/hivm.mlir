// RUN: tilewright-opt %s -p 'npu-hivm{hivm=true}' --split-input-file | filecheck %s

// Functions that HIVM lacks become those that it has; scratch is reserved for the largest that an instruction needs.
npu.kernel @functions {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf32>, %y: !npu.gm<8x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %c = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vneg %a, %b : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vrsqrt %b, %c : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.store_nd %c, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<8x64xf32>)
  }
}
// CHECK-LABEL: npu.kernel @functions
// CHECK: npu.alloc {scratch} : () -> !npu.buffer<32xi8, ub>
// CHECK: npu.vmul %[[M:.*]], %a, %b
// CHECK-NEXT: npu.vsqrt %b, %[[R:.*]] :
// CHECK-NEXT: npu.vdiv %{{.*}}, %[[R]], %c

// -----

// A tile that a load may fill in part is filled before, as another instruction than one of lanes reads it.
npu.kernel @clipped {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<12x64xf32>, %y: !npu.gm<12x1xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<8x1xf32, ub>
    npu.load_nd %x, %a at [%i * 8, 0] {sizes = [8, 64]} : (!npu.gm<12x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vreduce %a, %b {dims = [1], kind = "sum"} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>)
    npu.store_nd %b, %y at [%i * 8, 0] {sizes = [8, 1]} : (!npu.buffer<8x1xf32, ub>, !npu.gm<12x1xf32>)
  }
}
// CHECK-LABEL: npu.kernel @clipped
// CHECK: npu.vfill %a {value = 0.000000e+00 : f64}
// CHECK-NEXT: npu.load_nd %x, %a

// -----

// Truths are bytes in device memory, and are converted on both sides.
npu.kernel @truths {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<32xi1>, %y: !npu.gm<32xi1>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<32xi1, ub>
    %b = npu.alloc : () -> !npu.buffer<32xi1, ub>
    npu.load_nd %x, %a at [0] {sizes = [32]} : (!npu.gm<32xi1>, !npu.buffer<32xi1, ub>)
    npu.vnot %a, %b : (!npu.buffer<32xi1, ub>, !npu.buffer<32xi1, ub>)
    npu.store_nd %b, %y at [0] {sizes = [32]} : (!npu.buffer<32xi1, ub>, !npu.gm<32xi1>)
  }
}
// CHECK-LABEL: npu.kernel @truths
// CHECK: npu.load_nd %x, %a
// CHECK-NEXT: npu.vconvert %a, %[[W:.*]] : (!npu.buffer<32xi1, ub>, !npu.buffer<32xf16, ub>)
// CHECK-NEXT: npu.vne %[[W]], %{{.*}}, %[[BITS:.*]] :
// CHECK-NEXT: npu.vnot %[[BITS]], %b
// CHECK-NEXT: npu.vconvert %b, %[[V:.*]] : (!npu.buffer<32xi1, ub>, !npu.buffer<32xf16, ub>)
// CHECK-NEXT: npu.vconvert %[[V]], %[[BYTES:.*]] : (!npu.buffer<32xf16, ub>, !npu.buffer<32xi1, ub>)
// CHECK-NEXT: npu.store_nd %[[BYTES]], %y

// -----

// Dimensions that are no neighbours are reduced one after the other, and rows before columns are repeated.
npu.kernel @shapes {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<4x8x16xf32>, %y: !npu.gm<4x8x16xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<4x8x16xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<1x8x1xf32, ub>
    %c = npu.alloc : () -> !npu.buffer<4x8x16xf32, ub>
    npu.load_nd %x, %a at [0, 0, 0] {sizes = [4, 8, 16]} : (!npu.gm<4x8x16xf32>, !npu.buffer<4x8x16xf32, ub>)
    npu.vreduce %a, %b {dims = [0, 2], kind = "max"} : (!npu.buffer<4x8x16xf32, ub>, !npu.buffer<1x8x1xf32, ub>)
    npu.vbroadcast %b, %c : (!npu.buffer<1x8x1xf32, ub>, !npu.buffer<4x8x16xf32, ub>)
    npu.store_nd %c, %y at [0, 0, 0] {sizes = [4, 8, 16]} : (!npu.buffer<4x8x16xf32, ub>, !npu.gm<4x8x16xf32>)
  }
}
// CHECK-LABEL: npu.kernel @shapes
// CHECK: npu.vreduce %a, %[[R:.*]] {dims = [0], kind = "max"}
// CHECK-NEXT: npu.vreduce %[[R]], %b {dims = [2], kind = "max"}
// CHECK-NEXT: npu.vbroadcast %b, %[[S:.*]] : (!npu.buffer<1x8x1xf32, ub>, !npu.buffer<1x8x16xf32, ub>)
// CHECK-NEXT: npu.vbroadcast %[[S]], %c

// -----

// The loop over parts of a product takes those of the vendor's macro: 64 of the summed dimension, not 32.
npu.kernel @product {grid = [1], kind = "cube", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<128x128xf16>, %w: !npu.gm<128x256xf16>, %y: !npu.gm<128x256xf16>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<128x128xf16, l1>
    %b = npu.alloc : () -> !npu.buffer<128x256xf16, l1>
    %p = npu.alloc : () -> !npu.buffer<128x32xf16, l0a, 2 slots>
    %q = npu.alloc : () -> !npu.buffer<32x256xf16, l0b, 2 slots>
    %s = npu.alloc : () -> !npu.buffer<128x256xf32, l0c>
    npu.load_nd2nz %x, %a at [0, 0] {sizes = [128, 128]} : (!npu.gm<128x128xf16>, !npu.buffer<128x128xf16, l1>)
    npu.load_nd2nz %w, %b at [0, 0] {sizes = [128, 256]} : (!npu.gm<128x256xf16>, !npu.buffer<128x256xf16, l1>)
    scf.for %k = %zero to %four step %one {
      %ps = npu.slot %p at [%k] : (!npu.buffer<128x32xf16, l0a, 2 slots>) -> !npu.buffer<128x32xf16, l0a>
      npu.load_l0 %a, %ps at [0, %k * 32] {sizes = [128, 32]} : (!npu.buffer<128x128xf16, l1>, !npu.buffer<128x32xf16, l0a>)
      %qs = npu.slot %q at [%k] : (!npu.buffer<32x256xf16, l0b, 2 slots>) -> !npu.buffer<32x256xf16, l0b>
      npu.load_l0 %b, %qs at [%k * 32, 0] {sizes = [32, 256]} : (!npu.buffer<128x256xf16, l1>, !npu.buffer<32x256xf16, l0b>)
      npu.mmad %ps, %qs, %s at [%k]
        : (!npu.buffer<128x32xf16, l0a>, !npu.buffer<32x256xf16, l0b>, !npu.buffer<128x256xf32, l0c>)
    }
    npu.fixpipe %s, %y at [0, 0] {sizes = [128, 256]} : (!npu.buffer<128x256xf32, l0c>, !npu.gm<128x256xf16>)
  }
}
// CHECK-LABEL: npu.kernel @product
// CHECK: %[[TWO:.*]] = arith.constant 2 : index
// CHECK: scf.for %k = %zero to %[[TWO]] step %one
// CHECK: npu.load_l0 %a, %ps at [0, %k * 64] {sizes = [128, 64]}
// CHECK: npu.load_l0 %b, %qs at [%k * 64, 0] {sizes = [64, 256]}
// CHECK: npu.mmad %ps, %qs, %s at [%k] : (!npu.buffer<128x64xf16, l0a>, !npu.buffer<64x256xf16, l0b>,

// -----

// A kernel that has no room for what its instructions work in keeps its form, and says why.
npu.kernel @full {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<40000xf32>, %y: !npu.gm<40000xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<40000xf32, ub>
    npu.load_nd %x, %a at [0] {sizes = [40000]} : (!npu.gm<40000xf32>, !npu.buffer<40000xf32, ub>)
    npu.vtanh %a, %a : (!npu.buffer<40000xf32, ub>, !npu.buffer<40000xf32, ub>)
    npu.store_nd %a, %y at [0] {sizes = [40000]} : (!npu.buffer<40000xf32, ub>, !npu.gm<40000xf32>)
  }
}
// CHECK-LABEL: npu.kernel @full
// CHECK-SAME: attributes {tilewright.no_hivm = "kernel @full needs
// CHECK: npu.vtanh %a, %a
