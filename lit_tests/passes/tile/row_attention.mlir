// RUN: tilewright-opt %s -p graph-schedule,graph-to-tile --split-input-file --verify-diagnostics | filecheck %s

// Three rows of each batch: the vector cores multiply keys and values as they are loaded. What is left of 64 keys behind
// two pieces of 24 is a piece of its own.
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x3x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x3x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 3, 64, 16], kind = "mix", schedule = #graph.row_attention_schedule<rows = 3, keys = 24, grid = [2, 1]>} : (tensor<2x3x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x3x16xf16> {
    ^bb0(%0: tensor<2x3x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x16xf16>, tensor<2x64x16xf16>) -> tensor<2x3x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x3x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x3xf32>) -> tensor<2x3x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x3xf32>) -> tensor<2x3x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x3x64xf16>, tensor<2x64x16xf16>) -> tensor<2x3x16xf16>
      graph.yield %o_1 : (tensor<2x3x16xf16>)
    }
    func.return %o : tensor<2x3x16xf16>
  }
}
// CHECK: tile.launch @attention_0 %q, %k, %v {{.*}} -> tensor<2x3x16xf16>
// CHECK: tile.kernel @attention_0 {grid = [2], kind = "vector"
// CHECK: tile.broadcast {{.*}} -> !tile.tile<1x3x24x16xf32, ub>
// CHECK: scf.for
// CHECK: tile.load {{.*}} {sizes = [1, 24, 16]}
// CHECK: tile.reduce {{.*}} {dims = [3], kind = "sum"} : (!tile.tile<1x3x24x16xf32, ub>) -> !tile.tile<1x3x24x1xf32, ub>
// CHECK: tile.reduce {{.*}} {dims = [2], kind = "max"}
// CHECK: tile.exp
// CHECK: scf.yield
// CHECK: tile.load {{.*}} {sizes = [1, 16, 16]}
// CHECK-NOT: tile.mask
// CHECK: tile.div
// CHECK: tile.store

// -----

// Two parts of the keys, each of which gives its result, its maxima and its sums, and what combines them.
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x3x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x3x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 3, 64, 16], kind = "mix", schedule = #graph.row_attention_schedule<keys = 32, split_keys = 2>} : (tensor<2x3x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x3x16xf16> {
    ^bb0(%0: tensor<2x3x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x16xf16>, tensor<2x64x16xf16>) -> tensor<2x3x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x3x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x3xf32>) -> tensor<2x3x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x3xf32>) -> tensor<2x3x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x3x64xf16>, tensor<2x64x16xf16>) -> tensor<2x3x16xf16>
      graph.yield %o_1 : (tensor<2x3x16xf16>)
    }
    func.return %o : tensor<2x3x16xf16>
  }
}
// CHECK: tile.launch @attention_0 %q, %k, %v {{.*}} -> (tensor<2x2x3x16xf32>, tensor<2x2x3xf32>, tensor<2x2x3xf32>)
// CHECK: tile.launch @attention_part_reduce
// CHECK: -> tensor<2x3x16xf16>
// CHECK: tile.kernel @attention_0 {grid = [2{{.*}} kind = "vector", outputs = 3

// -----

// Parts must be equal.
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x3x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x3x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 3, 64, 16], kind = "mix", schedule = #graph.row_attention_schedule<split_keys = 3>} : (tensor<2x3x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x3x16xf16> {
    ^bb0(%0: tensor<2x3x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x16xf16>, tensor<2x64x16xf16>) -> tensor<2x3x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x3x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x3xf32>) -> tensor<2x3x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x3xf32>) -> tensor<2x3x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x3x64xf16>, tensor<2x64x16xf16>) -> tensor<2x3x16xf16>
      graph.yield %o_1 : (tensor<2x3x16xf16>)
    }
    func.return %o : tensor<2x3x16xf16>
  }
}
// CHECK: @attention_0 cannot obey its pinned schedule: split_keys=3 does not cut 64 keys into equal parts

// -----

// Few rows are not the cube's.
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x3x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x3x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 3, 64, 16], kind = "mix", schedule = #graph.attention_schedule<rows = 16>} : (tensor<2x3x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x3x16xf16> {
    ^bb0(%0: tensor<2x3x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x16xf16>, tensor<2x64x16xf16>) -> tensor<2x3x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x3x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x3xf32>) -> tensor<2x3x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x3xf32>) -> tensor<2x3x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x3x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x3x64xf32>) -> tensor<2x3x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x3x64xf16>, tensor<2x64x16xf16>) -> tensor<2x3x16xf16>
      graph.yield %o_1 : (tensor<2x3x16xf16>)
    }
    func.return %o : tensor<2x3x16xf16>
  }
}
// CHECK: @attention_0 cannot obey its pinned schedule: it is attention of few rows, and its schedule an attention_schedule
