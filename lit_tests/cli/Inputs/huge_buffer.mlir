tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<512x512xf32>, %y: !npu.gm<512x512xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0, 0] {sizes = [512, 512]} : (!npu.gm<512x512xf32>) -> !tile.tile<512x512xf32, ub>
    tile.store %t, %y at [0, 0] {sizes = [512, 512]} : (!tile.tile<512x512xf32, ub>, !npu.gm<512x512xf32>)
  }
}
func.func @main(%x: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %y = tile.launch @k %x {inits = [-1]} : tensor<512x512xf32>
  func.return %y : tensor<512x512xf32>
}
