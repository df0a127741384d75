// RUN: tilewright-opt %s -p npu-allocate --split-input-file | filecheck %s

// Buffers that several pipes touch keep their own addresses, slots side by side; temporaries of the vector unit
// share memory by lifetime, and an elementwise instruction may compute in place. What is stored here is of another
// type, and lends them no slot (chains.mlir).
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>, %y: !npu.gm<64x64xf16>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %in = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %c = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %out = npu.alloc : () -> !npu.buffer<8x64xf16, ub>
    %s = npu.slot %in at [0] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %s at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %s, %a : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vneg %a, %b : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vsin %b, %c : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vadd %c, %s, %c : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vconvert %c, %out : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf16, ub>)
    npu.store_nd %out, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf16, ub>, !npu.gm<64x64xf16>)
  }
}
// CHECK: %in = npu.alloc {address = [[IN:.*]]} :
// CHECK: %a = npu.alloc {address = [[A:.*]]} :
// CHECK: %b = npu.alloc {address = [[A]]} :
// CHECK: %c = npu.alloc {address = [[A]]} :
// CHECK: %out = npu.alloc {address = {{.*}}} :

// -----

// An instruction that is not elementwise does not write over what it still reads.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<16x16xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<16x16xf32, ub>
    npu.vfill %a {value = 1.0 : f64} : (!npu.buffer<16x16xf32, ub>)
    npu.vtranspose %a, %b {perm = [1, 0]} : (!npu.buffer<16x16xf32, ub>, !npu.buffer<16x16xf32, ub>)
  }
}
// CHECK: %a = npu.alloc {address = 0} :
// CHECK: %b = npu.alloc {address = 1280} :

// -----

// Spaces are allocated apart from each other.
npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<16x16xf16>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<16x16xf16, l1>
    %b = npu.alloc : () -> !npu.buffer<16x16xf16, l0a>
    npu.load_nd2nz %x, %a at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>, !npu.buffer<16x16xf16, l1>)
    npu.load_l0 %a, %b at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf16, l1>, !npu.buffer<16x16xf16, l0a>)
  }
}
// CHECK: %a = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l1>
// CHECK: %b = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0a>

// -----

// A buffer without elements takes no room, so that those behind it stand where a memory's blocks begin.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    scf.for %j = %zero to %one step %one {
      %none = npu.alloc : () -> !npu.buffer<0xf32, ub>
      npu.vfill %none {value = 1.0 : f64} : (!npu.buffer<0xf32, ub>)
    }
    scf.for %j = %zero to %one step %one {
      %some = npu.alloc : () -> !npu.buffer<8xf32, ub>
      npu.vfill %some {value = 1.0 : f64} : (!npu.buffer<8xf32, ub>)
    }
  }
}
// CHECK: %none = npu.alloc {address = 0} :
// CHECK: %some = npu.alloc {address = 0} :

// -----

// Buffers of ub begin where a window of banks of 256 bytes does, so that no destination lies across a source.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>, %y: !npu.gm<64x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %one = npu.alloc : () -> !npu.buffer<1x1xf32, ub>
    %in = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %out = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %one at [0, 0] {sizes = [1, 1]} : (!npu.gm<64x64xf32>, !npu.buffer<1x1xf32, ub>)
    npu.load_nd %x, %in at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vadd %in, %one, %out : (!npu.buffer<8x64xf32, ub>, !npu.buffer<1x1xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.store_nd %out, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<64x64xf32>)
  }
}
// CHECK: %one = npu.alloc {address = 0} :
// CHECK: %in = npu.alloc {address = 256} :
// CHECK: %out = npu.alloc {address = 2560} :

// -----

// Where that would take more than there is, they lie one behind the other.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>, %y: !npu.gm<64x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %one = npu.alloc : () -> !npu.buffer<1x1xf32, ub>
    %in = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 95 slots>
    npu.load_nd %x, %one at [0, 0] {sizes = [1, 1]} : (!npu.gm<64x64xf32>, !npu.buffer<1x1xf32, ub>)
    %s = npu.slot %in at [0] : (!npu.buffer<8x64xf32, ub, 95 slots>) -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %s at [0, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
    %two = npu.alloc : () -> !npu.buffer<1x500xf32, ub>
    npu.load_nd %x, %two at [0, 0] {sizes = [10, 50]} : (!npu.gm<64x64xf32>, !npu.buffer<1x500xf32, ub>)
    npu.store_nd %s, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<64x64xf32>)
    npu.store_nd %two, %y at [0, 0] {sizes = [10, 50]} : (!npu.buffer<1x500xf32, ub>, !npu.gm<64x64xf32>)
    npu.store_nd %one, %y at [0, 0] {sizes = [1, 1]} : (!npu.buffer<1x1xf32, ub>, !npu.gm<64x64xf32>)
  }
}
// CHECK: %one = npu.alloc {address = 0} :
// CHECK: %in = npu.alloc {address = 32} :
// CHECK: %two = npu.alloc {address = 194592} :

// -----

// Where best fit takes more than there is, places are searched: %a and %c are never live at once, but behind %a there is no
// room for %c beside %b.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<352x64xf16, ub>
    %b = npu.alloc : () -> !npu.buffer<352x64xf32, ub>
    %c = npu.alloc : () -> !npu.buffer<352x64xf32, ub>
    %d = npu.alloc : () -> !npu.buffer<1x64xf32, ub>
    npu.vfill %a {value = 1.0 : f64} : (!npu.buffer<352x64xf16, ub>)
    npu.vconvert %a, %b : (!npu.buffer<352x64xf16, ub>, !npu.buffer<352x64xf32, ub>)
    npu.vmask %b, %c at [0, 0] {bounds = [350, 64], value = 0.0 : f64} : (!npu.buffer<352x64xf32, ub>, !npu.buffer<352x64xf32, ub>)
    npu.vreduce %c, %d {dims = [0], kind = "max"} : (!npu.buffer<352x64xf32, ub>, !npu.buffer<1x64xf32, ub>)
  }
}
// CHECK: %a = npu.alloc {address = [[FIRST:[0-9]+]]} : () -> !npu.buffer<352x64xf16, ub>
// CHECK: %b = npu.alloc {address = {{[0-9]+}}} : () -> !npu.buffer<352x64xf32, ub>
// CHECK: %c = npu.alloc {address = {{[0-9]+}}} : () -> !npu.buffer<352x64xf32, ub>
// CHECK: npu.vreduce
