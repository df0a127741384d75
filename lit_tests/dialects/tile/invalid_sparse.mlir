// RUN: INVALID

%a, %b, %c, %i, %j = "test.op"() : () -> (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<8x16xi8, l0b>, !tile.tile<8x16xi8, l0b>)
%y = tile.mma %a, %b, %c, %i, %j at [0] : (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<8x16xi8, l0b>, !tile.tile<8x16xi8, l0b>) -> !tile.tile<16x16xi32, l0c>
// CHECK: 'tile.mma' has one index of a sparse matrix at most, not 2

// -----

%a, %b, %c, %i = "test.op"() : () -> (!tile.tile<16x64xf16, l0a>, !tile.tile<32x16xf16, l0b>, !tile.tile<16x16xf32, l0c>, !tile.tile<8x16xi8, l0b>)
%y = tile.mma %a, %b, %c, %i at [0] : (!tile.tile<16x64xf16, l0a>, !tile.tile<32x16xf16, l0b>, !tile.tile<16x16xf32, l0c>, !tile.tile<8x16xi8, l0b>) -> !tile.tile<16x16xf32, l0c>
// CHECK: 'tile.mma' expands i8 by an i8 index, not f16 by i8

// -----

%a, %b, %c, %i = "test.op"() : () -> (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<4x16xi8, l0b>)
%y = tile.mma %a, %b, %c, %i at [0] : (!tile.tile<16x64xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<4x16xi8, l0b>) -> !tile.tile<16x16xi32, l0c>
// CHECK: 'tile.mma' needs an index byte for each 4 rows of [32, 16], has [4, 16]

// -----

%a, %b, %c, %i = "test.op"() : () -> (!tile.tile<16x12xi8, l0a>, !tile.tile<6x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xi8, l0b>)
%y = tile.mma %a, %b, %c, %i at [0] : (!tile.tile<16x12xi8, l0a>, !tile.tile<6x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xi8, l0b>) -> !tile.tile<16x16xi32, l0c>
// CHECK: 'tile.mma' needs an index byte for each 4 rows of [6, 16], has [1, 16]

// -----

%a, %b, %c, %i = "test.op"() : () -> (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<8x16xi8, l0b>)
%y = tile.mma %a, %b, %c, %i at [0] : (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<8x16xi8, l0b>) -> !tile.tile<16x16xi32, l0c>
// CHECK: 'tile.mma' cannot multiply {{\[16, 32\] by \[64, 16\] into \[16, 16\]}}

// -----

%a, %b, %c = "test.op"() : () -> (!tile.tile<8x16xf16, l0a>, !tile.tile<16x8xf16, l0b>, !tile.tile<8x8xf32, l0c>)
%y = tile.mma %a, %b, %c at [0] : (!tile.tile<8x16xf16, l0a>, !tile.tile<16x8xf16, l0b>, !tile.tile<8x8xf32, l0c>) -> !tile.tile<8x8xf16, l0c>
// CHECK: 'tile.mma' adds to !tile.tile<8x8xf32, l0c> and gives !tile.tile<8x8xf16, l0c>
