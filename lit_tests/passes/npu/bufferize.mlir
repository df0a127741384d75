// RUN: tilewright-opt %s -p tile-to-npu --split-input-file | tilewright-opt --split-input-file | filecheck %s

// Tiles become buffers at the top of their section; what crosses pipes in a loop gets the kernel's slots, the
// accumulator that a loop carries stays one buffer.
func.func @main(%x: tensor<32x64xf16>, %w: tensor<64x48xf16>) -> tensor<32x48xf16> {
  %y = tile.launch @matmul %x, %w {inits = [-1]} : (tensor<32x64xf16>, tensor<64x48xf16>) -> tensor<32x48xf16>
  func.return %y : tensor<32x48xf16>
}
tile.kernel @matmul {grid = [2], kind = "cube", outputs = 1, slots = [3, 2, 2, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<32x64xf16>, %w: !npu.gm<64x48xf16>, %y: !npu.gm<32x48xf16>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  tile.section {core = "cube", units = 1} {
  ^bb1(%unit: index):
    %acc = tile.zero : () -> !tile.tile<16x48xf32, l0c>
    %sum = scf.for %k = %zero to %four step %one iter_args(%a = %acc) -> (!tile.tile<16x48xf32, l0c>) {
      %a1 = tile.load %x at [%i * 16, %k * 16] {sizes = [16, 16]} : (!npu.gm<32x64xf16>) -> !tile.tile<16x16xf16, l1>
      %b1 = tile.load %w at [%k * 16, 0] {sizes = [16, 48]} : (!npu.gm<64x48xf16>) -> !tile.tile<16x48xf16, l1>
      %a0 = tile.move %a1 at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xf16, l1>) -> !tile.tile<16x16xf16, l0a>
      %b0 = tile.move %b1 at [0, 0] {sizes = [16, 48]} : (!tile.tile<16x48xf16, l1>) -> !tile.tile<16x48xf16, l0b>
      %next = tile.mma %a0, %b0, %a at [%k] : (!tile.tile<16x16xf16, l0a>, !tile.tile<16x48xf16, l0b>, !tile.tile<16x48xf32, l0c>) -> !tile.tile<16x48xf32, l0c>
      scf.yield %next : !tile.tile<16x48xf32, l0c>
    }
    tile.store %sum, %y at [%i * 16, 0] {sizes = [16, 48]} : (!tile.tile<16x48xf32, l0c>, !npu.gm<32x48xf16>)
  }
}
// CHECK: %[[Y:.*]] = npu.gm_alloc : () -> !npu.gm<32x48xf16>
// CHECK: npu.launch @matmul %x, %w, %[[Y]] {outputs = 1, workspaces = 0}
// CHECK: npu.kernel @matmul {grid = [2], kind = "cube", outputs = 1, workspaces = 0}
// CHECK: npu.section {core = "cube", units = 1}
// CHECK: npu.alloc : () -> !npu.buffer<16x48xf32, l0c>
// CHECK: npu.alloc : () -> !npu.buffer<16x16xf16, l1, 3 slots>
// CHECK: npu.alloc : () -> !npu.buffer<16x16xf16, l0a, 2 slots>
// CHECK: scf.for %[[K:.*]] =
// CHECK: %[[A1:.*]] = npu.slot %a1 at [%[[K]]]
// CHECK: npu.load_nd2nz %{{.*}}, %[[A1]] at [%{{.*}} * 16, %[[K]] * 16] {sizes = [16, 16]}
// CHECK: %[[A0:.*]] = npu.slot %a0
// CHECK: npu.load_l0 %[[A1]], %[[A0]]
// CHECK: npu.mmad %[[A0]], %{{.*}}, %acc at [%[[K]]]
// CHECK: npu.fixpipe %acc

// -----

