// launch: grid=(3,), o=56, scattered
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @scattered_rows(%x: memref<?xf32, #hivm.address_space<gm>>, %i: memref<?xi32, #hivm.address_space<gm>>, %o: memref<?xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %c8_i32 = arith.constant 8 : i32
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %first = arith.muli %number, %c8 : index
    %ig = memref.reinterpret_cast %i to offset: [%number], sizes: [1], strides: [1] : memref<?xi32, #hivm.address_space<gm>> to memref<1xi32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %n = memref.load %ig[%c0] : memref<1xi32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %m = arith.muli %n, %c8_i32 : i32
    %start = arith.index_cast %m : i32 to index
    %xg = memref.reinterpret_cast %x to offset: [%first], sizes: [8], strides: [1] : memref<?xf32, #hivm.address_space<gm>> to memref<8xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %og = memref.reinterpret_cast %o to offset: [%start], sizes: [8], strides: [1] : memref<?xf32, #hivm.address_space<gm>> to memref<8xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %xu = hivm.hir.pointer_cast(%a0) : memref<8xf32, #hivm.address_space<ub>>
    hivm.hir.load ins(%xg : memref<8xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%xu : memref<8xf32, #hivm.address_space<ub>>) init_out_buffer = false
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%xu : memref<8xf32, #hivm.address_space<ub>>) outs(%og : memref<8xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
