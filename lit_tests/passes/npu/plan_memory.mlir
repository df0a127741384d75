// RUN: tilewright-opt %s -p npu-plan-memory --split-input-file | filecheck %s

// Arguments and constants keep their places; a tensor's memory is used again after its last use.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> {
  %k = npu.gm_constant {value = #graph.data<f32, [1024], splat 1.0>} : () -> !npu.gm<1024xf32>
  %a = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %x, %a {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %b = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %a, %b {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %c = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %b, %c {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %c : !npu.gm<1024xf32>
}
// CHECK: npu.addresses = array<i64: 0>, npu.arena_bytes = 16384 : i64
// CHECK: npu.gm_constant {address = 4096,
// CHECK: %a = npu.gm_alloc {address = [[A:.*]]} :
// CHECK: %b = npu.gm_alloc {address = [[B:.*]]} :
// CHECK: %c = npu.gm_alloc {address = [[A]]} :

// -----

// A view keeps the tensor it looks at alive; a result is never used again.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<32x32xf32> {
  %a = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %x, %a {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %v = npu.view %a : (!npu.gm<1024xf32>) -> !npu.gm<32x32xf32>
  %b = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %x, %b {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %v : !npu.gm<32x32xf32>
}
// CHECK: npu.arena_bytes = 12288 : i64
// CHECK: %a = npu.gm_alloc {address = 4096} :
// CHECK: %b = npu.gm_alloc {address = 8192} :

// -----

// What a loop uses lives as long as the loop.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> {
  %s = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.copy %x, %s : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.loop %s {trip_count = 4} : (!npu.gm<1024xf32>) {
  ^bb0(%t: !npu.gm<1024xf32>):
    npu.yield
  } {
  ^bb0(%t: !npu.gm<1024xf32>):
    %u = npu.gm_alloc : () -> !npu.gm<1024xf32>
    npu.launch @f %t, %u {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
    npu.yield %u : (!npu.gm<1024xf32>)
  }
  %w = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %s, %w {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %w : !npu.gm<1024xf32>
}
// CHECK: npu.arena_bytes = 12288 : i64
// CHECK: %s = npu.gm_alloc {address = 4096} :
// CHECK: %u = npu.gm_alloc {address = 8192} :
// CHECK: %w = npu.gm_alloc {address = 8192} :

// -----

// What the body of a loop makes lives from its first to its last use in a round: %c is where %a was. What an inner loop
// uses of it lives as long as that.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> {
  %s = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.copy %x, %s : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.loop %s {trip_count = 4} : (!npu.gm<1024xf32>) {
  ^bb0(%t: !npu.gm<1024xf32>):
    npu.yield
  } {
  ^bb0(%t: !npu.gm<1024xf32>):
    %a = npu.gm_alloc : () -> !npu.gm<1024xf32>
    npu.launch @f %t, %a {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
    %b = npu.gm_alloc : () -> !npu.gm<1024xf32>
    npu.launch @f %a, %b {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
    %c = npu.gm_alloc : () -> !npu.gm<1024xf32>
    npu.launch @f %b, %c {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
    npu.loop %c {trip_count = 4} : (!npu.gm<1024xf32>) {
    ^bb0(%v: !npu.gm<1024xf32>):
      npu.yield
    } {
    ^bb0(%v: !npu.gm<1024xf32>):
      %d = npu.gm_alloc : () -> !npu.gm<1024xf32>
      npu.launch @f %v, %d {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
      %e = npu.gm_alloc : () -> !npu.gm<1024xf32>
      npu.launch @g %b, %d, %e {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>, !npu.gm<1024xf32>)
      npu.yield %e : (!npu.gm<1024xf32>)
    }
    npu.yield %c : (!npu.gm<1024xf32>)
  }
  func.return %s : !npu.gm<1024xf32>
}
// CHECK: npu.arena_bytes = 24576 : i64
// CHECK: %s = npu.gm_alloc {address = 4096} :
// CHECK: %a = npu.gm_alloc {address = 8192} :
// CHECK: %b = npu.gm_alloc {address = 12288} :
// CHECK: %c = npu.gm_alloc {address = 8192} :
// CHECK: %d = npu.gm_alloc {address = 16384} :
// CHECK: %e = npu.gm_alloc {address = 20480} :

// -----

// A function's frame lies behind those of all its callers; functions that do not call each other share memory, and
// constants of all functions are there from the start.
func.func @main(%x: !npu.gm<128xf32>) -> !npu.gm<128xf32> {
  %y = npu.gm_alloc : () -> !npu.gm<128xf32>
  npu.call @f %x, %y {outputs = 1} : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  npu.call @g %x, %y {outputs = 1} : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  func.return %y : !npu.gm<128xf32>
}
func.func private @g(%x: !npu.gm<128xf32>, %y: !npu.gm<128xf32>) {
  %c = npu.gm_constant {value = #graph.data<f32, [128], splat 1.0>} : () -> !npu.gm<128xf32>
  %t = npu.gm_alloc : () -> !npu.gm<256xf32>
  npu.copy %c, %y : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  func.return
}
func.func private @f(%x: !npu.gm<128xf32>, %y: !npu.gm<128xf32>) {
  %t = npu.gm_alloc : () -> !npu.gm<128xf32>
  npu.call @g %x, %t {outputs = 1} : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  npu.copy %t, %y : (!npu.gm<128xf32>, !npu.gm<128xf32>)
  func.return
}
// CHECK: func.func @main
// CHECK-SAME: npu.addresses = array<i64: 0>, npu.arena_bytes = 3072
// CHECK: npu.gm_alloc {address = 1024}
// CHECK: func.func private @g{{.*}}npu.frame = array<i64: 2048, 3072>
// CHECK: npu.gm_constant {address = 512
// CHECK: npu.gm_alloc {address = 2048}
// CHECK: func.func private @f{{.*}}npu.frame = array<i64: 1536, 2048>
// CHECK: npu.gm_alloc {address = 1536}

// -----

// A donated argument gives up its memory after its last use.
func.func @main(%x: !npu.gm<1024xf32> {graph.donated}, %k: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> {
  %a = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %x, %a {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %b = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %a, %b {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
// CHECK: npu.addresses = array<i64: 4096, 0>, npu.arena_bytes = 12288 : i64
// CHECK: %a = npu.gm_alloc {address = 8192} :
// CHECK: %b = npu.gm_alloc {address = 4096} :

// -----

// Small tensors that live long go behind large ones where this takes less.
func.func @main(%x: !npu.gm<1024xf32> {graph.donated}) -> !npu.gm<4096xf32> {
  %a = npu.gm_alloc : () -> !npu.gm<2048xf32>
  npu.launch @f %x, %a {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<2048xf32>)
  %b = npu.gm_alloc : () -> !npu.gm<4096xf32>
  npu.launch @f %a, %b {outputs = 1, workspaces = 0} : (!npu.gm<2048xf32>, !npu.gm<4096xf32>)
  func.return %b : !npu.gm<4096xf32>
}
// CHECK: npu.addresses = array<i64: 0>, npu.arena_bytes = 24576 : i64
// CHECK: %a = npu.gm_alloc {address = 16384} :
// CHECK: %b = npu.gm_alloc {address = 0} :

// -----

// Where sizes are open, so are the places: a tensor begins where the highest of those below it ends, at every size.
func.func @main(%x: !npu.gm<?x4xf32, sizes ["t"]>) -> !npu.gm<?x60xf32, sizes ["t"]> {
  %a = npu.gm_alloc : () -> !npu.gm<?x?xf32, sizes ["t", "t"]>
  npu.launch @f %x, %a {outputs = 1, workspaces = 0} : (!npu.gm<?x4xf32, sizes ["t"]>, !npu.gm<?x?xf32, sizes ["t", "t"]>)
  %b = npu.gm_alloc : () -> !npu.gm<?x4xf32, sizes ["t"]>
  npu.launch @g %a, %b {outputs = 1, workspaces = 0} : (!npu.gm<?x?xf32, sizes ["t", "t"]>, !npu.gm<?x4xf32, sizes ["t"]>)
  %c = npu.gm_alloc : () -> !npu.gm<?x60xf32, sizes ["t"]>
  npu.launch @h %b, %c {outputs = 1, workspaces = 0} : (!npu.gm<?x4xf32, sizes ["t"]>, !npu.gm<?x60xf32, sizes ["t"]>)
  func.return %c : !npu.gm<?x60xf32, sizes ["t"]>
}
// CHECK: npu.addresses = array<i64: 0>, npu.arena_bytes = #graph.size<"1024*ceildiv(t, 32) + max(512*ceildiv(15*t, 32), 512*ceildiv(t*t, 128))">
// CHECK: %a = npu.gm_alloc {address = "512*ceildiv(t, 32)"} :
// CHECK: %b = npu.gm_alloc {address = "512*ceildiv(t, 32) + max(512*ceildiv(15*t, 32), 512*ceildiv(t*t, 128))"} :
// CHECK: %c = npu.gm_alloc {address = "512*ceildiv(t, 32)"} :

// -----

// Workspaces of launches that need nothing of each other are apart: the last launch needs as much memory as that takes.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> {
  %a = npu.gm_alloc : () -> !npu.gm<1024xf32>
  %u = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %x, %a, %u {outputs = 1, workspaces = 1} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %b = npu.gm_alloc : () -> !npu.gm<1024xf32>
  %v = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %x, %b, %v {outputs = 1, workspaces = 1} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %c = npu.gm_alloc : () -> !npu.gm<1024xf32>
  %w = npu.gm_alloc : () -> !npu.gm<2048xf32>
  npu.launch @g %a, %b, %c, %w {outputs = 1, workspaces = 1} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>, !npu.gm<1024xf32>, !npu.gm<2048xf32>)
  func.return %c : !npu.gm<1024xf32>
}
// CHECK: npu.arena_bytes = 24576 : i64
// CHECK: %u = npu.gm_alloc {address = [[U:.*]]} :
// CHECK-NOT: {address = [[U]]}
// CHECK: %c = npu.gm_alloc

// -----

// Where the program would need more memory for that, they are not.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> {
  %a = npu.gm_alloc : () -> !npu.gm<1024xf32>
  %u = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %x, %a, %u {outputs = 1, workspaces = 1} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %b = npu.gm_alloc : () -> !npu.gm<1024xf32>
  %v = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @f %x, %b, %v {outputs = 1, workspaces = 1} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %c = npu.gm_alloc : () -> !npu.gm<1024xf32>
  npu.launch @g %a, %b, %c {outputs = 1, workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %c : !npu.gm<1024xf32>
}
// CHECK: npu.arena_bytes = 16384 : i64
// CHECK: %u = npu.gm_alloc {address = [[U:.*]]} :
// CHECK: %b = npu.gm_alloc {address = [[U]]} :
