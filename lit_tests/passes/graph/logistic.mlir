// RUN: tilewright-opt %s -p graph-simplify --split-input-file | filecheck %s

// A sigmoid of bf16 as JAX writes it, behind what it is multiplied with.
func.func @main(%x: tensor<40x64xbf16>) -> tensor<40x64xbf16> {
  %one = graph.constant {value = #graph.data<bf16, [40, 64], splat 1.0>} : () -> tensor<40x64xbf16>
  %n = graph.neg %x : tensor<40x64xbf16>
  %e = graph.exp %n : tensor<40x64xbf16>
  %s = graph.add %one, %e : tensor<40x64xbf16>
  %q = graph.div %one, %s : tensor<40x64xbf16>
  %y = graph.mul %x, %q : tensor<40x64xbf16>
  func.return %y : tensor<40x64xbf16>
}
// CHECK: %[[Q:.*]] = graph.logistic %x : tensor<40x64xbf16>
// CHECK-NEXT: graph.mul %x, %[[Q]]

// -----

// A term that something else needs stays, and so do the others.
func.func @main(%x: tensor<40x64xbf16>) -> (tensor<40x64xbf16>, tensor<40x64xbf16>) {
  %one = graph.constant {value = #graph.data<bf16, [40, 64], splat 1.0>} : () -> tensor<40x64xbf16>
  %n = graph.neg %x : tensor<40x64xbf16>
  %e = graph.exp %n : tensor<40x64xbf16>
  %s = graph.add %e, %one : tensor<40x64xbf16>
  %q = graph.div %one, %s : tensor<40x64xbf16>
  func.return %q, %e : tensor<40x64xbf16>, tensor<40x64xbf16>
}
// CHECK: graph.exp
// CHECK-NOT: graph.logistic

// -----

// The vector unit computes f16 itself.
func.func @main(%x: tensor<40x64xf16>) -> tensor<40x64xf16> {
  %one = graph.constant {value = #graph.data<f16, [40, 64], splat 1.0>} : () -> tensor<40x64xf16>
  %n = graph.neg %x : tensor<40x64xf16>
  %e = graph.exp %n : tensor<40x64xf16>
  %s = graph.add %e, %one : tensor<40x64xf16>
  %q = graph.div %one, %s : tensor<40x64xf16>
  func.return %q : tensor<40x64xf16>
}
// CHECK: graph.div
// CHECK-NOT: graph.logistic
