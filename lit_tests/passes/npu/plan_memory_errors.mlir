// RUN: tilewright-opt %s -p 'npu-plan-memory{target=ascend-310}' --split-input-file --verify-diagnostics | filecheck %s

// Device memory is not endless.
func.func @main(%x: !npu.gm<1048576x4096xf32>) -> !npu.gm<1048576x4096xf32> {
  func.return %x : !npu.gm<1048576x4096xf32>
}
// CHECK: the program needs 17179869184 bytes of device memory, but ascend-310 has 8589934592
