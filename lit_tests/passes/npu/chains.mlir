// RUN: tilewright-opt %s -p npu-allocate --split-input-file | filecheck %s

// A temporary takes the slot of what is loaded once nothing reads that any more, and of what is stored before that is
// written: here %t that of %a, in place, and %u that of %b, whose slot is chosen earlier then.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>, %y: !npu.gm<64x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %eight = arith.constant 8 : index
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %t = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %u = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %r = npu.alloc : () -> !npu.buffer<8x1xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    scf.for %j = %zero to %eight step %one {
      %s = npu.slot %a at [%j] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %s at [%j * 8, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %s, %t : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      npu.vmul %t, %t, %u : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      npu.vreduce %u, %r {dims = [1], kind = "sum"} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>)
      %o = npu.slot %b at [%j] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.vmul %t, %r, %o : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>, !npu.buffer<8x64xf32, ub>)
      npu.store_nd %o, %y at [%j * 8, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<64x64xf32>)
    }
  }
}
// CHECK: %a = npu.alloc {address = [[A:.*]]} :
// CHECK-NEXT: %r = npu.alloc
// CHECK-NEXT: %b = npu.alloc
// CHECK: npu.vexp %s, %s
// CHECK-NEXT: %o = npu.slot %b at [%j]
// CHECK-NEXT: npu.vmul %s, %s, %o
// CHECK-NEXT: npu.vreduce %o, %r
// CHECK-NEXT: npu.vmul %s, %r, %o
// CHECK-NEXT: npu.store_nd %o

// -----

// Not where what is loaded is still read, by an instruction that is not elementwise, for another type, or where a loop
// has one slot: the next load would wait for the temporary.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>, %y: !npu.gm<64x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %eight = arith.constant 8 : index
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %t = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    scf.for %j = %zero to %eight step %one {
      npu.load_nd %x, %a at [%j * 8, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %a, %t : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    }
    %c = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %w = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %d = npu.alloc : () -> !npu.buffer<64x8xf32, ub>
    %e = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %c at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %c, %w : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vmul %c, %w, %w : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vtranspose %w, %d {perm = [1, 0]} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<64x8xf32, ub>)
    npu.vtranspose %d, %e {perm = [1, 0]} : (!npu.buffer<64x8xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %e, %e : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.store_nd %c, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<64x64xf32>)
  }
}
// CHECK: %a = npu.alloc
// CHECK-NEXT: %t = npu.alloc
// CHECK: npu.vexp %a, %t
// CHECK: npu.vexp %c, %w
// CHECK: npu.vtranspose %w, %d
// CHECK: npu.vtranspose %d, %e

// -----

// Of walks over rows, one loop behind the other, only what is stored lends its slots: loads run ahead.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>, %y: !npu.gm<64x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %eight = arith.constant 8 : index
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %t = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %c = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %r = npu.alloc : () -> !npu.buffer<8x1xf32, ub>
    scf.for %j = %zero to %eight step %one {
      %s = npu.slot %a at [%j] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %s at [%j * 8, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %s, %t : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      npu.vreduce %t, %r {dims = [1], kind = "sum"} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>)
    }
    scf.for %j = %zero to %eight step %one {
      %s = npu.slot %b at [%j] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      %v = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %s at [%j * 8, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.vexp %s, %v : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      %o = npu.slot %c at [%j] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.vmul %v, %r, %o : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>, !npu.buffer<8x64xf32, ub>)
      npu.store_nd %o, %y at [%j * 8, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<64x64xf32>)
    }
  }
}
// CHECK: npu.vexp %s, %t
// CHECK: npu.vexp %s_1, %o
// CHECK-NEXT: npu.vmul %o, %r, %o
