// RUN: tilewright-opt %s -p dce --split-input-file | filecheck %s --check-prefixes ALL,DCE
// RUN: tilewright-opt %s -p test-add-timers-to-top-level-funcs --split-input-file | filecheck %s --check-prefixes ALL,TIMERS
// RUN: tilewright-opt %s -p function-persist-arg-names --split-input-file | filecheck %s --check-prefixes ALL,NAMES

// Kernels are symbols and launches use them: xDSL's dce drops a launch whose results nobody uses and keeps its kernel, and
// what looks symbols up or adds some finds ours.
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %unused = tile.launch @k %x {inits = [-1]} : (tensor<8xf32>) -> tensor<8xf32>
  %y = tile.launch @used %x {inits = [-1]} : (tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%g: index, %x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>):
}
tile.kernel @used {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%g: index, %x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>):
}
// NAMES: llvm.name = "x"
// TIMERS: tile.launch @k
// DCE-NOT: tile.launch @k
// ALL: tile.launch @used
// ALL: tile.kernel @k
// ALL: tile.kernel @used
// TIMERS: func.func private @timer_start

// -----

func.func @main(%x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>) {
  npu.launch @k %x, %y {outputs = 1, workspaces = 0} : (!npu.gm<8xf32>, !npu.gm<8xf32>)
  func.return
}
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%g: index, %x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>):
}
npu.kernel @other {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%g: index, %x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>):
}
// NAMES: llvm.name = "x"
// ALL: npu.launch @k
// ALL: npu.kernel @k
// ALL: npu.kernel @other
// TIMERS: func.func private @timer_start
