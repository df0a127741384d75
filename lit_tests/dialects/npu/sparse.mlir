// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%a, %b, %i, %c = "test.op"() : () -> (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<8x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>)
%bias = "test.op"() : () -> !npu.buffer<1x16xi32, bt>
npu.mmad %a, %b, %c, %i at [0] : (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<8x16xi8, l0b>)
// CHECK: npu.mmad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at [0] : (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<8x16xi8, l0b>)
npu.mmad %a, %b, %c, %i, %bias at [0] : (!npu.buffer<16x64xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<8x16xi8, l0b>, !npu.buffer<1x16xi32, bt>)
// CHECK: npu.mmad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at [0]
