// RUN: INVALID

builtin.module attributes {tilewright.target = "ascend-950pr"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x32xi8>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x32x!graph.i4x2, l0a>
    }
  }
}
// CHECK: 'npu.alloc' has i4x2 in l0a, where no engine of ascend-950pr takes it

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x32xi8>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<16x32x!graph.i4x2, l0a>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<32x16x!graph.i4x2, l0b>
      %z = npu.alloc {address = 0} : () -> !npu.buffer<16x16xi32, l0c>
      %b = npu.alloc {address = 0} : () -> !npu.buffer<1x16xi32, bt>
      npu.mmad %x, %y, %z, %b at [0] : (!npu.buffer<16x32x!graph.i4x2, l0a>, !npu.buffer<32x16x!graph.i4x2, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xi32, bt>)
    }
  }
}
// CHECK: 'npu.mmad' begins products of i4x2 as a bias, which the cube of ascend-910b1 does not

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x32xi8>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<32x16x!graph.i4x2, l1>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<16x32x!graph.i4x2, l0a>
      npu.load_l0 %x, %y at [0, 0] {sizes = [32, 16], transpose = 1} : (!npu.buffer<32x16x!graph.i4x2, l1>, !npu.buffer<16x32x!graph.i4x2, l0a>)
    }
  }
}
// CHECK: 'npu.load_l0' takes pairs of i4x2 apart: the summed dimension must be the last one in memory

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x32xi8>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %x = npu.alloc {address = 0} : () -> !npu.buffer<32x16x!graph.i4x2, l1>
      %y = npu.alloc {address = 0} : () -> !npu.buffer<32x16x!graph.i4x2, l0b>
      npu.load_l0 %x, %y at [0, 0] {sizes = [32, 16]} : (!npu.buffer<32x16x!graph.i4x2, l1>, !npu.buffer<32x16x!graph.i4x2, l0b>)
    }
  }
}
// CHECK: 'npu.load_l0' takes pairs of i4x2 apart: the summed dimension must be the last one in memory

// -----

%p, %n = "test.op"() : () -> (!npu.buffer<4x8xi8, ub>, !npu.buffer<4x16xf16, ub>)
npu.vunpack %p, %n : (!npu.buffer<4x8xi8, ub>, !npu.buffer<4x16xf16, ub>)
// CHECK: 'npu.vunpack' unpacks i4x2 to f16, not i8 to f16

// -----

%p, %n = "test.op"() : () -> (!npu.buffer<4x8x!graph.i4x2, ub>, !npu.buffer<8x8xf16, ub>)
npu.vunpack %p, %n : (!npu.buffer<4x8x!graph.i4x2, ub>, !npu.buffer<8x8xf16, ub>)
// CHECK: 'npu.vunpack' unpacks [4, 8] pairs to [4, 16] numbers, not [8, 8]

// -----

builtin.module attributes {tilewright.target = "ascend-310p3"} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<16x16xf16>):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %p = npu.alloc {address = 0} : () -> !npu.buffer<4x8x!graph.i4x2, ub>
      %n = npu.alloc {address = 128} : () -> !npu.buffer<4x16xf16, ub>
      npu.vunpack %p, %n : (!npu.buffer<4x8x!graph.i4x2, ub>, !npu.buffer<4x16xf16, ub>)
    }
  }
}
// CHECK: 'npu.vunpack' is unpack on f16, which the vector unit of ascend-310p3 does not have
