builtin.module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["stored", "real", "partitioned", "fused", "scheduled", "tiled", "bufferized", "addressed", "synchronized", "planned", "ordered", "joined", "checked"], tilewright.hivm} {
  func.func @main(%a: !npu.gm<64x128xf16>, %b: !npu.gm<128x64xf16>, %c: !npu.gm<64xf16>) -> !npu.gm<64x64xf16> attributes {npu.addresses = array<i64: 0, 16384, 32768>, npu.arena_bytes = 49664 : i64} {
    %0 = npu.gm_alloc {address = 33280} : () -> !npu.gm<64x64xf16>
    %1 = npu.gm_alloc {address = 41472} : () -> !npu.gm<64x64xf16>
    npu.launch @contract_0 %a, %b, %c, %0, %1 {outputs = 1, stream = "compute", workspaces = 1} : (!npu.gm<64x128xf16>, !npu.gm<128x64xf16>, !npu.gm<64xf16>, !npu.gm<64x64xf16>, !npu.gm<64x64xf16>)
    func.return %0 : !npu.gm<64x64xf16>
  }
  npu.kernel @contract_0 {grid = [1], kind = "mix", outputs = 1, workspaces = 1} {
  ^bb0(%0: index, %1: !npu.gm<64x128xf16>, %2: !npu.gm<128x64xf16>, %3: !npu.gm<64xf16>, %4: !npu.gm<64x64xf16>, %5: !npu.gm<64x64xf16>):
    npu.section {core = "cube", units = 1} {
    ^bb0(%6: index):
      %7 = npu.alloc {address = 0} : () -> !npu.buffer<64x64xf32, l0c>
      %8 = npu.alloc {address = 0} : () -> !npu.buffer<128x64xf16, l1>
      %9 = npu.alloc {address = 16384} : () -> !npu.buffer<64x128xf16, l1>
      %10 = npu.alloc {address = 0} : () -> !npu.buffer<64x128xf16, l0a>
      %11 = npu.alloc {address = 0} : () -> !npu.buffer<128x64xf16, l0b>
      npu.load_nd2nz %2, %8 at [0, 0] {sizes = [128, 64]} : (!npu.gm<128x64xf16>, !npu.buffer<128x64xf16, l1>)
      npu.load_nd2nz %1, %9 at [0, 0] {sizes = [64, 128]} : (!npu.gm<64x128xf16>, !npu.buffer<64x128xf16, l1>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE1"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "MTE1"}
      npu.load_l0 %9, %10 at [0, 0] {sizes = [64, 128]} : (!npu.buffer<64x128xf16, l1>, !npu.buffer<64x128xf16, l0a>)
      npu.load_l0 %8, %11 at [0, 0] {sizes = [128, 64]} : (!npu.buffer<128x64xf16, l1>, !npu.buffer<128x64xf16, l0b>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE1", target = "M"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE1", target = "M"}
      npu.mmad %10, %11, %7 at [0] : (!npu.buffer<64x128xf16, l0a>, !npu.buffer<128x64xf16, l0b>, !npu.buffer<64x64xf32, l0c>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "M", target = "FIX"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "M", target = "FIX"}
      npu.fixpipe %7, %5 at [0, 0] {sizes = [64, 64]} : (!npu.buffer<64x64xf32, l0c>, !npu.gm<64x64xf16>)
      npu.set_cross {event = 0, source = "FIX"}
    }
    npu.section {core = "vector", units = 2} {
    ^bb0(%12: index):
      %13 = npu.alloc {address = 20992} : () -> !npu.buffer<32x64xf32, ub>
      %14 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %15 = npu.alloc {address = 8960} : () -> !npu.buffer<1x1xf32, ub>
      %16 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %17 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %18 = npu.alloc {address = 9216} : () -> !npu.buffer<1x1xf32, ub>
      %19 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %20 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %21 = npu.alloc {address = 9472} : () -> !npu.buffer<1x1xf32, ub>
      %22 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %23 = npu.alloc {address = 9728} : () -> !npu.buffer<1x1xf32, ub>
      %24 = npu.alloc {address = 20992} : () -> !npu.buffer<32x64xf32, ub>
      %25 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %26 = npu.alloc {address = 9984} : () -> !npu.buffer<1x1xf32, ub>
      %27 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %28 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %29 = npu.alloc {address = 10240} : () -> !npu.buffer<1x1xf32, ub>
      %30 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %31 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %32 = npu.alloc {address = 10496} : () -> !npu.buffer<1x1xf32, ub>
      %33 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %34 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %35 = npu.alloc {address = 10752} : () -> !npu.buffer<1x1xf32, ub>
      %36 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %37 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %38 = npu.alloc {address = 11008} : () -> !npu.buffer<1x1xf32, ub>
      %39 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %40 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %41 = npu.alloc {address = 11264} : () -> !npu.buffer<1x1xf32, ub>
      %42 = npu.alloc {address = 37888} : () -> !npu.buffer<32x64xf32, ub>
      %43 = npu.alloc {address = 11520} : () -> !npu.buffer<1x1xf32, ub>
      %44 = npu.alloc {address = 29440} : () -> !npu.buffer<32x64xf32, ub>
      %45 = npu.alloc {address = 20992} : () -> !npu.buffer<32x64xf32, ub>
      %46 = npu.alloc {address = 20992} : () -> !npu.buffer<32x64xf32, ub>
      %47 = npu.alloc {address = 11776} : () -> !npu.buffer<1x1xf32, ub>
      %48 = npu.alloc {address = 12032} : () -> !npu.buffer<1x1xf32, ub>
      %49 = npu.alloc {address = 20992} : () -> !npu.buffer<32x64xf32, ub>
      %50 = npu.alloc {address = 0} : () -> !npu.buffer<32x64xf16, ub>
      %51 = npu.alloc {address = 4352} : () -> !npu.buffer<1x64xf16, ub>
      %52 = npu.alloc {address = 12288} : () -> !npu.buffer<32x64xf16, ub>
      %53 = npu.alloc {address = 12288} : () -> !npu.buffer<32x64xf16, ub>
      %54 = npu.alloc {address = 16640} : () -> !npu.buffer<32x64xf16, ub>
      %55 = npu.alloc {address = 16640} : () -> !npu.buffer<32x64xf16, ub>
      %56 = npu.alloc {address = 20992} : () -> !npu.buffer<1x1xf16, ub>
      %57 = npu.alloc {address = 16640} : () -> !npu.buffer<32x64xf16, ub>
      %58 = npu.alloc {address = 16640} : () -> !npu.buffer<32x64xf16, ub>
      %59 = npu.alloc {address = 20992} : () -> !npu.buffer<1x1xf16, ub>
      %60 = npu.alloc {address = 16640} : () -> !npu.buffer<32x64xf16, ub>
      %61 = npu.alloc {address = 16640} : () -> !npu.buffer<32x64xf16, ub>
      %62 = npu.alloc {address = 8960} : () -> !npu.buffer<1x1xf16, ub>
      %63 = npu.alloc {address = 16640} : () -> !npu.buffer<32x64xf16, ub>
      %64 = npu.alloc {address = 8960} : () -> !npu.buffer<1x1xf16, ub>
      %65 = npu.alloc {address = 16640} : () -> !npu.buffer<32x64xf16, ub>
      %66 = npu.alloc {address = 4608} : () -> !npu.buffer<32x64xf16, ub>
      npu.vfill %15 {value = 0.0048935251855438504 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %18 {value = 0.0022684346324390002 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %21 {value = 0.000118534705686654 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %23 {value = 1.1982583946670199e-06 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %26 {value = 0.0048935245589178597 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %29 {value = 0.00063726192887543596 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %32 {value = 1.4857223571797901e-05 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %35 {value = 5.1222970903711401e-08 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %38 {value = -8.60467152213735e-11 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %41 {value = 2.0001879048247699e-13 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %43 {value = -2.76076847742355e-16 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %47 {value = 7.905311107635498 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.vfill %48 {value = -7.905311107635498 : f64} : (!npu.buffer<1x1xf32, ub>)
      npu.wait_cross {event = 0, target = "MTE2"}
      npu.load_nd %5, %50 at [%12 * 32, 0] {sizes = [32, 64]} : (!npu.gm<64x64xf16>, !npu.buffer<32x64xf16, ub>)
      npu.load_nd %3, %51 at [0] {sizes = [64]} : (!npu.gm<64xf16>, !npu.buffer<1x64xf16, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.vbroadcast %51, %52 : (!npu.buffer<1x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %50, %52, %53 : (!npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %53, %53, %54 : (!npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %54, %53, %55 : (!npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.vfill %56 {value = 0.044708251953125 : f64} : (!npu.buffer<1x1xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %56, %55, %57 : (!npu.buffer<1x1xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %53, %57, %58 : (!npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.vfill %59 {value = 0.7978515625 : f64} : (!npu.buffer<1x1xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %59, %58, %60 : (!npu.buffer<1x1xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vconvert %60, %49 : (!npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmin %47, %49, %46 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmax %48, %46, %45 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %45, %45, %44 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %43, %44, %42 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %41, %42, %40 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %40, %44, %39 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %38, %39, %37 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %37, %44, %36 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %35, %36, %34 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %34, %44, %33 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %32, %33, %31 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %31, %44, %30 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %29, %30, %28 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %28, %44, %27 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %26, %27, %25 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %45, %25, %24 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %23, %44, %22 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %21, %22, %20 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %20, %44, %19 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %18, %19, %17 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %17, %44, %16 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %15, %16, %14 : (!npu.buffer<1x1xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vdiv %24, %14, %13 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf32, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vconvert %13, %61 : (!npu.buffer<32x64xf32, ub>, !npu.buffer<32x64xf16, ub>)
      npu.vfill %62 {value = 1.000000e+00 : f64} : (!npu.buffer<1x1xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vadd %62, %61, %63 : (!npu.buffer<1x1xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vfill %64 {value = 5.000000e-01 : f64} : (!npu.buffer<1x1xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %64, %63, %65 : (!npu.buffer<1x1xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.pipe_barrier {pipe = "V"}
      npu.vmul %53, %65, %66 : (!npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>, !npu.buffer<32x64xf16, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.store_nd %66, %4 at [%12 * 32, 0] {sizes = [32, 64]} : (!npu.buffer<32x64xf16, ub>, !npu.gm<64x64xf16>)
    }
  }
}
