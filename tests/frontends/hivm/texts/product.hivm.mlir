// launch: grid=(2,)
module attributes {hivm.module_core_type = #hivm.module_core_type<AIC>} {
  func.func @product(%a: memref<64x96xf16, #hivm.address_space<gm>>, %b: memref<96x48xf16, #hivm.address_space<gm>>, %o: memref<64x48xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIC>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c32 = arith.constant 32 : index
    %c48 = arith.constant 48 : index
    %none = arith.constant -1 : i64
    %e0 = arith.constant 0 : i64
    %e1 = arith.constant 1 : i64
    %a0 = arith.constant 0 : i64
    %a2048 = arith.constant 2048 : i64
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %row = arith.muli %number, %c32 : index
    %c = hivm.hir.pointer_cast(%a0) : memref<3x2x16x16xf32, #hivm.address_space<cc>>
    hivm.hir.set_flag[<PIPE_MTE1>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.set_flag[<PIPE_MTE1>, <PIPE_MTE2>, <EVENT_ID1>]
    scf.for %k = %c0 to %c3 step %c1 {
      %at = arith.muli %k, %c32 : index
      %first = arith.cmpi eq, %k, %c0 : index
      %turn = arith.index_cast %k : index to i64
      %as = memref.subview %a[%row, %at] [32, 32] [1, 1] : memref<64x96xf16, #hivm.address_space<gm>> to memref<32x32xf16, strided<[96, 1], offset: ?>, #hivm.address_space<gm>>
      %bs = memref.subview %b[%at, 0] [32, 48] [1, 1] : memref<96x48xf16, #hivm.address_space<gm>> to memref<32x48xf16, strided<[48, 1], offset: ?>, #hivm.address_space<gm>>
      %al = hivm.hir.pointer_cast(%a0) : memref<2x2x16x16xf16, #hivm.address_space<cbuf>>
      %bl = hivm.hir.pointer_cast(%a2048) : memref<3x2x16x16xf16, #hivm.address_space<cbuf>>
      hivm.hir.wait_flag[<PIPE_MTE1>, <PIPE_MTE2>, <EVENT_ID0>]
      hivm.hir.nd2nz {dst_continuous} ins(%as : memref<32x32xf16, strided<[96, 1], offset: ?>, #hivm.address_space<gm>>) outs(%al : memref<2x2x16x16xf16, #hivm.address_space<cbuf>>) init_out_buffer = false
      hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE1>, <EVENT_ID0>]
      hivm.hir.wait_flag[<PIPE_MTE1>, <PIPE_MTE2>, <EVENT_ID1>]
      hivm.hir.nd2nz {dst_continuous} ins(%bs : memref<32x48xf16, strided<[48, 1], offset: ?>, #hivm.address_space<gm>>) outs(%bl : memref<3x2x16x16xf16, #hivm.address_space<cbuf>>) init_out_buffer = false
      hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE1>, <EVENT_ID1>]
      hivm.hir.mmadL1 ins(%al, %bl, %first, %c32, %c32, %c48 : memref<2x2x16x16xf16, #hivm.address_space<cbuf>>, memref<3x2x16x16xf16, #hivm.address_space<cbuf>>, i1, index, index, index) outs(%c : memref<3x2x16x16xf32, #hivm.address_space<cc>>) sync_related_args(%e0, %e1, %e0, %e1, %turn, %none, %none : i64, i64, i64, i64, i64, i64, i64)
    }
    hivm.hir.wait_flag[<PIPE_MTE1>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE1>, <PIPE_MTE2>, <EVENT_ID1>]
    hivm.hir.set_flag[<PIPE_M>, <PIPE_FIX>, <EVENT_ID0>]
    %os = memref.subview %o[%row, 0] [32, 48] [1, 1] : memref<64x48xf32, #hivm.address_space<gm>> to memref<32x48xf32, strided<[48, 1], offset: ?>, #hivm.address_space<gm>>
    hivm.hir.wait_flag[<PIPE_M>, <PIPE_FIX>, <EVENT_ID0>]
    hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>} ins(%c : memref<3x2x16x16xf32, #hivm.address_space<cc>>) outs(%os : memref<32x48xf32, strided<[48, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
