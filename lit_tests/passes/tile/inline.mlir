// RUN: tilewright-opt %s -p tile-inline --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p "tile-inline{without=recompute}" --split-input-file | filecheck %s --check-prefix=OFF

// A norm of one row, which one core has in a moment, and a product whose cores each read a part of it: they make all of
// the row themselves, because each element depends on all, and take pieces of it in the place of loads.
func.func @main(%x: tensor<1x64xf32>, %w: tensor<64x32xf32>) -> tensor<1x32xf32> {
  %n = tile.launch @reduce_0 %x {inits = [-1]} : (tensor<1x64xf32>) -> tensor<1x64xf32>
  %y = tile.launch @contract_0 %n, %w {inits = [-1]} : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
  func.return %y : tensor<1x32xf32>
}
tile.kernel @reduce_0 {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1x64xf32>, %y: !npu.gm<1x64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0, 0] {sizes = [1, 64]} : (!npu.gm<1x64xf32>) -> !tile.tile<1x64xf32, ub>
    %m = tile.reduce %t {dims = [1], kind = "max"} : (!tile.tile<1x64xf32, ub>) -> !tile.tile<1x1xf32, ub>
    %d = tile.sub %t, %m : (!tile.tile<1x64xf32, ub>, !tile.tile<1x1xf32, ub>) -> !tile.tile<1x64xf32, ub>
    tile.store %d, %y at [0, 0] {sizes = [1, 64]} : (!tile.tile<1x64xf32, ub>, !npu.gm<1x64xf32>)
  }
}
tile.kernel @contract_0 {grid = [2], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1x64xf32>, %w: !npu.gm<64x32xf32>, %y: !npu.gm<1x32xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  %row = tile.view %x : (!npu.gm<1x64xf32>) -> !npu.gm<64xf32>
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %none = tile.fill {value = 0.000000e+00 : f64} : () -> !tile.tile<1x16xf32, ub>
    %sum = scf.for %k = %zero to %four step %one iter_args(%s = %none) -> (!tile.tile<1x16xf32, ub>) {
      %a = tile.load %row at [%k * 16] {sizes = [16]} : (!npu.gm<64xf32>) -> !tile.tile<16x1xf32, ub>
      %b = tile.load %w at [%k * 16, %i * 16] {sizes = [16, 16]} : (!npu.gm<64x32xf32>) -> !tile.tile<16x16xf32, ub>
      %c = tile.broadcast %a : (!tile.tile<16x1xf32, ub>) -> !tile.tile<16x16xf32, ub>
      %p = tile.mul %b, %c : !tile.tile<16x16xf32, ub>
      %r = tile.reduce %p {dims = [0], kind = "sum"} : (!tile.tile<16x16xf32, ub>) -> !tile.tile<1x16xf32, ub>
      %n = tile.add %s, %r : !tile.tile<1x16xf32, ub>
      scf.yield %n : !tile.tile<1x16xf32, ub>
    }
    tile.store %sum, %y at [0, %i * 16] {sizes = [1, 16]} : (!tile.tile<1x16xf32, ub>, !npu.gm<1x32xf32>)
  }
}
// CHECK: func.func @main
// CHECK-NEXT: tile.launch @contract_0 %w, %x {inits = [-1]}
// CHECK-NEXT: func.return
// CHECK-NOT: @reduce_0
// CHECK: tile.kernel @contract_0 {grid = [2]
// CHECK: ^bb0(%{{.*}}: index, %[[W:.*]]: !npu.gm<64x32xf32>, %[[X:.*]]: !npu.gm<1x64xf32>, %{{.*}}: !npu.gm<1x32xf32>):
// CHECK: tile.load %[[X]] at [0, 0] {sizes = [1, 64]}
// CHECK-NEXT: tile.reduce {{.*}} {dims = [1], kind = "max"}
// CHECK-NEXT: %[[ROW:.*]] = tile.sub
// CHECK-NEXT: scf.for %[[K:[a-z0-9]+]] =
// CHECK-NEXT: %[[CUT:.*]] = tile.extract %[[ROW]] at [0, %[[K]] * 16] {sizes = [1, 16], steps = [1, 1]}
// CHECK-NEXT: tile.transpose %[[CUT]] {perm = [1, 0]} : (!tile.tile<1x16xf32, ub>) -> !tile.tile<16x1xf32, ub>
// CHECK-NEXT: tile.load %[[W]]
// OFF: tile.launch @reduce_0
// OFF-NEXT: tile.launch @contract_0

