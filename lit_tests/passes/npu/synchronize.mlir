// RUN: tilewright-opt %s -p npu-synchronize --split-input-file | filecheck %s

// Straight line: the consumer waits for the producer on another pipe, or for a barrier of its own.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf32>, %y: !npu.gm<8x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %c = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vexp %a, %b : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vneg %b, %c : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.store_nd %c, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<8x64xf32>)
  }
}
// CHECK: npu.load_nd
// CHECK-NEXT: npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
// CHECK-NEXT: npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
// CHECK-NEXT: npu.vexp
// CHECK-NEXT: npu.pipe_barrier {pipe = "V"}
// CHECK-NEXT: npu.vneg
// CHECK-NEXT: npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
// CHECK-NEXT: npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
// CHECK-NEXT: npu.store_nd

// -----

// Double buffering in a loop: flags by slot; those that free a slot are raised before the loop and drained after.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>, %y: !npu.gm<64x64xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %eight = arith.constant 8 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %in = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    %out = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
    scf.for %j = %zero to %eight step %one {
      %a = npu.slot %in at [%j] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %a at [%j * 8, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>, !npu.buffer<8x64xf32, ub>)
      %b = npu.slot %out at [%j] : (!npu.buffer<8x64xf32, ub, 2 slots>) -> !npu.buffer<8x64xf32, ub>
      npu.vexp %a, %b : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      npu.store_nd %b, %y at [%j * 8, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<64x64xf32>)
    }
  }
}
// CHECK: npu.set_flag at [0] {event = 0, slots = 2, source = "V", target = "MTE2"}
// CHECK-NEXT: npu.set_flag at [1] {event = 0, slots = 2, source = "V", target = "MTE2"}
// CHECK: scf.for %[[J:.*]] =
// CHECK: npu.wait_flag at [%[[J]]] {event = 0, slots = 2, source = "V", target = "MTE2"}
// CHECK: npu.load_nd
// CHECK: npu.set_flag at [%[[J]]] {event = 0, slots = 2, source = "MTE2", target = "V"}
// CHECK: npu.wait_flag at [%[[J]]] {event = 0, slots = 2, source = "MTE2", target = "V"}
// CHECK: npu.vexp
// CHECK: npu.set_flag at [%[[J]]] {event = 0, slots = 2, source = "V", target = "MTE2"}
// CHECK: npu.store_nd
// CHECK: npu.set_flag at [%[[J]]] {event = 0, slots = 2, source = "MTE3", target = "V"}
// CHECK: }
// CHECK: npu.wait_flag at [0] {event = 0, slots = 2, source = "V", target = "MTE2"}
// CHECK-NEXT: npu.wait_flag at [1] {event = 0, slots = 2, source = "V", target = "MTE2"}

// -----

// Two loads, one use: only the last producer before it raises a flag. Events of one pair of pipes count up.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf32>, %y: !npu.gm<8x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %c = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %y, %b at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vadd %a, %b, %a : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.load_nd %y, %c at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vadd %a, %c, %a : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
  }
}
// CHECK: npu.load_nd
// CHECK-NEXT: npu.load_nd
// CHECK-NEXT: npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
// CHECK: npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
// CHECK: npu.vadd
// CHECK: npu.set_flag at [0] {event = 1, slots = 1, source = "MTE2", target = "V"}
// CHECK: npu.wait_flag at [0] {event = 1, slots = 1, source = "MTE2", target = "V"}
// CHECK: npu.vadd

// -----

// Between the cores of a block: the vector section waits for the tile that the cube section drained.
npu.kernel @k {grid = [1], kind = "mix", outputs = 1, workspaces = 1} {
^bb0(%i: index, %y: !npu.gm<16x16xf32>, %w: !npu.gm<16x16xf32>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %c = npu.alloc : () -> !npu.buffer<16x16xf32, l0c>
    npu.fixpipe %c, %w at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<16x16xf32>)
  }
  npu.section {core = "vector", units = 2} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x16xf32, ub>
    npu.load_nd %w, %a at [%unit * 8, 0] {sizes = [8, 16]} : (!npu.gm<16x16xf32>, !npu.buffer<8x16xf32, ub>)
    npu.store_nd %a, %y at [%unit * 8, 0] {sizes = [8, 16]} : (!npu.buffer<8x16xf32, ub>, !npu.gm<16x16xf32>)
  }
}
// CHECK: npu.fixpipe
// CHECK-NEXT: npu.set_cross {event = 0, source = "FIX"}
// CHECK: npu.section {core = "vector"
// CHECK: npu.wait_cross {event = 0, target = "MTE2"}
// CHECK-NEXT: npu.load_nd

// -----

// A reader that takes at once what a loop of the writer stores tile by tile waits for all of it.
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
// CHECK: npu.fixpipe
// CHECK-NEXT: }
// CHECK-NEXT: npu.set_cross {event = 0, source = "FIX"}
// CHECK: npu.section {core = "vector"
// CHECK: npu.wait_cross {event = 0, target = "MTE2"}
// CHECK-NEXT: npu.load_nd

// -----

// A program that has flags already keeps them.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.set_flag at [0] {event = 5, slots = 1, source = "MTE2", target = "V"}
    npu.wait_flag at [0] {event = 5, slots = 1, source = "MTE2", target = "V"}
    npu.vexp %a, %a : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
  }
}
// CHECK: npu.load_nd
// CHECK-NEXT: npu.set_flag at [0] {event = 5, slots = 1, source = "MTE2", target = "V"}
// CHECK-NEXT: npu.wait_flag at [0] {event = 5, slots = 1, source = "MTE2", target = "V"}
// CHECK-NEXT: npu.vexp

// -----

// Five double buffers that advance apart would need ten events: their slots take turns instead.
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
// CHECK: npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE2"}
// CHECK: scf.for
// CHECK: npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE2"}

// -----

// A pair of pipes has eight events: nine loads move before what they are for, and one flag is for all of them.
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
// CHECK: npu.load_nd %x, %b0
// CHECK-NEXT: npu.load_nd %x, %b1
// CHECK: npu.load_nd %x, %b8
// CHECK-NEXT: npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
// CHECK-NEXT: npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
// CHECK-NEXT: npu.vexp %b0
// CHECK-NOT: npu.wait_flag
// CHECK: npu.vexp %b8

// -----

// One buffer that is filled nine times, where nothing can move: barriers.
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<9x64xf32>, %y: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %b = npu.alloc : () -> !npu.buffer<64xf32, ub>
    %s = npu.alloc : () -> !npu.buffer<64xf32, ub>
    npu.vfill %s {value = 0.000000e+00 : f64} : (!npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [0, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [1, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [2, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [3, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [4, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [5, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [6, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [7, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.load_nd %x, %b at [8, 0] {sizes = [1, 64]} : (!npu.gm<9x64xf32>, !npu.buffer<64xf32, ub>)
    npu.vadd %s, %b, %s : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.store_nd %s, %y at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: npu.load_nd %x, %b at [0, 0]
// CHECK: npu.barrier
// CHECK-NEXT: npu.vadd
// CHECK-NEXT: npu.barrier
// CHECK-NEXT: npu.load_nd %x, %b at [1, 0]
// CHECK-NEXT: npu.barrier
// CHECK-NOT: npu.set_flag
// CHECK: npu.load_nd %x, %b at [8, 0]
// CHECK: npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
// CHECK-NEXT: npu.wait_flag
// CHECK-NEXT: npu.store_nd
