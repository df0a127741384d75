// RUN: tilewright-opt %s -p graph-partition --split-input-file | tilewright-opt --split-input-file | filecheck %s
// RUN: not tilewright-opt %s -p 'graph-partition{host=forbid}' 2>&1 | filecheck %s --check-prefix FORBID

// Two calls without work of the device in between are one: what passes between them stays on the host, what both read
// crosses once, equal modules are there once. The one behind the device's work is a call of its own.
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = graph.host %x {module = "module {\n  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n    %0 = call @f(%arg0) : (tensor<4xf32>) -> tensor<4xf32>\n    return %0 : tensor<4xf32>\n  }\n  func.func private @f(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n    return %arg0 : tensor<4xf32>\n  }\n}\n", op = "one"} : tensor<4xf32>
  %y = graph.exp %x : tensor<4xf32>
  %b, %c = graph.host %a, %x {module = "module {\n  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {\n    return %arg1, %arg0 : tensor<4xf32>, tensor<4xf32>\n  }\n}\n", op = "two"} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %d = graph.host %c {module = "module {\n  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n    %0 = call @f(%arg0) : (tensor<4xf32>) -> tensor<4xf32>\n    return %0 : tensor<4xf32>\n  }\n  func.func private @f(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n    return %arg0 : tensor<4xf32>\n  }\n}\n", op = "one"} : tensor<4xf32>
  %e = graph.add %b, %y : tensor<4xf32>
  %f = graph.host %e {module = "module {\n  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n    return %arg0 : tensor<4xf32>\n  }\n}\n", op = "three"} : tensor<4xf32>
  func.return %d, %f : tensor<4xf32>, tensor<4xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[Y:.*]] = graph.exp %x
// CHECK-NEXT: %[[B:.*]], %[[D:.*]] = graph.host %x {module = "module {
// CHECK-SAME: func.func private @part0(
// CHECK-SAME: call @part0_f(
// CHECK-SAME: func.func private @part0_f(
// CHECK-SAME: func.func private @part1(
// CHECK-SAME: func.func public @main(%a0: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK-SAME: %r0 = func.call @part0(%a0)
// CHECK-SAME: %r1:2 = func.call @part1(%r0, %a0)
// CHECK-SAME: %r2 = func.call @part0(%r1#1)
// CHECK-SAME: return %r1#0, %r2
// CHECK-SAME: op = "one, two", work = 128}
// CHECK-NEXT: %[[E:.*]] = graph.add %[[B]], %[[Y]]
// CHECK-NEXT: %[[F:.*]] = graph.host %[[E]] {{.*}}op = "three"
// CHECK-NEXT: func.return %[[D]], %[[F]]

// FORBID: the program may not use the host, but the device has no 'one'{{.*}}, 'two'{{.*}}, 'three'
