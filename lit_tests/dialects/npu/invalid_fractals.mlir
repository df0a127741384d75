// RUN: INVALID

%x = "test.op"() : () -> (!npu.buffer<8x16xf16, l1, fractals [16]>)

// CHECK: fractals have rows, columns and a number of dimensions

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf16, l1, fractals [0, 16]>)

// CHECK: !npu.buffer: [0, 16, 1] are no fractals of a matrix of [8, 16]

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf16, l1, fractals [16, 16, 3]>)

// CHECK: !npu.buffer: [16, 16, 3] are no fractals of a matrix of [8, 16]

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf16, l1, pitch 16, fractals [16, 16]>)

// CHECK: !npu.buffer: in fractals it has no rows with a pitch

// -----

// A matrix that has an address has room for all that the machine's instructions fill.

builtin.module attributes {tilewright.target = "ascend-910b4"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index, %x: !npu.gm<8x64xf16>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %a = npu.alloc {address = 0} : () -> !npu.buffer<8x64xf16, l1>
      npu.load_nd2nz %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf16>, !npu.buffer<8x64xf16, l1>)
    }
  }
}
// CHECK: 'npu.load_nd2nz' works on whole fractals, 2048 bytes of l1 that reserves 1024: the type needs `fractals [16, 16]`

// -----

builtin.module attributes {tilewright.target = "ascend-310"} {
  npu.kernel @k {grid = [1], kind = "cube", outputs = 0, workspaces = 0} {
  ^bb0(%i: index):
    npu.section {core = "fused", units = 1} {
    ^bb1(%u: index):
      %a = npu.alloc {address = 0} : () -> !npu.buffer<5x3x16xf16, l1>
      %p = npu.alloc : () -> !npu.buffer<5x48xf16, l0a>
      npu.load_l0 %a, %p at [0, 0, 0] {sizes = [5, 3, 16]} : (!npu.buffer<5x3x16xf16, l1>, !npu.buffer<5x48xf16, l0a>)
    }
  }
}
// CHECK: 'npu.load_l0' works on whole fractals, 1536 bytes of l1 that reserves 480: the type needs `fractals [16, 16, 2]`
