// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

func.func @transfers(%g: memref<16x64xf32, #hivm.address_space<gm>>, %u: memref<16x64xf32, #hivm.address_space<ub>>, %s: f32, %n: index, %h: memref<16x64xf16, #hivm.address_space<gm>>, %c: memref<16x16xf32, #hivm.address_space<cc>>, %l: memref<4x1x16x16xf16, #hivm.address_space<cbuf>>, %t: i1, %q: memref<16x16xf16, #hivm.address_space<gm>>, %v: memref<16x?xf32, strided<[64, 1]>, #hivm.address_space<ub>>, %w: memref<16x?xf32, strided<[64, 1], offset: ?>, #hivm.address_space<gm>>) {
  hivm.hir.load ins(%g : memref<16x64xf32, #hivm.address_space<gm>>) outs(%u : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.load ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<gm>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.load ins(%w : memref<16x?xf32, strided<[64, 1], offset: ?>, #hivm.address_space<gm>>) outs(%v : memref<16x?xf32, strided<[64, 1]>, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %s : f32 left_padding_num = %n : index init_out_buffer = false may_implicit_transpose_with_last_axis = false
  // CHECK: hivm.hir.load ins(%{{.*}} : memref<16x?xf32, strided<[64, 1], offset: ?>, #hivm.address_space<gm>>) outs(%{{.*}} : memref<16x?xf32, strided<[64, 1]>, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %{{.*}} : f32 left_padding_num = %{{.*}} : index init_out_buffer = false may_implicit_transpose_with_last_axis = false
  hivm.hir.load ins(%g : memref<16x64xf32, #hivm.address_space<gm>>) outs(%u : memref<16x64xf32, #hivm.address_space<ub>>) {tiled} init_out_buffer = true init_condition = %t : i1 eviction_policy = <EvictFirst> core_type = <VECTOR>
  // CHECK: hivm.hir.load ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<gm>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) {tiled} init_out_buffer = true init_condition = %{{.*}} : i1 eviction_policy = <EvictFirst> core_type = <VECTOR>
  hivm.hir.load ins(%g : memref<16x64xf32, #hivm.address_space<gm>>) outs(%u : memref<16x64xf32, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %s : f32 right_padding_num = %n : index
  // CHECK: hivm.hir.load ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<gm>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %{{.*}} : f32 right_padding_num = %{{.*}} : index
  hivm.hir.store ins(%u : memref<16x64xf32, #hivm.address_space<ub>>) outs(%g : memref<16x64xf32, #hivm.address_space<gm>>)
  // CHECK: hivm.hir.store ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<gm>>)
  hivm.hir.store ins(%u : memref<16x64xf32, #hivm.address_space<ub>>) outs(%g : memref<16x64xf32, #hivm.address_space<gm>>) {tiled} atomic = <add>
  // CHECK: hivm.hir.store ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<gm>>) {tiled} atomic = <add>
  hivm.hir.copy ins(%u : memref<16x64xf32, #hivm.address_space<ub>>) outs(%u : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.copy ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.copy ins(%u : memref<16x64xf32, #hivm.address_space<ub>>) outs(%u : memref<16x64xf32, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %s : f32
  // CHECK: hivm.hir.copy ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %{{.*}} : f32
  hivm.hir.nd2nz {dst_continuous} ins(%h : memref<16x64xf16, #hivm.address_space<gm>>) outs(%l : memref<4x1x16x16xf16, #hivm.address_space<cbuf>>) init_out_buffer = false
  // CHECK: hivm.hir.nd2nz {dst_continuous} ins(%{{.*}} : memref<16x64xf16, #hivm.address_space<gm>>) outs(%{{.*}} : memref<4x1x16x16xf16, #hivm.address_space<cbuf>>) init_out_buffer = false
  hivm.hir.nz2nd ins(%l : memref<4x1x16x16xf16, #hivm.address_space<cbuf>>) outs(%l : memref<4x1x16x16xf16, #hivm.address_space<cbuf>>)
  // CHECK: hivm.hir.nz2nd ins(%{{.*}} : memref<4x1x16x16xf16, #hivm.address_space<cbuf>>) outs(%{{.*}} : memref<4x1x16x16xf16, #hivm.address_space<cbuf>>)
  hivm.hir.l12ub ins(%q : memref<16x16xf16, #hivm.address_space<gm>>) outs(%q : memref<16x16xf16, #hivm.address_space<gm>>)
  // CHECK: hivm.hir.l12ub ins(%{{.*}} : memref<16x16xf16, #hivm.address_space<gm>>) outs(%{{.*}} : memref<16x16xf16, #hivm.address_space<gm>>)
  hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>, pre_quant = #hivm.fixpipe_pre_quant_mode<F322F16>, pre_relu = #hivm.fixpipe_pre_relu_mode<NORMAL_RELU>} ins(%c : memref<16x16xf32, #hivm.address_space<cc>>) outs(%q : memref<16x16xf16, #hivm.address_space<gm>>)
  // CHECK: hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>, pre_quant = #hivm.fixpipe_pre_quant_mode<F322F16>, pre_relu = #hivm.fixpipe_pre_relu_mode<NORMAL_RELU>} ins(%{{.*}} : memref<16x16xf32, #hivm.address_space<cc>>) outs(%{{.*}} : memref<16x16xf16, #hivm.address_space<gm>>)
  hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>} ins(%c : memref<16x16xf32, #hivm.address_space<cc>>) outs(%q : memref<16x16xf16, #hivm.address_space<gm>>) dual_dst_mode = <ROW_SPLIT> unit_flag_mode([#hivm.unit_flag<ENABLED_WITH_UPDATE>]) unit_flag_cond(%t)
  // CHECK: hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>} ins(%{{.*}} : memref<16x16xf32, #hivm.address_space<cc>>) outs(%{{.*}} : memref<16x16xf16, #hivm.address_space<gm>>) dual_dst_mode = <ROW_SPLIT> unit_flag_mode([#hivm.unit_flag<ENABLED_WITH_UPDATE>]) unit_flag_cond(%{{.*}})
  hivm.hir.atomic_cas ins(%u, %u : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%g : memref<16x64xf32, #hivm.address_space<gm>>)
  // CHECK: hivm.hir.atomic_cas ins(%{{.*}}, %{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<gm>>)
  hivm.hir.atomic_xchg ins(%u : memref<16x64xf32, #hivm.address_space<ub>>) outs(%g : memref<16x64xf32, #hivm.address_space<gm>>)
  // CHECK: hivm.hir.atomic_xchg ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<gm>>)
  hivm.hir.atomic_rmw ins(%u : memref<16x64xf32, #hivm.address_space<ub>>) outs(%g : memref<16x64xf32, #hivm.address_space<gm>>) atomic_kind = <max>
  // CHECK: hivm.hir.atomic_rmw ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<gm>>) atomic_kind = <max>
  return
}
