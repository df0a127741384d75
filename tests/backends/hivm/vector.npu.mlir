builtin.module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["stored", "real", "partitioned", "fused", "scheduled", "tiled", "bufferized", "addressed", "synchronized", "planned", "ordered", "joined", "checked"], tilewright.hivm} {
  func.func @main(%x: !npu.gm<50x100xf32>, %m: !npu.gm<50x100xi1>) -> !npu.gm<50x100xf32> attributes {npu.addresses = array<i64: 0, 20480>, npu.arena_bytes = 46080 : i64} {
    %0 = npu.gm_alloc {address = 25600} : () -> !npu.gm<50x100xf32>
    npu.launch @reduce_0 %m, %x, %0 {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<50x100xi1>, !npu.gm<50x100xf32>, !npu.gm<50x100xf32>)
    func.return %0 : !npu.gm<50x100xf32>
  }
  npu.kernel @reduce_0 {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
  ^bb0(%0: index, %1: !npu.gm<50x100xi1>, %2: !npu.gm<50x100xf32>, %3: !npu.gm<50x100xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb0(%4: index):
      %5 = npu.alloc {address = 0, scratch} : () -> !npu.buffer<6400xi8, ub>
      %6 = npu.alloc {address = 30720} : () -> !npu.buffer<1x1xf16, ub>
      %7 = npu.alloc {address = 30976} : () -> !npu.buffer<25x100xf16, ub>
      %8 = npu.alloc {address = 36864} : () -> !npu.buffer<25x100xi1, ub>
      %9 = npu.alloc {address = 6400} : () -> !npu.buffer<25x100xi1, ub>
      %10 = npu.alloc {address = 9728} : () -> !npu.buffer<25x100xf32, ub>
      %11 = npu.alloc {address = 30720} : () -> !npu.buffer<1x1xf32, ub>
      %12 = npu.alloc {address = 40192} : () -> !npu.buffer<25x100xf32, ub>
      %13 = npu.alloc {address = 30720} : () -> !npu.buffer<25x1xf32, ub>
      %14 = npu.alloc {address = 32000} : () -> !npu.buffer<1x1xf32, ub>
      %15 = npu.alloc {address = 30720} : () -> !npu.buffer<25x1xf32, ub>
      %16 = npu.alloc {address = 50688} : () -> !npu.buffer<25x100xf32, ub>
      %17 = npu.alloc {address = 40192} : () -> !npu.buffer<25x100xf32, ub>
      %18 = npu.alloc {address = 40192} : () -> !npu.buffer<25x100xf32, ub>
      %19 = npu.alloc {address = 30720} : () -> !npu.buffer<25x1xf32, ub>
      %20 = npu.alloc {address = 50688} : () -> !npu.buffer<25x100xf32, ub>
      %21 = npu.alloc {address = 20224} : () -> !npu.buffer<25x100xf32, ub>
      npu.vfill %6 {value = 0.000000e+00 : f64} : (!npu.buffer<1x1xf16, ub>)
      npu.load_nd %1, %9 at [%0 * 25, 0] {sizes = [25, 100]} : (!npu.gm<50x100xi1>, !npu.buffer<25x100xi1, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.vconvert %9, %7 : (!npu.buffer<25x100xi1, ub>, !npu.buffer<25x100xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vne %7, %6, %8 : (!npu.buffer<25x100xf16, ub>, !npu.buffer<1x1xf16, ub>, !npu.buffer<25x100xi1, ub>)
      npu.load_nd %2, %10 at [%0 * 25, 0] {sizes = [25, 100]} : (!npu.gm<50x100xf32>, !npu.buffer<25x100xf32, ub>)
      npu.set_flag at [0] {event = 1, slots = 1, source = "MTE2", target = "V"}
      npu.pipe_barrier {pipe = "V"}
      npu.vfill %11 {value = -1.000000e+09 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.wait_flag at [0] {event = 1, slots = 1, source = "MTE2", target = "V"}
      npu.pipe_barrier {pipe = "V"}
      npu.vselect %8, %10, %11, %12 : (!npu.buffer<25x100xi1, ub>, !npu.buffer<25x100xf32, ub>, !npu.buffer<1x1xf32, ub>, !npu.buffer<25x100xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vreduce %12, %13 {dims = [1], kind = "max"} : (!npu.buffer<25x100xf32, ub>, !npu.buffer<25x1xf32, ub>)
      npu.vfill %14 {value = 0xfff0000000000000 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmax %14, %13, %15 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<25x1xf32, ub>, !npu.buffer<25x1xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vbroadcast %15, %16 : (!npu.buffer<25x1xf32, ub>, !npu.buffer<25x100xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vsub %12, %16, %17 : (!npu.buffer<25x100xf32, ub>, !npu.buffer<25x100xf32, ub>, !npu.buffer<25x100xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vexp %17, %18 : (!npu.buffer<25x100xf32, ub>, !npu.buffer<25x100xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vreduce %18, %19 {dims = [1], kind = "sum"} : (!npu.buffer<25x100xf32, ub>, !npu.buffer<25x1xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vbroadcast %19, %20 : (!npu.buffer<25x1xf32, ub>, !npu.buffer<25x100xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vdiv %18, %20, %21 : (!npu.buffer<25x100xf32, ub>, !npu.buffer<25x100xf32, ub>, !npu.buffer<25x100xf32, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.store_nd %21, %3 at [%0 * 25, 0] {sizes = [25, 100]} : (!npu.buffer<25x100xf32, ub>, !npu.gm<50x100xf32>)
    }
  }
}
