// RUN: INVALID

// What a machine lacks is refused where it stands: cores, engines, element types, moves, units, blocks, symbols.

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.section' runs on a cube core; a vector kernel on ascend-910b1 runs on vector cores

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "mix", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.section' runs on a fused core; a mix kernel on ascend-910b1 runs on cube and vector cores

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.section' runs on a vector core; a cube kernel on ascend-910b1 runs on cube cores

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.section' runs on a cube core; a cube kernel on ascend-310 runs on fused cores

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
    }
    npu.section {core = "vector", units = 1} {
    ^bb2(%v: index):
    }
  }
}
// CHECK: 'npu.section' is the kernel's second section for its vector core

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "mix", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 4} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.section' has 4 units; ascend-910b1 has 2 vector cores beside each cube core

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 2} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.section' has 2 units; ascend-910b1 has one vector core for each block

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 0} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.section' has 0 units; it needs at least one

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "both", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.kernel' @k is of kind 'both', which is not one of cube, vector, mix

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [8000000000], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'npu.kernel' @k has a grid of 8,000,000,000 blocks; a launch on ascend-910b1 has at most 65,535

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf64, ub>
    }
  }
}
// CHECK: 'npu.alloc' has f64 in ub, where no engine of ascend-910b1 takes it

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi4, ub>
    }
  }
}
// CHECK: 'npu.alloc' has i4 in ub, where no engine of ascend-910b1 takes it

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l1>
    }
  }
}
// CHECK: 'npu.alloc' uses l1, which a vector core of ascend-910b1 does not have

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  npu.kernel @k {grid = [1], kind = "mix", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, bt>
    }
  }
}
// CHECK: 'npu.alloc' uses bt, which ascend-310 does not have

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xbf16, ub>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<16x16xbf16, ub>
      npu.vexp %x, %y : (!npu.buffer<16x16xbf16, ub>, !npu.buffer<16x16xbf16, ub>)
    }
  }
}
// CHECK: 'npu.vexp' is exp on bf16, which the vector unit of ascend-910b1 does not have; convert to f32 before

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  npu.kernel @k {grid = [1], kind = "mix", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0a>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0b>
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
      npu.mmad %x, %y, %z at [0] : (!npu.buffer<16x16xf32, l0a>, !npu.buffer<16x16xf32, l0b>, !npu.buffer<16x16xf32, l0c>)
    }
  }
}
// CHECK: 'npu.alloc' has f32 in l0a, where no engine of ascend-310 takes it

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0a>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<16x16xbf16, l0b>
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
      npu.mmad %x, %y, %z at [0] : (!npu.buffer<16x16xf16, l0a>, !npu.buffer<16x16xbf16, l0b>, !npu.buffer<16x16xf32, l0c>)
    }
  }
}
// CHECK: 'npu.mmad' multiplies f16 by bf16; the cube takes two matrices of one type

// -----

builtin.module attributes {tilewright.target = "ascend-950pr"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x32xf8E4M3FN>, %b: !npu.gm<32x16xf16>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x32xf8E4M3FN, l0a>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<32x16xf16, l0b>
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
      npu.mmad %x, %y, %z at [0] : (!npu.buffer<16x32xf8E4M3FN, l0a>, !npu.buffer<32x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
    }
  }
}
// CHECK: 'npu.mmad' multiplies f8E4M3FN by f16; the cube takes two matrices of one type, or f8E4M3FN by f8E5M2, or f8E5M2 by f8E4M3FN

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x32xf8E5M2>, %b: !npu.gm<32x16xf8E5M2>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x32xf8E5M2, l0a>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<32x16xf8E5M2, l0b>
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
      npu.mmad %x, %y, %z at [0] : (!npu.buffer<16x32xf8E5M2, l0a>, !npu.buffer<32x16xf8E5M2, l0b>, !npu.buffer<16x16xf32, l0c>)
    }
  }
}
// CHECK: 'npu.alloc' has f8E5M2 in l0a, where no engine of ascend-910b1 takes it

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0a>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0b>
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi32, l0c>
      npu.mmad %x, %y, %z at [0] : (!npu.buffer<16x16xf16, l0a>, !npu.buffer<16x16xf16, l0b>, !npu.buffer<16x16xi32, l0c>)
    }
  }
}
// CHECK: 'npu.mmad' adds products of f16 up in i32; the cube does so in f32

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi32, l0c>
      npu.fixpipe %z, %a at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xf16>)
    }
  }
}
// CHECK: 'npu.fixpipe' gives i32 accumulators as f16; they leave the cube as they are, or f32 as f16 or bf16

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  npu.kernel @k {grid = [1], kind = "mix", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
      npu.fixpipe %z, %b at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<16x16xf32>)
    }
  }
}
// CHECK: 'npu.fixpipe' needs pipe FIX, which a fused core of ascend-310 does not have (S, V, M, MTE1, MTE2, MTE3)

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, ub>
      npu.copy_l0c %z, %x at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.buffer<16x16xf16, ub>)
    }
  }
}
// CHECK: 'npu.alloc' uses ub, which a cube core of ascend-910b1 does not have

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      npu.set_flag at [0] {event = 0, slots = 1, source = "M", target = "V"}
    }
  }
}
// CHECK: 'npu.set_flag' needs pipe M, which a vector core of ascend-910b1 does not have (S, V, MTE2, MTE3)

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      npu.wait_cross {event = 0, target = "FIX"}
    }
  }
}
// CHECK: 'npu.wait_cross' needs pipe FIX, which a vector core of ascend-910b1 does not have (S, V, MTE2, MTE3)

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, ub>
      npu.load_nd %a, %x at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>, !npu.buffer<16x16xf32, ub>)
    }
  }
}
// CHECK: 'npu.load_nd' moves f16 to or from !npu.buffer<16x16xf32, ub>, and converts nothing

