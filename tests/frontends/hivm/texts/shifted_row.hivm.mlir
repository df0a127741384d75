// launch: grid=(4,)
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @shifted_row(%x: memref<4x64xf32, #hivm.address_space<gm>>, %o: memref<4x64xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %c0 = arith.constant 0 : index
    %a0 = arith.constant 0 : i64
    %a256 = arith.constant 256 : i64
    %a288 = arith.constant 288 : i64
    %zero = arith.constant 0.000000e+00 : f32
    %block = hivm.hir.get_block_idx -> i64
    %row = arith.index_cast %block : i64 to index
    %xs = memref.subview %x[%row, 0] [1, 64] [1, 1] : memref<4x64xf32, #hivm.address_space<gm>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %os = memref.subview %o[%row, 0] [1, 64] [1, 1] : memref<4x64xf32, #hivm.address_space<gm>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %u = hivm.hir.pointer_cast(%a0) : memref<64xf32, #hivm.address_space<ub>>
    hivm.hir.load ins(%xs : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%u : memref<64xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    %m = hivm.hir.pointer_cast(%a256) : memref<1xf32, #hivm.address_space<ub>>
    %t = hivm.hir.pointer_cast(%a288) : memref<64xf32, #hivm.address_space<ub>>
    hivm.hir.vreduce <max> ins(%u : memref<64xf32, #hivm.address_space<ub>>) outs(%m : memref<1xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<64xf32, #hivm.address_space<ub>>) reduce_dims = [0]
    hivm.hir.set_flag[<PIPE_V>, <PIPE_S>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_S>, <EVENT_ID0>]
    %top = memref.load %m[%c0] : memref<1xf32, #hivm.address_space<ub>>
    %less = arith.subf %zero, %top : f32
    hivm.hir.vadd ins(%u, %less : memref<64xf32, #hivm.address_space<ub>>, f32) outs(%u : memref<64xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vexp ins(%u : memref<64xf32, #hivm.address_space<ub>>) outs(%u : memref<64xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%u : memref<64xf32, #hivm.address_space<ub>>) outs(%os : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