// Vector ops fill buffers of their own: two slots for what other pipes write or read, one for temporaries.
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = tile.launch @k %x {inits = [-1]} : tensor<64x64xf32>
  func.return %y : tensor<64x64xf32>
}
tile.kernel @k {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<64x64xf32>, %y: !npu.gm<64x64xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %eight = arith.constant 8 : index
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    scf.for %j = %zero to %eight step %one {
      %a = tile.load %x at [%j * 8, 0] {sizes = [8, 64]} : (!npu.gm<64x64xf32>) -> !tile.tile<8x64xf32, ub>
      %m = tile.reduce %a {dims = [1], kind = "max"} : (!tile.tile<8x64xf32, ub>) -> !tile.tile<8x1xf32, ub>
      %b = tile.broadcast %m : (!tile.tile<8x1xf32, ub>) -> !tile.tile<8x64xf32, ub>
      %c = tile.sub %a, %b : !tile.tile<8x64xf32, ub>
      tile.store %c, %y at [%j * 8, 0] {sizes = [8, 64]} : (!tile.tile<8x64xf32, ub>, !npu.gm<64x64xf32>)
    }
  }
}
// CHECK: npu.kernel @k
// CHECK: %a = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
// CHECK: %m = npu.alloc : () -> !npu.buffer<8x1xf32, ub>
// CHECK: %b = npu.alloc : () -> !npu.buffer<8x64xf32, ub>
// CHECK: %c = npu.alloc : () -> !npu.buffer<8x64xf32, ub, 2 slots>
// CHECK: npu.load_nd
// CHECK: npu.vreduce %{{.*}}, %m {dims = [1], kind = "max"}
// CHECK: npu.vbroadcast %m, %b
// CHECK: npu.vsub
// CHECK: npu.store_nd

// -----

// An update in place overwrites a tensor of ours at its last use, and a copy of an argument.
func.func @main(%x: tensor<16xf32>, %u: tensor<4xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %a = tile.launch @first %u, %x {inits = [1]} : (tensor<4xf32>, tensor<16xf32>) -> tensor<16xf32>
  %b = tile.launch @first %u, %a {inits = [1]} : (tensor<4xf32>, tensor<16xf32>) -> tensor<16xf32>
  func.return %b, %x : tensor<16xf32>, tensor<16xf32>
}
tile.kernel @first {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%i: index, %u: !npu.gm<4xf32>, %y: !npu.gm<16xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %u at [0] {sizes = [4]} : (!npu.gm<4xf32>) -> !tile.tile<4xf32, ub>
    tile.store %t, %y at [0] {sizes = [4]} : (!tile.tile<4xf32, ub>, !npu.gm<16xf32>)
  }
}
// CHECK: %[[A:.*]] = npu.gm_alloc
// CHECK: npu.copy %x, %[[A]]
// CHECK: npu.launch @first %u, %[[A]]
// CHECK-NOT: npu.copy
// CHECK: npu.launch @first %u, %[[A]]
// CHECK: func.return %[[A]], %x

// -----

// The host program: constants, reshapes as views, host calls, branches and loops over tensors in device memory.
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<2x2xf32> {
  %c = graph.constant {value = #graph.data<f32, [4], splat 1.0>} : () -> tensor<4xf32>
  %h = graph.host %x {module = "m", op = "sort"} : tensor<4xf32>
  %v = graph.case %n : (tensor<i32>) -> tensor<4xf32> {
    graph.yield %h : (tensor<4xf32>)
  } {
    graph.yield %c : (tensor<4xf32>)
  }
  %i, %w = graph.while %n, %v {counter = 0, trip_count = 3} : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  ^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
    %more = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
    graph.yield %j, %b : (tensor<i32>, tensor<4xf32>)
  }
  %r = graph.reshape %w : (tensor<4xf32>) -> tensor<2x2xf32>
  func.return %r : tensor<2x2xf32>
}
// CHECK: %[[C:.*]] = npu.gm_constant
// CHECK: %[[X:.*]] = npu.to_host %x : (!npu.gm<4xf32>) -> tensor<4xf32>
// CHECK: %[[S:.*]] = npu.host_call %[[X]] {module = "m", op = "sort", work = 32} : tensor<4xf32>
// CHECK: %[[H:.*]] = npu.gm_alloc
// CHECK: npu.to_device %[[S]], %[[H]] : (tensor<4xf32>, !npu.gm<4xf32>)
// CHECK: %[[INDEX:.*]] = npu.to_host %n : (!npu.gm<i32>) -> tensor<i32>
// CHECK: %[[V:.*]] = npu.gm_alloc
// CHECK: npu.branch %[[INDEX]], %[[V]]
// CHECK: npu.yield %[[H]]
// CHECK: npu.yield %[[C]]
// CHECK: %[[N:.*]] = npu.gm_alloc
// CHECK: npu.copy %n, %[[N]]
// CHECK: npu.loop %[[N]], %[[V]] {trip_count = 3}
// CHECK: %[[R:.*]] = npu.view %[[V]] : (!npu.gm<4xf32>) -> !npu.gm<2x2xf32>
// CHECK: func.return %[[R]]

// -----

