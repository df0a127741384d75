// RUN: INVALID

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.pipe_barrier[<PIPE_X>]
// CHECK: 'PIPE_X' is not a hivm.pipe: PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_ALL, PIPE_MTE4, PIPE_MTE5, PIPE_V2, PIPE_FIX, VIRTUAL_PIPE_MTE2_L1A, VIRTUAL_PIPE_MTE2_L1B, PIPE_NUM, PIPE_UNASSIGNED

// -----

"hivm.hir.set_flag"() <{set_pipe = #hivm.pipe<PIPE_V>, wait_pipe = #hivm.pipe<PIPE_MTE3>}> : () -> ()
// CHECK: 'hivm.hir.set_flag' needs one event, written or computed

// -----

hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID8>]
// CHECK: 'EVENT_ID8' is not a hivm.event: EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7

// -----

"hivm.hir.wait_flag"() <{set_pipe = #hivm.pipe<PIPE_V>, wait_pipe = #hivm.pipe<PIPE_MTE3>}> : () -> ()
// CHECK: 'hivm.hir.wait_flag' needs one event, written or computed

// -----

"hivm.hir.pipe_barrier"() <{pipe = 3 : i64}> : () -> ()
// CHECK: 'hivm.hir.pipe_barrier' property 'pipe': 3 : i64 should be of base attribute hivm.pipe

// -----

"hivm.hir.sync_block_set"() <{tcore_type = #hivm.tcore_type<CUBE>, tpipe = #hivm.pipe<PIPE_FIX>, pipe = #hivm.pipe<PIPE_MTE2>, operandSegmentSizes = array<i32: 0, 0>}> : () -> ()
// CHECK: 'hivm.hir.sync_block_set' needs one flag, written or computed

// -----

"hivm.hir.sync_block_wait"() <{tcore_type = #hivm.tcore_type<CUBE>, tpipe = #hivm.pipe<PIPE_FIX>, pipe = #hivm.pipe<PIPE_MTE2>}> : () -> ()
// CHECK: 'hivm.hir.sync_block_wait' needs one flag, written or computed

// -----

hivm.hir.sync_block[<ALL_CUBE>]
// CHECK: 'hivm.hir.sync_block' in mode ALL_CUBE needs tcube_pipe

// -----

hivm.hir.sync_block[<BARRIER_CUBE>] tcube_pipe = <PIPE_FIX>
// CHECK: 'hivm.hir.sync_block' in mode BARRIER_CUBE has no tcube_pipe

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.sync_block_lock"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.sync_block_lock' operand 'lock_var' at position 0 does not verify: f32 should be of base attribute memref

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.sync_block_unlock"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.sync_block_unlock' operand 'lock_var' at position 0 does not verify: f32 should be of base attribute memref

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.free_lock_var"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.free_lock_var' operand 'lock_var' at position 0 does not verify: f32 should be of base attribute memref

// -----

%l = "hivm.hir.create_sync_block_lock"() : () -> f32
// CHECK: 'hivm.hir.create_sync_block_lock' result 'memref' at position 0 does not verify: f32 should be of base attribute memref

// -----

%x0 = "test.op"() : () -> (i32)
"hivm.hir.set_ffts_base_addr"(%x0) : (i32) -> ()
// CHECK: 'hivm.hir.set_ffts_base_addr' operand 'ffts_base_addr' at position 0 does not verify: Expected attribute i64 but got i32

// -----

"hivm.hir.set_ctrl"() <{enable = 1 : i32, idx = 60 : i64}> : () -> ()
// CHECK: 'hivm.hir.set_ctrl' property 'enable': Expected attribute i1 but got i32

// -----

"hivm.hir.set_atomic"() <{kind = 1 : i64}> : () -> ()
// CHECK: 'hivm.hir.set_atomic' property 'kind': 1 : i64 should be of base attribute hivm.atomic_kind

// -----

"hivm.hir.dcci"() <{mode = 1 : i64, dataCacheKind = 1 : i64}> : () -> ()
// CHECK: 'hivm.hir.dcci' property 'mode': 1 : i64 should be of base attribute hivm.DCCIMode

// -----

%i = "hivm.hir.get_block_idx"() : () -> i32
// CHECK: 'hivm.hir.get_block_idx' result 'result' at position 0 does not verify: Expected attribute i64 but got i32

// -----

%i = "hivm.hir.get_block_num"() : () -> i32
// CHECK: 'hivm.hir.get_block_num' result 'result' at position 0 does not verify: Expected attribute i64 but got i32

// -----

%i = "hivm.hir.get_sub_block_idx"() : () -> i32
// CHECK: 'hivm.hir.get_sub_block_idx' result 'result' at position 0 does not verify: Expected attribute i64 but got i32

// -----

%i = "hivm.hir.get_sub_block_num"() : () -> i32
// CHECK: 'hivm.hir.get_sub_block_num' result 'result' at position 0 does not verify: Expected attribute i64 but got i32

// -----

%i = "hivm.hir.get_sys_cnt"() : () -> i32
// CHECK: 'hivm.hir.get_sys_cnt' result 'result' at position 0 does not verify: Expected attribute i64 but got i32

// -----

%u = hivm.hir.pointer_cast() : memref<16x64xf32, #hivm.address_space<ub>>
// CHECK: 'hivm.hir.pointer_cast' needs an address

// -----

%x0 = "test.op"() : () -> (i64)
%u = hivm.hir.pointer_cast(%x0) : memref<?xf32, #hivm.address_space<ub>>
// CHECK: 'hivm.hir.pointer_cast' has 1 open dimensions and 0 sizes for them

// -----

%x0 = "test.op"() : () -> (i64)
"hivm.hir.bitcast"(%x0, %x0) : (i64, i64) -> i64
// CHECK: 'hivm.hir.bitcast' Expected 1 operand, but got 2

// -----

%x0 = "test.op"() : () -> (i64)
"hivm.hir.load_scalar"(%x0, %x0) : (i64, i64) -> i64
// CHECK: 'hivm.hir.load_scalar' Expected 1 operand, but got 2

// -----

%x0 = "test.op"() : () -> (i64)
"hivm.hir.debug"(%x0) : (i64) -> ()
// CHECK: 'hivm.hir.debug' property 'debugtype' expected in operation 'hivm.hir.debug'

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<gm>>)
%x1 = "test.op"() : () -> (memref<16x64xf16, #hivm.address_space<ub>>)
hivm.hir.load ins(%x0 : memref<16x64xf32, #hivm.address_space<gm>>) outs(%x1 : memref<16x64xf16, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.load' moves f32 to f16

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.load ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.load' cannot move from ub to ub

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<gm>>)
%x1 = "test.op"() : () -> (memref<16x32xf32, #hivm.address_space<ub>>)
hivm.hir.load ins(%x0 : memref<16x64xf32, #hivm.address_space<gm>>) outs(%x1 : memref<16x32xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.load' moves 16x64 to 16x32

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<gm>>)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.load ins(%x0 : memref<16x64xf32, #hivm.address_space<gm>>) outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>) pad_mode = <PadValue>
// CHECK: 'hivm.hir.load' with pad_mode PadValue needs pad_value

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<gm>>)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x2 = "test.op"() : () -> (f32)
hivm.hir.load ins(%x0 : memref<16x64xf32, #hivm.address_space<gm>>) outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>) pad_value = %x2 : f32
// CHECK: 'hivm.hir.load' with pad_mode PadNull has no pad_value

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<gm>>)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x2 = "test.op"() : () -> (f16)
hivm.hir.load ins(%x0 : memref<16x64xf32, #hivm.address_space<gm>>) outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %x2 : f16
// CHECK: 'hivm.hir.load' pads f32 with f16

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<gm>>)
%x1 = "test.op"() : () -> (memref<8x64xf32, #hivm.address_space<ub>>)
%x2 = "test.op"() : () -> (f32)
hivm.hir.load ins(%x0 : memref<16x64xf32, #hivm.address_space<gm>>) outs(%x1 : memref<8x64xf32, #hivm.address_space<ub>>) pad_mode = <PadValue> pad_value = %x2 : f32
// CHECK: 'hivm.hir.load' pads the last dimension only: not 16x64 to 8x64

// -----

%x0 = "test.op"() : () -> (memref<4xf64, #hivm.address_space<gm>>)
%x1 = "test.op"() : () -> (memref<4xf64, #hivm.address_space<ub>>)
hivm.hir.load ins(%x0 : memref<4xf64, #hivm.address_space<gm>>) outs(%x1 : memref<4xf64, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.load' takes elements of f8E4M3FN, f8E5M2, i1, i8, ui8, i16, ui16, f16, bf16, i32, ui32, f32, ui64, i64, not f64

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.store ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.store' cannot move from ub to ub

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x32xf32, #hivm.address_space<ub>>)
hivm.hir.copy ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1 : memref<16x32xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.copy' moves 16x64 to 16x32

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.copy ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>) pad_mode = <PadValue>
// CHECK: 'hivm.hir.copy' with pad_mode PadValue needs pad_value

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.nz2nd"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.nz2nd' Expected 2 operands, but got 1

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.l12ub"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.l12ub' Expected 2 operands, but got 1

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.nd2nz"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.nd2nz' Expected operandSegmentSizes property in hivm.hir.nd2nz operation.

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.fixpipe"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.fixpipe' Expected operandSegmentSizes property in hivm.hir.fixpipe operation.

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.atomic_cas"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.atomic_cas' operand 'dst' at position 0 does not verify: Unexpected attribute f32

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.atomic_xchg"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.atomic_xchg' Expected 2 or 3 operands, but got 1

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.atomic_rmw"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.atomic_rmw' Expected 2 operands, but got 1

// -----

%x0 = "test.op"() : () -> (memref<4x8x16x16xf16, #hivm.address_space<cbuf>>)
%x1 = "test.op"() : () -> (memref<8x8x16x16xf32, #hivm.address_space<cc>>)
%x2 = "test.op"() : () -> (i1)
%x3 = "test.op"() : () -> (index)
%x4 = "test.op"() : () -> (i64)
hivm.hir.mmadL1 ins(%x0, %x0, %x2, %x3, %x3, %x3 : memref<4x8x16x16xf16, #hivm.address_space<cbuf>>, memref<4x8x16x16xf16, #hivm.address_space<cbuf>>, i1, index, index, index) outs(%x1 : memref<8x8x16x16xf32, #hivm.address_space<cc>>) sync_related_args(%x4, %x4 : i64, i64)
// CHECK: 'hivm.hir.mmadL1' has 2 sync_related_args, not 7 or none

// -----

%x0 = "test.op"() : () -> (memref<4x8x16x16xf16, #hivm.address_space<cbuf>>)
%x1 = "test.op"() : () -> (memref<8x8x16x16xf32, #hivm.address_space<cc>>)
%x2 = "test.op"() : () -> (i1)
%x3 = "test.op"() : () -> (index)
%x4 = "test.op"() : () -> (i64)
hivm.hir.batchMmadL1 ins(%x0, %x0, %x2, %x3, %x3, %x3 : memref<4x8x16x16xf16, #hivm.address_space<cbuf>>, memref<4x8x16x16xf16, #hivm.address_space<cbuf>>, i1, index, index, index) outs(%x1 : memref<8x8x16x16xf32, #hivm.address_space<cc>>) sync_related_args(%x4, %x4 : i64, i64)
// CHECK: 'hivm.hir.batchMmadL1' has 2 sync_related_args, not 7 or none

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.matmul"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.matmul' Expected operandSegmentSizes property in hivm.hir.matmul operation.

// -----

%x0 = "test.op"() : () -> (f32)
"hivm.hir.mix_matmul"(%x0) : (f32) -> ()
// CHECK: 'hivm.hir.mix_matmul' Expected operandSegmentSizes property in hivm.hir.mix_matmul operation.

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vadd ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vadd' has 1 sources and 1 results, not 2 and 1

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (f32)
hivm.hir.vadd ins(%x1, %x0 : f32, memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vadd' takes no scalar as source 0

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<64xf32, #hivm.address_space<ub>>)
hivm.hir.vadd ins(%x0, %x1 : memref<16x64xf32, #hivm.address_space<ub>>, memref<64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vadd' needs operands of one rank, not of 1 and 2

// -----

%x0 = "test.op"() : () -> (memref<4xbf16, #hivm.address_space<ub>>)
hivm.hir.vmul ins(%x0, %x0 : memref<4xbf16, #hivm.address_space<ub>>, memref<4xbf16, #hivm.address_space<ub>>) outs(%x0 : memref<4xbf16, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vmul' takes elements of i8, i16, i32, i64, f16, f32, not bf16

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xf16, #hivm.address_space<ub>>)
hivm.hir.vexp ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1 : memref<16x64xf16, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vexp' needs one element type, not f16 and f32

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xi32, #hivm.address_space<ub>>)
hivm.hir.vcmp ins(%x0, %x0 : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1 : memref<16x64xi32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vcmp' takes elements of i1, i8, not i32

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vexp ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vexp' needs a temp_buffer of rank 1

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x1xf32, #hivm.address_space<ub>>)
hivm.hir.vadd ins(%x0, %x1 : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x1xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vadd' has 1 elements of 64 along dimension 1

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x1xf32, #hivm.address_space<ub>>)
hivm.hir.vadd ins(%x0, %x1 : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x1xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) broadcast = [2]
// CHECK: 'hivm.hir.vadd' has broadcast dimension 2, and operands of rank 2

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vexp ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) transpose = [0, 0]
// CHECK: 'hivm.hir.vexp' has transpose [0, 0], no permutation

// -----

%x0 = "test.op"() : () -> (memref<16x64xi32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xf16, #hivm.address_space<ub>>)
hivm.hir.vcast ins(%x0 : memref<16x64xi32, #hivm.address_space<ub>>) outs(%x1 : memref<16x64xf16, #hivm.address_space<ub>>) round_mode = <rint>
// CHECK: 'hivm.hir.vcast' cannot cast i32 to f16 with round_mode rint

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xi32, #hivm.address_space<ub>>)
hivm.hir.vsel ins(%x0, %x0, %x0 : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vsel' takes elements of i1, i8, not f32

// -----

%x0 = "test.op"() : () -> (f32)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vbrc ins(%x0 : f32) outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>) broadcast_dims = [0]
// CHECK: 'hivm.hir.vbrc' repeats a scalar along all dimensions, and names none

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vbrc ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) broadcast_dims = [0]
// CHECK: 'hivm.hir.vbrc' repeats dimension 0, which has 16 elements, not 1

// -----

%x0 = "test.op"() : () -> (memref<16x1xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vbrc ins(%x0 : memref<16x1xf32, #hivm.address_space<ub>>) outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vbrc' needs broadcast dimension

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vreduce <sum> ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) reduce_dims = [1]
// CHECK: 'hivm.hir.vreduce' gives 64 elements along dimension 1, not 1

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x1xf32, #hivm.address_space<ub>>)
hivm.hir.vreduce <sum> ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1, %x1 : memref<16x1xf32, #hivm.address_space<ub>>, memref<16x1xf32, #hivm.address_space<ub>>) reduce_dims = [1]
// CHECK: 'hivm.hir.vreduce' of kind sum gives 1 results, not 2

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x1xf32, #hivm.address_space<ub>>)
hivm.hir.vreduce <max_with_index_left> ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1, %x1 : memref<16x1xf32, #hivm.address_space<ub>>, memref<16x1xf32, #hivm.address_space<ub>>) reduce_dims = [1]
// CHECK: 'hivm.hir.vreduce' gives indices as i32

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x1xf32, #hivm.address_space<ub>>)
hivm.hir.vreduce <total> ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x1 : memref<16x1xf32, #hivm.address_space<ub>>) reduce_dims = [1]
// CHECK: 'total' is not a hivm.reduce_op: sum, prod, max, min, max_with_index_left, max_with_index_right, min_with_index_left, min_with_index_right, max_with_index, min_with_index, any, all, xori, ori, andi, none

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vtranspose ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) permutation = [0, 2]
// CHECK: 'hivm.hir.vtranspose' has permutation [0, 2], and operands of rank 2

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vtranspose ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) permutation = [0, 1]
// CHECK: 'hivm.hir.vtranspose' exchanges two dimensions, not [0, 1]

// -----

%x0 = "test.op"() : () -> (index)
%x1 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.varange strides[%x0] outs(%x1 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.varange' has 1 strides for 2 dimensions

// -----

%x0 = "test.op"() : () -> (memref<64xf32, #hivm.address_space<ub>>)
hivm.hir.vinterleave ins(%x0 : memref<64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<64xf32, #hivm.address_space<ub>>) interleave_channel_nums = 2
// CHECK: 'hivm.hir.vinterleave' interleaves two memrefs, not 1

// -----

%x0 = "test.op"() : () -> (memref<64xf32, #hivm.address_space<ub>>)
hivm.hir.vdeinterleave ins(%x0 : memref<64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vdeinterleave' gives 2 memrefs, not 1

// -----

%x0 = "test.op"() : () -> (memref<64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<32xf32, #hivm.address_space<ub>>)
hivm.hir.vflip ins(%x0 : memref<64xf32, #hivm.address_space<ub>>) outs(%x1 : memref<32xf32, #hivm.address_space<ub>>) flip_axis = 0
// CHECK: 'hivm.hir.vflip' needs operands of one shape

// -----

%x0 = "test.op"() : () -> (memref<64xf32, #hivm.address_space<ub>>)
hivm.hir.vcumsum ins(%x0 : memref<64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<64xf32, #hivm.address_space<ub>>) cum_dims = [1] reverse = false
// CHECK: 'hivm.hir.vcumsum' has accumulated dimension 1, and operands of rank 1

// -----

%x0 = "test.op"() : () -> (memref<64xf32, #hivm.address_space<ub>>)
hivm.hir.vcumprod ins(%x0 : memref<64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<64xf32, #hivm.address_space<ub>>) cum_dims = [1] reverse = false
// CHECK: 'hivm.hir.vcumprod' has accumulated dimension 1, and operands of rank 1

// -----

%x0 = "test.op"() : () -> (memref<64xf32, #hivm.address_space<ub>>)
hivm.hir.vcummax ins(%x0 : memref<64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<64xf32, #hivm.address_space<ub>>) cum_dims = [1] reverse = false
// CHECK: 'hivm.hir.vcummax' has accumulated dimension 1, and operands of rank 1

// -----

%x0 = "test.op"() : () -> (memref<64xf32, #hivm.address_space<ub>>)
hivm.hir.vcummin ins(%x0 : memref<64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<64xf32, #hivm.address_space<ub>>) cum_dims = [1] reverse = false
// CHECK: 'hivm.hir.vcummin' has accumulated dimension 1, and operands of rank 1

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vsort ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) descending = false sort_axis = 0
// CHECK: 'hivm.hir.vsort' sorts the last dimension, not dimension 0 of 2

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vgather ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) indices(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vgather' takes elements of i16, i32, not f32

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
hivm.hir.vgathermask ins(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) mask(%x0 : memref<16x64xf32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vgathermask' takes elements of i1, not f32

// -----

%x0 = "test.op"() : () -> (memref<16x64xf32, #hivm.address_space<ub>>)
%x1 = "test.op"() : () -> (memref<16x64xi32, #hivm.address_space<ub>>)
hivm.hir.vconcat dim(0) ins(%x0, %x1 : memref<16x64xf32, #hivm.address_space<ub>>, memref<16x64xi32, #hivm.address_space<ub>>) outs(%x0 : memref<16x64xf32, #hivm.address_space<ub>>)
// CHECK: 'hivm.hir.vconcat' needs one element type, not f32 and i32

// -----

%x0 = "test.op"() : () -> (index)
%m = affine.max affine_map<(d0, d1) -> (d0, d1)>(%x0)
// CHECK: 'affine.max' has 1 operands for 2 of its map

// -----

hivm.hir.vfrobnicate
// CHECK: Operation hivm.hir.vfrobnicate is not registered

// -----

hivm.hir.pipe_barrier[#hivm.event<EVENT_ID0>]
// CHECK: #hivm.event<EVENT_ID0> is no hivm.pipe
