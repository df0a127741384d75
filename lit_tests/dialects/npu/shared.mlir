// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

npu.kernel @k {counted, grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
// CHECK: npu.kernel @k {counted, grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x16xf32>, %y: !npu.gm<64x16xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb0(%u: index):
    %a = npu.alloc {address = 0, shared} : () -> !npu.buffer<32x16xf32, ub, pitch 64>
    // CHECK: npu.alloc {address = 0, shared} : () -> !npu.buffer<32x16xf32, ub, pitch 64>
    %s = npu.alloc {address = 8192, shared} : () -> !npu.buffer<32x1xf32, ub, pitch 1>
    %n = npu.alloc {address = 8192, shared} : () -> !npu.buffer<1x1xf32, ub, pitch 1>
    npu.vsub %a, %s, %a : (!npu.buffer<32x16xf32, ub, pitch 64>, !npu.buffer<32x1xf32, ub, pitch 1>, !npu.buffer<32x16xf32, ub, pitch 64>)
    // CHECK: npu.vsub %{{.*}}, %{{.*}}, %{{.*}} : (!npu.buffer<32x16xf32, ub, pitch 64>, !npu.buffer<32x1xf32, ub, pitch 1>, !npu.buffer<32x16xf32, ub, pitch 64>)
    npu.set_number %n {value = 2.0 : f32} : (!npu.buffer<1x1xf32, ub, pitch 1>)
    // CHECK: npu.set_number %{{.*}} {value = 2.000000e+00 : f32} : (!npu.buffer<1x1xf32, ub, pitch 1>)
    npu.scalar %n, %n, %n {function = "mul"} : (!npu.buffer<1x1xf32, ub, pitch 1>, !npu.buffer<1x1xf32, ub, pitch 1>, !npu.buffer<1x1xf32, ub, pitch 1>)
    // CHECK: npu.scalar %{{.*}}, %{{.*}}, %{{.*}} {function = "mul"} : (
  }
}
