// RUN: tilewright-opt %s -p npu-schedule-host --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p npu-schedule-host,npu-check --split-input-file

// Without work of the host all commands follow one another on one stream: no events.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 12288 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  npu.copy %x, %a : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.copy %a, %b : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: event
// CHECK: npu.copy %x, %a {stream = "compute"}
// CHECK-NOT: event
// CHECK: npu.copy %a, %b {stream = "compute"}
// CHECK-NOT: event
// CHECK: func.return

// -----

// A host call: down, on the host, up. What does not need it runs meanwhile; the last copy needs its result.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %h = npu.to_host %x : (!npu.gm<1024xf32>) -> tensor<1024xf32>
  %s = npu.host_call %h {module = "func.func public @main(%a0: tensor<1024xf32>) -> tensor<1024xf32> { return %a0 : tensor<1024xf32> }", op = "sort"} : tensor<1024xf32>
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  npu.to_device %s, %a : (tensor<1024xf32>, !npu.gm<1024xf32>)
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.copy %x, %b : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %c = npu.gm_alloc {address = 12288} : () -> !npu.gm<1024xf32>
  npu.copy %a, %c : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %c : !npu.gm<1024xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %h = npu.to_host %x {stream = "copy_out"}
// CHECK-NEXT: npu.record_event {event = 0, stream = "copy_out"}
// CHECK-NEXT: npu.wait_event {event = 0, stream = "host"}
// CHECK-NEXT: %s = npu.host_call %h {{.*}}op = "sort", stream = "host"}
// CHECK-NEXT: npu.record_event {event = 1, stream = "host"}
// CHECK-NEXT: npu.gm_alloc
// CHECK-NEXT: npu.wait_event {event = 1, stream = "copy_in"}
// CHECK-NEXT: npu.to_device %s, %a {stream = "copy_in"}
// CHECK-NEXT: npu.record_event {event = 2, stream = "copy_in"}
// CHECK-NEXT: npu.gm_alloc
// CHECK-NEXT: npu.copy %x, %b {stream = "compute"}
// CHECK-NEXT: npu.gm_alloc
// CHECK-NEXT: npu.wait_event {event = 2, stream = "compute"}
// CHECK-NEXT: npu.copy %a, %c {stream = "compute"}
// CHECK-NEXT: func.return

// -----

// Memory that is used again: %b lies where %a was, which copy_out still reads. Two readers wait for one event; the
// second of them, on the same stream, need not.
func.func @main(%x: !npu.gm<1024xf32>) -> (!npu.gm<1024xf32>, !npu.gm<f32>) attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  npu.copy %x, %a : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %h = npu.to_host %a : (!npu.gm<1024xf32>) -> tensor<1024xf32>
  %g = npu.to_host %x : (!npu.gm<1024xf32>) -> tensor<1024xf32>
  %b = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  npu.copy %x, %b : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %s = npu.host_call %h, %g {module = "func.func public @main(%a0: tensor<1024xf32>, %a1: tensor<1024xf32>) -> tensor<f32> { %c = stablehlo.constant dense<0.0> : tensor<f32> return %c : tensor<f32> }", op = "dot"} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<f32>
  %c = npu.gm_alloc {address = 8192} : () -> !npu.gm<f32>
  npu.to_device %s, %c : (tensor<f32>, !npu.gm<f32>)
  func.return %b, %c : !npu.gm<1024xf32>, !npu.gm<f32>
}
// CHECK-LABEL: func.func @main
// CHECK: npu.copy %x, %a {stream = "compute"}
// CHECK-NEXT: npu.record_event {event = 0, stream = "compute"}
// CHECK-NEXT: npu.wait_event {event = 0, stream = "copy_out"}
// CHECK-NEXT: npu.to_host %a
// CHECK-NEXT: npu.record_event {event = 1, stream = "copy_out"}
// CHECK-NEXT: npu.to_host %x
// CHECK-NEXT: npu.record_event {event = 2, stream = "copy_out"}
// CHECK-NEXT: npu.gm_alloc
// CHECK-NEXT: npu.wait_event {event = 1, stream = "compute"}
// CHECK-NEXT: npu.copy %x, %b
// CHECK-NEXT: npu.wait_event {event = 2, stream = "host"}
// CHECK-NEXT: npu.host_call
// CHECK-NEXT: npu.record_event {event = 3, stream = "host"}
// CHECK-NEXT: npu.gm_alloc
// CHECK-NEXT: npu.wait_event {event = 3, stream = "copy_in"}
// CHECK-NEXT: npu.to_device
// CHECK-NEXT: func.return

