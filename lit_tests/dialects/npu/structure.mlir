// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

func.func @main(%x: !npu.gm<64xf32>, %n: !npu.gm<i32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0, 512>, npu.arena_bytes = 2048 : i64} {
  // CHECK: func.func @main(%x: !npu.gm<64xf32>, %n: !npu.gm<i32>) -> !npu.gm<64xf32> attributes {npu.addresses = array<i64: 0, 512>, npu.arena_bytes = 2048 : i64}
  %y = npu.gm_alloc {address = 1024} : () -> !npu.gm<64xf32>
  // CHECK: npu.gm_alloc {address = 1024} : () -> !npu.gm<64xf32>
  %c = npu.gm_constant {address = 1536, value = #graph.data<f32, [64], splat 1.0>} : () -> !npu.gm<64xf32>
  // CHECK: npu.gm_constant {address = 1536, value = #graph.data<f32, [64], splat 1.0>} : () -> !npu.gm<64xf32>
  npu.launch @add %x, %c, %y {outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK: npu.launch @add %{{.*}}, %{{.*}}, %{{.*}} {outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.launch @add %x, %c, %y {again, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK: npu.launch @add %{{.*}}, %{{.*}}, %{{.*}} {again, outputs = 1, workspaces = 0} : (
  npu.copy %y, %x : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK: npu.copy %{{.*}}, %{{.*}} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  %h = npu.to_host %x {stream = "copy_out"} : (!npu.gm<64xf32>) -> tensor<64xf32>
  // CHECK: %[[H:.*]] = npu.to_host %x {stream = "copy_out"} : (!npu.gm<64xf32>) -> tensor<64xf32>
  npu.record_event {event = 0, stream = "copy_out"}
  // CHECK: npu.record_event {event = 0, stream = "copy_out"}
  npu.wait_event {event = 0, stream = "host"}
  // CHECK: npu.wait_event {event = 0, stream = "host"}
  %r = npu.host_call %h {module = "module {}", op = "sort", stream = "host"} : tensor<64xf32>
  // CHECK: %[[R:.*]] = npu.host_call %[[H]] {module = "module {}", op = "sort", stream = "host"} : tensor<64xf32>
  npu.to_device %r, %y {stream = "copy_in"} : (tensor<64xf32>, !npu.gm<64xf32>)
  // CHECK: npu.to_device %[[R]], %{{.*}} {stream = "copy_in"} : (tensor<64xf32>, !npu.gm<64xf32>)
  npu.wait_event {event = 0, stream = "program"}
  // CHECK: npu.wait_event {event = 0, stream = "program"}
  npu.loop %y {trip_count = 3} : (!npu.gm<64xf32>) {
  ^bb0(%s: !npu.gm<64xf32>):
    npu.yield
  } {
  ^bb0(%s: !npu.gm<64xf32>):
    npu.yield %s : (!npu.gm<64xf32>)
  }
  // CHECK: npu.loop %{{.*}} {trip_count = 3} : (!npu.gm<64xf32>) {
  // CHECK: npu.yield{{$}}
  // CHECK-NEXT: } {
  // CHECK: npu.yield %{{.*}} : (!npu.gm<64xf32>)
  %i = npu.to_host %n : (!npu.gm<i32>) -> tensor<i32>
  // CHECK: %[[I:.*]] = npu.to_host %n : (!npu.gm<i32>) -> tensor<i32>
  npu.branch %i, %y : (tensor<i32>, !npu.gm<64xf32>) {
    npu.yield %x : (!npu.gm<64xf32>)
  } {
    npu.yield %c : (!npu.gm<64xf32>)
  }
  // CHECK: npu.branch %[[I]], %{{.*}} : (tensor<i32>, !npu.gm<64xf32>) {
  // CHECK-NEXT: npu.yield %{{.*}}
  %k = npu.scalars %i : tensor<i32> {
  ^bb0(%a: tensor<i32>):
    %sum = graph.add %a, %a : tensor<i32>
    graph.yield %sum : (tensor<i32>)
  }
  // CHECK: %[[K:.*]] = npu.scalars %[[I]] : tensor<i32> {
  // CHECK-NEXT: ^{{.*}}(%{{.*}}: tensor<i32>):
  // CHECK-NEXT: graph.add
  npu.to_device %k, %n : (tensor<i32>, !npu.gm<i32>)
  // CHECK: npu.to_device %[[K]], %n : (tensor<i32>, !npu.gm<i32>)
  %l = npu.loop %y, %k {trip_count = 3} : (!npu.gm<64xf32>, tensor<i32>) -> tensor<i32> {
    npu.yield
  } {
  ^bb0(%s: !npu.gm<64xf32>, %j: tensor<i32>):
    %b = npu.branch %j : tensor<i32> {
      npu.yield %k : (tensor<i32>)
    }
    npu.yield %s, %b : (!npu.gm<64xf32>, tensor<i32>)
  }
  // CHECK: npu.loop %{{.*}}, %[[K]] {trip_count = 3} : (!npu.gm<64xf32>, tensor<i32>) -> tensor<i32> {
  // CHECK: npu.branch %{{.*}} : tensor<i32> {
  // CHECK: npu.yield %{{.*}}, %{{.*}} : (!npu.gm<64xf32>, tensor<i32>)
  npu.loop {} {
    %flag = npu.scalars : () -> tensor<i1> {
      %t = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
      graph.yield %t : (tensor<i1>)
    }
    npu.yield %flag : (tensor<i1>)
  } {
    npu.yield
  }
  // CHECK: npu.loop {} {
  // CHECK: npu.yield %{{.*}} : (tensor<i1>)
  // CHECK-NEXT: } {
  // CHECK-NEXT: npu.yield{{$}}
  npu.call @f %x, %y {outputs = 1} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK: npu.call @f %x, %{{.*}} {outputs = 1} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.call @f %x, %y {outputs = 1, updates = [0]} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK: npu.call @f %x, %{{.*}} {outputs = 1, updates = [0]} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  npu.launch @at %l, %y {outputs = 1, workspaces = 0} : (tensor<i32>, !npu.gm<64xf32>)
  // CHECK: npu.launch @at %{{.*}}, %{{.*}} {outputs = 1, workspaces = 0} : (tensor<i32>, !npu.gm<64xf32>)
  npu.launch @at %l, %y {outputs = 1, updates = [0], workspaces = 0} : (tensor<i32>, !npu.gm<64xf32>)
  // CHECK: npu.launch @at %{{.*}}, %{{.*}} {outputs = 1, updates = [0], workspaces = 0} : (tensor<i32>, !npu.gm<64xf32>)
  %z = npu.gm_alloc {address = 1792} : () -> !npu.gm<64xf32>
  %v = npu.view %z : (!npu.gm<64xf32>) -> !npu.gm<64xf32>
  npu.launch @add %y, %c, %v {joined, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK: npu.launch @add %{{.*}} {joined, outputs = 1, workspaces = 0} : (
  npu.launch @add %y, %c, %x {joined, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK-NEXT: npu.launch @add %{{.*}} {joined, outputs = 1, workspaces = 0} : (
  npu.launch @add %y, %c, %z {joined, nowait, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK-NEXT: npu.launch @add %{{.*}} {joined, nowait, outputs = 1, workspaces = 0} : (
  npu.launch @add %y, %c, %x {first_core = 1, joined, nowait, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK-NEXT: npu.launch @add %{{.*}} {first_core = 1, joined, nowait, outputs = 1, workspaces = 0} : (
  npu.launch @add %z, %c, %y {ahead = [1], joined, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK-NEXT: npu.launch @add %{{.*}} {ahead = [1], joined, outputs = 1, workspaces = 0} : (
  npu.launch @add %y, %c, %z {ahead = [1], barriers = 2, joined, outputs = 1, workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<64xf32>, !npu.gm<64xf32>)
  // CHECK-NEXT: npu.launch @add %{{.*}} {ahead = [1], barriers = 2, joined, outputs = 1, workspaces = 0} : (
  func.return %y : !npu.gm<64xf32>
}

func.func private @f(%x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>) attributes {npu.frame = array<i64: 2048, 2048>} {
  func.return
}
// CHECK: func.func private @f({{.*}}) attributes {npu.frame = array<i64: 2048, 2048>}

npu.kernel @at {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %place: !npu.gm<i32>, %out: !npu.gm<64xf32>):
}

npu.kernel @add {grid = [2, 2], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%i: index, %j: index, %a: !npu.gm<64xf32>, %b: !npu.gm<64xf32>, %out: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    npu.barrier
  }
}
// CHECK: npu.kernel @add {grid = [2, 2], kind = "vector", outputs = 1, workspaces = 0} {
// CHECK-NEXT: ^{{.*}}(%{{.*}}: index, %{{.*}}: index, %{{.*}}: !npu.gm<64xf32>, {{.*}}):
// CHECK-NEXT: npu.section {core = "vector", units = 1} {
// CHECK-NEXT: ^{{.*}}(%{{.*}}: index):
// CHECK-NEXT: npu.barrier
