// A load from device memory into l0a, which only moves from l1 fill.
npu.kernel @k {grid = [1], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %b = npu.alloc : () -> !npu.buffer<8x64xf32, l0a>
    npu.load_nd %x, %b at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, l0a>)
  }
}
func.func @main(%x: !npu.gm<8x64xf32>) {
  npu.launch @k %x {outputs = 0, workspaces = 0} : (!npu.gm<8x64xf32>)
  func.return
}
