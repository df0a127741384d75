// RUN: tilewright-opt %s -p graph-fuse,graph-schedule --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse,graph-schedule{without=pooled}' --split-input-file | filecheck %s --check-prefix APART
// RUN: tilewright-opt %s -p 'graph-fuse,graph-schedule{schedule="base_m=192"}' --split-input-file --verify-diagnostics | filecheck %s --check-prefix APART

// Windows of 3 x 3 with a border, and what is elementwise behind them: one kernel, in which a step of the product has
// the rows of whole windows, and the epilogue counts windows.
func.func @main(%x: tensor<1x32x32x16xf16>, %w: tensor<3x3x16x32xf16>) -> tensor<1x16x16x32xf16> {
  %y = graph.conv %x, %w {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1],
    out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]}
    : (tensor<1x32x32x16xf16>, tensor<3x3x16x32xf16>) -> tensor<1x32x32x32xf16>
  %t = graph.tanh %y : tensor<1x32x32x32xf16>
  %p = graph.reduce_window %t {dilation = [1, 1, 1, 1], high = [0, 1, 1, 0], kind = "max", low = [0, 1, 1, 0],
    strides = [1, 2, 2, 1], window = [1, 3, 3, 1]} : (tensor<1x32x32x32xf16>) -> tensor<1x16x16x32xf16>
  %r = graph.exp %p : tensor<1x16x16x32xf16>
  func.return %r : tensor<1x16x16x32xf16>
}
// CHECK: %[[R:.*]] = graph.fusion %x, %w {domain = [1, 32, 32, 32], kind = "mix"
// CHECK-SAME: step = [{{[0-9]*[13579]}}, {{[0-9]*[13579]}}, 32,
// CHECK-SAME: epilogue = [
// CHECK: graph.conv
// CHECK: graph.tanh
// CHECK: graph.reduce_window {{.*}} attributes {axes = array<i64: 0, 1, 2, 3>}
// CHECK: graph.exp {{.*}} attributes {axes = array<i64: 0, 1, 2, 3>} : tensor<1x16x16x32xf16>
// CHECK: func.return %[[R]]
// APART: graph.fusion %x, %w {{.*}} -> tensor<1x32x32x32xf16>
// APART: graph.fusion {{.*}} -> tensor<1x16x16x32xf16>
// APART: graph.fusion {{.*}} : tensor<1x16x16x32xf16>

// -----

// The mean of an image is what one window has: its rows are one step.
func.func @main(%x: tensor<1x7x7x64xf16>, %w: tensor<64x128xf16>) -> tensor<1x128xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [3], rhs_batch = [], rhs_contract = [0]}
    : (tensor<1x7x7x64xf16>, tensor<64x128xf16>) -> tensor<1x7x7x128xf32>
  %t = graph.tanh %y : tensor<1x7x7x128xf32>
  %s = graph.reduce %t {dims = [1, 2], kind = "sum"} : (tensor<1x7x7x128xf32>) -> tensor<1x128xf32>
  func.return %s : tensor<1x128xf32>
}
// CHECK: graph.fusion %x, %w {domain = [1, 7, 7, 128], kind = "mix", schedule = #graph.cube_schedule<axes = {{\[}}[1, 2], [3], [4]], step = [49,
// CHECK: graph.reduce {{.*}} attributes {axes = array<i64: {{-1|0}}, 1, 2, 3>}

// -----

// What is not pooled is a result, too: two kernels.
func.func @main(%x: tensor<32x32x64xf16>, %w: tensor<64x32xf16>) -> (tensor<32x32x32xf16>, tensor<16x16x32xf16>) {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]}
    : (tensor<32x32x64xf16>, tensor<64x32xf16>) -> tensor<32x32x32xf16>
  %p = graph.reduce_window %y {dilation = [1, 1, 1], high = [0, 0, 0], kind = "sum", low = [0, 0, 0],
    strides = [2, 2, 1], window = [2, 2, 1]} : (tensor<32x32x32xf16>) -> tensor<16x16x32xf16>
  func.return %y, %p : tensor<32x32x32xf16>, tensor<16x16x32xf16>
}
// CHECK: graph.fusion %x, %w {{.*}} -> tensor<32x32x32xf16>
// CHECK: graph.fusion {{.*}} -> tensor<16x16x32xf16>
