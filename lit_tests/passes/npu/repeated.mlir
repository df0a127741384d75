// RUN: tilewright-opt %s -p npu-allocate --split-input-file | filecheck %s

// An instruction takes one element for all lanes, and needs no tile of it.
npu.kernel @number {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf32>, %y: !npu.gm<8x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %n = npu.alloc : () -> !npu.buffer<1x1xf32, ub>
    %t = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %o = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vreduce %a, %n {dims = [0, 1], kind = "max"} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<1x1xf32, ub>)
    npu.vbroadcast %n, %t : (!npu.buffer<1x1xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vsub %a, %t, %o : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.store_nd %o, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<8x64xf32>)
  }
}
// CHECK-LABEL: npu.kernel @number
// CHECK-NOT: npu.vbroadcast
// CHECK: npu.vsub %a, %n, %o

// -----

// A column of few long rows is repeated by the instruction; one of more rows would keep it from going over all of them
// in one run, and becomes a tile.
npu.kernel @columns {grid = [1], kind = "vector", outputs = 2, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<2x4096xf32>, %z: !npu.gm<8x512xf32>, %y: !npu.gm<2x4096xf32>, %w: !npu.gm<8x512xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<2x4096xf32, ub>
    %m = npu.alloc : () -> !npu.buffer<2x1xf32, ub>
    %t = npu.alloc : () -> !npu.buffer<2x4096xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<8x512xf32, ub>
    %n = npu.alloc : () -> !npu.buffer<8x1xf32, ub>
    %u = npu.alloc : () -> !npu.buffer<8x512xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [2, 4096]} : (!npu.gm<2x4096xf32>, !npu.buffer<2x4096xf32, ub>)
    npu.vreduce %a, %m {dims = [1], kind = "max"} : (!npu.buffer<2x4096xf32, ub>, !npu.buffer<2x1xf32, ub>)
    npu.vbroadcast %m, %t : (!npu.buffer<2x1xf32, ub>, !npu.buffer<2x4096xf32, ub>)
    npu.vsub %a, %t, %a : (!npu.buffer<2x4096xf32, ub>, !npu.buffer<2x4096xf32, ub>, !npu.buffer<2x4096xf32, ub>)
    npu.store_nd %a, %y at [0, 0] {sizes = [2, 4096]} : (!npu.buffer<2x4096xf32, ub>, !npu.gm<2x4096xf32>)
    npu.load_nd %z, %b at [0, 0] {sizes = [8, 512]} : (!npu.gm<8x512xf32>, !npu.buffer<8x512xf32, ub>)
    npu.vreduce %b, %n {dims = [1], kind = "max"} : (!npu.buffer<8x512xf32, ub>, !npu.buffer<8x1xf32, ub>)
    npu.vbroadcast %n, %u : (!npu.buffer<8x1xf32, ub>, !npu.buffer<8x512xf32, ub>)
    npu.vsub %b, %u, %b : (!npu.buffer<8x512xf32, ub>, !npu.buffer<8x512xf32, ub>, !npu.buffer<8x512xf32, ub>)
    npu.store_nd %b, %w at [0, 0] {sizes = [8, 512]} : (!npu.buffer<8x512xf32, ub>, !npu.gm<8x512xf32>)
  }
}
// CHECK-LABEL: npu.kernel @columns
// CHECK-NOT: npu.vbroadcast %m
// CHECK: npu.vsub %a, %m, %a
// CHECK: npu.vbroadcast %n, %u
// CHECK: npu.vsub %b, %u, %b

// -----

// Where the tile has no room, the instruction repeats a row whatever that takes.
npu.kernel @full {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<400x64xf32>, %r: !npu.gm<1x64xf32>, %y: !npu.gm<400x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<400x64xf32, ub>
    %b = npu.alloc : () -> !npu.buffer<1x64xf32, ub>
    %t = npu.alloc : () -> !npu.buffer<400x64xf32, ub>
    npu.load_nd %r, %b at [0, 0] {sizes = [1, 64]} : (!npu.gm<1x64xf32>, !npu.buffer<1x64xf32, ub>)
    npu.load_nd %x, %a at [0, 0] {sizes = [400, 64]} : (!npu.gm<400x64xf32>, !npu.buffer<400x64xf32, ub>)
    npu.vbroadcast %b, %t : (!npu.buffer<1x64xf32, ub>, !npu.buffer<400x64xf32, ub>)
    npu.vmul %a, %t, %a : (!npu.buffer<400x64xf32, ub>, !npu.buffer<400x64xf32, ub>, !npu.buffer<400x64xf32, ub>)
    npu.store_nd %a, %y at [0, 0] {sizes = [400, 64]} : (!npu.buffer<400x64xf32, ub>, !npu.gm<400x64xf32>)
  }
}
// CHECK-LABEL: npu.kernel @full
// CHECK-NOT: npu.vbroadcast
// CHECK: npu.vmul %a, %b, %a

// -----

// The tile stays where what is repeated is written over before it is used, where an instruction is none of two sources,
// and where the vendor's library, which a module for its IR has, would not repeat.
module attributes {tilewright.hivm} {
npu.kernel @stays {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf32>, %y: !npu.gm<8x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %s = npu.alloc {scratch} : () -> !npu.buffer<256xi8, ub>
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %n = npu.alloc : () -> !npu.buffer<1x1xf32, ub>
    %t = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %u = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vreduce %a, %n {dims = [0, 1], kind = "max"} : (!npu.buffer<8x64xf32, ub>, !npu.buffer<1x1xf32, ub>)
    npu.vbroadcast %n, %t : (!npu.buffer<1x1xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vsub %a, %t, %u : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.store_nd %u, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<8x64xf32>)
  }
}
}
// CHECK-LABEL: npu.kernel @stays
// CHECK: npu.vbroadcast %n, %

// -----

npu.kernel @changed {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x64xf32>, %y: !npu.gm<8x64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %n = npu.alloc : () -> !npu.buffer<1x1xf32, ub>
    %t = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    %u = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
    npu.load_nd %x, %a at [0, 0] {sizes = [8, 64]} : (!npu.gm<8x64xf32>, !npu.buffer<8x64xf32, ub>)
    npu.vfill %n {value = 1.0 : f64} : (!npu.buffer<1x1xf32, ub>)
    npu.vbroadcast %n, %t : (!npu.buffer<1x1xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vfill %n {value = 2.0 : f64} : (!npu.buffer<1x1xf32, ub>)
    npu.vmul %a, %n, %u : (!npu.buffer<8x64xf32, ub>, !npu.buffer<1x1xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.vsub %u, %t, %u : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
    npu.store_nd %u, %y at [0, 0] {sizes = [8, 64]} : (!npu.buffer<8x64xf32, ub>, !npu.gm<8x64xf32>)
  }
}
// CHECK-LABEL: npu.kernel @changed
// CHECK: npu.vbroadcast %n, %
