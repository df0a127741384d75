// launch: grid=(2,)
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @sorted_with_places(%x: memref<4x32xf32, #hivm.address_space<gm>>, %y: memref<4x64xf32, #hivm.address_space<gm>>, %p: memref<4x32xi32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %a256 = arith.constant 256 : i64
    %a512 = arith.constant 512 : i64
    %a768 = arith.constant 768 : i64
    %a2048 = arith.constant 2048 : i64
    %c2 = arith.constant 2 : index
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %row = arith.muli %number, %c2 : index
    %xg = memref.subview %x[%row, 0] [2, 32] [1, 1] : memref<4x32xf32, #hivm.address_space<gm>> to memref<2x32xf32, strided<[32, 1], offset: ?>, #hivm.address_space<gm>>
    %yg = memref.subview %y[%row, 0] [2, 64] [1, 1] : memref<4x64xf32, #hivm.address_space<gm>> to memref<2x64xf32, strided<[64, 1], offset: ?>, #hivm.address_space<gm>>
    %pg = memref.subview %p[%row, 0] [2, 32] [1, 1] : memref<4x32xi32, #hivm.address_space<gm>> to memref<2x32xi32, strided<[32, 1], offset: ?>, #hivm.address_space<gm>>
    %xu = hivm.hir.pointer_cast(%a0) : memref<2x32xf32, #hivm.address_space<ub>>
    %su = hivm.hir.pointer_cast(%a256) : memref<2x32xf32, #hivm.address_space<ub>>
    %pu = hivm.hir.pointer_cast(%a512) : memref<2x32xi32, #hivm.address_space<ub>>
    %yu = hivm.hir.pointer_cast(%a768) : memref<2x64xf32, #hivm.address_space<ub>>
    %work = hivm.hir.pointer_cast(%a2048) : memref<256xf32, #hivm.address_space<ub>>
    hivm.hir.load ins(%xg : memref<2x32xf32, strided<[32, 1], offset: ?>, #hivm.address_space<gm>>) outs(%xu : memref<2x32xf32, #hivm.address_space<ub>>) init_out_buffer = false
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.vsort ins(%xu : memref<2x32xf32, #hivm.address_space<ub>>) outs(%su, %pu : memref<2x32xf32, #hivm.address_space<ub>>, memref<2x32xi32, #hivm.address_space<ub>>) descending = true sort_axis = 1 temp_buffer(%work : memref<256xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vconcat dim(1) ins(%su, %xu : memref<2x32xf32, #hivm.address_space<ub>>, memref<2x32xf32, #hivm.address_space<ub>>) outs(%yu : memref<2x64xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%pu : memref<2x32xi32, #hivm.address_space<ub>>) outs(%pg : memref<2x32xi32, strided<[32, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.store ins(%yu : memref<2x64xf32, #hivm.address_space<ub>>) outs(%yg : memref<2x64xf32, strided<[64, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
