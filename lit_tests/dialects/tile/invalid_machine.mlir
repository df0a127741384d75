// RUN: INVALID

// What a machine lacks is refused where it stands: cores, engines, element types, moves, units, blocks, symbols.

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'tile.section' runs on a cube core; a vector kernel on ascend-910b1 runs on vector cores

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "mix", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "vector", units = 4} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'tile.section' has 4 units; ascend-910b1 has 2 vector cores beside each cube core

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [100000], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "vector", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'tile.kernel' @k has a grid of 100,000 blocks; a launch on ascend-910b1 has at most 65,535

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = tile.fill {value = 0.0 : f64} : () -> !tile.tile<16x16xf64, ub>
    }
  }
}
// CHECK: 'tile.fill' has f64 in ub, where no engine of ascend-910b1 takes it

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = tile.fill {value = 0.0 : f64} : () -> !tile.tile<16x16xbf16, ub>
      %y = tile.exp %x : !tile.tile<16x16xbf16, ub>
    }
  }
}
// CHECK: 'tile.exp' is exp on bf16, which the vector unit of ascend-910b1 does not have; convert to f32 before

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = tile.fill {value = 0.0 : f64} : () -> !tile.tile<16x16xbf16, ub>
      %y = tile.reduce %x {dims = [1], kind = "sum"} : (!tile.tile<16x16xbf16, ub>) -> !tile.tile<16x1xbf16, ub>
    }
  }
}
// CHECK: 'tile.reduce' is add on bf16, which the vector unit of ascend-910b1 does not have; convert to f32 before

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = tile.load %a at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>) -> !tile.tile<16x16xf16, l1>
    }
  }
}
// CHECK: 'tile.load' uses l1, which a vector core of ascend-910b1 does not have

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = tile.load %a at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>) -> !tile.tile<16x16xf32, ub>
    }
  }
}
// CHECK: 'tile.load' moves f16 into !tile.tile<16x16xf32, ub>, and converts nothing

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = tile.zero : () -> !tile.tile<16x16xf32, l0c>
      %y = tile.drain %z at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xf32, l0c>) -> !tile.tile<16x16xf16, ub>
    }
  }
}
// CHECK: 'tile.drain' uses ub, which a cube core of ascend-910b1 does not have

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  tile.kernel @k {grid = [1], kind = "mix", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %z = tile.zero : () -> !tile.tile<16x16xf32, l0c>
      tile.store %z, %b at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xf32, l0c>, !npu.gm<16x16xf32>)
    }
  }
}
// CHECK: 'tile.store' needs pipe FIX, which a fused core of ascend-310 does not have (S, V, M, MTE1, MTE2, MTE3)

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = tile.zero : () -> !tile.tile<16x16xi32, l0c>
      tile.store %z, %a at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xf16>)
    }
  }
}
// CHECK: 'tile.store' gives i32 accumulators as f16; they leave the cube as they are, or f32 as f16 or bf16

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %x = tile.fill {value = 0.0 : f64} : () -> !tile.tile<16x16xf16, ub>
      tile.store %x, %b at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xf16, ub>, !npu.gm<16x16xf32>)
    }
  }
}
// CHECK: 'tile.store' moves !tile.tile<16x16xf16, ub> to f32, and converts nothing

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tile.launch @gone %x {inits = [-1]} : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index):
}
// CHECK: 'tile.launch' launches @gone, which does not exist

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tile.launch @k %x {inits = [-1]} : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index):
}
// CHECK: 'tile.launch' launches @k, which is a kernel of the npu level

// -----
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = tile.zero : () -> !tile.tile<16x16xi32, l0c>
      tile.store %z, %a at [0, 0] {factor = 0.3 : f32, sizes = [16, 16]} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xf16>)
    }
  }
}
// CHECK: 'tile.store' scales by 0.30000001192092896, which is no number of 10 bits behind the point

// -----
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xi8>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = tile.zero : () -> !tile.tile<16x16xi32, l0c>
      tile.store %z, %a at [0, 0] {factor = 0.5 : f32, zero = 256, sizes = [16, 16]} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>)
    }
  }
}
// CHECK: 'tile.store' adds 256, which does not fit 9 bits

