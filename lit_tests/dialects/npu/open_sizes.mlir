// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// Device tensors may have open dimensions, which are `?` and named behind the shape.

%x = "test.op"() : () -> !npu.gm<?x128x?xf32, sizes ["b", "8*s"]>
// CHECK: !npu.gm<?x128x?xf32, sizes ["b", "8*s"]>
%trips = npu.size {value = #graph.sizes<["floordiv(b, 8) + 1"]>} : () -> index
// CHECK: npu.size {value = #graph.sizes<["floordiv(b, 8) + 1"]>} : () -> index
%more = npu.size {value = #graph.sizes<["-floordiv(-b, 8)*3"]>} : () -> index
// CHECK: npu.size {value = #graph.sizes<["3*ceildiv(b, 8)"]>} : () -> index
%t, %r, %i = "test.op"() : () -> (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>, !npu.buffer<8x1xi32, ub>)
npu.vreduce %t, %r {counted = [33], dims = [1], kind = "sum"} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>)
// CHECK: npu.vreduce %t, %r {counted = [33], dims = [1], kind = "sum"} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>)
npu.varg_reduce %t, %r, %i {counted = [33], dim = 1, kind = "max"}
  : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>, !npu.buffer<8x1xi32, ub>)
// CHECK: npu.varg_reduce %t, %r, %i {counted = [33], dim = 1, kind = "max"}
// an open dimension that the data has: a typical size, where it is not said which
%c = npu.gm_constant {value = #graph.data<f32, [64], splat 2.0>} : () -> !npu.gm<?xf32, sizes ["b"]>
// CHECK: npu.gm_constant {value = #graph.data<f32, [64], splat 2.0>} : () -> !npu.gm<?xf32, sizes ["b"]>
