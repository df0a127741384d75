// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%a, %b, %c = "test.op"() : () -> (!npu.buffer<16x32x!graph.i4x2, l0a>, !npu.buffer<32x16x!graph.i4x2, l0b>, !npu.buffer<16x16xi32, l0c>)
npu.mmad %a, %b, %c at [0] : (!npu.buffer<16x32x!graph.i4x2, l0a>, !npu.buffer<32x16x!graph.i4x2, l0b>, !npu.buffer<16x16xi32, l0c>)
// CHECK: npu.mmad %{{.*}}, %{{.*}}, %{{.*}} at [0] : (!npu.buffer<16x32x!graph.i4x2, l0a>, !npu.buffer<32x16x!graph.i4x2, l0b>, !npu.buffer<16x16xi32, l0c>)
%p, %n = "test.op"() : () -> (!npu.buffer<4x8x!graph.i4x2, ub>, !npu.buffer<4x16xf16, ub>)
npu.vunpack %p, %n : (!npu.buffer<4x8x!graph.i4x2, ub>, !npu.buffer<4x16xf16, ub>)
// CHECK: npu.vunpack %{{.*}}, %{{.*}} : (!npu.buffer<4x8x!graph.i4x2, ub>, !npu.buffer<4x16xf16, ub>)
