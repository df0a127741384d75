// RUN: INVALID

%a, %b, %c, %i, %j = "test.op"() : () -> (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<8x16xi8, l0b>, !npu.buffer<8x16xi8, l0b>)
npu.mmad %a, %b, %c, %i, %j at [0] : (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<8x16xi8, l0b>, !npu.buffer<8x16xi8, l0b>)
// CHECK: 'npu.mmad' has one index of a sparse matrix at most, not 2

// -----

%a, %b, %c, %i = "test.op"() : () -> (!npu.buffer<16x64xf16, l0a>, !npu.buffer<32x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>, !npu.buffer<8x16xi8, l0b>)
npu.mmad %a, %b, %c, %i at [0] : (!npu.buffer<16x64xf16, l0a>, !npu.buffer<32x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>, !npu.buffer<8x16xi8, l0b>)
// CHECK: 'npu.mmad' expands i8 by an i8 index, not f16 by i8

// -----

%a, %b, %c, %i = "test.op"() : () -> (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<4x16xi8, l0b>)
npu.mmad %a, %b, %c, %i at [0] : (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<4x16xi8, l0b>)
// CHECK: 'npu.mmad' needs an index byte for each 4 rows of [32, 16], has [4, 16]

// -----

%a, %b, %c, %i = "test.op"() : () -> (!npu.buffer<16x12xi8, l0a>, !npu.buffer<6x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xi8, l0b>)
npu.mmad %a, %b, %c, %i at [0] : (!npu.buffer<16x12xi8, l0a>, !npu.buffer<6x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xi8, l0b>)
// CHECK: 'npu.mmad' needs an index byte for each 4 rows of [6, 16], has [1, 16]

// -----

%a, %b, %c, %i = "test.op"() : () -> (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<8x16xi8, l0b>)
npu.mmad %a, %b, %c, %i at [0] : (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<8x16xi8, l0b>)
// CHECK: 'npu.mmad' cannot multiply {{\[16, 32\] by \[64, 16\] into \[16, 16\]}}
