// RUN: tilewright-opt %s -p graph-to-tile --verify-diagnostics | filecheck %s

// A step with all places of a window, which no move of the vendor's IR unrolls.
module attributes {tilewright.hivm, tilewright.target = "ascend-910b1", tilewright.states = ["stored", "real", "partitioned", "fused", "scheduled"]} {
  func.func @main(%x: tensor<1x8x8x16xf16>, %k: tensor<3x3x16x16xf16>) -> tensor<1x8x8x16xf16> {
    %y = graph.fusion %x, %k {domain = [1, 8, 8, 16], kind = "cube", schedule = #graph.cube_schedule<axes = [[1], [2], [3], [4], [5], [6]], step = [8, 8, 16, 1, 3, 16], lhs = [8, 8, 16, 1, 3, 16], rhs = [8, 8, 16, 1, 3, 16], grid = [1, 1, 1, 1, 1, 1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = 2, ub = 2>} : (tensor<1x8x8x16xf16>, tensor<3x3x16x16xf16>) -> tensor<1x8x8x16xf16> {
    ^bb0(%0: tensor<1x8x8x16xf16>, %1: tensor<3x3x16x16xf16>):
      %c = graph.conv %0, %1 {groups = 1, high = [1, 1], lhs_dilation = [1, 1], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]} attributes {axes = array<i64: 0, 1, 2, 3>} : (tensor<1x8x8x16xf16>, tensor<3x3x16x16xf16>) -> tensor<1x8x8x16xf16>
      graph.yield %c : (tensor<1x8x8x16xf16>)
    }
    func.return %y : tensor<1x8x8x16xf16>
  }
}
// CHECK: @conv_0 cannot obey its pinned schedule: a step of 3 along axis 4, whose places are loaded one by one