// Numbers of the host: what graph-partition left with it stays a value, constants included; what it must have of the
// device is read, what the device must have of it is written.
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  %zero = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
  %i, %w = graph.while %zero, %x {host = [0]} : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  ^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
    %more = graph.fusion %j, %n {domain = [], kind = "scalar"} : (tensor<i32>, tensor<i32>) -> tensor<i1> {
    ^bb1(%k: tensor<i32>, %m: tensor<i32>):
      %lt = graph.lt %k, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
      graph.yield %lt : (tensor<i1>)
    }
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
    graph.yield %j, %b : (tensor<i32>, tensor<4xf32>)
  }
  func.return %i, %w : tensor<i32>, tensor<4xf32>
}
// CHECK: %[[S:.*]] = npu.gm_alloc
// CHECK: npu.copy %x, %[[S]]
// CHECK: %[[ZERO:.*]] = npu.scalars : () -> tensor<i32>
// CHECK: %[[I:.*]] = npu.loop %[[S]], %[[ZERO]] : (!npu.gm<4xf32>, tensor<i32>) -> tensor<i32>
// CHECK: %[[N:.*]] = npu.to_host %n
// CHECK: %[[M:.*]] = npu.scalars %{{.*}}, %[[N]]
// CHECK: npu.yield %[[M]] : (tensor<i1>)
// CHECK: %[[R:.*]] = npu.gm_alloc
// CHECK: npu.to_device %[[I]], %[[R]]
// CHECK: func.return %[[R]], %[[S]]

// -----

// A function that is called writes its results to tensors that the caller passes; what it only hands on is copied.
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a, %b = func.call @f(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %c, %d = func.call @f(%b) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  func.return %a, %d : tensor<4xf32>, tensor<4xf32>
}
func.func private @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %y = graph.host %x {module = "m", op = "sort"} : tensor<4xf32>
  func.return %y, %x : tensor<4xf32>, tensor<4xf32>
}
// CHECK: func.func @main
// CHECK: %[[A:.*]] = npu.gm_alloc
// CHECK: %[[B:.*]] = npu.gm_alloc
// CHECK: npu.call @f %x, %[[A]], %[[B]] {outputs = 2}
// CHECK: npu.call @f %[[B]], %[[C:.*]], %[[D:.*]] {outputs = 2}
// CHECK: func.return %[[A]], %[[D]]
// CHECK: func.func private @f(%[[X:.*]]: !npu.gm<4xf32>, %[[Y:.*]]: !npu.gm<4xf32>, %[[Z:.*]]: !npu.gm<4xf32>) {
// CHECK-NEXT: %[[H:.*]] = npu.to_host %[[X]]
// CHECK-NEXT: %[[S:.*]] = npu.host_call %[[H]]
// CHECK-NEXT: npu.to_device %[[S]], %[[Y]]
// CHECK-NEXT: npu.copy %[[X]], %[[Z]]
// CHECK-NEXT: func.return

// -----

// In place: a donated argument is the tensor of a result that is made of it element by element, and of an update; one
// that is still needed is copied. The state of a loop is stored over itself.
func.func @main(%x: tensor<64xf32> {graph.donated}, %c: tensor<8x64xf32> {graph.donated}, %k: tensor<64xf32>) -> (tensor<64xf32>, tensor<8x64xf32>, tensor<64xf32>) {
  %y = tile.launch @double %x {inits = [-1]} : (tensor<64xf32>) -> tensor<64xf32>
  %d = tile.launch @row %k, %c {inits = [1]} : (tensor<64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  %r = graph.while %k {host = [], trip_count = 3} : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64xf32>):
    %t = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
    graph.yield %t : (tensor<i1>)
  } {
  ^bb0(%a: tensor<64xf32>):
    %b = tile.launch @double %a {inits = [-1]} : (tensor<64xf32>) -> tensor<64xf32>
    graph.yield %b : (tensor<64xf32>)
  }
  func.return %y, %d, %r : tensor<64xf32>, tensor<8x64xf32>, tensor<64xf32>
}
tile.kernel @double {grid = [2], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb0(%unit: index):
    %a = tile.load %x at [%core * 32] {sizes = [32]} : (!npu.gm<64xf32>) -> !tile.tile<32xf32, ub>
    %b = tile.add %a, %a : (!tile.tile<32xf32, ub>, !tile.tile<32xf32, ub>) -> !tile.tile<32xf32, ub>
    tile.store %b, %y at [%core * 32] {sizes = [32]} : (!tile.tile<32xf32, ub>, !npu.gm<64xf32>)
  }
}
tile.kernel @row {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%core: index, %k: !npu.gm<64xf32>, %c: !npu.gm<8x64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb0(%unit: index):
    %a = tile.load %k at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    tile.store %a, %c at [3, 0] {sizes = [1, 64]} : (!tile.tile<64xf32, ub>, !npu.gm<8x64xf32>)
  }
}
// CHECK: @main(%x: !npu.gm<64xf32> {graph.donated}, %c: !npu.gm<8x64xf32> {graph.donated}, %k: !npu.gm<64xf32>)
// CHECK-NEXT: npu.launch @double %x, %x {outputs = 1, workspaces = 0}
// CHECK-NEXT: npu.launch @row %k, %c {outputs = 1, updates = [0], workspaces = 0}
// CHECK-NEXT: %[[S:.*]] = npu.gm_alloc
// CHECK-NEXT: npu.copy %k, %[[S]]
// CHECK-NEXT: npu.loop %[[S]] {trip_count = 3}
// CHECK: ^bb0(%[[A:.*]]: !npu.gm<64xf32>):
// CHECK: ^bb0(%[[B:.*]]: !npu.gm<64xf32>):
// CHECK-NEXT: npu.launch @double %[[B]], %[[B]]
// CHECK-NEXT: npu.yield %[[B]]
// CHECK: func.return %x, %c, %[[S]]

