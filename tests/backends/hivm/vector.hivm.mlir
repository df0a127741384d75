builtin.module attributes {hacc.target = #hacc.target<"Ascend910B1">, hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @reduce_0(%input0: memref<50x100xi8, #hivm.address_space<gm>>, %input1: memref<50x100xf32, #hivm.address_space<gm>>, %output0: memref<50x100xf32, #hivm.address_space<gm>>) attributes {hacc.block_dim = 2 : i64, hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %0 = arith.constant 25 : index
    %1 = arith.constant 100 : index
    %2 = arith.constant 6400 : i64
    %3 = arith.constant 30976 : i64
    %4 = arith.constant 0.000000e+00 : f16
    %5 = arith.constant 36864 : i64
    %6 = arith.constant 9728 : i64
    %7 = arith.constant 0 : i64
    %8 = arith.constant -1.000000e+09 : f32
    %9 = arith.constant 40192 : i64
    %10 = arith.constant 30720 : i64
    %11 = arith.constant 0xff800000 : f32
    %12 = arith.constant 50688 : i64
    %13 = arith.constant 20224 : i64
    hivm.hir.set_mask_norm
    %14 = hivm.hir.get_block_idx -> i64
    %15 = arith.index_cast %14 : i64 to index
    %16 = arith.muli %15, %0 : index
    %17 = arith.muli %16, %1 : index
    %18 = memref.reinterpret_cast %input0 to offset: [%17], sizes: [25, 100], strides: [100, 1] : memref<50x100xi8, #hivm.address_space<gm>> to memref<25x100xi8, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>
    %19 = hivm.hir.pointer_cast(%2) : memref<25x100xi8, strided<[128, 1]>, #hivm.address_space<ub>>
    hivm.hir.load ins(%18 : memref<25x100xi8, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>) outs(%19 : memref<25x100xi8, strided<[128, 1]>, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    %20 = hivm.hir.pointer_cast(%3) : memref<25x100xf16, strided<[112, 1]>, #hivm.address_space<ub>>
    hivm.hir.vcast ins(%19 : memref<25x100xi8, strided<[128, 1]>, #hivm.address_space<ub>>) outs(%20 : memref<25x100xf16, strided<[112, 1]>, #hivm.address_space<ub>>) round_mode = <rint>
    hivm.hir.pipe_barrier[<PIPE_V>]
    %21 = hivm.hir.pointer_cast(%5) : memref<25x100xi1, strided<[256, 1]>, #hivm.address_space<ub>>
    hivm.hir.vcmp ins(%20, %4 : memref<25x100xf16, strided<[112, 1]>, #hivm.address_space<ub>>, f16) outs(%21 : memref<25x100xi1, strided<[256, 1]>, #hivm.address_space<ub>>) compare_mode = <ne>
    %22 = memref.reinterpret_cast %input1 to offset: [%17], sizes: [25, 100], strides: [100, 1] : memref<50x100xf32, #hivm.address_space<gm>> to memref<25x100xf32, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>
    %23 = hivm.hir.pointer_cast(%6) : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>
    hivm.hir.load ins(%22 : memref<25x100xf32, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>) outs(%23 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID1>]
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID1>]
    %24 = hivm.hir.pointer_cast(%7) : memref<16xf32, #hivm.address_space<ub>>
    %25 = hivm.hir.pointer_cast(%9) : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>
    hivm.hir.vsel ins(%21, %23, %8 : memref<25x100xi1, strided<[256, 1]>, #hivm.address_space<ub>>, memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>, f32) outs(%25 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) temp_buffer(%24 : memref<16xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %26 = hivm.hir.pointer_cast(%7) : memref<1600xf32, #hivm.address_space<ub>>
    %27 = hivm.hir.pointer_cast(%10) : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>
    hivm.hir.vreduce <max> ins(%25 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%27 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>) temp_buffer(%26 : memref<1600xf32, #hivm.address_space<ub>>) reduce_dims = [1]
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmax ins(%27, %11 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>, f32) outs(%27 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %28 = hivm.hir.pointer_cast(%7) : memref<64xf32, #hivm.address_space<ub>>
    %29 = hivm.hir.pointer_cast(%12) : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%27 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>) outs(%29 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) temp_buffer(%28 : memref<64xf32, #hivm.address_space<ub>>) broadcast_dims = [1]
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vsub ins(%25, %29 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>, memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%25 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vexp ins(%25 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%25 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vreduce <sum> ins(%25 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%27 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>) temp_buffer(%26 : memref<1600xf32, #hivm.address_space<ub>>) reduce_dims = [1]
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vbrc ins(%27 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>) outs(%29 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) temp_buffer(%28 : memref<64xf32, #hivm.address_space<ub>>) broadcast_dims = [1]
    hivm.hir.pipe_barrier[<PIPE_V>]
    %30 = hivm.hir.pointer_cast(%13) : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>
    hivm.hir.vdiv ins(%25, %29 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>, memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%30 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    %31 = memref.reinterpret_cast %output0 to offset: [%17], sizes: [25, 100], strides: [100, 1] : memref<50x100xf32, #hivm.address_space<gm>> to memref<25x100xf32, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>
    hivm.hir.store ins(%30 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%31 : memref<25x100xf32, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    func.return
  }
}
