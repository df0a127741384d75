// RUN: tilewright-opt %s -p npu-check --verify-diagnostics | filecheck %s

// The bytes that an instruction says it works in hold nothing behind it.
builtin.module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["stored", "real", "partitioned", "fused", "scheduled", "tiled", "bufferized", "addressed", "synchronized", "planned", "ordered", "joined"]} {
  npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
  ^bb0(%core: index, %x: !npu.gm<8x64xf32>, %y: !npu.gm<8x64xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb0(%unit: index):
      %a = npu.alloc {address = 0, shared} : () -> !npu.buffer<8x64xf32, ub>
      %b = npu.alloc {address = 2048, shared} : () -> !npu.buffer<8x64xf32, ub>
      npu.load_nd %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.vexp %a, %b : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vexp %a, %a attributes {npu.works_in = array<i64: 4000, 256>} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.store_nd %b, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<8x64xf32>)
    }
  }
}
// CHECK: kernel @k: overlap: 'npu.vexp' ({{.*}}works_in.mlir:16) on V overwrites a buffer that 'npu.store_nd' ({{.*}}works_in.mlir:19) on MTE3 still reads, bytes 4000..4095 of ub
