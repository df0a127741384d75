// RUN: tilewright-opt %s -p npu-synchronize --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p "npu-synchronize{without=unit-flags}" --split-input-file | filecheck %s --check-prefix=PLAIN

// A product and the one drain of its sums take turns by unit flags: no flag between M and FIX, in either direction.
builtin.module attributes {tilewright.target = "ascend-910b1"} {
npu.kernel @k {grid = [1], kind = "cube", outputs = 1, workspaces = 0} {
^bb0(%i: index, %a: !npu.gm<64x64xf16>, %b: !npu.gm<64x16xf16>, %y: !npu.gm<64x16xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %a1 = npu.alloc : () -> !npu.buffer<64x64xf16, l1>
    %b1 = npu.alloc : () -> !npu.buffer<64x16xf16, l1>
    %a0 = npu.alloc : () -> !npu.buffer<16x16xf16, l0a>
    %b0 = npu.alloc : () -> !npu.buffer<16x16xf16, l0b>
    %sums = npu.alloc : () -> !npu.buffer<16x16xf32, l0c>
    npu.load_nd2nz %a, %a1 at [0, 0] {sizes = [64, 64]} : (!npu.gm<64x64xf16>, !npu.buffer<64x64xf16, l1>)
    npu.load_nd2nz %b, %b1 at [0, 0] {sizes = [64, 16]} : (!npu.gm<64x16xf16>, !npu.buffer<64x16xf16, l1>)
    scf.for %m = %zero to %four step %one {
      scf.for %k = %zero to %four step %one {
        npu.load_l0 %a1, %a0 at [%m * 16, %k * 16] {sizes = [16, 16]} : (!npu.buffer<64x64xf16, l1>, !npu.buffer<16x16xf16, l0a>)
        npu.load_l0 %b1, %b0 at [%k * 16, 0] {sizes = [16, 16]} : (!npu.buffer<64x16xf16, l1>, !npu.buffer<16x16xf16, l0b>)
        npu.mmad %a0, %b0, %sums at [%k] : (!npu.buffer<16x16xf16, l0a>, !npu.buffer<16x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
      }
      npu.fixpipe %sums, %y at [%m * 16, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<64x16xf32>)
    }
  }
}
}
// CHECK: scf.for
// CHECK-NOT: "FIX"
// CHECK: npu.mmad {{.*}} {unit_flag}
// CHECK-NOT: "FIX"
// CHECK: npu.fixpipe {{.*}} {sizes = [16, 16], unit_flag}
// CHECK-NOT: "FIX"
// CHECK: // -----

// PLAIN: npu.set_flag at [0] {event = 0, slots = 1, source = "FIX", target = "M"}
// PLAIN: npu.mmad
// PLAIN-NOT: unit_flag
// PLAIN: npu.set_flag at [0] {event = 0, slots = 1, source = "M", target = "FIX"}
// PLAIN-NEXT: npu.wait_flag at [0] {event = 0, slots = 1, source = "M", target = "FIX"}
// PLAIN-NEXT: npu.fixpipe
// PLAIN-NOT: unit_flag
// PLAIN: npu.set_flag at [0] {event = 0, slots = 1, source = "FIX", target = "M"}

// -----

// Sums that are drained twice: the second drain would wait for ever.
builtin.module attributes {tilewright.target = "ascend-910b1"} {
npu.kernel @k {grid = [1], kind = "cube", outputs = 1, workspaces = 0} {
^bb0(%i: index, %a: !npu.gm<64x64xf16>, %b: !npu.gm<64x16xf16>, %y: !npu.gm<64x16xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %a1 = npu.alloc : () -> !npu.buffer<64x64xf16, l1>
    %b1 = npu.alloc : () -> !npu.buffer<64x16xf16, l1>
    %a0 = npu.alloc : () -> !npu.buffer<16x16xf16, l0a>
    %b0 = npu.alloc : () -> !npu.buffer<16x16xf16, l0b>
    %sums = npu.alloc : () -> !npu.buffer<16x16xf32, l0c>
    npu.load_nd2nz %a, %a1 at [0, 0] {sizes = [64, 64]} : (!npu.gm<64x64xf16>, !npu.buffer<64x64xf16, l1>)
    npu.load_nd2nz %b, %b1 at [0, 0] {sizes = [64, 16]} : (!npu.gm<64x16xf16>, !npu.buffer<64x16xf16, l1>)
    scf.for %m = %zero to %four step %one {
      scf.for %k = %zero to %four step %one {
        npu.load_l0 %a1, %a0 at [%m * 16, %k * 16] {sizes = [16, 16]} : (!npu.buffer<64x64xf16, l1>, !npu.buffer<16x16xf16, l0a>)
        npu.load_l0 %b1, %b0 at [%k * 16, 0] {sizes = [16, 16]} : (!npu.buffer<64x16xf16, l1>, !npu.buffer<16x16xf16, l0b>)
        npu.mmad %a0, %b0, %sums at [%k] : (!npu.buffer<16x16xf16, l0a>, !npu.buffer<16x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
      }
      npu.fixpipe %sums, %y at [%m * 16, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<64x16xf32>)
      npu.fixpipe %sums, %y at [%m * 16, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<64x16xf32>)
    }
  }
}
}
// CHECK-NOT: unit_flag
// CHECK: npu.set_flag at [0] {event = 0, slots = 1, source = "M", target = "FIX"}
// CHECK-NEXT: npu.wait_flag at [0] {event = 0, slots = 1, source = "M", target = "FIX"}
// CHECK-NEXT: npu.fixpipe
// CHECK-NOT: unit_flag
