// RUN: tilewright-opt %s -p npu-check --split-input-file --verify-diagnostics | filecheck %s

// Race: nothing orders the load and the use of what it loads.
npu.kernel @race {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    %b = npu.alloc {address = 256} : () -> !npu.buffer<64xf32, ub>
    npu.load_nd %x, %a at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.vexp %a, %b : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.store_nd %b, %y at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: error: kernel @race: race: 'npu.vexp' ({{.*}}check_errors.mlir:11) on V reads while 'npu.load_nd' ({{.*}}check_errors.mlir:10) on MTE2 may still write, bytes 0..255 of ub (V has waited for nothing of MTE2)

// -----

// Race between iterations: the load of round 2 takes the slot of round 0, which V may still read.
npu.kernel @rounds {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<512xf32>, %y: !npu.gm<512xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %eight = arith.constant 8 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub, 2 slots>
    %b = npu.alloc {address = 512} : () -> !npu.buffer<64xf32, ub>
    scf.for %j = %zero to %eight step %one {
      %s = npu.slot %a at [%j] : (!npu.buffer<64xf32, ub, 2 slots>) -> !npu.buffer<64xf32, ub>
      npu.load_nd %x, %s at [%j * 64] {sizes = [64]} : (!npu.gm<512xf32>, !npu.buffer<64xf32, ub>)
      npu.set_flag at [%j] {event = 0, slots = 2, source = "MTE2", target = "V"}
      npu.wait_flag at [%j] {event = 0, slots = 2, source = "MTE2", target = "V"}
      npu.pipe_barrier {pipe = "V"}
      npu.vexp %s, %b : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    }
  }
}
// CHECK: error: kernel @rounds: race: 'npu.load_nd' ({{.*}}check_errors.mlir:33) on MTE2 where j = 2 writes while 'npu.vexp' ({{.*}}check_errors.mlir:37) on V where j = 0 may still read, bytes 0..255 of ub (MTE2 has waited for nothing of V) (and 1 more)

// -----

// Overlapping live buffers: the second load destroys what the sum still needs.
npu.kernel @overlap {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    %b = npu.alloc {address = 128} : () -> !npu.buffer<64xf32, ub>
    npu.load_nd %x, %a at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.pipe_barrier {pipe = "MTE2"}
    npu.load_nd %x, %b at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE3"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE3"}
    npu.store_nd %a, %y at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: error: kernel @overlap: overlap: 'npu.load_nd' ({{.*}}check_errors.mlir:54) on MTE2 overwrites a buffer that 'npu.store_nd' ({{.*}}check_errors.mlir:57) on MTE3 still reads, bytes 128..255 of ub

// -----

// One instruction over its own operand: only lane by lane, and exactly.
npu.kernel @in_place {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    %b = npu.alloc {address = 32} : () -> !npu.buffer<64xf32, ub>
    npu.vfill %a {value = 0.5 : f64} : (!npu.buffer<64xf32, ub>)
    npu.vexp %a, %a : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.vexp %a, %b : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
  }
}
// CHECK: error: kernel @in_place: overlap: 'npu.vexp' ({{.*}}check_errors.mlir:73) writes bytes of a source that it has not read yet, bytes 32..255 of ub

// -----

// Uninitialised: the accumulator is used before a step 0 started it.
npu.kernel @accumulator {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<16x16xf16>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %l = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l1>
    %a = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0a>
    %b = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0b>
    %c = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
    npu.load_nd2nz %x, %l at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>, !npu.buffer<16x16xf16, l1>)
    npu.barrier
    npu.load_l0 %l, %a at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf16, l1>, !npu.buffer<16x16xf16, l0a>)
    npu.load_l0 %l, %b at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf16, l1>, !npu.buffer<16x16xf16, l0b>)
    npu.barrier
    npu.mmad %a, %b, %c at [1] : (!npu.buffer<16x16xf16, l0a>, !npu.buffer<16x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
  }
}
// CHECK: error: kernel @accumulator: uninitialised: 'npu.mmad' ({{.*}}check_errors.mlir:94) on M reads what nothing wrote, bytes 0..1023 of l0c

// -----