// -----

// Two cores make a row, each half of it; four read a quarter each, and make that alone. Somebody else reads the row
// later, so it is stored as before, beside them.
func.func @main(%x: tensor<2x64xf32>, %z: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %n = tile.launch @reduce_0 %x {inits = [-1]} : (tensor<2x64xf32>) -> tensor<64xf32>
  %y = tile.launch @exp_0 %n {inits = [-1]} : tensor<64xf32>
  func.return %y, %n : tensor<64xf32>, tensor<64xf32>
}
tile.kernel @reduce_0 {grid = [2], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<2x64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0, %i * 32] {sizes = [2, 32]} : (!npu.gm<2x64xf32>) -> !tile.tile<2x32xf32, ub>
    %s = tile.reduce %t {dims = [0], kind = "sum"} : (!tile.tile<2x32xf32, ub>) -> !tile.tile<1x32xf32, ub>
    tile.store %s, %y at [%i * 32] {sizes = [32]} : (!tile.tile<1x32xf32, ub>, !npu.gm<64xf32>)
  }
}
tile.kernel @exp_0 {grid = [4], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [%i * 16] {sizes = [16]} : (!npu.gm<64xf32>) -> !tile.tile<1x16xf32, ub>
    %e = tile.exp %t : !tile.tile<1x16xf32, ub>
    tile.store %e, %y at [%i * 16] {sizes = [16]} : (!tile.tile<1x16xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: tile.launch @reduce_0 %x
// CHECK-NEXT: tile.launch @exp_0 %x
// CHECK-NEXT: func.return
// CHECK: tile.kernel @exp_0 {grid = [4]
// CHECK: ^bb0(%[[I:[a-z0-9]+]]: index,
// CHECK: tile.load %{{.*}} at [0, %[[I]] * 16] {sizes = [2, 16]}
// CHECK-NEXT: %[[ROW:.*]] = tile.reduce
// CHECK-NEXT: tile.exp %[[ROW]]

// -----

// A row that a loop makes is loaded. So is one that its reader needs together with what is made later, and one whose
// maker stays where a barrier between two single cores costs less than to make it twice. What an update begins as is no
// input.
func.func @main(%x: tensor<64xf32>, %z: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %a = tile.launch @looped_0 %x {inits = [-1]} : tensor<64xf32>
  %b = tile.launch @exp_0 %a {inits = [-1]} : tensor<64xf32>
  %c = tile.launch @neg_0 %x {inits = [-1]} : tensor<64xf32>
  %d = tile.launch @late_0 %c, %b {inits = [-1]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %e = tile.launch @update_0 %z, %c {inits = [1]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  func.return %b, %d, %e : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
}
tile.kernel @looped_0 {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    scf.for %k = %zero to %two step %one {
      %t = tile.load %x at [%k * 32] {sizes = [32]} : (!npu.gm<64xf32>) -> !tile.tile<32xf32, ub>
      tile.store %t, %y at [%k * 32] {sizes = [32]} : (!tile.tile<32xf32, ub>, !npu.gm<64xf32>)
    }
  }
}
tile.kernel @exp_0 {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    %e = tile.exp %t : !tile.tile<64xf32, ub>
    tile.store %e, %y at [0] {sizes = [64]} : (!tile.tile<64xf32, ub>, !npu.gm<64xf32>)
  }
}
tile.kernel @neg_0 {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    %e = tile.neg %t : !tile.tile<64xf32, ub>
    tile.store %e, %y at [0] {sizes = [64]} : (!tile.tile<64xf32, ub>, !npu.gm<64xf32>)
  }
}
tile.kernel @late_0 {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64xf32>, %z: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    %u = tile.load %z at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    %e = tile.add %t, %u : !tile.tile<64xf32, ub>
    tile.store %e, %y at [0] {sizes = [64]} : (!tile.tile<64xf32, ub>, !npu.gm<64xf32>)
  }
}
tile.kernel @update_0 {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0] {sizes = [32]} : (!npu.gm<64xf32>) -> !tile.tile<32xf32, ub>
    tile.store %t, %y at [0] {sizes = [32]} : (!tile.tile<32xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: %a = tile.launch @looped_0
// CHECK-NEXT: tile.launch @exp_0
// CHECK-NEXT: %c = tile.launch @neg_0
// CHECK-NEXT: tile.launch @late_0 %c, %b
// CHECK-NEXT: tile.launch @update_0

// -----

// Two rows of one kernel, which has tiles of two dimensions, and a reader with tiles of one: its tiles get another
// dimension, and what both rows are made of is there once.
func.func @main(%x: tensor<2x64xf32>) -> tensor<64xf32> {
  %n, %m = tile.launch @reduce_0 %x {inits = [-1, -1]} : (tensor<2x64xf32>) -> (tensor<64xf32>, tensor<1x64xf32>)
  %z = tile.launch @add_0 %n, %m {inits = [-1]} : (tensor<64xf32>, tensor<1x64xf32>) -> tensor<64xf32>
  func.return %z : tensor<64xf32>
}
tile.kernel @reduce_0 {grid = [1], kind = "vector", outputs = 2, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<2x64xf32>, %y: !npu.gm<64xf32>, %z: !npu.gm<1x64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0, 0] {sizes = [2, 64]} : (!npu.gm<2x64xf32>) -> !tile.tile<2x64xf32, ub>
    %s = tile.reduce %t {dims = [0], kind = "sum"} : (!tile.tile<2x64xf32, ub>) -> !tile.tile<1x64xf32, ub>
    %e = tile.exp %s : !tile.tile<1x64xf32, ub>
    tile.store %s, %y at [0] {sizes = [64]} : (!tile.tile<1x64xf32, ub>, !npu.gm<64xf32>)
    tile.store %e, %z at [0, 0] {sizes = [1, 64]} : (!tile.tile<1x64xf32, ub>, !npu.gm<1x64xf32>)
  }
}
tile.kernel @add_0 {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64xf32>, %w: !npu.gm<1x64xf32>, %y: !npu.gm<64xf32>):
  %row = tile.view %w : (!npu.gm<1x64xf32>) -> !npu.gm<64xf32>
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    %u = tile.load %row at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    %m = tile.reduce %u {dims = [0], kind = "max"} : (!tile.tile<64xf32, ub>) -> !tile.tile<1xf32, ub>
    %e = tile.add %t, %m : (!tile.tile<64xf32, ub>, !tile.tile<1xf32, ub>) -> !tile.tile<64xf32, ub>
    tile.store %e, %y at [0] {sizes = [64]} : (!tile.tile<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: func.func @main
// CHECK-NEXT: tile.launch @add_0 %x {inits = [-1]}
// CHECK-NEXT: func.return
// CHECK-NOT: @reduce_0
// CHECK: tile.kernel @add_0
// CHECK: tile.load {{.*}} {sizes = [2, 64]}
// CHECK-NEXT: %[[SUM:.*]] = tile.reduce {{.*}} {dims = [0], kind = "sum"}
// CHECK-NEXT: %[[EXP:.*]] = tile.exp %[[SUM]]
// CHECK-NEXT: tile.reduce %[[EXP]] {dims = [1], kind = "max"} : (!tile.tile<1x64xf32, ub>) -> !tile.tile<1x1xf32, ub>
// CHECK-NEXT: tile.add %[[SUM]]
// CHECK-NEXT: tile.store

// -----

// What a launch lacks is for tile-to-npu to say.
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %n = tile.launch @neg_0 %x {inits = [-1]} : tensor<64xf32>
  %b = tile.launch @neg_0 %n, %n {inits = [-1]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  func.return %b : tensor<64xf32>
}
tile.kernel @neg_0 {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    %e = tile.neg %t : !tile.tile<64xf32, ub>
    tile.store %e, %y at [0] {sizes = [64]} : (!tile.tile<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: %n = tile.launch @neg_0 %x
// CHECK-NEXT: tile.launch @neg_0 %n, %n
