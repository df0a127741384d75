// launch: grid=(4,), n=3
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @early_exit(%x: memref<4x64xf32, #hivm.address_space<gm>>, %n: i32) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %two = arith.constant 2.000000e+00 : f32
    %three = arith.constant 3.000000e+00 : f32
    %one = arith.constant 1 : i32
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.trunci %block : i64 to i32
    %row = arith.index_cast %block : i64 to index
    %inside = arith.cmpi slt, %number, %n : i32
    cf.cond_br %inside, ^work, ^end
  ^work:
    %xs = memref.subview %x[%row, 0] [1, 64] [1, 1] : memref<4x64xf32, #hivm.address_space<gm>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %u = hivm.hir.pointer_cast(%a0) : memref<64xf32, #hivm.address_space<ub>>
    hivm.hir.load ins(%xs : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%u : memref<64xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    %first = arith.cmpi slt, %number, %one : i32
    cf.cond_br %first, ^scaled(%two : f32), ^scaled(%three : f32)
  ^scaled(%by: f32):
    hivm.hir.vmul ins(%u, %by : memref<64xf32, #hivm.address_space<ub>>, f32) outs(%u : memref<64xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%u : memref<64xf32, #hivm.address_space<ub>>) outs(%xs : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    cf.br ^end
  ^end:
    return
  }
}