// -----

// Not in place: one core loads what another one stores.
func.func @main(%x: tensor<64xf32> {graph.donated}) -> tensor<64xf32> {
  %y = tile.launch @swap %x {inits = [-1]} : (tensor<64xf32>) -> tensor<64xf32>
  func.return %y : tensor<64xf32>
}
tile.kernel @swap {grid = [2], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb0(%unit: index):
    %a = tile.load %x at [%core * -32 + 32] {sizes = [32]} : (!npu.gm<64xf32>) -> !tile.tile<32xf32, ub>
    tile.store %a, %y at [%core * 32] {sizes = [32]} : (!tile.tile<32xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: %[[Y:.*]] = npu.gm_alloc
// CHECK-NEXT: npu.launch @swap %x, %[[Y]]

// -----

// Not in place: what is stored was loaded in another step, so that nothing orders the two.
func.func @main(%x: tensor<64xf32> {graph.donated}, %w: tensor<64xf32>) -> tensor<64xf32> {
  %y, %z = tile.launch @apart %x, %w {inits = [-1, -1]} : (tensor<64xf32>, tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>)
  func.return %y : tensor<64xf32>
}
tile.kernel @apart {grid = [2], kind = "vector", outputs = 2, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %w: !npu.gm<64xf32>, %y: !npu.gm<64xf32>, %z: !npu.gm<64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb0(%unit: index):
    %b = tile.load %w at [%core * 32] {sizes = [32]} : (!npu.gm<64xf32>) -> !tile.tile<32xf32, ub>
    %a = tile.load %x at [%core * 32] {sizes = [32]} : (!npu.gm<64xf32>) -> !tile.tile<32xf32, ub>
    tile.store %b, %y at [%core * 32] {sizes = [32]} : (!tile.tile<32xf32, ub>, !npu.gm<64xf32>)
    tile.store %a, %z at [%core * 32] {sizes = [32]} : (!tile.tile<32xf32, ub>, !npu.gm<64xf32>)
  }
}
// CHECK: %[[Z:.*]] = npu.gm_alloc
// CHECK-NEXT: %[[Y:.*]] = npu.gm_alloc
// CHECK-NEXT: npu.launch @apart %x, %w, {{%[0-9]+}}, {{%[0-9]+}} {

// -----

// A row for the columns of a product is loaded as it is, and has one buffer in bt, or as many as it says.
tile.kernel @row {grid = [1], kind = "cube", outputs = 0, slots = [2, 2, 2, 2, 2], workspaces = 0} {
^bb0(%core: index, %b: !npu.gm<64xi32>):
  %zero = arith.constant 0 : index
  %four = arith.constant 4 : index
  %one = arith.constant 1 : index
  tile.section {core = "cube", units = 1} {
  ^bb0(%unit: index):
    scf.for %i = %zero to %four step %one {
      %x = tile.load %b at [%i * 16] {sizes = [16]} : (!npu.gm<64xi32>) -> !tile.tile<16xi32, l1>
      %r = tile.move_row %x at [0] {sizes = [16]} : (!tile.tile<16xi32, l1>) -> !tile.tile<1x16xi32, bt>
      %s = tile.move_row %x at [0] {sizes = [16], slots = 2} : (!tile.tile<16xi32, l1>) -> !tile.tile<1x16xi32, bt>
    }
  }
}
// CHECK: npu.alloc : () -> !npu.buffer<16xi32, l1, 2 slots>
// CHECK: npu.alloc : () -> !npu.buffer<1x16xi32, bt>
// CHECK: npu.alloc : () -> !npu.buffer<1x16xi32, bt, 2 slots>
// CHECK: npu.load_nd
// CHECK: npu.load_row {{.*}} at [0] {sizes = [16]}
// CHECK: npu.load_row {{.*}} at [0] {sizes = [16]}

// -----

// What an op writes in the place of its first operand has that one's buffer; a row that is repeated stays a row.
func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %y = tile.launch @over %x {inits = [-1]} : tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}
tile.kernel @over {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<8x16xf32>, %y: !npu.gm<8x16xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %t = tile.load %x at [0, 0] {sizes = [8, 16]} : (!npu.gm<8x16xf32>) -> !tile.tile<8x16xf32, ub>
    %m = tile.reduce %t {dims = [0], kind = "max"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<1x16xf32, ub>
    %d = tile.sub %t, %m attributes {in_place} : (!tile.tile<8x16xf32, ub>, !tile.tile<1x16xf32, ub>) -> !tile.tile<8x16xf32, ub>
    tile.store %d, %y at [0, 0] {sizes = [8, 16]} : (!tile.tile<8x16xf32, ub>, !npu.gm<8x16xf32>)
  }
}
// CHECK: npu.kernel @over
// CHECK: npu.load_nd %{{.*}}, %[[T:.*]] at [0, 0] {sizes = [8, 16]}
// CHECK: npu.vreduce %[[T]], %[[M:.*]] {dims = [0], kind = "max"}
// CHECK: npu.vsub %[[T]], %[[M]], %[[T]] : (!npu.buffer<8x16xf32, ub>, !npu.buffer<1x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
// CHECK: npu.store_nd %[[T]]

