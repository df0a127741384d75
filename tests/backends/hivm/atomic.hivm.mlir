builtin.module attributes {hacc.target = #hacc.target<"Ascend910B1">, hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @sums_0(%input0: memref<150xf32, #hivm.address_space<gm>>, %output0: memref<60xf32, #hivm.address_space<gm>>) attributes {hacc.block_dim = 3 : i64, hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %0 = arith.constant 50 : index
    %1 = arith.constant 0 : i64
    %2 = arith.constant 7 : index
    %3 = arith.constant 60 : index
    %4 = arith.constant 48 : index
    %5 = arith.constant 0 : index
    hivm.hir.set_mask_norm
    %6 = hivm.hir.get_block_idx -> i64
    %7 = arith.index_cast %6 : i64 to index
    %8 = arith.muli %7, %0 : index
    %9 = memref.reinterpret_cast %input0 to offset: [%8], sizes: [48], strides: [1] : memref<150xf32, #hivm.address_space<gm>> to memref<48xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %10 = hivm.hir.pointer_cast(%1) : memref<48xf32, #hivm.address_space<ub>>
    hivm.hir.load ins(%9 : memref<48xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%10 : memref<48xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    %11 = arith.muli %7, %2 : index
    %12 = arith.subi %3, %11 : index
    %13 = arith.minsi %12, %4 : index
    %14 = arith.maxsi %13, %5 : index
    %15 = memref.reinterpret_cast %output0 to offset: [%11], sizes: [%14], strides: [1] : memref<60xf32, #hivm.address_space<gm>> to memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %16 = memref.subview %10[0] [%14] [1] : memref<48xf32, #hivm.address_space<ub>> to memref<?xf32, strided<[1]>, #hivm.address_space<ub>>
    hivm.hir.store ins(%16 : memref<?xf32, strided<[1]>, #hivm.address_space<ub>>) outs(%15 : memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) atomic = <add>
    hivm.hir.pipe_barrier[<PIPE_MTE3>]
    %17 = memref.reinterpret_cast %output0 to offset: [%11], sizes: [%14], strides: [1] : memref<60xf32, #hivm.address_space<gm>> to memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %18 = memref.subview %10[0] [%14] [1] : memref<48xf32, #hivm.address_space<ub>> to memref<?xf32, strided<[1]>, #hivm.address_space<ub>>
    hivm.hir.store ins(%18 : memref<?xf32, strided<[1]>, #hivm.address_space<ub>>) outs(%17 : memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) atomic = <add>
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    func.return
  }
}
