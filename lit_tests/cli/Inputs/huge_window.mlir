func.func @main(%x: tensor<1x1024x1024x8xf32>) -> tensor<1x1x1x8xf32> {
  %y = graph.reduce_window %x {dilation = [1, 1, 1, 1], high = [0, 0, 0, 0], kind = "max", low = [0, 0, 0, 0], strides = [1, 1, 1, 1], window = [1, 1024, 1024, 1]} : (tensor<1x1024x1024x8xf32>) -> tensor<1x1x1x8xf32>
  func.return %y : tensor<1x1x1x8xf32>
}
