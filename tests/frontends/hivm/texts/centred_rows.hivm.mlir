// launch: grid=(2,)
#turn = affine_map<()[s0, s1] -> (s0 floordiv s1)>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @centred_rows(%x: memref<32x32xf32, #hivm.address_space<gm>>, %o: memref<32x32xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %c16 = arith.constant 16 : index
    %e0 = arith.constant 0 : i64
    %e1 = arith.constant 1 : i64
    %c2 = arith.constant 2 : index
    %a0 = arith.constant 0 : i64
    %a512 = arith.constant 512 : i64
    %a1024 = arith.constant 1024 : i64
    %a1056 = arith.constant 1056 : i64
    %width = arith.constant 3.200000e+01 : f32
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %row0 = arith.muli %number, %c16 : index
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID1>]
    scf.for %i = %c0 to %c16 step %c4 {
      %turn = affine.apply #turn()[%i, %c4]
      %odd = arith.remsi %turn, %c2 : index
      %second = arith.index_cast %odd : index to i1
      %event = arith.select %second, %e1, %e0 : i64
      %u = hivm.hir.pointer_cast(%a0, %a512) : memref<4x32xf32, #hivm.address_space<ub>>
      annotation.mark %u {hivm.multi_buffer = 2 : i32} : memref<4x32xf32, #hivm.address_space<ub>>
      %row = arith.addi %row0, %i : index
      %xs = memref.subview %x[%row, 0] [4, 32] [1, 1] : memref<32x32xf32, #hivm.address_space<gm>> to memref<4x32xf32, strided<[32, 1], offset: ?>, #hivm.address_space<gm>>
      %os = memref.subview %o[%row, 0] [4, 32] [1, 1] : memref<32x32xf32, #hivm.address_space<gm>> to memref<4x32xf32, strided<[32, 1], offset: ?>, #hivm.address_space<gm>>
      hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, %event]
      hivm.hir.load ins(%xs : memref<4x32xf32, strided<[32, 1], offset: ?>, #hivm.address_space<gm>>) outs(%u : memref<4x32xf32, #hivm.address_space<ub>>)
      hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
      %s = hivm.hir.pointer_cast(%a1024) : memref<4x1xf32, #hivm.address_space<ub>>
      %t = hivm.hir.pointer_cast(%a1056) : memref<64xf32, #hivm.address_space<ub>>
      hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
      hivm.hir.pipe_barrier[<PIPE_V>]
      hivm.hir.vreduce <sum> ins(%u : memref<4x32xf32, #hivm.address_space<ub>>) outs(%s : memref<4x1xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<64xf32, #hivm.address_space<ub>>) reduce_dims = [1]
      %flat = memref.collapse_shape %s [[0, 1]] : memref<4x1xf32, #hivm.address_space<ub>> into memref<4xf32, #hivm.address_space<ub>>
      hivm.hir.pipe_barrier[<PIPE_V>]
      hivm.hir.vdiv ins(%flat, %width : memref<4xf32, #hivm.address_space<ub>>, f32) outs(%flat : memref<4xf32, #hivm.address_space<ub>>)
      hivm.hir.pipe_barrier[<PIPE_V>]
      hivm.hir.vsub ins(%u, %s : memref<4x32xf32, #hivm.address_space<ub>>, memref<4x1xf32, #hivm.address_space<ub>>) outs(%u : memref<4x32xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<64xf32, #hivm.address_space<ub>>) broadcast = [1]
      hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
      hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
      hivm.hir.store ins(%u : memref<4x32xf32, #hivm.address_space<ub>>) outs(%os : memref<4x32xf32, strided<[32, 1], offset: ?>, #hivm.address_space<gm>>)
      hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, %event]
    }
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID1>]
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
