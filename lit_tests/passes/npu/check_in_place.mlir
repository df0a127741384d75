// RUN: tilewright-opt %s -p npu-check --split-input-file | filecheck %s

// A donated argument that a kernel reads and writes: each round stores what it has loaded, where it loaded it.
func.func @main(%x: !npu.gm<128xf32> {graph.donated}) -> !npu.gm<128xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 1024 : i64} {
  npu.launch @together %x, %x {outputs = 1, workspaces = 0} : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  func.return %x : !npu.gm<128xf32>
}
npu.kernel @together {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<128xf32>, %y: !npu.gm<128xf32>):
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<32xf32, ub>
    scf.for %i = %c0 to %c2 step %c1 {
      npu.load_nd %x, %a at [%core * 64 + %i * 32] {sizes = [32]} : (!npu.gm<128xf32>, !npu.buffer<32xf32, ub>)
      npu.barrier
      npu.store_nd %a, %y at [%core * 64 + %i * 32] {sizes = [32]} : (!npu.buffer<32xf32, ub>, !npu.gm<128xf32>)
      npu.barrier
    }
  }
}
// CHECK: npu.launch @together %x, %x