// -----

// What a function updates comes in the tensor of the result, if the caller may give it up; else it is copied first.
func.func @main(%c: tensor<8x64xf32> {graph.donated}, %d: tensor<8x64xf32>, %k: tensor<64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>) {
  %a = func.call @f(%c, %k) : (tensor<8x64xf32>, tensor<64xf32>) -> tensor<8x64xf32>
  %b = func.call @f(%d, %k) : (tensor<8x64xf32>, tensor<64xf32>) -> tensor<8x64xf32>
  func.return %a, %b : tensor<8x64xf32>, tensor<8x64xf32>
}
func.func private @f(%c: tensor<8x64xf32>, %k: tensor<64xf32>) -> tensor<8x64xf32> {
  %r = tile.launch @row %k, %c {inits = [1]} : (tensor<64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  func.return %r : tensor<8x64xf32>
}
tile.kernel @row {grid = [1], kind = "vector", outputs = 1, slots = [1, 1, 1, 1, 2], workspaces = 0} {
^bb0(%core: index, %k: !npu.gm<64xf32>, %c: !npu.gm<8x64xf32>):
  tile.section {core = "vector", units = 1} {
  ^bb0(%unit: index):
    %a = tile.load %k at [0] {sizes = [64]} : (!npu.gm<64xf32>) -> !tile.tile<64xf32, ub>
    tile.store %a, %c at [3, 0] {sizes = [1, 64]} : (!tile.tile<64xf32, ub>, !npu.gm<8x64xf32>)
  }
}
// CHECK: func.func @main(%c: !npu.gm<8x64xf32> {graph.donated}, %d: !npu.gm<8x64xf32>, %k: !npu.gm<64xf32>)
// CHECK-NEXT: npu.call @f %k, %c {outputs = 1, updates = [0]}
// CHECK-NEXT: %[[E:.*]] = npu.gm_alloc
// CHECK-NEXT: npu.copy %d, %[[E]]
// CHECK-NEXT: npu.call @f %k, %[[E]] {outputs = 1, updates = [0]}
// CHECK-NEXT: func.return %c, %[[E]]
// CHECK: func.func private @f(%k: !npu.gm<64xf32>, %[[C:.*]]: !npu.gm<8x64xf32>) {
// CHECK-NEXT: npu.launch @row %k, %[[C]] {outputs = 1, updates = [0], workspaces = 0}
// CHECK-NEXT: func.return