// -----

// A loop: the host's result of one round is overwritten in the next, once the device has read it. That event is
// recorded before the loop, too. The number that the program's own thread needs is one that it waits for.
func.func @main(%x: !npu.gm<1024xf32>, %n: !npu.gm<i32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0, 4096>, npu.arena_bytes = 20480 : i64} {
  %k = npu.to_host %n : (!npu.gm<i32>) -> tensor<i32>
  %a = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  %b = npu.gm_alloc {address = 12288} : () -> !npu.gm<1024xf32>
  npu.copy %x, %b : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %l = npu.loop %b, %k {trip_count = 7} : (!npu.gm<1024xf32>, tensor<i32>) -> tensor<i32> {
    npu.yield
  } {
  ^bb0(%s: !npu.gm<1024xf32>, %i: tensor<i32>):
    %j = npu.host_call %i {module = "func.func public @main(%a0: tensor<i32>) -> tensor<1024xf32> { %c = stablehlo.constant dense<0.0> : tensor<1024xf32> return %c : tensor<1024xf32> }", op = "draw"} : (tensor<i32>) -> tensor<1024xf32>
    npu.to_device %j, %a : (tensor<1024xf32>, !npu.gm<1024xf32>)
    npu.copy %a, %s : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
    npu.yield %s, %i : (!npu.gm<1024xf32>, tensor<i32>)
  }
  func.return %b : !npu.gm<1024xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: npu.to_host %n {stream = "copy_out"}
// CHECK-NEXT: npu.record_event {event = 0, stream = "copy_out"}
// CHECK: npu.copy %x, %b {stream = "compute"}
// CHECK-NEXT: npu.record_event {event = 1, stream = "compute"}
// CHECK-NEXT: npu.wait_event {event = 0, stream = "program"}
// CHECK-NEXT: npu.loop
// CHECK: npu.host_call {{.*}}stream = "host"
// CHECK-NEXT: npu.record_event {event = 2, stream = "host"}
// CHECK-NEXT: npu.wait_event {event = 2, stream = "copy_in"}
// CHECK-NEXT: npu.wait_event {event = 1, stream = "copy_in"}
// CHECK-NEXT: npu.to_device {{.*}}stream = "copy_in"
// CHECK-NEXT: npu.record_event {event = 3, stream = "copy_in"}
// CHECK-NEXT: npu.wait_event {event = 3, stream = "compute"}
// CHECK-NEXT: npu.copy %a, %{{.*}} {stream = "compute"}
// CHECK-NEXT: npu.record_event {event = 1, stream = "compute"}
// CHECK-NEXT: npu.yield

// -----

// Branches: the events between what is inside and what is outside stand at the border.
func.func @main(%x: !npu.gm<1024xf32>, %n: !npu.gm<i32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0, 4096>, npu.arena_bytes = 20480 : i64} {
  %k = npu.to_host %n : (!npu.gm<i32>) -> tensor<i32>
  %a = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.copy %x, %a : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.branch %k, %a : (tensor<i32>, !npu.gm<1024xf32>) {
    %h = npu.to_host %a : (!npu.gm<1024xf32>) -> tensor<1024xf32>
    %s = npu.host_call %h {module = "func.func public @main(%a0: tensor<1024xf32>) -> tensor<1024xf32> { return %a0 : tensor<1024xf32> }", op = "sort"} : tensor<1024xf32>
    npu.to_device %s, %a : (tensor<1024xf32>, !npu.gm<1024xf32>)
    npu.yield %a : (!npu.gm<1024xf32>)
  } {
    npu.yield %x : (!npu.gm<1024xf32>)
  }
  %b = npu.gm_alloc {address = 12288} : () -> !npu.gm<1024xf32>
  npu.copy %a, %b : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %b : !npu.gm<1024xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: npu.copy %x, %a
// CHECK-NEXT: npu.record_event {event = 1, stream = "compute"}
// CHECK-NEXT: npu.wait_event {event = 1, stream = "copy_out"}
// CHECK-NEXT: npu.wait_event {event = 0, stream = "program"}
// CHECK-NEXT: npu.branch
// CHECK-NEXT: npu.to_host %a
// CHECK-NEXT: npu.record_event {event = 2, stream = "copy_out"}
// CHECK-NEXT: npu.wait_event {event = 2, stream = "host"}
// CHECK: npu.yield %a : (!npu.gm<1024xf32>)
// CHECK: npu.yield %x {stream = "compute"} : (!npu.gm<1024xf32>)
// CHECK-NEXT: }
// CHECK-NEXT: npu.record_event {event = 4, stream = "copy_in"}
// CHECK: npu.wait_event {event = 4, stream = "compute"}
// CHECK-NEXT: npu.copy %a, %b

// -----

// A called function begins and ends on the compute stream: its caller orders nothing else.
func.func @main(%x: !npu.gm<1024xf32>) -> !npu.gm<1024xf32> attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 20480 : i64} {
  %a = npu.gm_alloc {address = 4096} : () -> !npu.gm<1024xf32>
  npu.copy %x, %a : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  %b = npu.gm_alloc {address = 8192} : () -> !npu.gm<1024xf32>
  npu.call @sorted %a, %b {outputs = 1} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  npu.call @sorted %b, %a {outputs = 1} : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return %a : !npu.gm<1024xf32>
}
func.func private @sorted(%x: !npu.gm<1024xf32>, %y: !npu.gm<1024xf32>) attributes {npu.frame = array<i64: 12288, 16384>} {
  %t = npu.gm_alloc {address = 12288} : () -> !npu.gm<1024xf32>
  %h = npu.to_host %x : (!npu.gm<1024xf32>) -> tensor<1024xf32>
  %s = npu.host_call %h {module = "func.func public @main(%a0: tensor<1024xf32>) -> tensor<1024xf32> { return %a0 : tensor<1024xf32> }", op = "sort"} : tensor<1024xf32>
  npu.to_device %s, %t : (tensor<1024xf32>, !npu.gm<1024xf32>)
  npu.copy %t, %y : (!npu.gm<1024xf32>, !npu.gm<1024xf32>)
  func.return
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: event
// CHECK: func.func private @sorted
// CHECK-NEXT: npu.record_event {event = 0, stream = "compute"}
// CHECK-NEXT: npu.gm_alloc
// CHECK-NEXT: npu.wait_event {event = 0, stream = "copy_out"}
// CHECK-NEXT: npu.to_host
// CHECK-NEXT: npu.record_event {event = 1, stream = "copy_out"}
// CHECK-NEXT: npu.wait_event {event = 1, stream = "host"}
// CHECK-NEXT: npu.host_call
// CHECK-NEXT: npu.record_event {event = 2, stream = "host"}
// CHECK-NEXT: npu.wait_event {event = 2, stream = "copy_in"}
// CHECK-NEXT: npu.to_device
// CHECK-NEXT: npu.record_event {event = 3, stream = "copy_in"}
// CHECK-NEXT: npu.wait_event {event = 3, stream = "compute"}
// CHECK-NEXT: npu.copy
// CHECK-NEXT: func.return
