// RUN: tilewright-opt %s -p graph-fuse --split-input-file | filecheck %s

// matmul + bias + relu is one kernel; the bias's broadcast is read by its loads.
func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>, %b: tensor<48xf16>) -> tensor<64x48xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
  %c = graph.broadcast %b {dims = [1]} : (tensor<48xf16>) -> tensor<64x48xf16>
  %s = graph.add %y, %c : tensor<64x48xf16>
  %z = graph.constant {value = #graph.data<f16, [], (0.0)>} : () -> tensor<f16>
  %zz = graph.broadcast %z {dims = []} : (tensor<f16>) -> tensor<64x48xf16>
  %r = graph.max %s, %zz : tensor<64x48xf16>
  func.return %r : tensor<64x48xf16>
}
// CHECK: func.func @main
// CHECK: %[[Y:.*]] = graph.fusion %x, %w, %b {domain = [64, 48], kind = "mix"}
// CHECK: graph.contract
// CHECK: graph.add
// CHECK: graph.max
// CHECK: graph.yield
// CHECK-NOT: graph.fusion
// CHECK: func.return %[[Y]]

// -----

// A contraction alone is a cube kernel, its transposed operand a matter of loads.
func.func @main(%x: tensor<64x32xf16>, %w: tensor<48x32xf16>) -> tensor<64x48xf16> {
  %t = graph.transpose %w {perm = [1, 0]} : (tensor<48x32xf16>) -> tensor<32x48xf16>
  %y = graph.contract %x, %t {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
  func.return %y : tensor<64x48xf16>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x, %w {domain = [64, 48], kind = "cube"}
// CHECK: graph.transpose
// CHECK-NEXT: graph.contract
// CHECK-NEXT: graph.yield

// -----

// Softmax: whole rows stay on chip.
func.func @main(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<64x128xf32>) -> tensor<64xf32>
  %mb = graph.broadcast %m {dims = [0]} : (tensor<64xf32>) -> tensor<64x128xf32>
  %d = graph.sub %x, %mb : tensor<64x128xf32>
  %e = graph.exp %d : tensor<64x128xf32>
  %s = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<64x128xf32>) -> tensor<64xf32>
  %sb = graph.broadcast %s {dims = [0]} : (tensor<64xf32>) -> tensor<64x128xf32>
  %r = graph.div %e, %sb : tensor<64x128xf32>
  func.return %r : tensor<64x128xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x {domain = [64, 128], kind = "vector"}
// CHECK: graph.reduce {{.*}} {dims = [1], kind = "max"}
// CHECK: graph.exp
// CHECK: graph.reduce {{.*}} {dims = [1], kind = "sum"}
// CHECK: graph.div
// CHECK: graph.yield
// CHECK-NOT: graph.fusion
// CHECK: func.return

// -----

// Softmax of rows too long for the unified buffer: one kernel, which reads them in pieces.
func.func @main(%x: tensor<64x32000xf32>) -> tensor<64x32000xf32> {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<64x32000xf32>) -> tensor<64xf32>
  %mb = graph.broadcast %m {dims = [0]} : (tensor<64xf32>) -> tensor<64x32000xf32>
  %d = graph.sub %x, %mb : tensor<64x32000xf32>
  %e = graph.exp %d : tensor<64x32000xf32>
  %s = graph.reduce %e {dims = [1], kind = "sum"} : (tensor<64x32000xf32>) -> tensor<64xf32>
  %sb = graph.broadcast %s {dims = [0]} : (tensor<64xf32>) -> tensor<64x32000xf32>
  %r = graph.div %e, %sb : tensor<64x32000xf32>
  func.return %r : tensor<64x32000xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x {domain = [64, 32000], kind = "vector"}
// CHECK: graph.reduce {{.*}} {dims = [1], kind = "max"}
// CHECK: graph.reduce {{.*}} {dims = [1], kind = "sum"}
// CHECK: graph.div
// CHECK-NOT: graph.fusion
// CHECK: func.return

// -----

// Reductions of one tensor along long rows are one kernel, which loads them once.
func.func @main(%x: tensor<64x32000xf32>) -> (tensor<64xf32>, tensor<64xi32>) {
  %m = graph.reduce %x {dims = [1], kind = "sum"} : (tensor<64x32000xf32>) -> tensor<64xf32>
  %v, %i = graph.arg_reduce %x {dim = 1, kind = "max"} : (tensor<64x32000xf32>) -> (tensor<64xf32>, tensor<64xi32>)
  func.return %m, %i : tensor<64xf32>, tensor<64xi32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x {domain = [64, 32000], kind = "vector"}
// CHECK: graph.arg_reduce
// CHECK: graph.reduce
// CHECK-NOT: graph.fusion
// CHECK: func.return

// -----

// A long value that takes much to compute from much is stored and loaded, not computed in each walk.
func.func @main(%x: tensor<64x32000xf32>, %y: tensor<64x32000xf32>, %z: tensor<64x32000xf32>) -> tensor<64x32000xf32> {
  %p = graph.mul %x, %y : tensor<64x32000xf32>
  %q = graph.sin %p : tensor<64x32000xf32>
  %t = graph.tan %q : tensor<64x32000xf32>
  %e = graph.atan2 %t, %z : tensor<64x32000xf32>
  %m = graph.reduce %e {dims = [1], kind = "max"} : (tensor<64x32000xf32>) -> tensor<64xf32>
  %mb = graph.broadcast %m {dims = [0]} : (tensor<64xf32>) -> tensor<64x32000xf32>
  %d = graph.sub %e, %mb : tensor<64x32000xf32>
  func.return %d : tensor<64x32000xf32>
}
// CHECK: func.func @main
// CHECK: %[[E:.*]] = graph.fusion %x, %y, %z
// CHECK: graph.atan2
// CHECK: graph.fusion %[[E]] {domain
// CHECK: graph.reduce
// CHECK: graph.sub
// CHECK: func.return

// -----

// Few rows too long for the unified buffer leave cores idle: the reduction and its use are two kernels.
func.func @main(%x: tensor<4x1048576xf32>) -> tensor<4x1048576xf32> {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<4x1048576xf32>) -> tensor<4xf32>
  %mb = graph.broadcast %m {dims = [0]} : (tensor<4xf32>) -> tensor<4x1048576xf32>
  %d = graph.sub %x, %mb : tensor<4x1048576xf32>
  func.return %d : tensor<4x1048576xf32>
}
// CHECK: func.func @main
// CHECK: %[[M:.*]] = graph.fusion %x {{.*}} -> tensor<4xf32>
// CHECK: graph.reduce
// CHECK: graph.fusion %x, %[[M]]
// CHECK: graph.sub

// -----

// Rows and columns of a large matrix are reduced by two kernels, as one would have to hold all of it.
func.func @main(%x: tensor<400x600xf32>) -> tensor<600xf32> {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<400x600xf32>) -> tensor<400xf32>
  %b = graph.broadcast %m {dims = [0]} : (tensor<400xf32>) -> tensor<400x600xf32>
  %d = graph.sub %x, %b : tensor<400x600xf32>
  %s = graph.reduce %d {dims = [0], kind = "sum"} : (tensor<400x600xf32>) -> tensor<600xf32>
  func.return %s : tensor<600xf32>
}
// CHECK: func.func @main
// CHECK: %[[D:.*]] = graph.fusion %x {domain = [400, 600], kind = "vector"}
// CHECK: graph.reduce {{.*}} {dims = [1], kind = "max"}
// CHECK: graph.fusion %[[D]] {domain = [400, 600], kind = "vector"}
// CHECK: graph.reduce {{.*}} {dims = [0], kind = "sum"}

