builtin.module {
  func.func @main(%0: tensor<32x7x2xf32>, %1: tensor<4x16x1xf32>) -> tensor<8x2x4xf32> {
    %2 = graph.fusion %0, %1 {domain = [8, 2, 4], kind = "cube"} : (tensor<32x7x2xf32>, tensor<4x16x1xf32>) -> tensor<8x2x4xf32> {
    ^bb0(%3: tensor<32x7x2xf32>, %4: tensor<4x16x1xf32>):
      %5 = graph.conv %3, %4 {groups = 2, high = [0], lhs_dilation = [1], lhs_layout = [2, 0, 1], low = [1], out_layout = [1, 2, 0], rhs_dilation = [1], rhs_layout = [1, 0, 2], strides = [1]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<32x7x2xf32>, tensor<4x16x1xf32>) -> tensor<8x2x4xf32>
      graph.yield %5 : (tensor<8x2x4xf32>)
    }
    func.return %2 : tensor<8x2x4xf32>
  }
}
