// RUN: tilewright-opt %s -p graph-simplify --split-input-file | filecheck %s

// What is summed over, in the order in which it lies in lhs.
func.func @main(%x: tensor<8x32x64xf16>, %w: tensor<64x8x48xf16>) -> tensor<32x48xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [2, 0], rhs_batch = [], rhs_contract = [0, 1]} : (tensor<8x32x64xf16>, tensor<64x8x48xf16>) -> tensor<32x48xf16>
  func.return %y : tensor<32x48xf16>
}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: graph.contract %x, %w {lhs_batch = [], lhs_contract = [0, 2], rhs_batch = [], rhs_contract = [1, 0]}

// -----

// Rows in groups that follow each other, each group with a matrix of its own: tiles of 128 rows, with the matrix of
// their group, and of these the row of each row; 0 behind all groups. (4096 + 16 * 127) / 128 tiles, for 8 cores each.
func.func @main(%x: tensor<4096x32xf16>, %w: tensor<16x32x64xf16>, %n: tensor<16xi32>) -> tensor<4096x64xf16> {
  %last = graph.cumulate %n {dim = 0, kind = "sum", reverse = 0} : tensor<16xi32>
  %c = graph.constant {value = #graph.data<i32, [1], (0)>} : () -> tensor<1xi32>
  %s = graph.slice %last {limits = [15], starts = [0], strides = [1]} : (tensor<16xi32>) -> tensor<15xi32>
  %first = graph.concat %c, %s {dim = 0} : (tensor<1xi32>, tensor<15xi32>) -> tensor<16xi32>
  %row = graph.iota {dim = 1} : () -> tensor<16x4096x32xi32>
  %a = graph.broadcast %first {dims = [0]} : (tensor<16xi32>) -> tensor<16x4096x32xi32>
  %b = graph.broadcast %last {dims = [0]} : (tensor<16xi32>) -> tensor<16x4096x32xi32>
  %le = graph.le %a, %row : (tensor<16x4096x32xi32>, tensor<16x4096x32xi32>) -> tensor<16x4096x32xi1>
  %lt = graph.lt %row, %b : (tensor<16x4096x32xi32>, tensor<16x4096x32xi32>) -> tensor<16x4096x32xi1>
  %in = graph.and %le, %lt : tensor<16x4096x32xi1>
  %xs = graph.broadcast %x {dims = [1, 2]} : (tensor<4096x32xf16>) -> tensor<16x4096x32xf16>
  %z = graph.constant {value = #graph.data<f16, [16, 4096, 32], splat 0.0>} : () -> tensor<16x4096x32xf16>
  %m = graph.select %in, %xs, %z : (tensor<16x4096x32xi1>, tensor<16x4096x32xf16>, tensor<16x4096x32xf16>) -> tensor<16x4096x32xf16>
  %y = graph.contract %m, %w {lhs_batch = [], lhs_contract = [0, 2], rhs_batch = [], rhs_contract = [0, 1]} : (tensor<16x4096x32xf16>, tensor<16x32x64xf16>) -> tensor<4096x64xf16>
  func.return %y : tensor<4096x64xf16>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[ROWS:.*]] = graph.gather %x, %{{.*}} {collapsed_dims = [], index_dim = 1, {{.*}}slice_sizes = [[[R:.*]], 32]{{.*}} -> tensor<[[T:.*]]x[[R]]x32xf16>
// CHECK: %[[MATRICES:.*]] = graph.gather %w, %{{.*}} {collapsed_dims = [0], {{.*}}slice_sizes = [1, 32, 64]{{.*}} -> tensor<[[T]]x32x64xf16>
// CHECK: %[[TILES:.*]] = graph.contract %[[ROWS]], %[[MATRICES]] {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]}
// CHECK: %[[EACH:.*]] = graph.reshape %[[TILES]]
// CHECK: %[[TAKEN:.*]] = graph.gather %[[EACH]], %{{.*}} -> tensor<4096x64xf16>
// CHECK: %[[Y:.*]] = graph.select %{{.*}}, %[[TAKEN]]
// CHECK-NEXT: func.return %[[Y]]

// -----

// Sums over the rows of each group, as the gradient of the matrices: a product for each tile of 128 rows, of which those
// of other tiles are 0, added up by group.
func.func @main(%x: tensor<4096x32xf16>, %d: tensor<4096x64xf16>, %n: tensor<16xi32>) -> tensor<16x32x64xf16> {
  %last = graph.cumulate %n {dim = 0, kind = "sum", reverse = 0} : tensor<16xi32>
  %c = graph.constant {value = #graph.data<i32, [1], (0)>} : () -> tensor<1xi32>
  %s = graph.slice %last {limits = [15], starts = [0], strides = [1]} : (tensor<16xi32>) -> tensor<15xi32>
  %first = graph.concat %c, %s {dim = 0} : (tensor<1xi32>, tensor<15xi32>) -> tensor<16xi32>
  %row = graph.iota {dim = 1} : () -> tensor<16x4096x32xi32>
  %a = graph.broadcast %first {dims = [0]} : (tensor<16xi32>) -> tensor<16x4096x32xi32>
  %b = graph.broadcast %last {dims = [0]} : (tensor<16xi32>) -> tensor<16x4096x32xi32>
  %le = graph.le %a, %row : (tensor<16x4096x32xi32>, tensor<16x4096x32xi32>) -> tensor<16x4096x32xi1>
  %lt = graph.lt %row, %b : (tensor<16x4096x32xi32>, tensor<16x4096x32xi32>) -> tensor<16x4096x32xi1>
  %in = graph.and %le, %lt : tensor<16x4096x32xi1>
  %xs = graph.broadcast %x {dims = [1, 2]} : (tensor<4096x32xf16>) -> tensor<16x4096x32xf16>
  %z = graph.constant {value = #graph.data<f16, [16, 4096, 32], splat 0.0>} : () -> tensor<16x4096x32xf16>
  %m = graph.select %in, %xs, %z : (tensor<16x4096x32xi1>, tensor<16x4096x32xf16>, tensor<16x4096x32xf16>) -> tensor<16x4096x32xf16>
  %row2 = graph.iota {dim = 1} : () -> tensor<16x4096x64xi32>
  %a2 = graph.broadcast %first {dims = [0]} : (tensor<16xi32>) -> tensor<16x4096x64xi32>
  %b2 = graph.broadcast %last {dims = [0]} : (tensor<16xi32>) -> tensor<16x4096x64xi32>
  %le2 = graph.le %a2, %row2 : (tensor<16x4096x64xi32>, tensor<16x4096x64xi32>) -> tensor<16x4096x64xi1>
  %lt2 = graph.lt %row2, %b2 : (tensor<16x4096x64xi32>, tensor<16x4096x64xi32>) -> tensor<16x4096x64xi1>
  %in2 = graph.and %le2, %lt2 : tensor<16x4096x64xi1>
  %ds = graph.broadcast %d {dims = [1, 2]} : (tensor<4096x64xf16>) -> tensor<16x4096x64xf16>
  %z2 = graph.constant {value = #graph.data<f16, [16, 4096, 64], splat 0.0>} : () -> tensor<16x4096x64xf16>
  %m2 = graph.select %in2, %ds, %z2 : (tensor<16x4096x64xi1>, tensor<16x4096x64xf16>, tensor<16x4096x64xf16>) -> tensor<16x4096x64xf16>
  %y = graph.contract %m, %m2 {lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : (tensor<16x4096x32xf16>, tensor<16x4096x64xf16>) -> tensor<16x32x64xf16>
  func.return %y : tensor<16x32x64xf16>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[X:.*]] = graph.gather %x, {{.*}} -> tensor<[[T:.*]]x128x32xf16>
// CHECK: %[[LEFT:.*]] = graph.select %{{.*}}, %[[X]], %{{.*}}
// CHECK: %[[D:.*]] = graph.gather %d, {{.*}} -> tensor<[[T]]x128x64xf16>
// CHECK: %[[RIGHT:.*]] = graph.select %{{.*}}, %[[D]], %{{.*}}
// CHECK: graph.contract %[[LEFT]], %[[RIGHT]] {lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : (tensor<[[T]]x128x32xf16>, tensor<[[T]]x128x64xf16>) -> tensor<[[T]]x32x64xf32>
// CHECK: graph.scatter %{{.*}} {kind = "sum"} : (tensor<16x2048xf32>, tensor<[[T]]xi32>, tensor<[[T]]x2048xf32>) -> tensor<16x2048xf32>

// -----

// Sizes that are numbers of the program: as many rows for each group are one product with a batch.
func.func @main(%x: tensor<64x32xf16>, %w: tensor<4x32x48xf16>) -> tensor<64x48xf16> {
  %n = graph.constant {value = #graph.data<i32, [4], splat 16>} : () -> tensor<4xi32>
  %last = graph.cumulate %n {dim = 0, kind = "sum", reverse = 0} : tensor<4xi32>
  %first = graph.sub %last, %n : tensor<4xi32>
  %row = graph.iota {dim = 1} : () -> tensor<4x64x32xi32>
  %a = graph.broadcast %first {dims = [0]} : (tensor<4xi32>) -> tensor<4x64x32xi32>
  %b = graph.broadcast %last {dims = [0]} : (tensor<4xi32>) -> tensor<4x64x32xi32>
  %le = graph.le %a, %row : (tensor<4x64x32xi32>, tensor<4x64x32xi32>) -> tensor<4x64x32xi1>
  %lt = graph.lt %row, %b : (tensor<4x64x32xi32>, tensor<4x64x32xi32>) -> tensor<4x64x32xi1>
  %in = graph.and %le, %lt : tensor<4x64x32xi1>
  %xs = graph.broadcast %x {dims = [1, 2]} : (tensor<64x32xf16>) -> tensor<4x64x32xf16>
  %z = graph.constant {value = #graph.data<f16, [4, 64, 32], splat 0.0>} : () -> tensor<4x64x32xf16>
  %m = graph.select %in, %xs, %z : (tensor<4x64x32xi1>, tensor<4x64x32xf16>, tensor<4x64x32xf16>) -> tensor<4x64x32xf16>
  %y = graph.contract %m, %w {lhs_batch = [], lhs_contract = [0, 2], rhs_batch = [], rhs_contract = [0, 1]} : (tensor<4x64x32xf16>, tensor<4x32x48xf16>) -> tensor<64x48xf16>
  func.return %y : tensor<64x48xf16>
}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[X:.*]] = graph.reshape %x : (tensor<64x32xf16>) -> tensor<4x16x32xf16>
// CHECK-NEXT: %[[Y:.*]] = graph.contract %[[X]], %w {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : (tensor<4x16x32xf16>, tensor<4x32x48xf16>) -> tensor<4x16x48xf16>
// CHECK-NEXT: graph.reshape %[[Y]] : (tensor<4x16x48xf16>) -> tensor<64x48xf16>
