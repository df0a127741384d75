// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule' | filecheck %s

// A product that sums over two dimensions, groups of columns and the columns of each: a step spans several groups.

// CHECK-LABEL: func.func @main
// CHECK: graph.fusion %x, %w {domain = [300, 80], kind = "cube", schedule = #graph.cube_schedule<axes = {{\[\[0\], \[1\], \[2\], \[3\]\]}}, step = [100, 80, 8, 16]
func.func @main(%x: tensor<40x300x16xf16>, %w: tensor<40x16x80xf16>) -> tensor<300x80xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [0, 2], rhs_batch = [], rhs_contract = [0, 1]} : (tensor<40x300x16xf16>, tensor<40x16x80xf16>) -> tensor<300x80xf16>
  func.return %y : tensor<300x80xf16>
}
