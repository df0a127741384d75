builtin.module attributes {hacc.target = #hacc.target<"Ascend910B1">, hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @reduce_0(%input0: memref<50x100xi8, #hivm.address_space<gm>>, %input1: memref<50x100xf32, #hivm.address_space<gm>>, %output0: memref<50x100xf32, #hivm.address_space<gm>>) attributes {hacc.block_dim = 2 : i64, hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %0 = arith.constant 0.000000e+00 : f16
    %1 = arith.constant 30720 : i64
    %2 = arith.constant 25 : index
    %3 = arith.constant 100 : index
    %4 = arith.constant 6400 : i64
    %5 = arith.constant 30976 : i64
    %6 = arith.constant 36864 : i64
    %7 = arith.constant 9728 : i64
    %8 = arith.constant -1.000000e+09 : f32
    %9 = arith.constant 0 : i64
    %10 = arith.constant 40192 : i64
    %11 = arith.constant 0xff800000 : f32
    %12 = arith.constant 32000 : i64
    %13 = arith.constant 50688 : i64
    %14 = arith.constant 20224 : i64
    hivm.hir.set_mask_norm
    %15 = hivm.hir.get_block_idx -> i64
    %16 = arith.index_cast %15 : i64 to index
    %17 = hivm.hir.pointer_cast(%1) : memref<1xf16, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%0 : f16) outs(%17 : memref<1xf16, #hivm.address_space<ub>>)
    %18 = arith.muli %16, %2 : index
    %19 = arith.muli %18, %3 : index
    %20 = memref.reinterpret_cast %input0 to offset: [%19], sizes: [25, 100], strides: [100, 1] : memref<50x100xi8, #hivm.address_space<gm>> to memref<25x100xi8, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>
    %21 = hivm.hir.pointer_cast(%4) : memref<25x100xi8, strided<[128, 1]>, #hivm.address_space<ub>>
    hivm.hir.load ins(%20 : memref<25x100xi8, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>) outs(%21 : memref<25x100xi8, strided<[128, 1]>, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    %22 = hivm.hir.pointer_cast(%5) : memref<25x100xf16, strided<[112, 1]>, #hivm.address_space<ub>>
    hivm.hir.vcast ins(%21 : memref<25x100xi8, strided<[128, 1]>, #hivm.address_space<ub>>) outs(%22 : memref<25x100xf16, strided<[112, 1]>, #hivm.address_space<ub>>) round_mode = <rint>
    hivm.hir.pipe_barrier[<PIPE_V>]
    %23 = hivm.hir.pointer_cast(%6) : memref<25x100xi1, strided<[256, 1]>, #hivm.address_space<ub>>
    hivm.hir.vcmp ins(%22, %0 : memref<25x100xf16, strided<[112, 1]>, #hivm.address_space<ub>>, f16) outs(%23 : memref<25x100xi1, strided<[256, 1]>, #hivm.address_space<ub>>) compare_mode = <ne>
    %24 = memref.reinterpret_cast %input1 to offset: [%19], sizes: [25, 100], strides: [100, 1] : memref<50x100xf32, #hivm.address_space<gm>> to memref<25x100xf32, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>
    %25 = hivm.hir.pointer_cast(%7) : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>
    hivm.hir.load ins(%24 : memref<25x100xf32, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>) outs(%25 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID1>]
    hivm.hir.pipe_barrier[<PIPE_V>]
    %26 = hivm.hir.pointer_cast(%1) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%8 : f32) outs(%26 : memref<1xf32, #hivm.address_space<ub>>)
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID1>]
    hivm.hir.pipe_barrier[<PIPE_V>]
    %27 = hivm.hir.pointer_cast(%9) : memref<16xf32, #hivm.address_space<ub>>
    %28 = hivm.hir.pointer_cast(%10) : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>
    hivm.hir.vsel ins(%23, %25, %8 : memref<25x100xi1, strided<[256, 1]>, #hivm.address_space<ub>>, memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>, f32) outs(%28 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) temp_buffer(%27 : memref<16xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %29 = hivm.hir.pointer_cast(%9) : memref<1600xf32, #hivm.address_space<ub>>
    %30 = hivm.hir.pointer_cast(%1) : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>
    hivm.hir.vreduce <max> ins(%28 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%30 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>) temp_buffer(%29 : memref<1600xf32, #hivm.address_space<ub>>) reduce_dims = [1]
    %31 = hivm.hir.pointer_cast(%12) : memref<1xf32, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%11 : f32) outs(%31 : memref<1xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vmax ins(%30, %11 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>, f32) outs(%30 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    %32 = hivm.hir.pointer_cast(%9) : memref<64xf32, #hivm.address_space<ub>>
    %33 = hivm.hir.pointer_cast(%13) : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>
    hivm.hir.vbrc ins(%30 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>) outs(%33 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) temp_buffer(%32 : memref<64xf32, #hivm.address_space<ub>>) broadcast_dims = [1]
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vsub ins(%28, %33 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>, memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%28 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vexp ins(%28 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%28 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vreduce <sum> ins(%28 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%30 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>) temp_buffer(%29 : memref<1600xf32, #hivm.address_space<ub>>) reduce_dims = [1]
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vbrc ins(%30 : memref<25x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>) outs(%33 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) temp_buffer(%32 : memref<64xf32, #hivm.address_space<ub>>) broadcast_dims = [1]
    hivm.hir.pipe_barrier[<PIPE_V>]
    %34 = hivm.hir.pointer_cast(%14) : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>
    hivm.hir.vdiv ins(%28, %33 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>, memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%34 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    %35 = memref.reinterpret_cast %output0 to offset: [%19], sizes: [25, 100], strides: [100, 1] : memref<50x100xf32, #hivm.address_space<gm>> to memref<25x100xf32, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>
    hivm.hir.store ins(%34 : memref<25x100xf32, strided<[104, 1]>, #hivm.address_space<ub>>) outs(%35 : memref<25x100xf32, strided<[100, 1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    func.return
  }
}
