builtin.module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["stored", "real", "partitioned", "fused", "scheduled", "tiled", "bufferized", "addressed", "synchronized", "planned", "ordered", "joined", "checked"], tilewright.hivm} {
  func.func @main(%a: !npu.gm<256x512xf16>, %b: !npu.gm<512x256xf16>) -> !npu.gm<256x256xf16> attributes {npu.addresses = array<i64: 0, 262144>, npu.arena_bytes = 655360 : i64} {
    %0 = npu.gm_alloc {address = 524288} : () -> !npu.gm<256x256xf16>
    npu.launch @contract_0 %a, %b, %0 {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<256x512xf16>, !npu.gm<512x256xf16>, !npu.gm<256x256xf16>)
    func.return %0 : !npu.gm<256x256xf16>
  }
  npu.kernel @contract_0 {grid = [4], kind = "cube", outputs = 1, workspaces = 0} {
  ^bb0(%0: index, %1: !npu.gm<256x512xf16>, %2: !npu.gm<512x256xf16>, %3: !npu.gm<256x256xf16>):
    %4 = arith.constant 2 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 4 : index
    %7 = arith.constant 0 : index
    npu.section {core = "cube", units = 1} {
    ^bb0(%8: index):
      %9 = npu.alloc {address = 0} : () -> !npu.buffer<64x256xf32, l0c>
      %10 = npu.alloc {address = 0} : () -> !npu.buffer<256x256xf16, l1, 2 slots>
      %11 = npu.alloc {address = 262144} : () -> !npu.buffer<64x256xf16, l1, 2 slots>
      %12 = npu.alloc {address = 0} : () -> !npu.buffer<64x64xf16, l0a, 2 slots>
      %13 = npu.alloc {address = 0} : () -> !npu.buffer<64x256xf16, l0b, 2 slots>
      npu.set_flag at [0] {event = 0, slots = 2, source = "M", target = "MTE1"}
      npu.set_flag at [1] {event = 0, slots = 2, source = "M", target = "MTE1"}
      scf.for %14 = %7 to %4 step %5 {
        %15 = npu.slot %10 at [%14] : (!npu.buffer<256x256xf16, l1, 2 slots>) -> !npu.buffer<256x256xf16, l1>
        npu.load_nd2nz %2, %15 at [%14 * 256, 0] {sizes = [256, 256]} : (!npu.gm<512x256xf16>, !npu.buffer<256x256xf16, l1>)
        %16 = npu.slot %11 at [%14] : (!npu.buffer<64x256xf16, l1, 2 slots>) -> !npu.buffer<64x256xf16, l1>
        npu.load_nd2nz %1, %16 at [%0 * 64, %14 * 256] {sizes = [64, 256]} : (!npu.gm<256x512xf16>, !npu.buffer<64x256xf16, l1>)
        npu.set_flag at [%14] {event = 0, slots = 2, source = "MTE2", target = "MTE1"}
        npu.wait_flag at [%14] {event = 0, slots = 2, source = "MTE2", target = "MTE1"}
        scf.for %17 = %7 to %6 step %5 {
          %18 = npu.slot %12 at [%17 + %14 * 4] : (!npu.buffer<64x64xf16, l0a, 2 slots>) -> !npu.buffer<64x64xf16, l0a>
          npu.wait_flag at [%17 + %14 * 4] {event = 0, slots = 2, source = "M", target = "MTE1"}
          npu.load_l0 %16, %18 at [0, %17 * 64] {sizes = [64, 64]} : (!npu.buffer<64x256xf16, l1>, !npu.buffer<64x64xf16, l0a>)
          %19 = npu.slot %13 at [%17 + %14 * 4] : (!npu.buffer<64x256xf16, l0b, 2 slots>) -> !npu.buffer<64x256xf16, l0b>
          npu.load_l0 %15, %19 at [%17 * 64, 0] {sizes = [64, 256]} : (!npu.buffer<256x256xf16, l1>, !npu.buffer<64x256xf16, l0b>)
          npu.set_flag at [%17 + %14 * 4] {event = 0, slots = 2, source = "MTE1", target = "M"}
          npu.wait_flag at [%17 + %14 * 4] {event = 0, slots = 2, source = "MTE1", target = "M"}
          npu.mmad %18, %19, %9 at [%14 + %17] : (!npu.buffer<64x64xf16, l0a>, !npu.buffer<64x256xf16, l0b>, !npu.buffer<64x256xf32, l0c>)
          npu.set_flag at [%17 + %14 * 4] {event = 0, slots = 2, source = "M", target = "MTE1"}
        }
      }
      npu.set_flag at [0] {event = 0, slots = 1, source = "M", target = "FIX"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "M", target = "FIX"}
      npu.fixpipe %9, %3 at [%0 * 64, 0] {sizes = [64, 256]} : (!npu.buffer<64x256xf32, l0c>, !npu.gm<256x256xf16>)
      npu.wait_flag at [0] {event = 0, slots = 2, source = "M", target = "MTE1"}
      npu.wait_flag at [1] {event = 0, slots = 2, source = "M", target = "MTE1"}
    }
  }
}
