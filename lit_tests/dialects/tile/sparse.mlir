// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%a, %b, %i, %c = "test.op"() : () -> (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<8x16xi8, l0b>, !tile.tile<16x16xi32, l0c>)
%bias = "test.op"() : () -> !tile.tile<1x16xi32, bt>
%x = tile.mma %a, %b, %c, %i at [0] : (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<8x16xi8, l0b>) -> !tile.tile<16x16xi32, l0c>
// CHECK: tile.mma %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at [0] : (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<8x16xi8, l0b>)
%y = tile.mma %a, %b, %c, %i, %bias at [0] : (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<8x16xi8, l0b>, !tile.tile<1x16xi32, bt>) -> !tile.tile<16x16xi32, l0c>
// CHECK: tile.mma %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at [0]
