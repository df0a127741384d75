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
    %1 = arith.constant 0.00489352504 : f32
    %2 = arith.constant 8960 : i64
    %3 = arith.constant 0.00226843474 : f32
    %4 = arith.constant 9216 : i64
    %5 = arith.constant 0.000118534706 : f32
    %6 = arith.constant 9472 : i64
    %7 = arith.constant 1.19825836e-06 : f32
    %8 = arith.constant 9728 : i64
    %9 = arith.constant 0.00489352457 : f32
    %10 = arith.constant 9984 : i64
    %11 = arith.constant 0.000637261954 : f32
    %12 = arith.constant 10240 : i64
    %13 = arith.constant 1.48572235e-05 : f32
    %14 = arith.constant 10496 : i64
    %15 = arith.constant 5.12229725e-08 : f32
    %16 = arith.constant 10752 : i64
    %17 = arith.constant -8.60467184e-11 : f32
    %18 = arith.constant 11008 : i64
    %19 = arith.constant 2.00018794e-13 : f32
    %20 = arith.constant 11264 : i64
    %21 = arith.constant -2.76076837e-16 : f32
    %22 = arith.constant 11520 : i64
    %23 = arith.constant 7.90531111 : f32
    %24 = arith.constant 11776 : i64
    %25 = arith.constant -7.90531111 : f32
    %26 = arith.constant 12032 : i64
    %27 = arith.constant 32 : index
    %28 = arith.constant 64 : index
    %29 = arith.constant 0 : i64
    %30 = arith.constant 4352 : i64
    %31 = arith.constant 12288 : i64
    %32 = arith.constant 16640 : i64
    %33 = arith.constant 4.470830e-02 : f16
    %34 = arith.constant 20992 : i64
    %35 = arith.constant 7.978520e-01 : f16
    %36 = arith.constant 29440 : i64
    %37 = arith.constant 37888 : i64
    %38 = arith.constant 1.000000e+00 : f16
    %39 = arith.constant 5.000000e-01 : f16
    %40 = arith.constant 4608 : i64
    hivm.hir.set_ffts_base_addr %0
    hivm.hir.set_mask_norm
    %41 = hivm.hir.get_sub_block_idx -> i64
    %42 = arith.index_cast %41 : i64 to index
    %43 = hivm.hir.pointer_cast(%2) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%1 : f32) outs(%43 : memref<1xf32, #hivm.address_space<ub>>)
    %44 = hivm.hir.pointer_cast(%4) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%3 : f32) outs(%44 : memref<1xf32, #hivm.address_space<ub>>)
    %45 = hivm.hir.pointer_cast(%6) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%5 : f32) outs(%45 : memref<1xf32, #hivm.address_space<ub>>)
    %46 = hivm.hir.pointer_cast(%8) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%7 : f32) outs(%46 : memref<1xf32, #hivm.address_space<ub>>)
    %47 = hivm.hir.pointer_cast(%10) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%9 : f32) outs(%47 : memref<1xf32, #hivm.address_space<ub>>)
    %48 = hivm.hir.pointer_cast(%12) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%11 : f32) outs(%48 : memref<1xf32, #hivm.address_space<ub>>)
    %49 = hivm.hir.pointer_cast(%14) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%13 : f32) outs(%49 : memref<1xf32, #hivm.address_space<ub>>)
    %50 = hivm.hir.pointer_cast(%16) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%15 : f32) outs(%50 : memref<1xf32, #hivm.address_space<ub>>)
    %51 = hivm.hir.pointer_cast(%18) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%17 : f32) outs(%51 : memref<1xf32, #hivm.address_space<ub>>)
    %52 = hivm.hir.pointer_cast(%20) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%19 : f32) outs(%52 : memref<1xf32, #hivm.address_space<ub>>)
    %53 = hivm.hir.pointer_cast(%22) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%21 : f32) outs(%53 : memref<1xf32, #hivm.address_space<ub>>)
    %54 = hivm.hir.pointer_cast(%24) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%23 : f32) outs(%54 : memref<1xf32, #hivm.address_space<ub>>)
    %55 = hivm.hir.pointer_cast(%26) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%25 : f32) outs(%55 : memref<1xf32, #hivm.address_space<ub>>)
    hivm.hir.sync_block_wait[<VECTOR>, <PIPE_FIX>, <PIPE_MTE2>] flag = 0
    %56 = arith.muli %42, %27 : index
    %57 = arith.muli %56, %28 : index
    %58 = memref.reinterpret_cast %workspace0 to offset: [%57], sizes: [2048], strides: [1] : memref<64x64xf16, #hivm.address_space<gm>> to memref<2048xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %59 = hivm.hir.pointer_cast(%29) : memref<2048xf16, #hivm.address_space<ub>>
    hivm.hir.load ins(%58 : memref<2048xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%59 : memref<2048xf16, #hivm.address_space<ub>>)
    %60 = memref.reinterpret_cast %input2 to offset: [0], sizes: [64], strides: [1] : memref<64xf16, #hivm.address_space<gm>> to memref<64xf16, #hivm.address_space<gm>>
    %61 = hivm.hir.pointer_cast(%30) : memref<64xf16, #hivm.address_space<ub>>
    hivm.hir.load ins(%60 : memref<64xf16, #hivm.address_space<gm>>) outs(%61 : memref<64xf16, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    %62 = hivm.hir.pointer_cast(%30) : memref<1x64xf16, #hivm.address_space<ub>>
    %63 = hivm.hir.pointer_cast(%31) : memref<32x64xf16, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%62 : memref<1x64xf16, #hivm.address_space<ub>>) outs(%63 : memref<32x64xf16, #hivm.address_space<ub>>) broadcast_dims = [0]
    hivm.hir.pipe_barrier[<PIPE_V>]
    %64 = hivm.hir.pointer_cast(%31) : memref<2048xf16, #hivm.address_space<ub>>
    hivm.hir.vadd ins(%59, %64 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%64 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %65 = hivm.hir.pointer_cast(%32) : memref<2048xf16, #hivm.address_space<ub>>
    hivm.hir.vmul ins(%64, %64 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%65 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%65, %64 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%65 : memref<2048xf16, #hivm.address_space<ub>>)
    %66 = hivm.hir.pointer_cast(%34) : memref<1xf16, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%33 : f16) outs(%66 : memref<1xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%65, %33 : memref<2048xf16, #hivm.address_space<ub>>, f16) outs(%65 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%64, %65 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%65 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.vbrc ins(%35 : f16) outs(%66 : memref<1xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%65, %35 : memref<2048xf16, #hivm.address_space<ub>>, f16) outs(%65 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %67 = hivm.hir.pointer_cast(%34) : memref<2048xf32, #hivm.address_space<ub>>
    hivm.hir.vcast ins(%65 : memref<2048xf16, #hivm.address_space<ub>>) outs(%67 : memref<2048xf32, #hivm.address_space<ub>>) round_mode = <rint>
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmin ins(%67, %23 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%67 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmax ins(%67, %25 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%67 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %68 = hivm.hir.pointer_cast(%36) : memref<2048xf32, #hivm.address_space<ub>>
    hivm.hir.vmul ins(%67, %67 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%68 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %69 = hivm.hir.pointer_cast(%37) : memref<2048xf32, #hivm.address_space<ub>>
    hivm.hir.vmul ins(%68, %21 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %19 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%69, %68 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %17 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%69, %68 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %15 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%69, %68 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %13 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%69, %68 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %11 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%69, %68 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %9 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%67, %69 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%67 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%68, %7 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %5 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%69, %68 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %3 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%69, %68 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%69, %1 : memref<2048xf32, #hivm.address_space<ub>>, f32) outs(%69 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vdiv ins(%67, %69 : memref<2048xf32, #hivm.address_space<ub>>, memref<2048xf32, #hivm.address_space<ub>>) outs(%67 : memref<2048xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vcast ins(%67 : memref<2048xf32, #hivm.address_space<ub>>) outs(%65 : memref<2048xf16, #hivm.address_space<ub>>) round_mode = <rint>
    %70 = hivm.hir.pointer_cast(%2) : memref<1xf16, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%38 : f16) outs(%70 : memref<1xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%65, %38 : memref<2048xf16, #hivm.address_space<ub>>, f16) outs(%65 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vbrc ins(%39 : f16) outs(%70 : memref<1xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmul ins(%65, %39 : memref<2048xf16, #hivm.address_space<ub>>, f16) outs(%65 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %71 = hivm.hir.pointer_cast(%40) : memref<2048xf16, #hivm.address_space<ub>>
    hivm.hir.vmul ins(%64, %65 : memref<2048xf16, #hivm.address_space<ub>>, memref<2048xf16, #hivm.address_space<ub>>) outs(%71 : memref<2048xf16, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    %72 = memref.reinterpret_cast %output0 to offset: [%57], sizes: [2048], strides: [1] : memref<64x64xf16, #hivm.address_space<gm>> to memref<2048xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>
    hivm.hir.store ins(%71 : memref<2048xf16, #hivm.address_space<ub>>) outs(%72 : memref<2048xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    func.return
  }
}
