// RUN: tilewright-opt %s -p 'tile-to-npu,npu-allocate,npu-synchronize' | filecheck %s
// RUN: tilewright-opt %s -p 'tile-to-npu,npu-allocate,npu-synchronize,npu-plan-memory,npu-schedule-host,npu-check' | filecheck %s --check-prefix SAFE

// A mixed section becomes what the cube core and what its vector cores run of it, with the loops and the carried tiles of
// each. They take turns: scores (events 0 and 1) and parts (2 and 3) come from the cube, weights (4 and 5) go back. Of
// each pair one event says that a tile is there, the other that its place is free. Of weights there is room for two.

builtin.module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["stored", "real", "partitioned", "fused", "scheduled", "tiled"]} {
  func.func @main(%q: tensor<2x32x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    %o = tile.launch @attention_0 %q, %k, %v {inits = [-1]} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16>
    func.return %o : tensor<2x32x16xf16>
  }
  tile.kernel @attention_0 {grid = [2], kind = "mix", outputs = 1, slots = [2, 2, 2, 1, 1], workspaces = 3} {
  ^bb0(%0: index, %1: !npu.gm<2x32x16xf16>, %2: !npu.gm<2x64x16xf16>, %3: !npu.gm<2x64x16xf16>, %4: !npu.gm<2x32x16xf16>, %5: !npu.gm<2x32x16xf32>, %6: !npu.gm<2x2x32x16xf16>, %7: !npu.gm<2x32x16xf32>):
    %8 = arith.constant 1 : index
    %9 = arith.constant 2 : index
    %10 = arith.constant 0 : index
    tile.section {core = "mixed", units = 2} {
    ^bb0(%11: index):
      %12 = tile.fill {value = 2.500000e-01 : f64} : () -> !tile.tile<1x1x1xf32, ub>
      %13 = tile.load %1 at [%0, 0, 0] {sizes = [1, 32, 16]} : (!npu.gm<2x32x16xf16>) -> !tile.tile<1x32x16xf16, l1>
      %14 = tile.fill {value = 0.000000e+00 : f64} : () -> !tile.tile<1x16x16xf16, ub>
      scf.for %15 = %10 to %9 step %8 {
        tile.store %14, %6 at [%0, %15, %11 * 16, 0] {sizes = [1, 1, 16, 16]} : (!tile.tile<1x16x16xf16, ub>, !npu.gm<2x2x32x16xf16>)
      }
      %16 = tile.fill {value = -3.4028234663852886e+38 : f64} : () -> !tile.tile<1x16x1xf32, ub>
      %17 = tile.fill {value = 0.000000e+00 : f64} : () -> !tile.tile<1x16x1xf32, ub>
      %18 = tile.fill {value = 1.000000e+00 : f64} : () -> !tile.tile<1x16x1xf32, ub>
      %19 = tile.fill {value = 1.000000e+00 : f64} : () -> !tile.tile<1x16x1xf32, ub>
      %20 = tile.fill {value = 0.000000e+00 : f64} : () -> !tile.tile<1x16x16xf32, ub>
      %21, %22, %23, %24, %25 = scf.for %26 = %10 to %9 step %8 iter_args(%27 = %16, %28 = %17, %29 = %18, %30 = %19, %31 = %20) -> (!tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x16xf32, ub>) {
        %32, %33, %34, %35, %36 = scf.for %37 = %10 to %9 step %8 iter_args(%38 = %27, %39 = %28, %40 = %29, %41 = %30, %42 = %31) -> (!tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x16xf32, ub>) {
          %43 = tile.load %2 at [%0, %26 * 32 + %37 * 16, 0] {sizes = [1, 16, 16]} : (!npu.gm<2x64x16xf16>) -> !tile.tile<1x16x16xf16, l1>
          %44 = tile.zero : () -> !tile.tile<32x16xf32, l0c>
          %45 = tile.move %13 at [0, 0, 0] {sizes = [1, 32, 16]} : (!tile.tile<1x32x16xf16, l1>) -> !tile.tile<32x16xf16, l0a>
          %46 = tile.move %43 at [0, 0, 0] {sizes = [1, 16, 16], transpose = 1} : (!tile.tile<1x16x16xf16, l1>) -> !tile.tile<16x16xf16, l0b>
          %47 = tile.mma %45, %46, %44 at [0] : (!tile.tile<32x16xf16, l0a>, !tile.tile<16x16xf16, l0b>, !tile.tile<32x16xf32, l0c>) -> !tile.tile<32x16xf32, l0c>
          tile.store %47, %5 at [%0, 0, 0] {sizes = [1, 32, 16]} : (!tile.tile<32x16xf32, l0c>, !npu.gm<2x32x16xf32>)
          %48 = tile.load %3 at [%0, %26 * 32 + %37 * 16 + -32, 0] {sizes = [1, 16, 16]} : (!npu.gm<2x64x16xf16>) -> !tile.tile<1x16x16xf16, l1>
          %49 = tile.load %6 at [%0, %37, 0, 0] {sizes = [1, 1, 32, 16]} : (!npu.gm<2x2x32x16xf16>) -> !tile.tile<32x16xf16, l1>
          %50 = tile.zero : () -> !tile.tile<32x16xf32, l0c>
          %51 = tile.move %49 at [0, 0] {sizes = [32, 16]} : (!tile.tile<32x16xf16, l1>) -> !tile.tile<32x16xf16, l0a>
          %52 = tile.move %48 at [0, 0, 0] {sizes = [1, 16, 16]} : (!tile.tile<1x16x16xf16, l1>) -> !tile.tile<16x16xf16, l0b>
          %53 = tile.mma %51, %52, %50 at [0] : (!tile.tile<32x16xf16, l0a>, !tile.tile<16x16xf16, l0b>, !tile.tile<32x16xf32, l0c>) -> !tile.tile<32x16xf32, l0c>
          tile.store %53, %7 at [%0, 0, 0] {sizes = [1, 32, 16]} : (!tile.tile<32x16xf32, l0c>, !npu.gm<2x32x16xf32>)
          %54 = tile.load %5 at [%0, %11 * 16, 0] {sizes = [1, 16, 16]} : (!npu.gm<2x32x16xf32>) -> !tile.tile<1x16x16xf32, ub>
          %55 = tile.mul %54, %12 : (!tile.tile<1x16x16xf32, ub>, !tile.tile<1x1x1xf32, ub>) -> !tile.tile<1x16x16xf32, ub>
          %56 = tile.reduce %55 {dims = [2], kind = "max"} : (!tile.tile<1x16x16xf32, ub>) -> !tile.tile<1x16x1xf32, ub>
          %57 = tile.max %38, %56 : !tile.tile<1x16x1xf32, ub>
          %58 = tile.sub %38, %57 : !tile.tile<1x16x1xf32, ub>
          %59 = tile.broadcast %57 : (!tile.tile<1x16x1xf32, ub>) -> !tile.tile<1x16x16xf32, ub>
          %60 = tile.sub %55, %59 : !tile.tile<1x16x16xf32, ub>
          %61 = tile.exp %60 : !tile.tile<1x16x16xf32, ub>
          %62 = tile.convert %61 : (!tile.tile<1x16x16xf32, ub>) -> !tile.tile<1x16x16xf16, ub>
          tile.store %62, %6 at [%0, %37, %11 * 16, 0] {sizes = [1, 1, 16, 16]} : (!tile.tile<1x16x16xf16, ub>, !npu.gm<2x2x32x16xf16>)
          %63 = tile.exp %58 : !tile.tile<1x16x1xf32, ub>
          %64 = tile.mul %39, %63 : !tile.tile<1x16x1xf32, ub>
          %65 = tile.reduce %61 {dims = [2], kind = "sum"} : (!tile.tile<1x16x16xf32, ub>) -> !tile.tile<1x16x1xf32, ub>
          %66 = tile.add %64, %65 : !tile.tile<1x16x1xf32, ub>
          %67 = tile.broadcast %41 : (!tile.tile<1x16x1xf32, ub>) -> !tile.tile<1x16x16xf32, ub>
          %68 = tile.mul %42, %67 : !tile.tile<1x16x16xf32, ub>
          %69 = tile.load %7 at [%0, %11 * 16, 0] {sizes = [1, 16, 16]} : (!npu.gm<2x32x16xf32>) -> !tile.tile<1x16x16xf32, ub>
          %70 = tile.add %68, %69 : !tile.tile<1x16x16xf32, ub>
          %71 = tile.max %40, %40 : !tile.tile<1x16x1xf32, ub>
          %72 = tile.max %38, %56 : !tile.tile<1x16x1xf32, ub>
          %73 = tile.exp %58 : !tile.tile<1x16x1xf32, ub>
          scf.yield %72, %66, %73, %71, %70 : !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x16xf32, ub>
        }
        scf.yield %32, %33, %34, %35, %36 : !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x16xf32, ub>
      }
      %74, %75 = scf.for %76 = %10 to %9 step %8 iter_args(%77 = %24, %78 = %25) -> (!tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x16xf32, ub>) {
        %79 = tile.load %3 at [%0, %76 * 16 + 32, 0] {sizes = [1, 16, 16]} : (!npu.gm<2x64x16xf16>) -> !tile.tile<1x16x16xf16, l1>
        %80 = tile.load %6 at [%0, %76, 0, 0] {sizes = [1, 1, 32, 16]} : (!npu.gm<2x2x32x16xf16>) -> !tile.tile<32x16xf16, l1>
        %81 = tile.zero : () -> !tile.tile<32x16xf32, l0c>
        %82 = tile.move %80 at [0, 0] {sizes = [32, 16]} : (!tile.tile<32x16xf16, l1>) -> !tile.tile<32x16xf16, l0a>
        %83 = tile.move %79 at [0, 0, 0] {sizes = [1, 16, 16]} : (!tile.tile<1x16x16xf16, l1>) -> !tile.tile<16x16xf16, l0b>
        %84 = tile.mma %82, %83, %81 at [0] : (!tile.tile<32x16xf16, l0a>, !tile.tile<16x16xf16, l0b>, !tile.tile<32x16xf32, l0c>) -> !tile.tile<32x16xf32, l0c>
        tile.store %84, %7 at [%0, 0, 0] {sizes = [1, 32, 16]} : (!tile.tile<32x16xf32, l0c>, !npu.gm<2x32x16xf32>)
        %85 = tile.broadcast %77 : (!tile.tile<1x16x1xf32, ub>) -> !tile.tile<1x16x16xf32, ub>
        %86 = tile.mul %78, %85 : !tile.tile<1x16x16xf32, ub>
        %87 = tile.load %7 at [%0, %11 * 16, 0] {sizes = [1, 16, 16]} : (!npu.gm<2x32x16xf32>) -> !tile.tile<1x16x16xf32, ub>
        %88 = tile.add %86, %87 : !tile.tile<1x16x16xf32, ub>
        %89 = tile.max %23, %23 : !tile.tile<1x16x1xf32, ub>
        scf.yield %89, %88 : !tile.tile<1x16x1xf32, ub>, !tile.tile<1x16x16xf32, ub>
      }
      %90 = tile.broadcast %22 : (!tile.tile<1x16x1xf32, ub>) -> !tile.tile<1x16x16xf32, ub>
      %91 = tile.div %75, %90 : !tile.tile<1x16x16xf32, ub>
      %92 = tile.convert %91 : (!tile.tile<1x16x16xf32, ub>) -> !tile.tile<1x16x16xf16, ub>
      tile.store %92, %4 at [%0, %11 * 16, 0] {sizes = [1, 16, 16]} : (!tile.tile<1x16x16xf16, ub>, !npu.gm<2x32x16xf16>)
    }
  }
}

