// launch: grid=(2,)
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @picked_elements(%x: memref<4x40xf16, #hivm.address_space<gm>>, %i: memref<4x16xi32, #hivm.address_space<gm>>, %y: memref<4x16xf16, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %a512 = arith.constant 512 : i64
    %a768 = arith.constant 768 : i64
    %c2 = arith.constant 2 : index
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %row = arith.muli %number, %c2 : index
    %xg = memref.subview %x[%row, 0] [2, 40] [1, 1] : memref<4x40xf16, #hivm.address_space<gm>> to memref<2x40xf16, strided<[40, 1], offset: ?>, #hivm.address_space<gm>>
    %ig = memref.subview %i[%row, 0] [2, 16] [1, 1] : memref<4x16xi32, #hivm.address_space<gm>> to memref<2x16xi32, strided<[16, 1], offset: ?>, #hivm.address_space<gm>>
    %yg = memref.subview %y[%row, 0] [2, 16] [1, 1] : memref<4x16xf16, #hivm.address_space<gm>> to memref<2x16xf16, strided<[16, 1], offset: ?>, #hivm.address_space<gm>>
    %xw = hivm.hir.pointer_cast(%a0) : memref<2x48xf16, #hivm.address_space<ub>>
    %xu = memref.subview %xw[0, 0] [2, 40] [1, 1] : memref<2x48xf16, #hivm.address_space<ub>> to memref<2x40xf16, strided<[48, 1]>, #hivm.address_space<ub>>
    %iu = hivm.hir.pointer_cast(%a512) : memref<2x16xi32, #hivm.address_space<ub>>
    %yu = hivm.hir.pointer_cast(%a768) : memref<2x16xf16, #hivm.address_space<ub>>
    hivm.hir.load ins(%xg : memref<2x40xf16, strided<[40, 1], offset: ?>, #hivm.address_space<gm>>) outs(%xu : memref<2x40xf16, strided<[48, 1]>, #hivm.address_space<ub>>) init_out_buffer = false
    hivm.hir.load ins(%ig : memref<2x16xi32, strided<[16, 1], offset: ?>, #hivm.address_space<gm>>) outs(%iu : memref<2x16xi32, #hivm.address_space<ub>>) init_out_buffer = false
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.vgather ins(%xu : memref<2x40xf16, strided<[48, 1]>, #hivm.address_space<ub>>) indices(%iu : memref<2x16xi32, #hivm.address_space<ub>>) outs(%yu : memref<2x16xf16, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%yu : memref<2x16xf16, #hivm.address_space<ub>>) outs(%yg : memref<2x16xf16, strided<[16, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
