// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

func.func @elementwise(%f: memref<16x64xf32, #hivm.address_space<ub>>, %i: memref<16x64xi32, #hivm.address_space<ub>>, %b: memref<16x64xi1, #hivm.address_space<ub>>, %h: memref<16x64xf16, #hivm.address_space<ub>>, %t: memref<8xf32, #hivm.address_space<ub>>, %ti: memref<8xi32, #hivm.address_space<ub>>, %s: f32, %k: i32, %c: memref<16x1xf32, #hivm.address_space<ub>>, %r: memref<1x64xf32, #hivm.address_space<ub>>, %x: tensor<16xf32>) {
  hivm.hir.vexp ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vexp ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vln ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vln ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vsqrt ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vsqrt ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vrsqrt ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vrsqrt ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vrec ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vrec ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vexp2 ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vexp2 ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vlog2 ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vlog2 ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vlog10 ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vlog10 ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vlog1p ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vlog1p ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vexpm1 ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vexpm1 ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vtan ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vtan ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vatan ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vatan ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.visinf ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%b : memref<16x64xi1, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.visinf ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi1, #hivm.address_space<ub>>)
  hivm.hir.visnan ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%b : memref<16x64xi1, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.visnan ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi1, #hivm.address_space<ub>>)
  hivm.hir.vmulext ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vmulext ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>)
  hivm.hir.vmodui ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vmodui ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>)
  hivm.hir.vmulextui ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vmulextui ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>)
  hivm.hir.vtanh ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vtanh ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vsin ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vsin ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vcos ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vcos ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.verf ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.verf ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vabs ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vabs ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vrelu ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vrelu ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vnot ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vnot ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vcast ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%h : memref<16x64xf16, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vcast ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf16, #hivm.address_space<ub>>)
  hivm.hir.vadd ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vadd ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vmul ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vmul ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vsub ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vsub ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vdiv ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vdiv ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vmax ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vmax ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vmin ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vmin ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vor ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vor ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vand ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vand ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vxor ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vxor ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>)
  hivm.hir.vmod ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vmod ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vshl ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vshl ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>)
  hivm.hir.vshr ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vshr ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>)
  hivm.hir.vpow ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vpow ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>)
  hivm.hir.vmulext ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vmulext ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>)
  hivm.hir.vcmp ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%b : memref<16x64xi1, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vcmp ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi1, #hivm.address_space<ub>>)
  hivm.hir.vsel ins(%b, %f, %f : memref<16x64xi1, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vsel ins(%{{.*}}, %{{.*}}, %{{.*}} : memref<16x64xi1, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vadd ins(%f, %s : memref<16x64xf32, #hivm.address_space<ub>>, f32) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vadd ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, f32) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vsub ins(%s, %f : f32, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vsub ins(%{{.*}}, %{{.*}} : f32, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>)
  hivm.hir.vmul {tiled} ins(%f, %c : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x1xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>) broadcast = [1]
  // CHECK: hivm.hir.vmul {tiled} ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x1xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>) broadcast = [1]
  hivm.hir.vmul ins(%r, %c : memref<1x64xf32, #hivm.address_space<ub>>, memref<16x1xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) broadcast = [0, 1]
  // CHECK: hivm.hir.vmul ins(%{{.*}}, %{{.*}} : memref<1x64xf32, #hivm.address_space<ub>>, memref<16x1xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) broadcast = [0, 1]
  hivm.hir.vcast ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>) round_mode = <floor>
  // CHECK: hivm.hir.vcast ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>) round_mode = <floor>
  hivm.hir.vcast ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>) round_mode = <trunc> cast = <cast_signed>
  // CHECK: hivm.hir.vcast ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>) round_mode = <trunc> cast = <cast_signed>
  hivm.hir.vcmp ins(%f, %s : memref<16x64xf32, #hivm.address_space<ub>>, f32) outs(%b : memref<16x64xi1, #hivm.address_space<ub>>) compare_mode = <lt>
  // CHECK: hivm.hir.vcmp ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, f32) outs(%{{.*}} : memref<16x64xi1, #hivm.address_space<ub>>) compare_mode = <lt>
  hivm.hir.vcmp ins(%f, %s : memref<16x64xf32, #hivm.address_space<ub>>, f32) outs(%b : memref<16x64xi1, #hivm.address_space<ub>>) compare_mode = #hivm.compare_mode<ge>
  // CHECK: hivm.hir.vcmp ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, f32) outs(%{{.*}} : memref<16x64xi1, #hivm.address_space<ub>>) compare_mode = <ge>
  hivm.hir.vdiv ins(%f, %f : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) isSigned = true isHP = false
  // CHECK: hivm.hir.vdiv ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) isSigned = true isHP = false
  hivm.hir.vmax ins(%i, %i : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>) is_signed = false
  // CHECK: hivm.hir.vmax ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>) is_signed = false
  hivm.hir.vshr ins(%i, %k : memref<16x64xi32, #hivm.address_space<ub>>, i32) outs(%i : memref<16x64xi32, #hivm.address_space<ub>>) round : false
  // CHECK: hivm.hir.vshr ins(%{{.*}}, %{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>, i32) outs(%{{.*}} : memref<16x64xi32, #hivm.address_space<ub>>) round : false
  hivm.hir.vsel ins(%b, %s, %f : memref<16x64xi1, #hivm.address_space<ub>>, f32, memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vsel ins(%{{.*}}, %{{.*}}, %{{.*}} : memref<16x64xi1, #hivm.address_space<ub>>, f32, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>)
  %y = hivm.hir.vadd ins(%x, %x : tensor<16xf32>, tensor<16xf32>) outs(%x : tensor<16xf32>) -> tensor<16xf32>
  // CHECK: hivm.hir.vadd ins(%{{.*}}, %{{.*}} : tensor<16xf32>, tensor<16xf32>) outs(%{{.*}} : tensor<16xf32>) -> tensor<16xf32>
  return
}
