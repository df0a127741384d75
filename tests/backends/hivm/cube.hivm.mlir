builtin.module attributes {hacc.target = #hacc.target<"Ascend910B1">, hivm.module_core_type = #hivm.module_core_type<AIC>} {
  func.func @contract_0(%input0: memref<256x512xf16, #hivm.address_space<gm>>, %input1: memref<512x256xf16, #hivm.address_space<gm>>, %output0: memref<256x256xf16, #hivm.address_space<gm>>) attributes {hacc.block_dim = 4 : i64, hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIC>} {
    %0 = arith.constant 0 : index
    %1 = arith.constant 2 : index
    %2 = arith.constant 1 : index
    %3 = arith.constant 256 : index
    %4 = arith.constant 131072 : index
    %5 = arith.constant 64 : index
    %6 = arith.constant 32768 : index
    %7 = arith.constant 262144 : index
    %8 = arith.constant 512 : index
    %9 = arith.constant 0 : i64
    %10 = arith.constant -1 : i64
    %11 = arith.constant 1 : i64
    %12 = hivm.hir.get_block_idx -> i64
    %13 = arith.index_cast %12 : i64 to index
    hivm.hir.set_flag[<PIPE_M>, <PIPE_MTE1>, <EVENT_ID0>]
    hivm.hir.set_flag[<PIPE_M>, <PIPE_MTE1>, <EVENT_ID1>]
    scf.for %14 = %0 to %1 step %2 {
      %15 = arith.muli %14, %3 : index
      %16 = arith.remsi %14, %1 : index
      %17 = arith.muli %16, %4 : index
      %18 = arith.index_cast %17 : index to i64
      %19 = hivm.hir.pointer_cast(%18) : memref<16x16x16x16xf16, #hivm.address_space<cbuf>>
      %20 = arith.muli %15, %3 : index
      %21 = memref.reinterpret_cast %input1 to offset: [%20], sizes: [256, 256], strides: [256, 1] : memref<512x256xf16, #hivm.address_space<gm>> to memref<256x256xf16, strided<[256, 1], offset: ?>, #hivm.address_space<gm>>
      hivm.hir.nd2nz {dst_continuous} ins(%21 : memref<256x256xf16, strided<[256, 1], offset: ?>, #hivm.address_space<gm>>) outs(%19 : memref<16x16x16x16xf16, #hivm.address_space<cbuf>>) init_out_buffer = false
      %22 = arith.muli %13, %5 : index
      %23 = arith.muli %16, %6 : index
      %24 = arith.addi %23, %7 : index
      %25 = arith.index_cast %24 : index to i64
      %26 = hivm.hir.pointer_cast(%25) : memref<16x4x16x16xf16, #hivm.address_space<cbuf>>
      %27 = arith.muli %22, %8 : index
      %28 = arith.addi %27, %15 : index
      %29 = memref.reinterpret_cast %input0 to offset: [%28], sizes: [64, 256], strides: [512, 1] : memref<256x512xf16, #hivm.address_space<gm>> to memref<64x256xf16, strided<[512, 1], offset: ?>, #hivm.address_space<gm>>
      hivm.hir.nd2nz {dst_continuous} ins(%29 : memref<64x256xf16, strided<[512, 1], offset: ?>, #hivm.address_space<gm>>) outs(%26 : memref<16x4x16x16xf16, #hivm.address_space<cbuf>>) init_out_buffer = false
      %30 = arith.index_cast %16 : index to i64
      hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE1>, %30]
      hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE1>, %30]
      %31 = hivm.hir.pointer_cast(%9) : memref<16x4x16x16xf32, #hivm.address_space<cc>>
      %32 = arith.cmpi eq, %14, %0 : index
      %33 = arith.index_cast %14 : index to i64
      hivm.hir.mmadL1 ins(%26, %19, %32, %5, %3, %3 : memref<16x4x16x16xf16, #hivm.address_space<cbuf>>, memref<16x16x16x16xf16, #hivm.address_space<cbuf>>, i1, index, index, index) outs(%31 : memref<16x4x16x16xf32, #hivm.address_space<cc>>) sync_related_args(%10, %10, %10, %10, %33, %9, %11 : i64, i64, i64, i64, i64, i64, i64)
    }
    hivm.hir.set_flag[<PIPE_M>, <PIPE_FIX>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_M>, <PIPE_FIX>, <EVENT_ID0>]
    %34 = arith.muli %13, %5 : index
    %35 = hivm.hir.pointer_cast(%9) : memref<16x4x16x16xf32, #hivm.address_space<cc>>
    %36 = arith.muli %34, %3 : index
    %37 = memref.reinterpret_cast %output0 to offset: [%36], sizes: [64, 256], strides: [256, 1] : memref<256x256xf16, #hivm.address_space<gm>> to memref<64x256xf16, strided<[256, 1], offset: ?>, #hivm.address_space<gm>>
    hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>, pre_quant = #hivm.fixpipe_pre_quant_mode<F322F16>} ins(%35 : memref<16x4x16x16xf32, #hivm.address_space<cc>>) outs(%37 : memref<64x256xf16, strided<[256, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.wait_flag[<PIPE_M>, <PIPE_MTE1>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_M>, <PIPE_MTE1>, <EVENT_ID1>]
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    func.return
  }
}
