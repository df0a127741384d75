builtin.module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["stored", "real", "partitioned", "fused", "scheduled", "tiled", "bufferized", "addressed", "synchronized", "planned", "ordered", "joined", "checked"], tilewright.hivm} {
  func.func @main(%x: !npu.gm<150xf32>, %y: !npu.gm<60xf32>) -> !npu.gm<60xf32> attributes {npu.addresses = array<i64: 0, 1024>, npu.arena_bytes = 2048 : i64} {
    %0 = npu.gm_alloc {address = 1536} : () -> !npu.gm<60xf32>
    npu.copy %y, %0 : (!npu.gm<60xf32>, !npu.gm<60xf32>)
    npu.launch @sums_0 %x, %0 {outputs = 1, updates = array<i64: 0>, workspaces = 0} : (!npu.gm<150xf32>, !npu.gm<60xf32>)
    func.return %0 : !npu.gm<60xf32>
  }
  npu.kernel @sums_0 {grid = [3], kind = "vector", outputs = 1, workspaces = 0} {
  ^bb0(%0: index, %1: !npu.gm<150xf32>, %2: !npu.gm<60xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb0(%3: index):
      %4 = npu.alloc {address = 0} : () -> !npu.buffer<48xf32, ub>
      npu.load_nd %1, %4 at [%0 * 50] {sizes = [48]} : (!npu.gm<150xf32>, !npu.buffer<48xf32, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE3"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE3"}
      npu.store_nd %4, %2 at [%0 * 7] {accumulate = "add", sizes = [48]} : (!npu.buffer<48xf32, ub>, !npu.gm<60xf32>)
      npu.pipe_barrier {pipe = "MTE3"}
      npu.store_nd %4, %2 at [%0 * 7] {accumulate = "add", sizes = [48]} : (!npu.buffer<48xf32, ub>, !npu.gm<60xf32>)
    }
  }
}
