// RUN: INVALID

%n = tile.size {value = #graph.sizes<[3]>} : () -> index
// CHECK: 'tile.size' gives one open size, not #graph.sizes<[3]>

// -----

%n = tile.size {value = #graph.sizes<["3 +"]>} : () -> index
// CHECK: '3 +' is no size: write it as in 8*s + 1 or floordiv(b, 2)

// -----

%t = "test.op"() : () -> !tile.tile<?x128xf32, ub>
// CHECK: !tile.tile: its shape [?, 128] is open; what is on chip has a static shape

// -----

%x = "test.op"() : () -> !npu.gm<?x?xf32, sizes ["b"]>
// CHECK: 1 size for 2 open dimensions

// -----

%t = "test.op"() : () -> !tile.tile<8x64xf32, ub>
%sums = tile.reduce %t {counted = [65], dims = [1], kind = "sum"} : (!tile.tile<8x64xf32, ub>) -> !tile.tile<8x1xf32, ub>
// CHECK: 'tile.reduce' counts the first {{\[65\]}} elements along dims {{\[1\]}} of {{\[8, 64\]}}