// CHECK: npu.section {core = "cube", units = 1} {
// CHECK: npu.set_cross {event = 5, source = "MTE2"}
// CHECK: npu.set_cross {event = 5, source = "MTE2"}
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK: npu.wait_cross {event = 1, target = "FIX"}
// CHECK: npu.fixpipe %{{.*}}, %5 at
// CHECK: npu.set_cross {event = 0, source = "FIX"}
// CHECK: npu.wait_cross {event = 4, target = "MTE2"}
// CHECK: npu.load_nd2nz %6
// CHECK: npu.set_cross {event = 5, source = "MTE2"}
// CHECK: npu.wait_cross {event = 3, target = "FIX"}
// CHECK: npu.fixpipe %{{.*}}, %7 at
// CHECK: npu.set_cross {event = 2, source = "FIX"}
// CHECK: scf.for
// CHECK: npu.wait_cross {event = 1, target = "FIX"}
// CHECK: npu.wait_cross {event = 3, target = "FIX"}
// CHECK: npu.section {core = "vector", units = 2} {
// CHECK: npu.set_cross {event = 3, source = "MTE2"}
// CHECK: npu.set_cross {event = 1, source = "MTE2"}
// CHECK: npu.wait_cross {event = 5, target = "MTE3"}
// CHECK: npu.store_nd %{{.*}}, %6 at
// CHECK: npu.set_cross {event = 4, source = "MTE3"}
// CHECK: npu.wait_cross {event = 0, target = "MTE2"}
// CHECK: npu.load_nd %5
// CHECK: npu.set_cross {event = 1, source = "MTE2"}
// CHECK: npu.wait_cross {event = 2, target = "MTE2"}
// CHECK: npu.load_nd %7
// CHECK: npu.set_cross {event = 3, source = "MTE2"}
// CHECK: npu.wait_cross {event = 5, target = "MTE3"}
// CHECK: npu.wait_cross {event = 5, target = "MTE3"}

// SAFE: npu.launch
