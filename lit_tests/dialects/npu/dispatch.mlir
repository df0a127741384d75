// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// The host program of open dimensions: where sizes are, what they have to fulfil, and which version they get.

func.func @main(%n: tensor<i32>, %x: tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>, %w: tensor<?x4xf32, #graph.sizes<["8*s"]>>) {
  // CHECK: npu.dispatch %n, %x, %w : (tensor<i32>, tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>, tensor<?x4xf32, #graph.sizes<["8*s"]>>) {
  npu.dispatch %n, %x, %w : (tensor<i32>, tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>, tensor<?x4xf32, #graph.sizes<["8*s"]>>) {
    // CHECK-NEXT: npu.symbol {dimension = 0, operand = 1, place = "dimension 0 of x", symbol = "b"}
    npu.symbol {dimension = 0, operand = 1, place = "dimension 0 of x", symbol = "b"}
    // CHECK-NEXT: npu.symbol {dimension = 1, operand = 1, symbol = "s"}
    npu.symbol {dimension = 1, operand = 1, symbol = "s"}
    // CHECK-NEXT: npu.symbol {element = 0, operand = 0, place = "n", symbol = "n"}
    npu.symbol {element = 0, operand = 0, place = "n", symbol = "n"}
    // CHECK-NEXT: npu.symbol {symbol = "free"}
    npu.symbol {symbol = "free"}
    // CHECK-NEXT: npu.require {condition = "s <= 2048", message = "s is {s}"}
    npu.require {condition = "s <= 2048", message = "s is {s}"}
    // CHECK-NEXT: npu.version @small {extras = ["8*s", "n"], guard = "s <= 64 and mod(b, 8) == 0"}
    npu.version @small {extras = ["8*s", "n"], guard = "s <= 64 and mod(b, 8) == 0"}
    // CHECK-NEXT: npu.version @small {guard = "s <= 64", variant = "dense"}
    npu.version @small {guard = "s <= 64", variant = "dense"}
    // CHECK-NEXT: npu.alone {guard = "", reason = "it sorts", variant = "sorted"}
    npu.alone {guard = "", reason = "it sorts", variant = "sorted"}
  }
  func.return
}
builtin.module @small {
  func.func @main(%x: !npu.gm<?x?xf32, sizes ["b", "8*s"]>) {
    func.return
  }
}
