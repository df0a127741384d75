// RUN: tilewright-opt %s -p 'graph-schedule{target=ascend-910b1}' --split-input-file | filecheck %s

// A sum of squares over three tensors and what it scales: a kernel for each tensor, one for what is made of all of them,
// and again one for each tensor. Equal ones have one schedule.
func.func @main(%x: tensor<128x256xf32>, %y: tensor<128x256xf32>, %z: tensor<128x256xf32>) -> (tensor<f32>, tensor<128x256xf32>, tensor<128x256xf32>, tensor<128x256xf32>) {
  %r:4 = graph.fusion %x, %y, %z {domain = [128, 256], kind = "vector"} : (tensor<128x256xf32>, tensor<128x256xf32>, tensor<128x256xf32>) -> (tensor<f32>, tensor<128x256xf32>, tensor<128x256xf32>, tensor<128x256xf32>) {
  ^bb0(%a: tensor<128x256xf32>, %b: tensor<128x256xf32>, %c: tensor<128x256xf32>):
    %p = graph.mul %a, %a attributes {axes = array<i64: 0, 1>} : tensor<128x256xf32>
    %s = graph.reduce %p {dims = [0, 1], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<128x256xf32>) -> tensor<f32>
    %q = graph.mul %b, %b attributes {axes = array<i64: 0, 1>} : tensor<128x256xf32>
    %t = graph.reduce %q {dims = [0, 1], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<128x256xf32>) -> tensor<f32>
    %o = graph.mul %c, %c attributes {axes = array<i64: 0, 1>} : tensor<128x256xf32>
    %u = graph.reduce %o {dims = [0, 1], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<128x256xf32>) -> tensor<f32>
    %v = graph.add %s, %t attributes {axes = array<i64>} : tensor<f32>
    %w = graph.add %v, %u attributes {axes = array<i64>} : tensor<f32>
    %n = graph.broadcast %w {dims = []} : (tensor<f32>) -> tensor<128x256xf32>
    %d = graph.div %a, %n attributes {axes = array<i64: 0, 1>} : tensor<128x256xf32>
    %e = graph.div %b, %n attributes {axes = array<i64: 0, 1>} : tensor<128x256xf32>
    %f = graph.div %c, %n attributes {axes = array<i64: 0, 1>} : tensor<128x256xf32>
    graph.yield %w, %d, %e, %f : (tensor<f32>, tensor<128x256xf32>, tensor<128x256xf32>, tensor<128x256xf32>)
  }
  func.return %r#0, %r#1, %r#2, %r#3 : tensor<f32>, tensor<128x256xf32>, tensor<128x256xf32>, tensor<128x256xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]] = graph.fusion %x {domain = [128, 256], {{.*}}} : (tensor<128x256xf32>) -> tensor<f32>
// CHECK: %[[B:.*]] = graph.fusion %y {domain = [128, 256], {{.*}}} : (tensor<128x256xf32>) -> tensor<f32>
// CHECK: %[[C:.*]] = graph.fusion %z {domain = [128, 256], {{.*}}} : (tensor<128x256xf32>) -> tensor<f32>
// CHECK: graph.fusion %[[A]], %[[B]], %[[C]] {domain = [1, 1], {{.*}}} : tensor<f32> {
// CHECK: graph.add
// CHECK-NEXT: graph.add
// CHECK: graph.fusion %{{.*}}, %x {domain = [128, 256]
// CHECK: graph.broadcast
// CHECK-NEXT: graph.div
// CHECK: graph.fusion %{{.*}}, %y {domain = [128, 256]
// CHECK: graph.fusion %{{.*}}, %z {domain = [128, 256]

// -----

// Where rows are for many cores, or one core does all in less time than launches take, there is one kernel.
func.func @main(%x: tensor<128x256xf32>, %y: tensor<128x256xf32>, %z: tensor<16xf32>, %w: tensor<16xf32>) -> (tensor<128xf32>, tensor<f32>) {
  %r = graph.fusion %x, %y {domain = [128, 256], kind = "vector"} : (tensor<128x256xf32>, tensor<128x256xf32>) -> tensor<128xf32> {
  ^bb0(%a: tensor<128x256xf32>, %b: tensor<128x256xf32>):
    %s = graph.reduce %a {dims = [1], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<128x256xf32>) -> tensor<128xf32>
    %t = graph.reduce %b {dims = [1], kind = "sum"} attributes {axes = array<i64: 0, 1>} : (tensor<128x256xf32>) -> tensor<128xf32>
    %v = graph.add %s, %t attributes {axes = array<i64: 0>} : tensor<128xf32>
    graph.yield %v : (tensor<128xf32>)
  }
  %q = graph.fusion %z, %w {domain = [16], kind = "vector"} : (tensor<16xf32>, tensor<16xf32>) -> tensor<f32> {
  ^bb0(%a: tensor<16xf32>, %b: tensor<16xf32>):
    %s = graph.reduce %a {dims = [0], kind = "sum"} attributes {axes = array<i64: 0>} : (tensor<16xf32>) -> tensor<f32>
    %t = graph.reduce %b {dims = [0], kind = "sum"} attributes {axes = array<i64: 0>} : (tensor<16xf32>) -> tensor<f32>
    %v = graph.add %s, %t attributes {axes = array<i64>} : tensor<f32>
    graph.yield %v : (tensor<f32>)
  }
  func.return %r, %q : tensor<128xf32>, tensor<f32>
}
// CHECK-LABEL: func.func @main
// CHECK: graph.fusion %x, %y
// CHECK: graph.fusion %z, %w
// CHECK-NOT: graph.fusion
