// RUN: tilewright-opt %s -p 'npu-plan-memory{target=ascend-310}' --split-input-file --verify-diagnostics | filecheck %s

// Device memory is not endless.
func.func @main(%x: !npu.gm<1048576x4096xf32>) -> !npu.gm<1048576x4096xf32> {
  func.return %x : !npu.gm<1048576x4096xf32>
}
// CHECK: the program needs 17179869184 bytes of device memory, but ascend-310 has 8589934592: 17179869184 are needed at the start, by argument 0, !npu.gm<1048576x4096xf32>, 17179869184 bytes; these are 8589934592 bytes too many at one time: a smaller batch or narrower types need less

// -----

// Where most is needed, what is live there, and the argument whose memory would be enough: %y may lie where %x was.
func.func @main(%x: !npu.gm<1024x1048576xf32>, %w: !npu.gm<64xf32>) -> !npu.gm<1024x1048576xf32> {
  %h = npu.gm_alloc : () -> !npu.gm<1024x786432xf32>
  npu.launch @narrow %x, %h {outputs = 1, workspaces = 0} : (!npu.gm<1024x1048576xf32>, !npu.gm<1024x786432xf32>)
  %y = npu.gm_alloc : () -> !npu.gm<1024x1048576xf32>
  npu.launch @widen %h, %w, %y {outputs = 1, workspaces = 0} : (!npu.gm<1024x786432xf32>, !npu.gm<64xf32>, !npu.gm<1024x1048576xf32>)
  func.return %y : !npu.gm<1024x1048576xf32>
}
npu.kernel @narrow {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %a: !npu.gm<1024x1048576xf32>, %b: !npu.gm<1024x786432xf32>):
}
npu.kernel @widen {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %a: !npu.gm<1024x786432xf32>, %w: !npu.gm<64xf32>, %b: !npu.gm<1024x1048576xf32>):
}
// CHECK: the program needs 11811160576 bytes of device memory, but ascend-310 has 8589934592: 11811160576 are needed at 'npu.launch'{{.*}} ({{.*}}plan_memory_errors.mlir:16), by argument 0, !npu.gm<1024x1048576xf32>, 4294967296 bytes; !npu.gm<1024x1048576xf32>, 4294967296 bytes ({{.*}}plan_memory_errors.mlir:15); !npu.gm<1024x786432xf32>, 3221225472 bytes ({{.*}}plan_memory_errors.mlir:13); argument 1, !npu.gm<64xf32>, 512 bytes; it fits if argument 0 of @main is donated
