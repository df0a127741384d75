// RUN: tilewright-opt %s -p graph-complex --split-input-file | tilewright-opt --split-input-file | filecheck %s

// A loop carries both parts, and its counter moves on; the host gets a complex tensor.
func.func @main(%x: tensor<4xcomplex<f32>>, %n: tensor<i32>) -> tensor<f32> {
  %y, %i = graph.while %x, %n {counter = 1, trip_count = 3} : (tensor<4xcomplex<f32>>, tensor<i32>) -> (tensor<4xcomplex<f32>>, tensor<i32>) {
  ^bb0(%z: tensor<4xcomplex<f32>>, %j: tensor<i32>):
    %t = graph.lt %j, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    graph.yield %t : (tensor<i1>)
  } {
  ^bb0(%z: tensor<4xcomplex<f32>>, %j: tensor<i32>):
    %w = graph.add %z, %x : tensor<4xcomplex<f32>>
    graph.yield %w, %j : (tensor<4xcomplex<f32>>, tensor<i32>)
  }
  %h = graph.host %y {module = "", op = "stablehlo.fft"} : tensor<4xcomplex<f32>>
  %s = graph.reduce %h {dims = [0], kind = "sum"} : (tensor<4xcomplex<f32>>) -> tensor<complex<f32>>
  %r = graph.real %s : (tensor<complex<f32>>) -> tensor<f32>
  func.return %r : tensor<f32>
}
// CHECK-LABEL: @main
// CHECK: %[[X:.*]] = graph.view %x
// CHECK: %y_re, %y_im, %i = graph.while %x_re, %x_im, %n {counter = 2, trip_count = 3} : (tensor<4xf32>, tensor<4xf32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<i32>) {
// CHECK: graph.add %{{.*}}, %x_re : tensor<4xf32>
// CHECK-NEXT: graph.add %{{.*}}, %x_im : tensor<4xf32>
// CHECK: %[[C:.*]] = graph.concat
// CHECK-NEXT: %[[V:.*]] = graph.view %[[C]] : (tensor<4x2xf32>) -> tensor<4xcomplex<f32>>
// CHECK-NEXT: %[[H:.*]] = graph.host %[[V]]
// CHECK-NEXT: graph.view %[[H]] : (tensor<4xcomplex<f32>>) -> tensor<4x2xf32>
// CHECK: %[[R:.*]] = graph.reduce %{{.*}} {dims = [0], kind = "sum"} : (tensor<4xf32>) -> tensor<f32>
// CHECK-NEXT: func.return %[[R]] : tensor<f32>

// -----

// Branches, functions and products.
func.func @main(%x: tensor<2x3xcomplex<f32>>, %i: tensor<i32>) -> tensor<2x2xcomplex<f32>> {
  %y = func.call @f(%x, %i) : (tensor<2x3xcomplex<f32>>, tensor<i32>) -> tensor<2x2xcomplex<f32>>
  func.return %y : tensor<2x2xcomplex<f32>>
}
func.func private @f(%x: tensor<2x3xcomplex<f32>>, %i: tensor<i32>) -> tensor<2x2xcomplex<f32>> {
  %y = graph.case %i : (tensor<i32>) -> tensor<2x3xcomplex<f32>> {
    graph.yield %x : (tensor<2x3xcomplex<f32>>)
  } {
    %n = graph.neg %x : tensor<2x3xcomplex<f32>>
    graph.yield %n : (tensor<2x3xcomplex<f32>>)
  }
  %z = graph.contract %y, %x {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<2x3xcomplex<f32>>, tensor<2x3xcomplex<f32>>) -> tensor<2x2xcomplex<f32>>
  func.return %z : tensor<2x2xcomplex<f32>>
}
// CHECK-LABEL: @main
// CHECK: %{{.*}}, %{{.*}} = func.call @f(%x_re, %x_im, %i) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<i32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
// CHECK: func.func private @f(%x_re: tensor<2x3xf32>, %x_im: tensor<2x3xf32>, %i: tensor<i32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
// CHECK: graph.yield %x_re, %x_im
// CHECK-COUNT-4: graph.contract
// CHECK-NOT: complex

// -----

// What only hands complex tensors on stays as it is.
func.func @main(%x: tensor<4xcomplex<f32>>) -> tensor<2x2xcomplex<f32>> {
  %y = graph.reshape %x : (tensor<4xcomplex<f32>>) -> tensor<2x2xcomplex<f32>>
  func.return %y : tensor<2x2xcomplex<f32>>
}
// CHECK-LABEL: @main
// CHECK-NEXT: %y = graph.reshape %x
// CHECK-NEXT: func.return

// -----

// A function with a formula: expm1(a) cos b - 2 sin^2(b / 2), and exp(a) sin b but where b is 0.
func.func @main(%x: tensor<8xcomplex<f32>>) -> tensor<8xcomplex<f32>> {
  %y = graph.expm1 %x : tensor<8xcomplex<f32>>
  func.return %y : tensor<8xcomplex<f32>>
}
// CHECK-LABEL: @main
// CHECK: %[[H:.*]] = graph.sin
// CHECK: graph.mul %[[H]], %[[H]]
// CHECK: %[[E:.*]] = graph.expm1 %x_re
// CHECK-NEXT: %[[C:.*]] = graph.cos %x_im
// CHECK-NEXT: %[[P:.*]] = graph.mul %[[E]], %[[C]]
// CHECK-NEXT: %y_re = graph.sub %[[P]]
// CHECK: %[[S:.*]] = graph.sin %x_im
// CHECK: %[[Z:.*]] = graph.eq %x_im
// CHECK-NEXT: %y_im = graph.select %[[Z]], %x_im

// -----

// A conversion between complex types of one kind is none; from a real number there is an imaginary part of 0.
func.func @main(%x: tensor<4xcomplex<f32>>, %y: tensor<4xf16>) -> (tensor<4xf32>, tensor<4xf32>) {
  %same = graph.convert %x : tensor<4xcomplex<f32>>
  %im = graph.imag %same : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
  %wide = graph.convert %y : (tensor<4xf16>) -> tensor<4xcomplex<f32>>
  %none = graph.imag %wide : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
  func.return %im, %none : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: @main
// CHECK: %[[VIEW:.*]] = graph.view %x
// CHECK: %[[PART:.*]] = graph.slice %[[VIEW]] {limits = [4, 2], starts = [0, 1]
// CHECK: %[[IM:.*]] = graph.reshape %[[PART]]
// CHECK: %[[ZERO:.*]] = graph.constant {value = #graph.data<f32, [4], splat 0.0>}
// CHECK: func.return %[[IM]], %[[ZERO]]
