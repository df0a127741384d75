// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%a, %b, %c = "test.op"() : () -> (!npu.buffer<16x32x!graph.i4x2, l0a>, !npu.buffer<32x16x!graph.i4x2, l0b>, !npu.buffer<16x16xi32, l0c>)
npu.mmad %a, %b, %c at [0] : (!npu.buffer<16x32x!graph.i4x2, l0a>, !npu.buffer<32x16x!graph.i4x2, l0b>, !npu.buffer<16x16xi32, l0c>)
// CHECK: npu.mmad %{{.*}}, %{{.*}}, %{{.*}} at [0] : (!npu.buffer<16x32x!graph.i4x2, l0a>, !npu.buffer<32x16x!graph.i4x2, l0b>, !npu.buffer<16x16xi32, l0c>)
