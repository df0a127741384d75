// launch: grid=(3,)
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @through_workspace(%x: memref<192xf32, #hivm.address_space<gm>>, %w: memref<?xi8, #hivm.address_space<gm>> {hacc.arg_type = #hacc.arg_type<workspace>}, %o: memref<192xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %a256 = arith.constant 256 : i64
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %start = arith.muli %number, %c64 : index
    %xg = memref.reinterpret_cast %x to offset: [%start], sizes: [64], strides: [1] : memref<192xf32, #hivm.address_space<gm>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %og = memref.reinterpret_cast %o to offset: [%start], sizes: [64], strides: [1] : memref<192xf32, #hivm.address_space<gm>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %part = memref_ext.alloc_workspace() from %w offset = [%c0] : from memref<?xi8, #hivm.address_space<gm>> to memref<2x32xf32, #hivm.address_space<gm>>
    %row = memref.reinterpret_cast %part to offset: [%c32], sizes: [32], strides: [1] : memref<2x32xf32, #hivm.address_space<gm>> to memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %first = memref.reinterpret_cast %row to offset: [%c0], sizes: [32], strides: [1] : memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>> to memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %ub = hivm.hir.pointer_cast(%a0) : memref<64xf32, #hivm.address_space<ub>>
    %low = memref.subview %ub[0] [32] [1] : memref<64xf32, #hivm.address_space<ub>> to memref<32xf32, strided<[1]>, #hivm.address_space<ub>>
    %high = memref.subview %ub[32] [32] [1] : memref<64xf32, #hivm.address_space<ub>> to memref<32xf32, strided<[1], offset: 32>, #hivm.address_space<ub>>
    hivm.hir.load ins(%xg : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%ub : memref<64xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%low : memref<32xf32, strided<[1]>, #hivm.address_space<ub>>) outs(%row : memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.store ins(%high : memref<32xf32, strided<[1], offset: 32>, #hivm.address_space<ub>>) outs(%first : memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.load ins(%row : memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%high : memref<32xf32, strided<[1], offset: 32>, #hivm.address_space<ub>>)
    hivm.hir.load ins(%first : memref<32xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%low : memref<32xf32, strided<[1]>, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%ub : memref<64xf32, #hivm.address_space<ub>>) outs(%og : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
