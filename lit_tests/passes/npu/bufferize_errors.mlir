// RUN: tilewright-opt %s -p tile-to-npu --split-input-file --verify-diagnostics | filecheck %s

// Only views and constants stand outside the sections of a kernel.
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
  %t = tile.fill {value = 0.0 : f64} : () -> !tile.tile<8x8xf32, ub>
}
// CHECK: 'tile.fill' ({{.*}}bufferize_errors.mlir:6) cannot stand outside the sections of a kernel

// -----

// What has no instruction cannot be in a section.
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %s = arith.addi %unit, %unit : index
  }
}
// CHECK: 'arith.addi' ({{.*}}) has no counterpart at the npu level

// -----

// A loop needs to be counted.
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    scf.for %j = %zero to %i step %one {
    }
  }
}
// CHECK: 'scf.for' ({{.*}}) needs a constant upper bound

// -----

// A loop updates what it carries in place: it cannot swap two tiles.
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = tile.fill {value = 0.0 : f64} : () -> !tile.tile<8x8xf32, ub>
    %b = tile.fill {value = 1.0 : f64} : () -> !tile.tile<8x8xf32, ub>
    %c, %d = scf.for %j = %zero to %four step %one iter_args(%e = %a, %f = %b) -> (!tile.tile<8x8xf32, ub>, !tile.tile<8x8xf32, ub>) {
      scf.yield %f, %e : !tile.tile<8x8xf32, ub>, !tile.tile<8x8xf32, ub>
    }
  }
}
// CHECK: 'scf.yield' ({{.*}}) carries a tile that could not be updated in place

// -----

// Graph ops have been fused and lowered before.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.abs %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
// CHECK: error: tile-to-npu needs a module that is tiled: run graph-to-tile before it

// -----

// All of them.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.abs %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>):
}
// CHECK: 'graph.abs' ({{.*}}) has no counterpart at the npu level

// -----

// A launch names a kernel.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = tile.launch @nowhere %x {inits = [-1]} : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
// CHECK: 'tile.launch'{{.*}} launches @nowhere, which does not exist

// -----

// A launch gives what its kernel takes.
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = tile.launch @k %x, %x {inits = [-1]} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>):
}
// CHECK: 'tile.launch' ({{.*}}) gives 2 tensors and takes 1; 'tile.kernel' ({{.*}}) @k takes 1 and gives 1

// -----

func.func @main(%x: tensor<9xf32>) -> tensor<8xf32> {
  %y = tile.launch @k %x {inits = [-1]} : (tensor<9xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>):
}
// CHECK: 'tile.launch' ({{.*}}) has !npu.gm<9xf32> where argument 0 of 'tile.kernel' ({{.*}}) is !npu.gm<8xf32>

// -----

func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %y = tile.launch @k %x {inits = [-1]} : (tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x16xf32>, %y: !npu.gm<8x16xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0, 0] {sizes = [8, 16]} : (!npu.gm<8x16xf32>) -> !tile.tile<8x16xf32, ub>
    %d = tile.exp %t attributes {in_place} : !tile.tile<8x16xf32, ub>
    %s = tile.add %d, %t : !tile.tile<8x16xf32, ub>
    tile.store %s, %y at [0, 0] {sizes = [8, 16]} : (!tile.tile<8x16xf32, ub>, !npu.gm<8x16xf32>)
  }
}
// CHECK: 'tile.exp' {{.*}} writes over a tile that something else uses later or brings
