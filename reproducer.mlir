builtin.module {
  func.func @main(%0: tensor<32x7x2xf32>, %1: tensor<4x16x1xf32>) -> tensor<8x2x4xf32> {
    %2 = graph.conv %0, %1 {groups = 2, high = [0], lhs_dilation = [1], lhs_layout = [2, 0, 1], low = [1], out_layout = [1, 2, 0], rhs_dilation = [1], rhs_layout = [1, 0, 2], strides = [1]} : (tensor<32x7x2xf32>, tensor<4x16x1xf32>) -> tensor<8x2x4xf32>
    func.return %2 : tensor<8x2x4xf32>
  }
}