// Unpaired: a flag that nothing consumes.
npu.kernel @unpaired {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%core: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    npu.set_flag at [0] {event = 3, slots = 1, source = "V", target = "MTE3"}
  }
}
// CHECK: error: kernel @unpaired: unpaired-flag: 'npu.set_flag' ({{.*}}check_errors.mlir:106) on V raises a flag that nothing consumes

// -----

// Reused: the flag is raised again before it is consumed.
npu.kernel @reused {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%core: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    npu.set_flag at [0] {event = 3, slots = 1, source = "V", target = "MTE3"}
    npu.wait_flag at [0] {event = 3, slots = 1, source = "V", target = "MTE3"}
    npu.set_flag at [0] {event = 3, slots = 1, source = "V", target = "MTE3"}
    npu.wait_flag at [0] {event = 3, slots = 1, source = "V", target = "MTE3"}
  }
}
// CHECK: error: kernel @reused: reused-flag: 'npu.set_flag' ({{.*}}check_errors.mlir:120) on V may raise its flag again before 'npu.wait_flag' ({{.*}}check_errors.mlir:119) on MTE3 consumed it

// -----

// Deadlock: a wait before its set.
npu.kernel @deadlock {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%core: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    npu.wait_flag at [0] {event = 3, slots = 1, source = "V", target = "MTE3"}
  }
}
// CHECK: error: kernel @deadlock: deadlock: 'npu.wait_flag' ({{.*}}check_errors.mlir:133) on MTE3 waits for a flag that nothing before it raises

// -----

// Deadlock between cores: each waits for the other.
npu.kernel @cross {grid = [1], kind = "mix", outputs = 0, workspaces = 0} {
^bb0(%core: index):
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    npu.wait_cross {event = 0, target = "MTE2"}
    npu.set_cross {event = 1, source = "FIX"}
  }
  npu.section {core = "vector", units = 2} {
  ^bb1(%unit: index):
    npu.wait_cross {event = 1, target = "MTE2"}
    npu.set_cross {event = 0, source = "MTE3"}
  }
}
// CHECK: error: kernel @cross: deadlock: 'npu.wait_cross' ({{.*}}check_errors.mlir:145) on MTE2 waits for a cross-core event that no other core raises by then

// -----

// Out of bounds and misaligned.
npu.kernel @bounds {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%core: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 196592} : () -> !npu.buffer<64xf32, ub>
  }
}
// CHECK: error: kernel @bounds: out-of-bounds: 'npu.alloc' ({{.*}}check_errors.mlir:163) leaves ub, which has 196608 bytes, bytes 196592..196847 of ub (and 1 more)

// -----

// A part of a buffer that is not there.
npu.kernel @part {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%core: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<8x64xf32, ub>
    %b = npu.alloc {address = 2048} : () -> !npu.buffer<4x64xf32, ub>
    npu.vfill %a {value = 0.5 : f64} : (!npu.buffer<8x64xf32, ub>)
    npu.vextract %a, %b at [5, 0] {sizes = [4, 64], steps = [1, 1]} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<4x64xf32, ub>)
  }
}
// CHECK: error: kernel @part: bad-box: 'npu.vextract' ({{.*}}check_errors.mlir:178) reads positions 5..8 along dimension 0 of a buffer of 8

// -----

// Two cores store the same elements.
npu.kernel @cores {grid = [4], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %y: !npu.gm<256xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    npu.vfill %a {value = 0.5 : f64} : (!npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.store_nd %a, %y at [%core * 32] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<256xf32>)
  }
}
// CHECK: error: kernel @cores: core-race: 'npu.store_nd' ({{.*}}check_errors.mlir:194) stores element [32] of one tensor from two cores

// -----

