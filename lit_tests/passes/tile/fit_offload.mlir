// RUN: tilewright-opt %s -p "tile-fit{memory_limit=17000000}" | tilewright-opt | filecheck %s
// RUN: tilewright-opt %s -p "tile-fit{memory_limit=17000000},tile-to-npu,npu-allocate,npu-synchronize,npu-plan-memory,npu-schedule-host,npu-check" | filecheck %s --check-prefix=NPU

// The kernels take 500 us each and the link 188 us for %s (4 MiB): it waits on the host while others run beside.
func.func @main(%a: tensor<1048576xf32>) -> tensor<1048576xf32> {
  %s = tile.launch @f %a {inits = [-1]} : tensor<1048576xf32>
  %p = tile.launch @f %s {inits = [-1]} : tensor<1048576xf32>
  %q = tile.launch @f %p {inits = [-1]} : tensor<1048576xf32>
  %r = tile.launch @g %p, %q {inits = [-1]} : tensor<1048576xf32>
  %t = tile.launch @g %r, %q {inits = [-1]} : tensor<1048576xf32>
  %u = tile.launch @g %t, %r {inits = [-1]} : tensor<1048576xf32>
  %v = tile.launch @f %u {inits = [-1]} : tensor<1048576xf32>
  %w = tile.launch @g %v, %s {inits = [-1]} : tensor<1048576xf32>
  func.return %w : tensor<1048576xf32>
}
// CHECK: %[[S:.*]] = tile.launch @f %a
// CHECK: %[[H:.*]] = graph.offload %[[S]] : tensor<1048576xf32>
// CHECK: %[[B:.*]] = graph.restore %[[H]] : tensor<1048576xf32>
// CHECK: tile.launch @g %{{.*}}, %[[B]] {inits = [-1]}
// CHECK-NOT: tile.microseconds

// NPU: %[[S:.*]] = npu.gm_alloc
// NPU: npu.launch @f %a, %[[S]] {outputs = 1, stream = "compute"
// NPU: npu.wait_event {event = 0, stream = "copy_out"}
// NPU: %[[H:.*]] = npu.to_host %[[S]] {stream = "copy_out"}
// NPU: npu.wait_event {{.*}} stream = "copy_in"}
// NPU: npu.to_device %[[H]], %[[B:.*]] {stream = "copy_in"}
// NPU: npu.wait_event {{.*}} stream = "compute"}
// NPU-NEXT: npu.launch @g %{{.*}}, %[[B]], %{{.*}} {outputs = 1, stream = "compute"

tile.kernel @f {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} attributes {tile.microseconds = 500.0 : f64} {
^bb0(%0: index, %1: !npu.gm<1048576xf32>, %2: !npu.gm<1048576xf32>):
  %3 = arith.constant 0 : index
  %4 = arith.constant 1 : index
  %5 = arith.constant 128 : index
  tile.section {core = "vector", units = 1} {
  ^bb0(%6: index):
    scf.for %7 = %3 to %5 step %4 {
      %8 = tile.load %1 at [%7 * 8192] {sizes = [8192]} : (!npu.gm<1048576xf32>) -> !tile.tile<8192xf32, ub>
      %9 = tile.exp %8 : !tile.tile<8192xf32, ub>
      tile.store %9, %2 at [%7 * 8192] {sizes = [8192]} : (!tile.tile<8192xf32, ub>, !npu.gm<1048576xf32>)
    }
  }
}
tile.kernel @g {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} attributes {tile.microseconds = 500.0 : f64} {
^bb0(%0: index, %1: !npu.gm<1048576xf32>, %2: !npu.gm<1048576xf32>, %3: !npu.gm<1048576xf32>):
  %4 = arith.constant 0 : index
  %5 = arith.constant 1 : index
  %6 = arith.constant 128 : index
  tile.section {core = "vector", units = 1} {
  ^bb0(%7: index):
    scf.for %8 = %4 to %6 step %5 {
      %9 = tile.load %1 at [%8 * 8192] {sizes = [8192]} : (!npu.gm<1048576xf32>) -> !tile.tile<8192xf32, ub>
      %10 = tile.load %2 at [%8 * 8192] {sizes = [8192]} : (!npu.gm<1048576xf32>) -> !tile.tile<8192xf32, ub>
      %11 = tile.add %9, %10 : !tile.tile<8192xf32, ub>
      tile.store %11, %3 at [%8 * 8192] {sizes = [8192]} : (!tile.tile<8192xf32, ub>, !npu.gm<1048576xf32>)
    }
  }
}
