// launch: grid=(2,), x=(5,24), o=(5,24)
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @doubled_columns(%x: memref<?x?xf32, #hivm.address_space<gm>>, %o: memref<?x?xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %rows = memref.dim %x, %c0 : memref<?x?xf32, #hivm.address_space<gm>>
    %columns = memref.dim %x, %c1 : memref<?x?xf32, #hivm.address_space<gm>>
    %width = arith.divsi %columns, %c2 : index
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %first = arith.muli %number, %width : index
    %xg = memref.subview %x[0, %first] [%rows, %width] [1, 1] : memref<?x?xf32, #hivm.address_space<gm>> to memref<?x?xf32, strided<[?, 1], offset: ?>, #hivm.address_space<gm>>
    %og = memref.subview %o[0, %first] [%rows, %width] [1, 1] : memref<?x?xf32, #hivm.address_space<gm>> to memref<?x?xf32, strided<[?, 1], offset: ?>, #hivm.address_space<gm>>
    %xa = hivm.hir.pointer_cast(%a0) : memref<8x16xf32, #hivm.address_space<ub>>
    %xu = memref.subview %xa[0, 0] [%rows, %width] [1, 1] : memref<8x16xf32, #hivm.address_space<ub>> to memref<?x?xf32, strided<[16, 1]>, #hivm.address_space<ub>>
    hivm.hir.load ins(%xg : memref<?x?xf32, strided<[?, 1], offset: ?>, #hivm.address_space<gm>>) outs(%xu : memref<?x?xf32, strided<[16, 1]>, #hivm.address_space<ub>>) init_out_buffer = false
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.vadd ins(%xu, %xu : memref<?x?xf32, strided<[16, 1]>, #hivm.address_space<ub>>, memref<?x?xf32, strided<[16, 1]>, #hivm.address_space<ub>>) outs(%xu : memref<?x?xf32, strided<[16, 1]>, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%xu : memref<?x?xf32, strided<[16, 1]>, #hivm.address_space<ub>>) outs(%og : memref<?x?xf32, strided<[?, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