// The vector cores load a tile of the workspace that the cube core may not have stored yet.
npu.kernel @workspace {grid = [1], kind = "mix", outputs = 0, workspaces = 1} {
^bb0(%core: index, %x: !npu.gm<16x16xf16>, %w: !npu.gm<16x16xf32>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %l = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l1>
    %a = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0a>
    %b = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0b>
    %c = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
    npu.load_nd2nz %x, %l at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>, !npu.buffer<16x16xf16, l1>)
    npu.barrier
    npu.load_l0 %l, %a at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf16, l1>, !npu.buffer<16x16xf16, l0a>)
    npu.load_l0 %l, %b at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf16, l1>, !npu.buffer<16x16xf16, l0b>)
    npu.barrier
    npu.mmad %a, %b, %c at [0] : (!npu.buffer<16x16xf16, l0a>, !npu.buffer<16x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
    npu.barrier
    npu.set_cross {event = 0, source = "M"}
    npu.fixpipe %c, %w at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<16x16xf32>)
  }
  npu.section {core = "vector", units = 2} {
  ^bb1(%unit: index):
    %u = npu.alloc {address = 0} : () -> !npu.buffer<8x16xf32, ub>
    npu.wait_cross {event = 0, target = "MTE2"}
    npu.load_nd %w, %u at [%unit * 8, 0] {sizes = [8, 16]} : (!npu.gm<16x16xf32>, !npu.buffer<8x16xf32, ub>)
  }
}
// CHECK: error: kernel @workspace: race: 'npu.load_nd' ({{.*}}check_errors.mlir:224) on MTE2 reads device memory that 'npu.fixpipe' ({{.*}}check_errors.mlir:218) on FIX may still write (MTE2 has waited for nothing of FIX)

// -----

// The host program: an output that is stored in part, and then read.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<128xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 1024 : i64} {
  %y = npu.gm_alloc {address = 512} : () -> !npu.gm<128xf32>
  npu.launch @half %x, %y {outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<128xf32>)
  func.return %y : !npu.gm<128xf32>
}
npu.kernel @half {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<128xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    npu.load_nd %x, %a at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.barrier
    npu.store_nd %a, %y at [32] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<128xf32>)
  }
}
// CHECK: error: uncovered: 'npu.launch' ({{.*}}check_errors.mlir:234) leaves element [0] of a tensor unwritten, which 'func.return' ({{.*}}check_errors.mlir:235) reads

// -----

// The host program: two tensors that live at the same time share bytes.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  npu.copy %x, %y : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  %z = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  npu.copy %x, %z : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  func.return %y : !npu.gm<64xf32>
}
// CHECK: error: device-overlap: 'npu.copy' ({{.*}}check_errors.mlir:256) overwrites a device tensor that 'func.return' ({{.*}}check_errors.mlir:257) still reads, bytes 512..767 of gm

// -----

// The host program: a tensor that nothing wrote, outside the arena.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 2048} : () -> !npu.gm<64xf32>
  func.return %y : !npu.gm<64xf32>
}
// CHECK: error: device-bounds: 'npu.gm_alloc' ({{.*}}check_errors.mlir:265) leaves the arena of 2048 bytes, bytes 2048..2303 of gm (and 1 more)

// -----

// One tensor to read and to write: a core loads what the other one stores.
func.func @main(%x: !npu.gm<128xf32> {graph.donated}) -> !npu.gm<128xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 1024 : i64} {
  npu.launch @crossed %x, %x {outputs = 1, workspaces = 0} : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  func.return %x : !npu.gm<128xf32>
}
npu.kernel @crossed {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<128xf32>, %y: !npu.gm<128xf32>):
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<32xf32, ub>
    scf.for %i = %c0 to %c2 step %c1 {
      npu.load_nd %x, %a at [%core * -64 + %i * 32 + 64] {sizes = [32]} : (!npu.gm<128xf32>, !npu.buffer<32xf32, ub>)
      npu.barrier
      npu.store_nd %a, %y at [%core * 64 + %i * 32] {sizes = [32]} : (!npu.buffer<32xf32, ub>, !npu.gm<128xf32>)
      npu.barrier
    }
  }
}
// CHECK: error: kernel @crossed: in-place: 'npu.launch' ({{.*}}) gives its kernel one tensor to read and to write, where 'npu.store_nd' ({{.*}}) may store what is still to be loaded

// -----

// One tensor to read and to write: a round loads what an earlier one stored.
func.func @main(%x: !npu.gm<128xf32> {graph.donated}) -> !npu.gm<128xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 1024 : i64} {
  npu.launch @backwards %x, %x {outputs = 1, workspaces = 0} : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  func.return %x : !npu.gm<128xf32>
}
npu.kernel @backwards {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<128xf32>, %y: !npu.gm<128xf32>):
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<32xf32, ub>
    scf.for %i = %c0 to %c2 step %c1 {
      npu.load_nd %x, %a at [%core * 64 + %i * -32 + 32] {sizes = [32]} : (!npu.gm<128xf32>, !npu.buffer<32xf32, ub>)
      npu.barrier
      npu.store_nd %a, %y at [%core * 64 + %i * 32] {sizes = [32]} : (!npu.buffer<32xf32, ub>, !npu.gm<128xf32>)
      npu.barrier
    }
  }
}
// CHECK: error: kernel @backwards: in-place: 'npu.launch' ({{.*}}) gives its kernel one tensor to read and to write, where 'npu.store_nd' ({{.*}}) may store what is still to be loaded

