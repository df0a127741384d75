// RUN: tilewright-opt %s -p graph-fuse,graph-schedule,graph-to-tile --split-input-file | tilewright-opt --split-input-file | filecheck %s

// The sum waits for the host: the products, which need not, go before it.
func.func @main(%x: tensor<512xf32>, %a: tensor<256x256xf32>) -> (tensor<f32>, tensor<256x256xf32>) {
  %h = graph.host %x {module = "m", op = "sort"} : tensor<512xf32>
  %s = graph.reduce %h {dims = [0], kind = "sum"} : (tensor<512xf32>) -> tensor<f32>
  %p = graph.contract %a, %a {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %q = graph.contract %p, %a {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %s, %q : tensor<f32>, tensor<256x256xf32>
}
// CHECK: %[[H:.*]] = graph.host %x
// CHECK-NEXT: %[[P:.*]] = tile.launch @contract_0 %a {
// CHECK-NEXT: %{{.*}} = tile.launch @contract_1 %[[P]], %a
// CHECK-NEXT: %{{.*}} = tile.launch @reduce_0 %[[H]]
// CHECK-NEXT: func.return

// -----

// Without the host they stay.
func.func @main(%x: tensor<512xf32>, %a: tensor<256x256xf32>) -> (tensor<f32>, tensor<256x256xf32>) {
  %s = graph.reduce %x {dims = [0], kind = "sum"} : (tensor<512xf32>) -> tensor<f32>
  %p = graph.contract %a, %a {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %s, %p : tensor<f32>, tensor<256x256xf32>
}
// CHECK: tile.launch @reduce_0
// CHECK-NEXT: tile.launch @contract_0

// -----

// The update of %c in place stays behind the product that reads %c as it was, though that waits for the host.
func.func @main(%x: tensor<256x256xf32>, %c: tensor<256x256xf32> {graph.donated}, %u: tensor<1x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>, tensor<256x256xf32>) {
  %i = graph.constant {value = #graph.data<i32, [], (3)>} : () -> tensor<i32>
  %h = graph.host %x {module = "m", op = "sort"} : tensor<256x256xf32>
  %p = graph.contract %h, %c {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = graph.dynamic_update_slice %c, %u, %i, %i : (tensor<256x256xf32>, tensor<1x256xf32>, tensor<i32>, tensor<i32>) -> tensor<256x256xf32>
  %q = graph.contract %x, %x {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %p, %d, %q : tensor<256x256xf32>, tensor<256x256xf32>, tensor<256x256xf32>
}
// CHECK: graph.host %x
// CHECK-NEXT: tile.launch @contract_1 %x {
// CHECK-NEXT: tile.launch @contract_0 %{{.*}}, %c
// CHECK-NEXT: tile.launch @update_0 %u, %c {inits = [1]}

// -----

// In a loop: likewise, as the rounds before leave the queues.
func.func @main(%x: tensor<256x256xf32>, %n: tensor<i32>, %a: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %k, %r, %b = graph.while %n, %x, %a : (tensor<i32>, tensor<256x256xf32>, tensor<256x256xf32>) -> (tensor<i32>, tensor<256x256xf32>, tensor<256x256xf32>) {
  ^bb0(%j: tensor<i32>, %v: tensor<256x256xf32>, %w: tensor<256x256xf32>):
    %z = graph.constant {value = #graph.data<i32, [], (0)>} : () -> tensor<i32>
    %more = graph.gt %j, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %more : (tensor<i1>)
  } {
  ^bb0(%j: tensor<i32>, %v: tensor<256x256xf32>, %w: tensor<256x256xf32>):
    %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
    %h = graph.host %v {module = "m", op = "sort"} : tensor<256x256xf32>
    %e = graph.exp %h : tensor<256x256xf32>
    %p = graph.contract %w, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %i = graph.sub %j, %one : tensor<i32>
    graph.yield %i, %e, %p : (tensor<i32>, tensor<256x256xf32>, tensor<256x256xf32>)
  }
  func.return %r, %b : tensor<256x256xf32>, tensor<256x256xf32>
}
// CHECK: %[[H:.*]] = graph.host
// CHECK-NEXT: tile.launch @contract_0
// CHECK: tile.launch @exp_0 %[[H]]
