// RUN: tilewright-opt %s -p npu-check | filecheck %s

// A safe program stays as it is. The load of round 2 waits until V is done with round 0; MTE3 and V share one
// buffer, in turns; V computes in place, which needs no flag but a barrier of its own.
// CHECK: npu.kernel @safe
npu.kernel @safe {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<1000xf32>, %y: !npu.gm<1000xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %eight = arith.constant 8 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub, 2 slots>
    %b = npu.alloc {address = 512} : () -> !npu.buffer<64xf32, ub>
    npu.set_flag at [0] {event = 0, slots = 2, source = "V", target = "MTE2"}
    npu.set_flag at [1] {event = 0, slots = 2, source = "V", target = "MTE2"}
    npu.set_flag at [0] {event = 0, slots = 1, source = "MTE3", target = "V"}
    scf.for %j = %zero to %eight step %one {
      %s = npu.slot %a at [%j] : (!npu.buffer<64xf32, ub, 2 slots>) -> !npu.buffer<64xf32, ub>
      npu.wait_flag at [%j] {event = 0, slots = 2, source = "V", target = "MTE2"}
      npu.load_nd %x, %s at [%core * 512 + %j * 64] {sizes = [64]} : (!npu.gm<1000xf32>, !npu.buffer<64xf32, ub>)
      npu.set_flag at [%j] {event = 0, slots = 2, source = "MTE2", target = "V"}
      npu.wait_flag at [%j] {event = 0, slots = 2, source = "MTE2", target = "V"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE3", target = "V"}
      npu.vexp %s, %b : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
      npu.set_flag at [%j] {event = 0, slots = 2, source = "V", target = "MTE2"}
      npu.pipe_barrier {pipe = "V"}
      npu.vneg %b, %b : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.store_nd %b, %y at [%core * 512 + %j * 64] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<1000xf32>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE3", target = "V"}
    }
    npu.wait_flag at [0] {event = 0, slots = 2, source = "V", target = "MTE2"}
    npu.wait_flag at [1] {event = 0, slots = 2, source = "V", target = "MTE2"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE3", target = "V"}
  }
}
