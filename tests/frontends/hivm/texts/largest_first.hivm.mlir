// launch: grid=(2,)
#scalar = affine_map<() -> (0)>
#row = affine_map<()[s0] -> (s0 * 256)>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @largest(%x: memref<256xf32, #hivm.address_space<ub>>, %most: memref<f32, #hivm.address_space<ub>>) attributes {hivm.func_core_type = #hivm.func_core_type<AIV>, hivm.vector_function, no_inline} {
    %zero = arith.constant 0.000000e+00 : f32
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c256 = arith.constant 256 : index
    %first = vector.transfer_read %most[], %zero : memref<f32, #hivm.address_space<ub>>, vector<f32>
    %last = scf.for %i = %c0 to %c256 step %c64 iter_args(%so_far = %first) -> (vector<f32>) {
      %part = memref.subview %x[%i] [64] [1] : memref<256xf32, #hivm.address_space<ub>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<ub>>
      %v = vector.transfer_read %part[%c0], %zero {in_bounds = [true]} : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<ub>>, vector<64xf32>
      %number = vector.extractelement %so_far[] : vector<f32>
      %new = vector.multi_reduction <maximumf>, %v, %number [0] : vector<64xf32> to f32
      %next = vector.broadcast %new : f32 to vector<f32>
      scf.yield %next : vector<f32>
    }
    vector.transfer_write %last, %most[] : vector<f32>, memref<f32, #hivm.address_space<ub>>
    return
  }
  func.func @rest(%x: memref<256xf32, #hivm.address_space<ub>>, %most: memref<f32, #hivm.address_space<ub>>, %y: memref<256xf32, #hivm.address_space<ub>>) attributes {hivm.func_core_type = #hivm.func_core_type<AIV>, hivm.vector_function, no_inline} {
    %zero = arith.constant 0.000000e+00 : f32
    %half = arith.constant dense<5.000000e-01> : vector<64xf32>
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c256 = arith.constant 256 : index
    scf.for %i = %c0 to %c256 step %c64 {
      %part = memref.subview %x[%i] [64] [1] : memref<256xf32, #hivm.address_space<ub>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<ub>>
      %out = memref.subview %y[%i] [64] [1] : memref<256xf32, #hivm.address_space<ub>> to memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<ub>>
      %v = vector.transfer_read %part[%c0], %zero {in_bounds = [true]} : memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<ub>>, vector<64xf32>
      %m = vector.transfer_read %most[], %zero {in_bounds = [true], permutation_map = #scalar} : memref<f32, #hivm.address_space<ub>>, vector<64xf32>
      %d = arith.subf %v, %m : vector<64xf32>
      %e = math.exp %d : vector<64xf32>
      %h = arith.mulf %e, %half : vector<64xf32>
      vector.transfer_write %h, %out[%c0] {in_bounds = [true]} : vector<64xf32>, memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<ub>>
    }
    return
  }
  func.func @largest_first(%a: memref<?xf32, #hivm.address_space<gm>>, %o: memref<?xf32, #hivm.address_space<gm>>) attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %a0 = arith.constant 0 : i64
    %a1024 = arith.constant 1024 : i64
    %lowest = arith.constant 0xFF800000 : f32
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %start = affine.apply #row()[%number]
    %ag = memref.reinterpret_cast %a to offset: [%start], sizes: [256], strides: [1] : memref<?xf32, #hivm.address_space<gm>> to memref<256xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %og = memref.reinterpret_cast %o to offset: [%start], sizes: [256], strides: [1] : memref<?xf32, #hivm.address_space<gm>> to memref<256xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %x = hivm.hir.pointer_cast(%a0) : memref<256xf32, #hivm.address_space<ub>>
    %most = hivm.hir.pointer_cast(%a1024) : memref<f32, #hivm.address_space<ub>>
    hivm.hir.load ins(%ag : memref<256xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>) outs(%x : memref<256xf32, #hivm.address_space<ub>>)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    memref.store %lowest, %most[] : memref<f32, #hivm.address_space<ub>>
    hivm.hir.set_flag[<PIPE_S>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_S>, <PIPE_V>, <EVENT_ID0>]
    call @largest(%x, %most) {hivm.vector_function, no_inline} : (memref<256xf32, #hivm.address_space<ub>>, memref<f32, #hivm.address_space<ub>>) -> ()
    call @rest(%x, %most, %x) {hivm.vector_function, no_inline} : (memref<256xf32, #hivm.address_space<ub>>, memref<f32, #hivm.address_space<ub>>, memref<256xf32, #hivm.address_space<ub>>) -> ()
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.store ins(%x : memref<256xf32, #hivm.address_space<ub>>) outs(%og : memref<256xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
