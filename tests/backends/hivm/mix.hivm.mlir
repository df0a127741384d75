builtin.module attributes {hacc.target = #hacc.target<"Ascend910B1">, hivm.module_core_type = #hivm.module_core_type<MIX>} {
  func.func @contract_0_mix_aic(%0: i64 {hacc.arg_type = #hacc.arg_type<ffts_base_address>}, %input0: memref<64x128xf16, #hivm.address_space<gm>>, %input1: memref<128x64xf16, #hivm.address_space<gm>>, %input2: memref<64xf16, #hivm.address_space<gm>>, %output0: memref<64x64xf16, #hivm.address_space<gm>>, %workspace0: memref<64x64xf16, #hivm.address_space<gm>>) attributes {hacc.block_dim = 1 : i64, hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIC>, hivm.part_of_mix, mix_mode = "mix"} {
    %1 = arith.constant 0 : i64
    %2 = arith.constant 16384 : i64
    %3 = arith.constant 64 : index
    %4 = arith.constant 128 : index
    %5 = arith.constant true
    %6 = arith.constant -1 : i64
    hivm.hir.set_ffts_base_addr %0
    %7 = hivm.hir.pointer_cast(%1) : memref<4x8x16x16xf16, #hivm.address_space<cbuf>>
    %8 = memref.reinterpret_cast %input1 to offset: [0], sizes: [128, 64], strides: [64, 1] : memref<128x64xf16, #hivm.address_space<gm>> to memref<128x64xf16, #hivm.address_space<gm>>
    hivm.hir.nd2nz {dst_continuous} ins(%8 : memref<128x64xf16, #hivm.address_space<gm>>) outs(%7 : memref<4x8x16x16xf16, #hivm.address_space<cbuf>>) init_out_buffer = false
    %9 = hivm.hir.pointer_cast(%2) : memref<8x4x16x16xf16, #hivm.address_space<cbuf>>
    %10 = memref.reinterpret_cast %input0 to offset: [0], sizes: [64, 128], strides: [128, 1] : memref<64x128xf16, #hivm.address_space<gm>> to memref<64x128xf16, #hivm.address_space<gm>>
    hivm.hir.nd2nz {dst_continuous} ins(%10 : memref<64x128xf16, #hivm.address_space<gm>>) outs(%9 : memref<8x4x16x16xf16, #hivm.address_space<cbuf>>) init_out_buffer = false
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE1>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE1>, <EVENT_ID0>]
    %11 = hivm.hir.pointer_cast(%1) : memref<4x4x16x16xf32, #hivm.address_space<cc>>
    hivm.hir.mmadL1 ins(%9, %7, %5, %3, %4, %3 : memref<8x4x16x16xf16, #hivm.address_space<cbuf>>, memref<4x8x16x16xf16, #hivm.address_space<cbuf>>, i1, index, index, index) outs(%11 : memref<4x4x16x16xf32, #hivm.address_space<cc>>) sync_related_args(%6, %6, %6, %6, %1, %6, %6 : i64, i64, i64, i64, i64, i64, i64)
    hivm.hir.set_flag[<PIPE_M>, <PIPE_FIX>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_M>, <PIPE_FIX>, <EVENT_ID0>]
    %12 = memref.reinterpret_cast %workspace0 to offset: [0], sizes: [64, 64], strides: [64, 1] : memref<64x64xf16, #hivm.address_space<gm>> to memref<64x64xf16, #hivm.address_space<gm>>
    hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>, pre_quant = #hivm.fixpipe_pre_quant_mode<F322F16>} ins(%11 : memref<4x4x16x16xf32, #hivm.address_space<cc>>) outs(%12 : memref<64x64xf16, #hivm.address_space<gm>>)
    hivm.hir.sync_block_set[<CUBE>, <PIPE_FIX>, <PIPE_MTE2>] flag = 0 ffts_base_addr = %0
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    func.return
  }
  func.func @contract_0_mix_aiv(%0: i64 {hacc.arg_type = #hacc.arg_type<ffts_base_address>}, %input0: memref<64x128xf16, #hivm.address_space<gm>>, %input1: memref<128x64xf16, #hivm.address_space<gm>>, %input2: memref<64xf16, #hivm.address_space<gm>>, %output0: memref<64x64xf16, #hivm.address_space<gm>>, %workspace0: memref<64x64xf16, #hivm.address_space<gm>>) attributes {hacc.block_dim = 1 : i64, hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>, hivm.part_of_mix, mix_mode = "mix"} {
    %1 = arith.constant 32 : index
    %2 = arith.constant 64 : index
    %3 = arith.constant 0 : i64
    %4 = arith.constant 4352 : i64
    %5 = arith.constant 12288 : i64
    %6 = arith.constant 16640 : i64
    %7 = arith.constant 4.470830e-02 : f16
    %8 = arith.constant 7.978520e-01 : f16
    %9 = arith.constant 20992 : i64
    %10 = arith.constant 7.90531111 : f32
    %11 = arith.constant -7.90531111 : f32
    %12 = arith.constant 29440 : i64
    %13 = arith.constant -2.76076837e-16 : f32
    %14 = arith.constant 37888 : i64
    %15 = arith.constant 2.00018794e-13 : f32
    %16 = arith.constant -8.60467184e-11 : f32
    %17 = arith.constant 5.12229725e-08 : f32
    %18 = arith.constant 1.48572235e-05 : f32
    %19 = arith.constant 0.000637261954 : f32
    %20 = arith.constant 0.00489352457 : f32
    %21 = arith.constant 1.19825836e-06 : f32
    %22 = arith.constant 0.000118534706 : f32
    %23 = arith.constant 0.00226843474 : f32
    %24 = arith.constant 0.00489352504 : f32
    %25 = arith.constant 1.000000e+00 : f16
    %26 = arith.constant 5.000000e-01 : f16
    %27 = arith.constant 4608 : i64
    hivm.hir.set_ffts_base_addr %0
    hivm.hir.set_mask_norm
    %28 = hivm.hir.get_sub_block_idx -> i64
    %29 = arith.index_cast %28 : i64 to index
    hivm.hir.sync_block_wait[<VECTOR>, <PIPE_FIX>, <PIPE_MTE2>] flag = 0
    %30 = arith.muli %29, %1 : index
    %31 = arith.muli %30, %2 : index
    %32 = memref.reinterpret_cast %workspace0 to offset: [%31], sizes: [2048], strides: [1] : memref<64x64xf16, #hivm.address_space<gm>> to memref<2048xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %33 = hivm.hir.pointer_cast(%3) : memref<2048xf16, #hivm.address_space<ub>>
    hivm.hir.load ins(%32 : memref<2048xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%33 : memref<2048xf16, #hivm.address_space<ub>>)
    %34 = memref.reinterpret_cast %input2 to offset: [0], sizes: [64], strides: [1] : memref<64xf16, #hivm.address_space<gm>> to memref<64xf16, #hivm.address_space<gm>>
    %35 = hivm.hir.pointer_cast(%4) : memref<64xf16, #hivm.address_space<ub>>
    hivm.hir.load ins(%34 : memref<64xf16, #hivm.address_space<gm>>) outs(%35 : memref<64xf16, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    %36 = hivm.hir.pointer_cast(%4) : memref<1x64xf16, #hivm.address_space<ub>>
    %37 = hivm.hir.pointer_cast(%5) : memref<32x64xf16, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%36 : memref<1x64xf16, #hivm.address_space<ub>>) outs(%37 : memref<32x64xf16, #hivm.address_space<ub>>) broadcast_dims = [0]
    hivm.hir.pipe_barrier[<PIPE_V>]
    %38 = hivm.hir.pointer_cast(%5) : memref<2048xf16, #hivm.address_space<ub>>
    hivm.hir.vadd ins(%33, %38 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%38 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %39 = hivm.hir.pointer_cast(%6) : memref<2048xf16, #hivm.address_space<ub>>
    hivm.hir.vmul ins(%38, %38 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%39 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%39, %38 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%39 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%39, %7 : memref<2048xf16, #hivm.address_space<ub>>, f16) outs(%39 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%38, %39 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%39 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%39, %8 : memref<2048xf16, #hivm.address_space<ub>>, f16) outs(%39 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %40 = hivm.hir.pointer_cast(%9) : memref<2048xf32, #hivm.address_space<ub>>
    hivm.hir.vcast ins(%39 : memref<2048xf16, #hivm.address_space<ub>>) outs(%40 : memref<2048xf32, #hivm.address_space<ub>>) round_mode = <rint>
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmin ins(%40, %10 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%40 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmax ins(%40, %11 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%40 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %41 = hivm.hir.pointer_cast(%12) : memref<2048xf32, #hivm.address_space<ub>>
    hivm.hir.vmul ins(%40, %40 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%41 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %42 = hivm.hir.pointer_cast(%14) : memref<2048xf32, #hivm.address_space<ub>>
    hivm.hir.vmul ins(%41, %13 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %15 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%42, %41 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %16 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%42, %41 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %17 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%42, %41 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %18 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%42, %41 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %19 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%42, %41 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %20 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%40, %42 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%40 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%41, %21 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %22 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%42, %41 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %23 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%42, %41 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%42, %24 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%42 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vdiv ins(%40, %42 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%40 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vcast ins(%40 : memref<2048xf32, #hivm.address_space<ub>>) outs(%39 : memref<2048xf16, #hivm.address_space<ub>>) round_mode = <rint>
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%39, %25 : memref<2048xf16, #hivm.address_space<ub>>, f16) outs(%39 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%39, %26 : memref<2048xf16, #hivm.address_space<ub>>, f16) outs(%39 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %43 = hivm.hir.pointer_cast(%27) : memref<2048xf16, #hivm.address_space<ub>>
    hivm.hir.vmul ins(%38, %39 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%43 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    %44 = memref.reinterpret_cast %output0 to offset: [%31], sizes: [2048], strides: [1] : memref<64x64xf16, #hivm.address_space<gm>> to memref<2048xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>
    hivm.hir.store ins(%43 : memref<2048xf16, #hivm.address_space<ub>>) outs(%44 : memref<2048xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    func.return
  }
}
