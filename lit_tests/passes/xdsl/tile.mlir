// RUN: tilewright-opt %s -p cse --split-input-file | filecheck %s --check-prefix CSE
// RUN: tilewright-opt %s -p dce --split-input-file | filecheck %s --check-prefix DCE
// RUN: tilewright-opt %s -p canonicalize --split-input-file | filecheck %s --check-prefix CANON
// RUN: tilewright-opt %s -p licm --split-input-file | filecheck %s --check-prefix LICM

// Two loads of one box are one where no store is between them. Accumulators stay two, and so do tiles that loops carry: a
// loop updates them in place. None of these leaves a loop; the exponent of a tile from outside does.
func.func @main(%x: !npu.gm<4x64xf32>) -> !npu.gm<4x64xf32> {
  %r = tile.launch @k %x {inits = [-1]} : (!npu.gm<4x64xf32>) -> !npu.gm<4x64xf32>
  func.return %r : !npu.gm<4x64xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%g: index, %x: !npu.gm<4x64xf32>, %y: !npu.gm<4x64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %v = tile.view %x : !npu.gm<4x64xf32>
    %unused = tile.load %x at [0, 0] {sizes = [4, 64]} : (!npu.gm<4x64xf32>) -> !tile.tile<4x64xf32, ub>
    %a = tile.load %x at [0, 0] {sizes = [1, 64]} : (!npu.gm<4x64xf32>) -> !tile.tile<1x64xf32, ub>
    %b = tile.load %x at [0, 0] {sizes = [1, 64]} : (!npu.gm<4x64xf32>) -> !tile.tile<1x64xf32, ub>
    %s = tile.add %a, %b : !tile.tile<1x64xf32, ub>
    tile.store %s, %y at [0, 0] {sizes = [1, 64]} : (!tile.tile<1x64xf32, ub>, !npu.gm<4x64xf32>)
    %c = tile.load %v at [0, 0] {sizes = [1, 64]} : (!npu.gm<4x64xf32>) -> !tile.tile<1x64xf32, ub>
    %d = tile.load %x at [0, 0] {sizes = [1, 64]} : (!npu.gm<4x64xf32>) -> !tile.tile<1x64xf32, ub>
    %first = tile.fill {value = 0.0 : f64} : () -> !tile.tile<1x64xf32, ub>
    %second = tile.fill {value = 0.0 : f64} : () -> !tile.tile<1x64xf32, ub>
    %sums:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%p = %first, %q = %second) -> (!tile.tile<1x64xf32, ub>, !tile.tile<1x64xf32, ub>) {
      %e = tile.exp %d : !tile.tile<1x64xf32, ub>
      %f = tile.load %x at [%i, 0] {sizes = [1, 64]} : (!npu.gm<4x64xf32>) -> !tile.tile<1x64xf32, ub>
      %h = tile.load %x at [0, 0] {sizes = [1, 64]} : (!npu.gm<4x64xf32>) -> !tile.tile<1x64xf32, ub>
      %m = tile.mul %e, %f : !tile.tile<1x64xf32, ub>
      %n = tile.mul %m, %h : !tile.tile<1x64xf32, ub>
      %t = tile.add %p, %n : !tile.tile<1x64xf32, ub>
      %w = tile.add %q, %f : !tile.tile<1x64xf32, ub>
      scf.yield %t, %w : !tile.tile<1x64xf32, ub>, !tile.tile<1x64xf32, ub>
    }
    scf.for %j = %c0 to %c4 step %c1 {
      %z = tile.fill {value = 0.0 : f64} : () -> !tile.tile<1x64xf32, ub>
      %o = scf.for %k = %c0 to %c4 step %c1 iter_args(%p = %z) -> (!tile.tile<1x64xf32, ub>) {
        %t = tile.add %p, %sums#0 : !tile.tile<1x64xf32, ub>
        scf.yield %t : !tile.tile<1x64xf32, ub>
      }
      %l = tile.add %o, %sums#1 : !tile.tile<1x64xf32, ub>
      %lc = tile.add %l, %c : !tile.tile<1x64xf32, ub>
      tile.store %lc, %y at [%j, 0] {sizes = [1, 64]} : (!tile.tile<1x64xf32, ub>, !npu.gm<4x64xf32>)
    }
  }
}
// CSE: %[[A:.*]] = tile.load %x at [0, 0] {sizes = [1, 64]}
// CSE-NEXT: tile.add %[[A]], %[[A]]
// CSE-NEXT: tile.store
// CSE-NEXT: tile.load
// CSE-NEXT: tile.load
// CSE-NEXT: tile.fill
// CSE-NEXT: tile.fill
// CSE-NEXT: scf.for
// DCE-NOT: sizes = [4, 64]
// DCE: tile.store
// CANON-NOT: tile.view
// CANON: tile.store
// CANON-NEXT: tile.load %x at [0, 0]
// LICM: tile.fill
// LICM-NEXT: tile.fill
// LICM-NEXT: tile.exp
// LICM-NEXT: scf.for
// LICM-NEXT: tile.load
// LICM-NEXT: tile.load
// LICM: scf.for
// LICM-NEXT: tile.fill
// LICM-NEXT: scf.for

// -----

// What a barrier separates stays so: the load behind it may read what the other cores stored.
func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32> {
  %r = tile.launch @k %x {inits = [-1]} : (!npu.gm<64xf32>) -> !npu.gm<64xf32>
  %unused = tile.launch @k %x {inits = [-1]} : (!npu.gm<64xf32>) -> !npu.gm<64xf32>
  func.return %r : !npu.gm<64xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%g: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    %a = tile.load %x at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    tile.barrier
    %b = tile.load %x at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    %s = tile.add %a, %b : !tile.tile<64xf32, ub>
    tile.store %s, %y at [0] {sizes = [64]} : (!tile.tile<64xf32, ub>, !npu.gm<64xf32>)
  }
}
// CSE-COUNT-1: tile.launch
// CSE: tile.load
// CSE-NEXT: tile.barrier
// CSE-NEXT: tile.load
// DCE: func.func @main
// DCE-NEXT: tile.launch
// DCE-NEXT: func.return
// DCE: tile.barrier