// -----

// One tensor to read and to write: a round stores what the next one loads.
func.func @main(%x: !npu.gm<128xf32> {graph.donated}) -> !npu.gm<128xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 1024 : i64} {
  npu.launch @shifted %x, %x {outputs = 1, workspaces = 0} : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  func.return %x : !npu.gm<128xf32>
}
npu.kernel @shifted {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<128xf32>, %y: !npu.gm<128xf32>):
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<32xf32, ub>
    scf.for %i = %c0 to %c2 step %c1 {
      npu.load_nd %x, %a at [%core * 64 + %i * 32 + 1] {sizes = [32]} : (!npu.gm<128xf32>, !npu.buffer<32xf32, ub>)
      npu.barrier
      npu.store_nd %a, %y at [%core * 64 + %i * 32] {sizes = [32]} : (!npu.buffer<32xf32, ub>, !npu.gm<128xf32>)
      npu.barrier
    }
  }
}
// CHECK: error: kernel @shifted: in-place: 'npu.launch' ({{.*}}) gives its kernel one tensor to read and to write, where 'npu.store_nd' ({{.*}}) may store what is still to be loaded

// -----

// An argument that is not donated is written.
func.func @main(%x: !npu.gm<128xf32>) -> !npu.gm<128xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 1024 : i64} {
  npu.launch @kept %x, %x {outputs = 1, workspaces = 0} : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  func.return %x : !npu.gm<128xf32>
}
npu.kernel @kept {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<128xf32>, %y: !npu.gm<128xf32>):
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<32xf32, ub>
    scf.for %i = %c0 to %c2 step %c1 {
      npu.load_nd %x, %a at [%core * 64 + %i * 32] {sizes = [32]} : (!npu.gm<128xf32>, !npu.buffer<32xf32, ub>)
      npu.barrier
      npu.store_nd %a, %y at [%core * 64 + %i * 32] {sizes = [32]} : (!npu.buffer<32xf32, ub>, !npu.gm<128xf32>)
      npu.barrier
    }
  }
}
// CHECK: error: in-place: 'npu.launch' ({{.*}}) writes an argument that is not donated

// -----

// An argument that is not donated shares its memory, and so do two that are there from the start.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 0} : () -> !npu.gm<64xf32>
  %z = npu.gm_constant {address = 512, value = #graph.data<f32, [64], splat 1.0>} : () -> !npu.gm<64xf32>
  npu.copy %z, %y : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  func.return %y : !npu.gm<64xf32>
}
// CHECK: error: device-overlap: 'npu.copy' ({{.*}}) overwrites an argument that is not donated, bytes 0..255 of gm

// -----

func.func @main(%x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0, 0>, npu.arena_bytes = 2048 : i64} {
  func.return %y : !npu.gm<64xf32>
}
// CHECK: error: device-overlap: 'func.func' ({{.*}}) has a device tensor over another one that is there from the start, bytes 0..255 of gm

// -----

// Streams: a copy to the host that does not wait for what it reads.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  npu.copy %x, %y {stream = "compute"} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  %h = npu.to_host %y {stream = "copy_out"} : (!npu.gm<64xf32>) -> tensor<64xf32>
  func.return %y : !npu.gm<64xf32>
}
// CHECK: error: stream-race: 'npu.copy' ({{.*}}check_errors.mlir:393) on compute writes device memory that 'npu.to_host' ({{.*}}check_errors.mlir:394) on copy_out may read too early, bytes 512..767 of gm (copy_out has waited for nothing of compute)

// -----