// -----

builtin.module attributes {tilewright.target = "ascend-9"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index):
  }
}
// CHECK: 'npu.kernel' is in a module whose attribute tilewright.target is wrong: unknown target 'ascend-9'

// -----

builtin.module attributes {tilewright.target = 5 : i64} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index):
  }
}
// CHECK: 'npu.kernel' is in a module whose attribute tilewright.target must be the name of a machine, not 5 : i64

// -----

func.func @main(%x: !npu.gm<4xf32>) {
  npu.launch @gone %x {outputs = 1, workspaces = 0} : (!npu.gm<4xf32>)
  func.return
}
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index):
}
// CHECK: 'npu.launch' launches @gone, which does not exist

// -----

func.func @main(%x: !npu.gm<4xf32>) {
  npu.launch @k %x {outputs = 1, workspaces = 0} : (!npu.gm<4xf32>)
  func.return
}
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %a: !npu.gm<8xf32>):
}
// CHECK: 'npu.launch' gives @k !npu.gm<4xf32> as tensor 0, but it takes !npu.gm<8xf32>

// -----

func.func @main(%x: !npu.gm<4xf32>) {
  npu.launch @k %x, %x {outputs = 1, workspaces = 0} : (!npu.gm<4xf32>, !npu.gm<4xf32>)
  func.return
}
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %a: !npu.gm<4xf32>):
}
// CHECK: 'npu.launch' gives @k 2 tensors, but it takes 1

// -----

func.func @main(%x: !npu.gm<4xf32>) {
  npu.launch @k %x {outputs = 0, workspaces = 1} : (!npu.gm<4xf32>)
  func.return
}
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %a: !npu.gm<4xf32>):
}
// CHECK: 'npu.launch' names other outputs and workspaces than @k

// -----
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi32, l0c>
      npu.fixpipe %z, %a at [0, 0] {factor = 0.3 : f32, sizes = [16, 16]} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xf16>)
    }
  }
}
// CHECK: 'npu.fixpipe' scales by 0.30000001192092896, which is no number of 10 bits behind the point

// -----
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xi8>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi32, l0c>
      npu.fixpipe %z, %a at [0, 0] {factor = 0.5 : f32, zero = 256, sizes = [16, 16]} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xi8>)
    }
  }
}
// CHECK: 'npu.fixpipe' adds 256, which does not fit 9 bits

// -----
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xi16>, %b: !npu.gm<16x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi32, l0c>
      npu.fixpipe %z, %a at [0, 0] {factor = 0.5 : f32, sizes = [16, 16]} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xi16>)
    }
  }
}
// CHECK: 'npu.fixpipe' scales i32 accumulators to i16, for which ascend-910b1 has no path

// -----
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, ub>
      %y = npu.alloc {address = 1024} : () -> !npu.buffer<16x16xi8, ub>
      npu.vround_to %x, %y {mode = "even"} : (!npu.buffer<16x16xf32, ub>, !npu.buffer<16x16xi8, ub>)
    }
  }
}
// CHECK: 'npu.vround_to' rounds f32 to i8 to even, which the vector unit of ascend-910b1 does not

// -----

builtin.module attributes {tilewright.target = "ascend-950pr"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x64xi8, l0a>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<32x16xi8, l0b>
      %p = npu.alloc {address = 512} : () -> !npu.buffer<8x16xi8, l0b>
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi32, l0c>
      npu.mmad %x, %y, %z, %p at [0] : (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<8x16xi8, l0b>)
    }
  }
}
// CHECK: 'npu.mmad' multiplies by a 2:4 sparse matrix of i8, for which ascend-950pr has no instruction

// -----

builtin.module attributes {tilewright.target = "systolic-tpu1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x64xi8, l0a>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<64x16xi8, l0b>
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi32, l0c>
      npu.mmad %x, %y, %z at [0] {unit_flag} : (!npu.buffer<16x64xi8, l0a>, !npu.buffer<64x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>)
    }
  }
}
// CHECK: 'npu.mmad' has a unit flag, which systolic-tpu1 does not know

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
      %h = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l1>
      npu.fixpipe_l1 %z, %h : (!npu.buffer<16x16xf32, l0c>, !npu.buffer<16x16xf16, l1>)
    }
  }
}
// CHECK: 'npu.fixpipe_l1' needs pipe FIX, which a fused core of ascend-310 does not have

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  npu.kernel @k {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
  ^bb0(%i: index, %y: !npu.gm<64xf32>):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
      npu.store_nd %a, %y at [0] {accumulate = "max", sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
    }
  }
}
// CHECK: 'npu.store_nd' accumulates f32 by max in device memory, which ascend-310 does not

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
  ^bb0(%i: index, %y: !npu.gm<64xui8>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %a = npu.alloc {address = 0} : () -> !npu.buffer<64xui8, ub>
      npu.store_nd %a, %y at [0] {accumulate = "add", sizes = [64]} : (!npu.buffer<64xui8, ub>, !npu.gm<64xui8>)
    }
  }
}
// CHECK: 'npu.store_nd' accumulates ui8 by add in device memory, which ascend-910b1 does not
