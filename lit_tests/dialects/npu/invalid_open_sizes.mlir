// RUN: INVALID

%n = npu.size {value = #graph.sizes<[3]>} : () -> index
// CHECK: 'npu.size' gives one open size, not #graph.sizes<[3]>

// -----

%n = npu.size {value = #graph.sizes<["3 +"]>} : () -> index
// CHECK: '3 +' is no size: write it as in 8*s + 1 or floordiv(b, 2)

// -----

%t = "test.op"() : () -> !npu.buffer<?x128xf32, ub>
// CHECK: !npu.buffer: its shape [?, 128] is open; what is on chip has a static shape

// -----

%x = "test.op"() : () -> !npu.gm<?x?xf32, sizes ["b"]>
// CHECK: 1 size for 2 open dimensions

// -----

%t, %r = "test.op"() : () -> (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>)
npu.vreduce %t, %r {counted = [0], dims = [1], kind = "sum"} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x1xf32, ub>)
// CHECK: 'npu.vreduce' counts the first {{\[0\]}} elements along dims {{\[1\]}} of {{\[8, 64\]}}

// -----

%c = npu.gm_constant {value = #graph.data<f32, [8], splat 2.0>} : () -> !npu.gm<?xf32, sizes ["b"]>
// CHECK: 'npu.gm_constant' should give !npu.gm<8xf32>, but is written as !npu.gm<?xf32, sizes ["b"]>
