// RUN: tilewright-opt %s -p npu-join-launches --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p npu-join-launches,npu-join-launches --split-input-file | filecheck %s

// Launches on all cores: a barrier over all costs a third of a launch. Tensors and views between them do not matter.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  npu.launch @wide %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.launch @wide %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %b, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {joined, outputs
// CHECK-NEXT: npu.launch @wide {{.*}} {joined, outputs

// -----

// A launch on one core costs less than a barrier over all of them. Several part their neighbours and are a launch of
// their own. One that was joined to them is not any more.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.launch @wide %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @small %b, %a {joined, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @small %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @small %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %b, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
npu.kernel @small {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {joined, outputs
// CHECK: npu.launch @small {{.*}} {outputs
// CHECK: npu.launch @small {{.*}} {joined, outputs
// CHECK: npu.launch @small {{.*}} {joined, outputs
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {joined, outputs

// -----

// Between two launches on all cores, a small one is a stage of theirs: else they would be two launches.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.launch @wide %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @half %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %b, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
npu.kernel @half {grid = [24], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @half {{.*}} {joined, outputs
// CHECK: npu.launch @wide {{.*}} {joined, outputs

// -----

// A copy is no stage, and neither is a launch behind an event.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.launch @wide %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.copy %a, %b {stream = "compute"} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %b, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.record_event {event = 0, stream = "compute"}
  npu.launch @wide %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.wait_event {event = 0, stream = "copy_out"}
  %h = npu.to_host %a {stream = "copy_out"} : (!npu.gm<1024xf32>) -> tensor<1024xf32>
  npu.launch @wide %x, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {outputs

// -----

// The launches of a loop's body are a block of their own.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.launch @wide %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.loop %a {trip_count = 7} : (!npu.gm<1024xf32>) {
    npu.yield
  } {
  ^bb0(%s: !npu.gm<1024xf32>):
    npu.launch @wide %s, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
    npu.launch @wide %b, %s {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
    npu.yield %s : (!npu.gm<1024xf32>)
  }
  npu.launch @wide %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {joined, outputs
// CHECK: npu.launch @wide {{.*}} {outputs

// -----

// A number of the device is an argument of the whole launch: it may not come later. The second launch that takes it does
// not wait for it again.
func.func @main(%x: !npu.gm<1024xf32>, %n: !npu.gm<i32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0, 4096>, npu.arena_bytes = 20480 : i64} {
  %k = npu.to_host %n {stream = "copy_out"} : (!npu.gm<i32>) -> tensor<i32>
  %a = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.launch @wide %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @at %x, %k, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, tensor<i32>, !npu.gm<1024xf32>)
  npu.launch @wide %a, %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @at %x, %k, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, tensor<i32>, !npu.gm<1024xf32>)
  func.return %a : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
npu.kernel @at {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %n: !npu.gm<i32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @at {{.*}} {outputs
// CHECK: npu.launch @wide {{.*}} {joined, outputs
// CHECK: npu.launch @at {{.*}} {joined, outputs

// -----

// What the host computes of a loop's counter is known before the first launch: launches that take it are stages.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 12288 : i64} {
  %z = npu.scalars : () -> tensor<i32> {
    %0 = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
    graph.yield %0 : (tensor<i32>)
  }
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  %last = npu.loop %a, %z {trip_count = 4} : (!npu.gm<1024xf32>, tensor<i32>) -> tensor<i32> {
  ^bb0(%t: !npu.gm<1024xf32>, %i: tensor<i32>):
    npu.yield
  } {
  ^bb0(%t: !npu.gm<1024xf32>, %i: tensor<i32>):
    %n = npu.scalars %i : (tensor<i32>) -> tensor<i32> {
    ^bb1(%j: tensor<i32>):
      %1 = graph.add %j, %j : tensor<i32>
      graph.yield %1 : (tensor<i32>)
    }
    npu.launch @wide %x, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
    npu.launch @at %b, %i, %t {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, tensor<i32>, !npu.gm<1024xf32>)
    npu.launch @at %t, %n, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, tensor<i32>, !npu.gm<1024xf32>)
    npu.yield %t, %n : (!npu.gm<1024xf32>, tensor<i32>)
  }
  func.return %a : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
npu.kernel @at {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %n: !npu.gm<i32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK: npu.launch @at {{.*}} {joined, outputs
// CHECK: npu.launch @at {{.*}} {joined, outputs

// -----

// Launches that need nothing of each other have no barrier between them. The fourth reads what the second writes, to where
// the first does; the fifth reads what the fourth writes.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 28672 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  %c = npu.gm_alloc {address = 12288} : () -> !npu.gm<1024xf32>
  %d = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  npu.launch @wide %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %x, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %x, %c {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %b, %d {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %d, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %x, %c {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide %x, %a {outputs
// CHECK: npu.launch @wide %x, %b {joined, nowait, outputs
// CHECK: npu.launch @wide %x, %c {joined, nowait, outputs
// CHECK: npu.launch @wide %b, %d {joined, outputs
// CHECK: npu.launch @wide %d, %b {joined, outputs
// CHECK: npu.launch @wide %x, %c {joined, nowait, outputs

// -----

// Independent launches are side by side on the cores of their group: two of eight cores (sixteen vector cores) begin on
// cores 0 and 8. A third finds too few behind them, and takes the first ones again, behind the first launch.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 28672 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  %c = npu.gm_alloc {address = 12288} : () -> !npu.gm<1024xf32>
  %d = npu.gm_alloc {address = 16384} : () -> !npu.gm<1024xf32>
  npu.launch @wide %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @part %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @part %a, %c {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @most %a, %d {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @wide %b, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %a : !npu.gm<1024xf32>
}
npu.kernel @wide {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
npu.kernel @part {grid = [16], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
npu.kernel @most {grid = [20], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @wide {{.*}} {outputs
// CHECK-NEXT: npu.launch @part {{.*}} {joined, outputs
// CHECK-NEXT: npu.launch @part {{.*}} {first_core = 8, joined, nowait, outputs
// CHECK-NEXT: npu.launch @most {{.*}} {joined, nowait, outputs
// CHECK-NEXT: npu.launch @wide {{.*}} {joined, outputs

// -----

// A host program without kernels stays as it is.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.launch @k %x, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.launch @k %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @k {{.*}} {outputs
// CHECK: npu.launch @k {{.*}} {outputs

// -----

// Two products, of which the second takes the first one's result. Both begin with their right operand, which is there
// all the time: the second loads it ahead of the barrier. What comes behind another tensor is not read ahead.
func.func @main(%x: !npu.gm<16x16xf16>, %w: !npu.gm<16x16xf16>) -> !npu.gm<16x16xf16> attributes {npu.addresses = array<i64: 0, 512>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<16x16xf16>
  npu.launch @right %x, %w, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<16x16xf16>, !npu.gm<16x16xf16>, !npu.gm<16x16xf16>)
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<16x16xf16>
  npu.launch @right %a, %w, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<16x16xf16>, !npu.gm<16x16xf16>, !npu.gm<16x16xf16>)
  npu.launch @right %w, %b, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<16x16xf16>, !npu.gm<16x16xf16>, !npu.gm<16x16xf16>)
  func.return %a : !npu.gm<16x16xf16>
}
npu.kernel @right {grid = [24], kind = "cube", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<16x16xf16>, %w: !npu.gm<16x16xf16>, %y: !npu.gm<16x16xf16>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%u: index):
    %0 = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l1>
    %1 = npu.alloc {address = 512} : () -> !npu.buffer<16x16xf16, l1>
    npu.load_nd2nz %w, %0 at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>, !npu.buffer<16x16xf16, l1>)
    npu.load_nd2nz %x, %1 at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>, !npu.buffer<16x16xf16, l1>)
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @right %x, %w, %{{.*}} {outputs
// CHECK: npu.launch @right %{{.*}}, %w, %{{.*}} {ahead = [1], joined, outputs
// CHECK-NEXT: npu.launch @right %w, %{{.*}} {joined, outputs

// -----

// Between two products vector cores work alone: the cube loads the weights of the second one ahead of both barriers, but
// not what the first one or the vector cores make.
func.func @main(%x: !npu.gm<16x16xf16>, %w: !npu.gm<16x16xf16>) -> !npu.gm<16x16xf16> attributes {npu.addresses = array<i64: 0, 512>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<16x16xf16>
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<16x16xf16>
  npu.launch @right %x, %w, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<16x16xf16>, !npu.gm<16x16xf16>, !npu.gm<16x16xf16>)
  npu.launch @norm %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<16x16xf16>, !npu.gm<16x16xf16>)
  npu.launch @right %b, %w, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<16x16xf16>, !npu.gm<16x16xf16>, !npu.gm<16x16xf16>)
  npu.launch @norm %a, %b {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<16x16xf16>, !npu.gm<16x16xf16>)
  npu.launch @right %w, %b, %a {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<16x16xf16>, !npu.gm<16x16xf16>, !npu.gm<16x16xf16>)
  func.return %a : !npu.gm<16x16xf16>
}
npu.kernel @right {grid = [24], kind = "cube", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<16x16xf16>, %w: !npu.gm<16x16xf16>, %y: !npu.gm<16x16xf16>):
  npu.section {core = "cube", units = 1} {
  ^bb1(%u: index):
    %0 = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l1>
    %1 = npu.alloc {address = 512} : () -> !npu.buffer<16x16xf16, l1>
    npu.load_nd2nz %w, %0 at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>, !npu.buffer<16x16xf16, l1>)
    npu.load_nd2nz %x, %1 at [0, 0] {sizes = [16, 16]} : (!npu.gm<16x16xf16>, !npu.buffer<16x16xf16, l1>)
  }
}
npu.kernel @norm {grid = [48], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<16x16xf16>, %y: !npu.gm<16x16xf16>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    npu.barrier
  }
}
// CHECK-LABEL: func.func @main
// CHECK: npu.launch @right %x, %w, %{{.*}} {outputs
// CHECK: npu.launch @norm %{{.*}} {joined, outputs
// CHECK: npu.launch @right %{{.*}}, %w, %{{.*}} {ahead = [1], barriers = 2, joined, outputs
// CHECK: npu.launch @norm %{{.*}} {joined, outputs
// CHECK: npu.launch @right %w, %{{.*}} {joined, outputs
