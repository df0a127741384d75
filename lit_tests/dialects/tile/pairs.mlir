// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%a, %b, %c = "test.op"() : () -> (!tile.tile<16x32x!graph.i4x2, l0a>, !tile.tile<32x16x!graph.i4x2, l0b>, !tile.tile<16x16xi32, l0c>)
%x = tile.mma %a, %b, %c at [0] : (!tile.tile<16x32x!graph.i4x2, l0a>, !tile.tile<32x16x!graph.i4x2, l0b>, !tile.tile<16x16xi32, l0c>) -> !tile.tile<16x16xi32, l0c>
// CHECK: tile.mma %{{.*}}, %{{.*}}, %{{.*}} at [0] : (!tile.tile<16x32x!graph.i4x2, l0a>, !tile.tile<32x16x!graph.i4x2, l0b>, !tile.tile<16x16xi32, l0c>)
%p = "test.op"() : () -> !tile.tile<4x8x!graph.i4x2, ub>
%n = tile.unpack %p : (!tile.tile<4x8x!graph.i4x2, ub>) -> !tile.tile<4x16xf16, ub>
// CHECK: tile.unpack %{{.*}} : (!tile.tile<4x8x!graph.i4x2, ub>) -> !tile.tile<4x16xf16, ub>