// Streams: an event that comes too early; the host call waits for the transfer before the one it needs.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %g = npu.to_host %x {stream = "copy_out"} : (!npu.gm<64xf32>) -> tensor<64xf32>
  npu.record_event {event = 0, stream = "copy_out"}
  %h = npu.to_host %x {stream = "copy_out"} : (!npu.gm<64xf32>) -> tensor<64xf32>
  npu.wait_event {event = 0, stream = "host"}
  %s = npu.host_call %h {module = "func.func public @main(%a0: tensor<64xf32>) -> tensor<64xf32> { return %a0 : tensor<64xf32> }", op = "sort", stream = "host"} : tensor<64xf32>
  func.return %x : !npu.gm<64xf32>
}
// CHECK: error: stream-race: 'npu.to_host' ({{.*}}check_errors.mlir:405) on copy_out writes what the host has that 'npu.host_call' ({{.*}}check_errors.mlir:407) on host may read too early (host has waited for copy_out up to 'npu.to_host' ({{.*}}check_errors.mlir:403))

// -----

// Streams: memory that is written again while it is read.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  npu.copy %x, %y {stream = "compute"} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.record_event {event = 0, stream = "compute"}
  npu.wait_event {event = 0, stream = "copy_out"}
  %h = npu.to_host %y {stream = "copy_out"} : (!npu.gm<64xf32>) -> tensor<64xf32>
  %z = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  npu.copy %x, %z {stream = "compute"} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  func.return %z : !npu.gm<64xf32>
}
// CHECK: error: stream-race: 'npu.to_host' ({{.*}}check_errors.mlir:420) on copy_out reads device memory that 'npu.copy' ({{.*}}check_errors.mlir:422) on compute may write too early, bytes 512..767 of gm (compute has waited for nothing of copy_out)

// -----

// Streams: a loop whose second round overwrites what the first one's copy still reads.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  npu.loop {trip_count = 2} {
    npu.yield
  } {
    npu.copy %x, %y {stream = "compute"} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
    npu.record_event {event = 0, stream = "compute"}
    npu.wait_event {event = 0, stream = "copy_out"}
    %h = npu.to_host %y {stream = "copy_out"} : (!npu.gm<64xf32>) -> tensor<64xf32>
    npu.yield
  }
  func.return %y : !npu.gm<64xf32>
}
// CHECK: error: stream-race: 'npu.to_host' ({{.*}}check_errors.mlir:438) on copy_out reads device memory that 'npu.copy' ({{.*}}check_errors.mlir:435) on compute may write too early

// -----

// Streams: the program's own thread does not wait for the number that it decides by.
func.func @main(%n: !npu.gm<i32>) -> !npu.gm<i32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 512 : i64} {
  %k = npu.to_host %n {stream = "copy_out"} : (!npu.gm<i32>) -> tensor<i32>
  npu.branch %k : (tensor<i32>) {
    npu.yield
  }
  func.return %n : !npu.gm<i32>
}
// CHECK: error: stream-race: 'npu.to_host' ({{.*}}check_errors.mlir:449) on copy_out writes what the host has that 'npu.branch' ({{.*}}check_errors.mlir:450) on program may read too early

// -----

// Streams: an event that nobody records.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  npu.wait_event {event = 3, stream = "host"}
  func.return %x : !npu.gm<64xf32>
}
// CHECK: error: unrecorded-event: 'npu.wait_event' ({{.*}}check_errors.mlir:461) waits for event 3, which nobody records

// -----

// Streams: an event that only one branch records.
func.func @main(%x: !npu.gm<64xf32>, %n: !npu.gm<i32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0, 512>, npu.arena_bytes = 2048 : i64} {
  %k = npu.to_host %n {stream = "copy_out"} : (!npu.gm<i32>) -> tensor<i32>
  npu.record_event {event = 1, stream = "copy_out"}
  npu.wait_event {event = 1, stream = "program"}
  npu.branch %k : (tensor<i32>) {
    npu.record_event {event = 0, stream = "compute"}
    npu.yield
  } {
    npu.yield
  }
  npu.wait_event {event = 0, stream = "host"}
  func.return %x : !npu.gm<64xf32>
}
// CHECK: error: unrecorded-event: 'npu.wait_event' ({{.*}}check_errors.mlir:479) waits for event 0, which 'npu.record_event' ({{.*}}check_errors.mlir:474) records on some ways only

// -----

