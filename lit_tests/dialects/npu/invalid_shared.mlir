// RUN: INVALID

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, ub, 2 slots, pitch 16>)

// CHECK: !npu.buffer: with a pitch it has one slot

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, ub, pitch 15>)

// CHECK: !npu.buffer: rows 15 elements apart overlap

// -----

%x = npu.alloc {shared} : () -> !npu.buffer<8x16xf32, ub>

// CHECK: 'npu.alloc' is a view of memory, and needs an address

// -----

%x = "test.op"() : () -> (!npu.buffer<2xf32, ub>)
npu.set_number %x {value = 1.0 : f32} : (!npu.buffer<2xf32, ub>)

// CHECK: 'npu.set_number' works on single elements, not !npu.buffer<2xf32, ub>

// -----

%x = "test.op"() : () -> (!npu.buffer<1xf32, ub>)
npu.scalar %x, %x {function = "mul"} : (!npu.buffer<1xf32, ub>, !npu.buffer<1xf32, ub>)

// CHECK: 'npu.scalar' 'mul' takes 2 numbers, not 1

// -----

%x = "test.op"() : () -> (!npu.buffer<1xf32, ub>)
npu.scalar %x, %x {function = "frobnicate"} : (!npu.buffer<1xf32, ub>, !npu.buffer<1xf32, ub>)

// CHECK: 'npu.scalar' 'frobnicate' is no function
