// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// A kernel for any number of rows: grid, trip count and places follow from it; tiles are static.

tile.kernel @double {grid = ["ceildiv(b, ceildiv(b, 8))"], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
// CHECK: tile.kernel @double {grid = ["ceildiv(b, ceildiv(b, 8))"]
^bb0(%core: index, %x: !npu.gm<?x128xf32, sizes ["b"]>, %y: !npu.gm<?x128xf32, sizes ["b"]>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rows = tile.size {value = #graph.sizes<["ceildiv(b, 8)"]>} : () -> index
  %flat = tile.view %x : (!npu.gm<?x128xf32, sizes ["b"]>) -> !npu.gm<?x128xf32, sizes ["b - 1"], strides [128, 1], offset 128>
  // CHECK: tile.view %x : (!npu.gm<?x128xf32, sizes ["b"]>) -> !npu.gm<?x128xf32, sizes ["b - 1"], strides [128, 1], offset 128>
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    scf.for %i = %zero to %rows step %one {
      %t = tile.load %x at [%core * "ceildiv(b, 8)" + %i, 0] {sizes = [1, 128]} : (!npu.gm<?x128xf32, sizes ["b"]>) -> !tile.tile<1x128xf32, ub>
      // CHECK: tile.load %x at [%core * "ceildiv(b, 8)" + %i, 0] {sizes = [1, 128]}
      %d = tile.add %t, %t : !tile.tile<1x128xf32, ub>
      tile.store %d, %y at [%core * "ceildiv(b, 8)" + %i, 0] {sizes = [1, 128]} : (!tile.tile<1x128xf32, ub>, !npu.gm<?x128xf32, sizes ["b"]>)
    }
  }
}
