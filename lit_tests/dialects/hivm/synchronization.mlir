// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

func.func @synchronization(%e: i64, %l: memref<1xi64, #hivm.address_space<gm>>, %b: memref<?xi8, #hivm.address_space<gm>>) {
  hivm.hir.set_ffts_base_addr %e
  // CHECK: hivm.hir.set_ffts_base_addr %{{.*}}
  hivm.hir.set_mask_norm
  // CHECK: hivm.hir.set_mask_norm
  hivm.hir.set_ctrl false at ctrl[60]
  // CHECK: hivm.hir.set_ctrl false at ctrl[60]
  hivm.hir.set_ctrl true at ctrl[48]
  // CHECK: hivm.hir.set_ctrl true at ctrl[48]
  hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
  // CHECK: hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
  hivm.hir.set_flag[<PIPE_MTE1>, <PIPE_MTE2>, %e]
  // CHECK: hivm.hir.set_flag[<PIPE_MTE1>, <PIPE_MTE2>, %{{.*}}]
  hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID7>]
  // CHECK: hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID7>]
  hivm.hir.wait_flag[<PIPE_MTE1>, <PIPE_MTE2>, %e]
  // CHECK: hivm.hir.wait_flag[<PIPE_MTE1>, <PIPE_MTE2>, %{{.*}}]
  hivm.hir.pipe_barrier[<PIPE_V>]
  // CHECK: hivm.hir.pipe_barrier[<PIPE_V>]
  hivm.hir.pipe_barrier[<PIPE_ALL>]
  // CHECK: hivm.hir.pipe_barrier[<PIPE_ALL>]
  hivm.hir.sync_block_set[<CUBE>, <PIPE_FIX>, <PIPE_MTE2>] flag = 3
  // CHECK: hivm.hir.sync_block_set[<CUBE>, <PIPE_FIX>, <PIPE_MTE2>] flag = 3
  hivm.hir.sync_block_set[<CUBE>, <PIPE_FIX>, <PIPE_MTE2>] flag = %e ffts_base_addr = %e sync_instr_mode = <INTER_BLOCK_SYNCHRONIZATION>
  // CHECK: hivm.hir.sync_block_set[<CUBE>, <PIPE_FIX>, <PIPE_MTE2>] flag = %{{.*}} ffts_base_addr = %{{.*}} sync_instr_mode = <INTER_BLOCK_SYNCHRONIZATION>
  hivm.hir.sync_block_wait[<VECTOR>, <PIPE_FIX>, <PIPE_MTE2>] flag = 3
  // CHECK: hivm.hir.sync_block_wait[<VECTOR>, <PIPE_FIX>, <PIPE_MTE2>] flag = 3
  hivm.hir.sync_block_wait[<VECTOR>, <PIPE_FIX>, <PIPE_MTE2>] flag = %e
  // CHECK: hivm.hir.sync_block_wait[<VECTOR>, <PIPE_FIX>, <PIPE_MTE2>] flag = %{{.*}}
  hivm.hir.sync_block[<ALL_CUBE>, 1 : i64] ffts_base_addr = %e tcube_pipe = <PIPE_FIX>
  // CHECK: hivm.hir.sync_block[<ALL_CUBE>, 1 : i64] ffts_base_addr = %{{.*}} tcube_pipe = <PIPE_FIX>
  hivm.hir.sync_block[<BARRIER_VECTOR>]
  // CHECK: hivm.hir.sync_block[<BARRIER_VECTOR>]
  hivm.hir.sync_block[<ALL>, 2 : i64] tcube_pipe = <PIPE_FIX> tvector_pipe = <PIPE_MTE3>
  // CHECK: hivm.hir.sync_block[<ALL>, 2 : i64] tcube_pipe = <PIPE_FIX> tvector_pipe = <PIPE_MTE3>
  %x = hivm.hir.create_sync_block_lock : memref<1xi64>
  // CHECK: hivm.hir.create_sync_block_lock : memref<1xi64>
  %y = hivm.hir.create_sync_block_lock from %b : from memref<?xi8, #hivm.address_space<gm>> to memref<1xi64, #hivm.address_space<gm>>
  // CHECK: hivm.hir.create_sync_block_lock from %{{.*}} : from memref<?xi8, #hivm.address_space<gm>> to memref<1xi64, #hivm.address_space<gm>>
  hivm.hir.sync_block_lock lock_var(%l : memref<1xi64, #hivm.address_space<gm>>)
  // CHECK: hivm.hir.sync_block_lock lock_var(%{{.*}} : memref<1xi64, #hivm.address_space<gm>>)
  hivm.hir.sync_block_unlock lock_var(%l : memref<1xi64, #hivm.address_space<gm>>)
  // CHECK: hivm.hir.sync_block_unlock lock_var(%{{.*}} : memref<1xi64, #hivm.address_space<gm>>)
  hivm.hir.free_lock_var lock_var(%l : memref<1xi64, #hivm.address_space<gm>>)
  // CHECK: hivm.hir.free_lock_var lock_var(%{{.*}} : memref<1xi64, #hivm.address_space<gm>>)
  hivm.hir.set_atomic kind = <add>[type = f32]
  // CHECK: hivm.hir.set_atomic kind = <add>[type = f32]
  hivm.hir.dcci(<all_cache_lines>, <ub>)
  // CHECK: hivm.hir.dcci(<all_cache_lines>, <ub>)
  return
}
