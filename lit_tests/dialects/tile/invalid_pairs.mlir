// RUN: INVALID

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  tile.kernel @k {grid = [1], kind = "cube", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
  ^bb0(%i: index, %a: !npu.gm<32x16x!graph.i4x2>):
    tile.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %a1 = tile.load %a at [0, 0] {sizes = [32, 16]} : (!npu.gm<32x16x!graph.i4x2>) -> !tile.tile<32x16x!graph.i4x2, l1>
      %a0 = tile.move %a1 at [0, 0] {sizes = [32, 16], transpose = 1} : (!tile.tile<32x16x!graph.i4x2, l1>) -> !tile.tile<16x32x!graph.i4x2, l0a>
    }
  }
}
// CHECK: 'tile.move' takes pairs of i4x2 apart: the summed dimension must be the last one in memory

// -----

%p = "test.op"() : () -> !tile.tile<4x8x!graph.i4x2, ub>
%n = tile.unpack %p : (!tile.tile<4x8x!graph.i4x2, ub>) -> !tile.tile<4x8xf16, ub>
// CHECK: 'tile.unpack' unpacks [4, 8] pairs to [4, 16] numbers, not [4, 8]

// -----

%p = "test.op"() : () -> !tile.tile<4x8xi8, ub>
%n = tile.unpack %p : (!tile.tile<4x8xi8, ub>) -> !tile.tile<4x16xf16, ub>
// CHECK: 'tile.unpack' unpacks i4x2 to f16, not i8 to f16
