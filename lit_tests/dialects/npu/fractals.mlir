// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// A buffer that takes whole fractals: rows and columns of one, and how many dimensions its columns are.

%a = "test.op"() : () -> !npu.buffer<8x24xf16, l1, 2 slots, fractals [16, 16]>
%b = "test.op"() : () -> !npu.buffer<5x3x32xi8, l1, fractals [16, 32, 2]>
// CHECK: !npu.buffer<8x24xf16, l1, 2 slots, fractals [16, 16]>
// CHECK: !npu.buffer<5x3x32xi8, l1, fractals [16, 32, 2]>
