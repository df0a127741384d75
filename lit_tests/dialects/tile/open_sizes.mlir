// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// Device tensors may have open dimensions, which are `?` and named behind the shape.

%x = "test.op"() : () -> !npu.gm<?x128x?xf32, sizes ["b", "8*s"]>
// CHECK: !npu.gm<?x128x?xf32, sizes ["b", "8*s"]>
%trips = tile.size {value = #graph.sizes<["floordiv(b, 8) + 1"]>} : () -> index
// CHECK: tile.size {value = #graph.sizes<["floordiv(b, 8) + 1"]>} : () -> index
%more = tile.size {value = #graph.sizes<["-floordiv(-b, 8)*3"]>} : () -> index
// CHECK: tile.size {value = #graph.sizes<["3*ceildiv(b, 8)"]>} : () -> index
%t = "test.op"() : () -> !tile.tile<8x64xf32, ub>
%sums = tile.reduce %t {counted = [33], dims = [1], kind = "sum"} : (!tile.tile<8x64xf32, ub>) -> !tile.tile<8x1xf32, ub>
// CHECK: tile.reduce %t {counted = [33], dims = [1], kind = "sum"} : (!tile.tile<8x64xf32, ub>) -> !tile.tile<8x1xf32, ub>
%most, %place = tile.arg_reduce %t {counted = [33], dim = 1, kind = "max"}
  : (!tile.tile<8x64xf32, ub>) -> (!tile.tile<8x1xf32, ub>, !tile.tile<8x1xi32, ub>)
// CHECK: tile.arg_reduce %t {counted = [33], dim = 1, kind = "max"}
