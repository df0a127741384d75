// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%g, %m, %i = "test.op"() : () -> (!npu.gm<100x64xf16>, !npu.gm<4xi32>, index)

%l1 = npu.alloc {address = 4096} : () -> !npu.buffer<16x32xf16, l1, 2 slots>
// CHECK: npu.alloc {address = 4096} : () -> !npu.buffer<16x32xf16, l1, 2 slots>
%l0a = npu.alloc : () -> !npu.buffer<16x32xf16, l0a>
// CHECK: npu.alloc : () -> !npu.buffer<16x32xf16, l0a>
%l0b, %l0c = "test.op"() : () -> (!npu.buffer<32x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
%ub, %ub1, %ids, %number = "test.op"() : () -> (!npu.buffer<16x32xf16, ub>, !npu.buffer<16x1xf16, ub>, !npu.buffer<16x1xi32, ub>, !npu.buffer<1xi32, ub>)
%slot = npu.slot %l1 at [%i + 1] : (!npu.buffer<16x32xf16, l1, 2 slots>) -> !npu.buffer<16x32xf16, l1>
// CHECK: npu.slot %{{.*}} at [%{{.*}} + 1] : (!npu.buffer<16x32xf16, l1, 2 slots>) -> !npu.buffer<16x32xf16, l1>
%view = npu.view %g : (!npu.gm<100x64xf16>) -> !npu.gm<64x50xf16, strides [1, 128], offset 64>
// CHECK: npu.view %{{.*}} : (!npu.gm<100x64xf16>) -> !npu.gm<64x50xf16, strides [1, 128], offset 64>
npu.fill_l1 %slot {value = 0.0 : f64} : (!npu.buffer<16x32xf16, l1>)
// CHECK: npu.fill_l1 %{{.*}} {value = 0.000000e+00 : f64} : (!npu.buffer<16x32xf16, l1>)
npu.load_nd2nz %g, %slot at [%i * 16, 0] {sizes = [16, 32]} : (!npu.gm<100x64xf16>, !npu.buffer<16x32xf16, l1>)
// CHECK: npu.load_nd2nz %{{.*}}, %{{.*}} at [%{{.*}} * 16, 0] {sizes = [16, 32]}
npu.load_nd %g, %ub at [%i, 0] {fill = 0.0 : f64, sizes = [16, 32], steps = [1, 2]} : (!npu.gm<100x64xf16>, !npu.buffer<16x32xf16, ub>)
// CHECK: npu.load_nd %{{.*}}, %{{.*}} at [%{{.*}}, 0] {fill = 0.0{{.*}}, sizes = [16, 32], steps = [1, 2]}
npu.load_indirect %g, %ids, %ub {sizes = [1, 32]} : (!npu.gm<100x64xf16>, !npu.buffer<16x1xi32, ub>, !npu.buffer<16x32xf16, ub>)
// CHECK: npu.load_indirect %{{.*}}, %{{.*}}, %{{.*}} {sizes = [1, 32]}
%s = npu.load_scalar %m at [2] {high = 9, low = 0} : (!npu.gm<4xi32>) -> index
// CHECK: npu.load_scalar %{{.*}} at [2] {high = 9, low = 0} : (!npu.gm<4xi32>) -> index
npu.load_number %m, %number at [%i] {sizes = [1]} : (!npu.gm<4xi32>, !npu.buffer<1xi32, ub>)
// CHECK: npu.load_number %{{.*}}, %{{.*}} at [%{{.*}}] {sizes = [1]} : (!npu.gm<4xi32>, !npu.buffer<1xi32, ub>)
%t = npu.number_index %number {high = 9, low = 0} : (!npu.buffer<1xi32, ub>) -> index
// CHECK: npu.number_index %{{.*}} {high = 9, low = 0} : (!npu.buffer<1xi32, ub>) -> index
npu.load_l0 %slot, %l0a at [0, 0] {sizes = [16, 32]} : (!npu.buffer<16x32xf16, l1>, !npu.buffer<16x32xf16, l0a>)
// CHECK: npu.load_l0 %{{.*}}, %{{.*}} at [0, 0] {sizes = [16, 32]}
npu.mmad %l0a, %l0b, %l0c at [%i] : (!npu.buffer<16x32xf16, l0a>, !npu.buffer<32x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
// CHECK: npu.mmad %{{.*}}, %{{.*}}, %{{.*}} at [%{{.*}}]
npu.fixpipe %l0c, %g at [0, 16] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<100x64xf16>)
// CHECK: npu.fixpipe %{{.*}}, %{{.*}} at [0, 16] {sizes = [16, 16]}
%sums, %bytes = "test.op"() : () -> (!npu.buffer<16x16xi32, l0c>, !npu.gm<100x64xi8>)
npu.fixpipe %sums, %bytes at [0, 16] {factor = 1.25e-01 : f32, sizes = [16, 16], zero = -3} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<100x64xi8>)
// CHECK: npu.fixpipe %{{.*}}, %{{.*}} at [0, 16] {factor = 1.25{{.*}} : f32, sizes = [16, 16], zero = -3}
npu.fixpipe %l0c, %g at [0, 16] {relu, sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<100x64xf16>)
// CHECK: npu.fixpipe %{{.*}}, %{{.*}} at [0, 16] {relu, sizes = [16, 16]}
npu.mmad %l0a, %l0b, %l0c at [%i] {unit_flag} : (!npu.buffer<16x32xf16, l0a>, !npu.buffer<32x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
// CHECK: npu.mmad %{{.*}}, %{{.*}}, %{{.*}} at [%{{.*}}] {unit_flag}
npu.fixpipe %l0c, %g at [0, 16] {sizes = [16, 16], unit_flag} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<100x64xf16>)
// CHECK: npu.fixpipe %{{.*}}, %{{.*}} at [0, 16] {sizes = [16, 16], unit_flag}
%operand = "test.op"() : () -> !npu.buffer<16x16xf16, l1>
npu.fixpipe_l1 %l0c, %operand {relu, unit_flag} : (!npu.buffer<16x16xf32, l0c>, !npu.buffer<16x16xf16, l1>)
// CHECK: npu.fixpipe_l1 %{{.*}}, %{{.*}} {relu, unit_flag} : (!npu.buffer<16x16xf32, l0c>, !npu.buffer<16x16xf16, l1>)
%row, %bias, %words = "test.op"() : () -> (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, bt>, !npu.buffer<1x16xui64, fb>)
npu.load_row %row, %bias at [%i * 16] {sizes = [16]} : (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, bt>)
// CHECK: npu.load_row %{{.*}}, %{{.*}} at [%{{.*}} * 16] {sizes = [16]} : (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, bt>)
%bytes_a, %bytes_b = "test.op"() : () -> (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>)
npu.mmad %bytes_a, %bytes_b, %sums, %bias at [%i] : (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xi32, bt>)
// CHECK: npu.mmad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at [%{{.*}}]
npu.fixpipe %sums, %bytes, %words at [0, 16] {sizes = [16, 16], zero = -3} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<100x64xi8>, !npu.buffer<1x16xui64, fb>)
// CHECK: npu.fixpipe %{{.*}}, %{{.*}}, %{{.*}} at [0, 16] {sizes = [16, 16], zero = -3}
npu.store_nd %ub, %g at [0, 0] {sizes = [16, 32]} : (!npu.buffer<16x32xf16, ub>, !npu.gm<100x64xf16>)
// CHECK: npu.store_nd %{{.*}}, %{{.*}} at [0, 0] {sizes = [16, 32]}
npu.store_nd %ub, %g at [0, 0] {accumulate = "add", sizes = [16, 32]} : (!npu.buffer<16x32xf16, ub>, !npu.gm<100x64xf16>)
// CHECK: npu.store_nd %{{.*}}, %{{.*}} at [0, 0] {accumulate = "add", sizes = [16, 32]}
npu.fixpipe %l0c, %g at [0, 16] {accumulate = "max", relu, sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.gm<100x64xf16>)
// CHECK: npu.fixpipe %{{.*}}, %{{.*}} at [0, 16] {accumulate = "max", relu, sizes = [16, 16]}
%f16 = "test.op"() : () -> !npu.buffer<16x16xf16, ub>
npu.copy_l0c %l0c, %f16 at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xf32, l0c>, !npu.buffer<16x16xf16, ub>)
// CHECK: npu.copy_l0c %{{.*}}, %{{.*}} at [0, 0] {sizes = [16, 16]}
%f32, %i8 = "test.op"() : () -> (!npu.buffer<16x16xf32, ub>, !npu.buffer<16x16xi8, ub>)
npu.vround_to %f32, %f16 {mode = "odd"} : (!npu.buffer<16x16xf32, ub>, !npu.buffer<16x16xf16, ub>)
// CHECK: npu.vround_to %{{.*}}, %{{.*}} {mode = "odd"} : (!npu.buffer<16x16xf32, ub>, !npu.buffer<16x16xf16, ub>)
npu.vround_to %f16, %i8 {mode = "even"} : (!npu.buffer<16x16xf16, ub>, !npu.buffer<16x16xi8, ub>)
// CHECK: npu.vround_to %{{.*}}, %{{.*}} {mode = "even"} : (!npu.buffer<16x16xf16, ub>, !npu.buffer<16x16xi8, ub>)
npu.vbroadcast %ub1, %ub : (!npu.buffer<16x1xf16, ub>, !npu.buffer<16x32xf16, ub>)
// CHECK: npu.vbroadcast
npu.vreduce %ub, %ub1 {dims = [1], kind = "sum"} : (!npu.buffer<16x32xf16, ub>, !npu.buffer<16x1xf16, ub>)
// CHECK: npu.vreduce %{{.*}}, %{{.*}} {dims = [1], kind = "sum"}
npu.varg_reduce %ub, %ub1, %ids {dim = 1, kind = "min"} : (!npu.buffer<16x32xf16, ub>, !npu.buffer<16x1xf16, ub>, !npu.buffer<16x1xi32, ub>)
// CHECK: npu.varg_reduce %{{.*}} {dim = 1, kind = "min"}
%transposed = "test.op"() : () -> !npu.buffer<32x16xf16, ub>
npu.vtranspose %ub, %transposed {perm = [1, 0]} : (!npu.buffer<16x32xf16, ub>, !npu.buffer<32x16xf16, ub>)
// CHECK: npu.vtranspose %{{.*}} {perm = [1, 0]}
npu.viota %ids at [%i * 16] {dim = 0, step = 1} : (!npu.buffer<16x1xi32, ub>)
// CHECK: npu.viota %{{.*}} at [%{{.*}} * 16] {dim = 0, step = 1} : (!npu.buffer<16x1xi32, ub>)
npu.vfill %ub {value = -1.5 : f64} : (!npu.buffer<16x32xf16, ub>)
// CHECK: npu.vfill %{{.*}} {value = -1.5{{.*}} : f64} : (!npu.buffer<16x32xf16, ub>)
npu.vmask %ub, %ub at [%i * 16, 0] {bounds = [100, 32], value = 0.0 : f64} : (!npu.buffer<16x32xf16, ub>, !npu.buffer<16x32xf16, ub>)
// CHECK: npu.vmask %{{.*}}, %{{.*}} at [%{{.*}} * 16, 0] {bounds = [100, 32], value = 0.0{{.*}}}
npu.vextract %ub, %f16 at [0, 1] {sizes = [16, 16], steps = [1, 2]} : (!npu.buffer<16x32xf16, ub>, !npu.buffer<16x16xf16, ub>)
// CHECK: npu.vextract %{{.*}}, %{{.*}} at [0, 1] {sizes = [16, 16], steps = [1, 2]}
npu.set_flag at [%i] {event = 2, slots = 2, source = "MTE2", target = "V"}
// CHECK: npu.set_flag at [%{{.*}}] {event = 2, slots = 2, source = "MTE2", target = "V"}
npu.wait_flag at [%i] {event = 2, slots = 2, source = "MTE2", target = "V"}
// CHECK: npu.wait_flag at [%{{.*}}] {event = 2, slots = 2, source = "MTE2", target = "V"}
npu.barrier
// CHECK: npu.barrier
npu.pipe_barrier {pipe = "V"}
// CHECK: npu.pipe_barrier {pipe = "V"}
npu.set_cross {event = 0, source = "FIX"}
// CHECK: npu.set_cross {event = 0, source = "FIX"}
npu.wait_cross {event = 0, target = "MTE2"}
// CHECK: npu.wait_cross {event = 0, target = "MTE2"}
%rows, %first, %work = "test.op"() : () -> (!npu.buffer<4x9xf32, ub>, !npu.buffer<4x3xf32, ub>, !npu.buffer<4x36xui32, ub>)
npu.vsort %rows, %first, %work {descending = [1], keys = [0], total = [1]} : (!npu.buffer<4x9xf32, ub>, !npu.buffer<4x3xf32, ub>, !npu.buffer<4x36xui32, ub>)
// CHECK: npu.vsort %{{.*}}, %{{.*}}, %{{.*}} {descending = [1], keys = [0], total = [1]}
%line, %places, %new = "test.op"() : () -> (!npu.buffer<64xf32, ub>, !npu.buffer<5xi32, ub>, !npu.buffer<5xf32, ub>)
npu.vscatter %line, %places, %new, %line at [%i * 64] {kind = "sum"} : (!npu.buffer<64xf32, ub>, !npu.buffer<5xi32, ub>, !npu.buffer<5xf32, ub>, !npu.buffer<64xf32, ub>)
// CHECK: npu.vscatter %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at [%{{.*}} * 64] {kind = "sum"}
%spots, %picked = "test.op"() : () -> (!npu.buffer<9xi32, ub>, !npu.buffer<9xf16, ub>)
npu.vgather %ub, %spots, %picked : (!npu.buffer<16x32xf16, ub>, !npu.buffer<9xi32, ub>, !npu.buffer<9xf16, ub>)
// CHECK: npu.vgather %{{.*}}, %{{.*}}, %{{.*}} : (!npu.buffer<16x32xf16, ub>, !npu.buffer<9xi32, ub>, !npu.buffer<9xf16, ub>)
npu.vcumulate %ub, %ub {dim = 0, kind = "sum", reverse = 0} : (!npu.buffer<16x32xf16, ub>, !npu.buffer<16x32xf16, ub>)
// CHECK: npu.vcumulate %{{.*}}, %{{.*}} {dim = 0, kind = "sum", reverse = 0}
