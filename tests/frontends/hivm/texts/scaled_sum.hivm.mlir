// launch: grid=(3,), n=150, a=0.5
#upper = affine_map<()[s0, s1] -> (s0 + 64, s1)>
#lower = affine_map<()[s0, s1] -> (s0, s1)>
#left = affine_map<()[s0, s1] -> (s0 - s1)>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @scaled_sum(%x: memref<?xf32, #hivm.address_space<gm>>, %y: memref<?xf32, #hivm.address_space<gm>>, %o: memref<?xf32, #hivm.address_space<gm>>, %n: i32, %a: f32) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %a256 = arith.constant 256 : i64
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c64_i32 = arith.constant 64 : i32
    %zero = arith.constant 0.000000e+00 : f32
    hivm.hir.set_mask_norm
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.trunci %block : i64 to i32
    %first = arith.muli %number, %c64_i32 : i32
    %start = arith.index_cast %first : i32 to index
    %size = arith.index_cast %n : i32 to index
    %most = affine.max #lower()[%start, %size]
    %end = affine.min #upper()[%start, %most]
    %count = affine.apply #left()[%end, %start]
    %part = arith.cmpi slt, %count, %c64 : index
    %xg = memref.reinterpret_cast %x to offset: [%start], sizes: [64], strides: [1] : memref<?xf32, #hivm.address_space<gm>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %yg = memref.reinterpret_cast %y to offset: [%start], sizes: [64], strides: [1] : memref<?xf32, #hivm.address_space<gm>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %og = memref.reinterpret_cast %o to offset: [%start], sizes: [64], strides: [1] : memref<?xf32, #hivm.address_space<gm>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %xu = hivm.hir.pointer_cast(%a0) : memref<64xf32, #hivm.address_space<ub>>
    %yu = hivm.hir.pointer_cast(%a256) : memref<64xf32, #hivm.address_space<ub>>
    %xs = memref.subview %xg[0] [%count] [1] : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>> to memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %ys = memref.subview %yg[0] [%count] [1] : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>> to memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %os = memref.subview %og[0] [%count] [1] : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>> to memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %xp = memref.subview %xu[0] [%count] [1] : memref<64xf32, #hivm.address_space<ub>> to memref<?xf32, strided<[1]>, #hivm.address_space<ub>>
    %yp = memref.subview %yu[0] [%count] [1] : memref<64xf32, #hivm.address_space<ub>> to memref<?xf32, strided<[1]>, #hivm.address_space<ub>>
    scf.if %part {
      hivm.hir.vbrc ins(%zero : f32) outs(%xu : memref<64xf32, #hivm.address_space<ub>>)
      hivm.hir.vbrc ins(%zero : f32) outs(%yu : memref<64xf32, #hivm.address_space<ub>>)
      hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE2>, <EVENT_ID0>]
      hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE2>, <EVENT_ID0>]
    } {hivm.unlikely_condition}
    hivm.hir.load ins(%xs : memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%xp : memref<?xf32, strided<[1]>, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %zero : f32 left_padding_num = %c0 : index init_out_buffer = false
    hivm.hir.load ins(%ys : memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%yp : memref<?xf32, strided<[1]>, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %zero : f32 left_padding_num = %c0 : index init_out_buffer = false
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.vmul ins(%xu, %a : memref<64xf32, #hivm.address_space<ub>>, f32) outs(%xu : memref<64xf32, #hivm.address_space<ub>>)
    hivm.hir.pipe_barrier[<PIPE_V>]
    hivm.hir.vadd ins(%xu, %yu : memref<64xf32, #hivm.address_space<ub>>, memref<64xf32, #hivm.address_space<ub>>) outs(%xu : memref<64xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%xp : memref<?xf32, strided<[1]>, #hivm.address_space<ub>>) outs(%os : memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