// -----

// Those of a small one are reduced by one.
func.func @main(%x: tensor<40x60xf32>) -> tensor<60xf32> {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<40x60xf32>) -> tensor<40xf32>
  %b = graph.broadcast %m {dims = [0]} : (tensor<40xf32>) -> tensor<40x60xf32>
  %d = graph.sub %x, %b : tensor<40x60xf32>
  %s = graph.reduce %d {dims = [0], kind = "sum"} : (tensor<40x60xf32>) -> tensor<60xf32>
  func.return %s : tensor<60xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x {domain = [40, 60], kind = "vector"}
// CHECK: graph.reduce {{.*}} {dims = [1], kind = "max"}
// CHECK: graph.reduce {{.*}} {dims = [0], kind = "sum"}
// CHECK-NOT: graph.fusion
// CHECK: func.return

// -----

// A small group is computed again in the kernel that uses it, instead of stored and loaded.
func.func @main(%x: tensor<512x128xf32>, %g: tensor<128xf32>) -> tensor<512x128xf32> {
  %s = graph.sqrt %g : tensor<128xf32>
  %sb = graph.broadcast %s {dims = [1]} : (tensor<128xf32>) -> tensor<512x128xf32>
  %y = graph.mul %x, %sb : tensor<512x128xf32>
  func.return %y : tensor<512x128xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion
// CHECK: graph.sqrt %{{.*}} : tensor<128xf32>
// CHECK: graph.mul
// CHECK-NOT: graph.fusion
// CHECK: func.return

// -----

// A transpose that somebody needs as a tensor is a kernel of its own; one that is read through is not.
func.func @main(%x: tensor<64x32xf32>, %y: tensor<32x64xf32>) -> (tensor<32x64xf32>, tensor<32x64xf32>) {
  %t = graph.transpose %x {perm = [1, 0]} : (tensor<64x32xf32>) -> tensor<32x64xf32>
  %s = graph.add %t, %y : tensor<32x64xf32>
  func.return %t, %s : tensor<32x64xf32>, tensor<32x64xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x {domain = [32, 64], kind = "move"}
// CHECK: graph.transpose
// CHECK: graph.fusion %x, %y {domain = [32, 64], kind = "vector"}
// CHECK: graph.transpose
// CHECK: graph.add

// -----

// Concatenation, dynamic slices and updates move data by their own kernels.
func.func @main(%x: tensor<4x8xf32>, %i: tensor<i32>) -> (tensor<8x8xf32>, tensor<2x8xf32>, tensor<4x8xf32>) {
  %z = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
  %c = graph.concat %x, %x {dim = 0} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  %s = graph.dynamic_slice %x, %i, %z {sizes = [2, 8]} : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  %u = graph.dynamic_update_slice %x, %s, %i, %z : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
  func.return %c, %s, %u : tensor<8x8xf32>, tensor<2x8xf32>, tensor<4x8xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x {domain = [8, 8], kind = "move"}
// CHECK: graph.concat
// CHECK: graph.fusion %x, %i {domain = [2, 8], kind = "index"}
// CHECK: graph.dynamic_slice
// CHECK: graph.fusion %x, %{{.*}}, %i {domain = [4, 8], kind = "index"}
// CHECK: graph.dynamic_update_slice

// -----

// Regions of control flow are fused on their own.
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %i, %v = graph.while %n, %x {counter = 0, trip_count = 3} : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  ^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
    %three = graph.constant {value = #graph.data<i32, [], (3)>} : () -> tensor<i32>
    %more = graph.lt %j, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
    %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
    %k = graph.add %j, %one : tensor<i32>
    %c = graph.sin %b : tensor<4xf32>
    graph.yield %k, %c : (tensor<i32>, tensor<4xf32>)
  }
  func.return %v : tensor<4xf32>
}
// CHECK: func.func @main
// CHECK: graph.while
// CHECK: graph.fusion
// CHECK: graph.lt
// CHECK: } {
// CHECK: graph.fusion
// CHECK: graph.add
// CHECK: graph.fusion
// CHECK: graph.sin

// -----

// A host op stays where it is, between the kernels before and after it.
func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %a = graph.abs %x : tensor<16xf32>
  %h = graph.host %a {module = "m", op = "sort"} : tensor<16xf32>
  %b = graph.add %h, %a : tensor<16xf32>
  func.return %b : tensor<16xf32>
}
// CHECK: func.func @main
// CHECK: %[[A:.*]] = graph.fusion %x
// CHECK: graph.abs
// CHECK: %[[H:.*]] = graph.host %[[A]]
// CHECK: graph.fusion %[[H]], %[[A]]
// CHECK: graph.add

// -----

// The kernel that makes the parts of a tensor stores them side by side; one that comes from outside as well.
func.func @main(%x: tensor<8x32xf32>, %o: tensor<8x32xf32>) -> (tensor<8x96xf32>, tensor<8x32xf32>) {
  %a = graph.exp %x : tensor<8x32xf32>
  %b = graph.add %a, %x : tensor<8x32xf32>
  %y = graph.concat %a, %o, %b {dim = 1} : (tensor<8x32xf32>, tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x96xf32>
  func.return %y, %b : tensor<8x96xf32>, tensor<8x32xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x, %o {domain = [8, 32], kind = "vector"}
// CHECK: graph.exp
// CHECK: graph.concat
// CHECK: graph.yield %{{.*}}, %{{.*}} : (tensor<8x32xf32>, tensor<8x96xf32>)
// CHECK-NOT: graph.fusion
// CHECK: func.return

// -----

// Parts of two sizes, and parts of which none is computed, are copied.
func.func @main(%x: tensor<8x32xf32>, %o: tensor<8x16xf32>) -> (tensor<8x48xf32>, tensor<16x16xf32>) {
  %a = graph.exp %x : tensor<8x32xf32>
  %y = graph.concat %a, %o {dim = 1} : (tensor<8x32xf32>, tensor<8x16xf32>) -> tensor<8x48xf32>
  %z = graph.concat %o, %o {dim = 0} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  func.return %y, %z : tensor<8x48xf32>, tensor<16x16xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x {domain = [8, 32], kind = "vector"}
// CHECK: graph.fusion {{.*}} {domain = [8, 48], kind = "move"}
// CHECK: graph.fusion %o {domain = [16, 16], kind = "move"}

// -----

// Parts that are reduced along rows, or finished by a product's kernel, are copied, too.
func.func @main(%x: tensor<8x32xf32>, %w: tensor<32x32xf32>) -> (tensor<16x32xf32>) {
  %p = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x32xf32>, tensor<32x32xf32>) -> tensor<8x32xf32>
  %a = graph.exp %p : tensor<8x32xf32>
  %b = graph.tanh %p : tensor<8x32xf32>
  %y = graph.concat %a, %b {dim = 0} : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>
  func.return %y : tensor<16x32xf32>
}
// CHECK: func.func @main
// CHECK: graph.fusion %x, %w {domain = [8, 32], kind = "mix"}
// CHECK: graph.fusion {{.*}} {domain = [16, 32], kind = "move"}

// -----

// What is repeated side by side is computed by the kernel that repeats it: no tile ends between. Where rows are repeated,
// tiles do end between, and it is stored once.
func.func @main(%x: tensor<8x64xf32>) -> (tensor<8x64x2xf32>, tensor<2x8x64xf32>) {
  %e = graph.exp %x : tensor<8x64xf32>
  %b = graph.broadcast %e {dims = [0, 1]} : (tensor<8x64xf32>) -> tensor<8x64x2xf32>
  %y = graph.mul %b, %b : tensor<8x64x2xf32>
  %t = graph.tanh %x : tensor<8x64xf32>
  %c = graph.broadcast %t {dims = [1, 2]} : (tensor<8x64xf32>) -> tensor<2x8x64xf32>
  %z = graph.mul %c, %c : tensor<2x8x64xf32>
  func.return %y, %z : tensor<8x64x2xf32>, tensor<2x8x64xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: graph.fusion %x {domain = [8, 64, 2], kind = "vector"}
// CHECK-NEXT: ^bb0
// CHECK-NEXT: graph.exp %{{.*}} attributes {axes = array<i64: 0, 1>}
// CHECK-NEXT: graph.broadcast
// CHECK-NEXT: graph.mul {{.*}} attributes {axes = array<i64: 0, 1, 2>}
// CHECK: graph.fusion %x {domain = [8, 64], kind = "vector"}
// CHECK: graph.tanh
// CHECK: graph.fusion {{.*}} {domain = [2, 8, 64], kind = "vector"}

// -----

// A part from outside may have other dimensions of one element.
func.func @main(%x: tensor<1x64xf32>, %o: tensor<64xf32>) -> tensor<2x64xf32> {
  %a = graph.exp %x : tensor<1x64xf32>
  %p = graph.reshape %o : (tensor<64xf32>) -> tensor<1x64xf32>
  %y = graph.concat %a, %p {dim = 0} : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<2x64xf32>
  func.return %y : tensor<2x64xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: graph.fusion %x, %o {domain = [1, 64], kind = "vector"}
// CHECK: graph.exp
// CHECK: graph.concat
// CHECK-NOT: graph.fusion
// CHECK: func.return