// Streams: two streams that wait for each other.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  npu.wait_event {event = 0, stream = "copy_in"}
  npu.record_event {event = 1, stream = "copy_in"}
  npu.wait_event {event = 1, stream = "copy_out"}
  npu.record_event {event = 0, stream = "copy_out"}
  func.return %x : !npu.gm<64xf32>
}
// CHECK: error: event-deadlock: 'npu.wait_event' ({{.*}}check_errors.mlir:488) waits for event 0, which only 'npu.record_event' ({{.*}}check_errors.mlir:491) behind it records: it never ends

// -----

// Barriers: a launch that waits for none reads what the one before the last writes.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  %z = npu.gm_alloc {address = 1024} : () -> !npu.gm<64xf32>
  npu.launch @copy %x, %y {outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.launch @copy %x, %z {joined, nowait, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.launch @copy %y, %z {joined, nowait, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  func.return %z : !npu.gm<64xf32>
}
npu.kernel @copy {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    npu.load_nd %x, %a at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.barrier
    npu.store_nd %a, %y at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: error: barrier-race: 'npu.launch' ({{.*}}check_errors.mlir:503) writes device memory that 'npu.launch' ({{.*}}check_errors.mlir:504) may write too early: it waits for no barrier, bytes 1024..1279 of gm (and 1 more)

// -----

// Barriers: what is read ahead of one is not written by the launch before it.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  %z = npu.gm_alloc {address = 1024} : () -> !npu.gm<64xf32>
  npu.launch @copy %x, %y {outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.launch @copy %y, %z {joined, ahead = [0], outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  func.return %z : !npu.gm<64xf32>
}
npu.kernel @copy {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %b = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    npu.load_nd %x, %b at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE3"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE3"}
    npu.store_nd %b, %y at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: error: barrier-race: 'npu.launch' ({{.*}}) writes device memory that 'npu.launch' ({{.*}}) may read too early: it does so ahead of the barrier, bytes 512..767 of gm

// -----

// Barriers: what is read ahead of two of them is not written before the first one either.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 2048 : i64} {
  %y = npu.gm_alloc {address = 512} : () -> !npu.gm<64xf32>
  %z = npu.gm_alloc {address = 1024} : () -> !npu.gm<64xf32>
  npu.launch @copy %x, %y {outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.launch @copy %x, %z {joined, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.launch @copy %y, %z {joined, ahead = [0], barriers = 2, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  func.return %z : !npu.gm<64xf32>
}
npu.kernel @copy {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %b = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    npu.load_nd %x, %b at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE3"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE3"}
    npu.store_nd %b, %y at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: error: barrier-race: 'npu.launch' ({{.*}}) writes device memory that 'npu.launch' ({{.*}}) may read too early: it does so ahead of the barrier, bytes 512..767 of gm

// -----

// Race on one pipe: the second instruction may begin before the first one is over.
npu.kernel @one_pipe {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    npu.vfill %a {value = 1.0} : (!npu.buffer<64xf32, ub>)
    npu.vexp %a, %a : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.store_nd %a, %y at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: error: kernel @one_pipe: race: 'npu.vexp' ({{.*}}check_errors.mlir:575) on V reads while 'npu.vfill' ({{.*}}check_errors.mlir:574) on V may still write, bytes 0..255 of ub (V may begin the one before the other is over, and no pipe_barrier is between them)

// -----

// A number is passed by value: a kernel cannot write it.
func.func @main(%n: !npu.gm<f32>, %y: !npu.gm<f32> {graph.donated}) -> !npu.gm<f32> attributes {npu.addresses = array<i64: 0, 512>, npu.arena_bytes = 1024 : i64} {
  %i = npu.to_host %n : (!npu.gm<f32>) -> tensor<f32>
  npu.launch @number %i, %y {outputs = 1, workspaces = 0} : (tensor<f32>, !npu.gm<f32>)
  func.return %y : !npu.gm<f32>
}
npu.kernel @number {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<f32>, %y: !npu.gm<f32>):
  %v = npu.view %x : (!npu.gm<f32>) -> !npu.gm<1xf32>
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<1xf32, ub>
    npu.vfill %a {value = 1.0 : f64} : (!npu.buffer<1xf32, ub>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.store_nd %a, %v at [0] {sizes = [1]} : (!npu.buffer<1xf32, ub>, !npu.gm<1xf32>)
  }
}
// CHECK: error: {{.*}}'npu.launch' ({{.*}}) gives a number for argument 0 of {{.*}}, which writes it
