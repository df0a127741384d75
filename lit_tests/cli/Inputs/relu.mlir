func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %z = graph.constant {value = #graph.data<f32, [], (0.0)>} : () -> tensor<f32>
  %b = graph.broadcast %z {dims = []} : (tensor<f32>) -> tensor<8x16xf32>
  %y = graph.max %x, %b : tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}
