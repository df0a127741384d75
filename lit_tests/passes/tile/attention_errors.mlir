// RUN: tilewright-opt %s -p graph-schedule --split-input-file --verify-diagnostics | filecheck %s

// A pin that attention cannot obey is refused, with what stands in the way.
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x32x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 32, 64, 16], kind = "mix", schedule = #graph.attention_schedule<rows = 20, keys = 16>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    ^bb0(%0: tensor<2x32x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x32x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x32x64xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16>
      graph.yield %o_1 : (tensor<2x32x16xf16>)
    }
    func.return %o : tensor<2x32x16xf16>
  }
}
// CHECK: @attention_0 cannot obey its pinned schedule: rows, keys, scored, columns, features and summed must be multiples of 16

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x32x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 32, 64, 16], kind = "mix", schedule = #graph.attention_schedule<rows = 32, keys = 64, summed = 48>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    ^bb0(%0: tensor<2x32x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x32x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x32x64xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16>
      graph.yield %o_1 : (tensor<2x32x16xf16>)
    }
    func.return %o : tensor<2x32x16xf16>
  }
}
// CHECK: @attention_0 cannot obey its pinned schedule: steps of 48 keys do not divide 64

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x32x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 32, 64, 16], kind = "mix", schedule = #graph.attention_schedule<rows = 32, keys = 16, grid = [3, 1]>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    ^bb0(%0: tensor<2x32x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x32x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x32x64xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16>
      graph.yield %o_1 : (tensor<2x32x16xf16>)
    }
    func.return %o : tensor<2x32x16xf16>
  }
}
// CHECK: @attention_0 cannot obey its pinned schedule: axis 0 of 2 tiles cannot be split over 3 cores

// -----

builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x32x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 32, 64, 16], kind = "mix", schedule = #graph.attention_schedule<rows = 8192, keys = 64>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    ^bb0(%0: tensor<2x32x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x32x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x32x64xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16>
      graph.yield %o_1 : (tensor<2x32x16xf16>)
    }
    func.return %o : tensor<2x32x16xf16>
  }
}
// CHECK: @attention_0 cannot obey its pinned schedule: a tile of 8192 rows and 64 keys takes {{.*}} bytes of l1, of 524288 there are
