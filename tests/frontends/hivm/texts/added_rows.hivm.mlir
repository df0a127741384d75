// launch: grid=(3,)
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @added_rows(%x: memref<96xf32, #hivm.address_space<gm>>, %o: memref<32xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %c0_i64 = arith.constant 0 : i64
    %c32 = arith.constant 32 : index
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %at = arith.muli %number, %c32 : index
    %row = memref.subview %x[%at] [32] [1] : memref<96xf32, #hivm.address_space<gm>> to memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %b = hivm.hir.pointer_cast(%c0_i64) : memref<32xf32, #hivm.address_space<ub>>
    hivm.hir.load ins(%row : memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%b : memref<32xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.vmul ins(%b, %b : memref<32xf32, #hivm.address_space<ub>>, memref<32xf32, #hivm.address_space<ub>>) outs(%b : memref<32xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%b : memref<32xf32, #hivm.address_space<ub>>) outs(%o : memref<32xf32, #hivm.address_space<gm>>) atomic = <add>
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
