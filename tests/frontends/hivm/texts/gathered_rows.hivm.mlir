// launch: grid=(2,), x=80
#row = affine_map<()[s0] -> (s0 * 8 + 8)>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @gathered_rows(%x: memref<?xf32, #hivm.address_space<gm>>, %i: memref<?xi32, #hivm.address_space<gm>>, %o: memref<?xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %a32 = arith.constant 32 : i64
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c1_i32 = arith.constant 1 : i32
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %first = arith.muli %number, %c4 : index
    %ig = memref.reinterpret_cast %i to offset: [%first], sizes: [4], strides: [1] : memref<?xi32, #hivm.address_space<gm>> to memref<4xi32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %iu = hivm.hir.pointer_cast(%a0) : memref<4xi32, #hivm.address_space<ub>>
    %xu = hivm.hir.pointer_cast(%a32) : memref<4x8xf32, #hivm.address_space<ub>>
    hivm.hir.load ins(%ig : memref<4xi32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%iu : memref<4xi32, #hivm.address_space<ub>>) init_out_buffer = false
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_S>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_S>, <EVENT_ID0>]
    scf.for %j = %c0 to %c4 step %c1 {
      %n = memref.load %iu[%j] : memref<4xi32, #hivm.address_space<ub>>
      %m = arith.subi %n, %c1_i32 : i32
      %r = arith.index_cast %m : i32 to index
      %start = affine.apply #row()[%r]
      %xg = memref.reinterpret_cast %x to offset: [%start], sizes: [1, 8], strides: [8, 1] : memref<?xf32, #hivm.address_space<gm>> to memref<1x8xf32, strided<[8, 1], offset: ?>, #hivm.address_space<gm>>
      %xp = memref.subview %xu[%j, 0] [1, 8] [1, 1] : memref<4x8xf32, #hivm.address_space<ub>> to memref<1x8xf32, strided<[8, 1], offset: ?>, #hivm.address_space<ub>>
      hivm.hir.load ins(%xg : memref<1x8xf32, strided<[8, 1], offset: ?>, #hivm.address_space<gm>>) outs(%xp : memref<1x8xf32, strided<[8, 1], offset: ?>, #hivm.address_space<ub>>) init_out_buffer = false
    }
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    %top = arith.muli %first, %c8 : index
    %oh = memref.reinterpret_cast %o to offset: [%top], sizes: [4, 8], strides: [8, 1] : memref<?xf32, #hivm.address_space<gm>> to memref<4x8xf32, strided<[8, 1], offset: ?>, #hivm.address_space<gm>>
    hivm.hir.store ins(%xu : memref<4x8xf32, #hivm.address_space<ub>>) outs(%oh : memref<4x8xf32, strided<[8, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