// -----
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xi16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = tile.zero : () -> !tile.tile<16x16xi32, l0c>
      tile.store %z, %a at [0, 0] {factor = 0.5 : f32, sizes = [16, 16]} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi16>)
    }
  }
}
// CHECK: 'tile.store' scales i32 accumulators to i16, for which ascend-910b1 has no path

// -----
builtin.module attributes {tilewright.target = "systolic-tpu1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index):
    tile.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %x = tile.fill {value = 0.5 : f64} : () -> !tile.tile<16x16xf32, ub>
      %y = tile.round_to %x {mode = "even"} : (!tile.tile<16x16xf32, ub>) -> !tile.tile<16x16xi32, ub>
    }
  }
}
// CHECK: 'tile.round_to' rounds f32 to i32 to even, which the vector unit of systolic-tpu1 does not

// -----
builtin.module attributes {tilewright.target = "ascend-310"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index):
    tile.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %x = tile.fill {value = 0.5 : f64} : () -> !tile.tile<16x16xf32, ub>
      %y = tile.round_to %x {mode = "even"} : (!tile.tile<16x16xf32, ub>) -> !tile.tile<16x16xi8, ub>
    }
  }
}
// CHECK: 'tile.round_to' rounds f32 to i8 to even, which the vector unit of ascend-310 does not

// -----

builtin.module attributes {tilewright.target = "ascend-950pr"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x64xi8>, %b: !npu.gm<32x16xi8>, %n: !npu.gm<8x16xi8>):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %a1 = tile.load %a at [0, 0] {sizes = [16, 64]} : (!npu.gm<16x64xi8>) -> !tile.tile<16x64xi8, l1>
      %b1 = tile.load %b at [0, 0] {sizes = [32, 16]} : (!npu.gm<32x16xi8>) -> !tile.tile<32x16xi8, l1>
      %n1 = tile.load %n at [0, 0] {sizes = [8, 16]} : (!npu.gm<8x16xi8>) -> !tile.tile<8x16xi8, l1>
      %a0 = tile.move %a1 at [0, 0] {sizes = [16, 64]} : (!tile.tile<16x64xi8, l1>) -> !tile.tile<16x64xi8, l0a>
      %b0 = tile.move %b1 at [0, 0] {sizes = [32, 16]} : (!tile.tile<32x16xi8, l1>) -> !tile.tile<32x16xi8, l0b>
      %n0 = tile.move %n1 at [0, 0] {sizes = [8, 16]} : (!tile.tile<8x16xi8, l1>) -> !tile.tile<8x16xi8, l0b>
      %c0 = tile.zero : () -> !tile.tile<16x16xi32, l0c>
      %y = tile.mma %a0, %b0, %c0, %n0 at [0] : (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<8x16xi8, l0b>) -> !tile.tile<16x16xi32, l0c>
    }
  }
}
// CHECK: 'tile.mma' multiplies by a 2:4 sparse matrix of i8, for which ascend-950pr has no instruction

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "mixed", units = 2} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'tile.section' runs on a mixed core; a vector kernel on ascend-910b1 runs on vector cores

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  tile.kernel @k {grid = [1], kind = "mix", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "mixed", units = 1} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'tile.section' runs on a mixed core; a mix kernel on ascend-310 runs on fused cores

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "mix", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "mixed", units = 3} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'tile.section' has 3 units; ascend-910b1 has 2 vector cores beside each cube core

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "mix", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>, %b: !npu.gm<16x16xf32>):
    tile.section {core = "mixed", units = 2} {
    ^bb1(%u: index):
    }
    tile.section {core = "vector", units = 2} {
    ^bb1(%u: index):
    }
  }
}
// CHECK: 'tile.section' is the kernel's second section for its vector core

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index):
    tile.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %z = tile.zero : () -> !tile.tile<16x16xf32, l0c>
      %h = tile.hand_on %z : (!tile.tile<16x16xf32, l0c>) -> !tile.tile<16x16xf16, l1>
    }
  }
}
// CHECK: 'tile.hand_on' needs pipe FIX, which a fused core of ascend-310 does not have

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %z = tile.zero : () -> !tile.tile<16x16xi32, l0c>
      %h = tile.hand_on %z : (!tile.tile<16x16xi32, l0c>) -> !tile.tile<16x16xf16, l1>
    }
  }
}
// CHECK: 'tile.hand_on' gives i32 accumulators as f16; they leave the cube as they are, or f32 as f16 or bf16
