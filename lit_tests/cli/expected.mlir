// The errors of a file stand in it, as in the tests of MLIR.
// RUN: tilewright-opt %s --split-input-file --verify-diagnostics | filecheck %s
// RUN: not tilewright-opt %s --split-input-file 2>&1 | filecheck %s --check-prefix SHOWN

func.func @main(%x: tensor<4xf32>) -> tensor<5xf32> {
  // expected-error @+1 {{'graph.abs' should give tensor<4xf32>, but is written as tensor<5xf32>}}
  %y = graph.abs %x : (tensor<4xf32>) -> tensor<5xf32>
  func.return %y : tensor<5xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.abs %z : tensor<4xf32>
  // expected-error@above {{%z is used here, but not defined}}
  func.return %y : tensor<4xf32>
}

// -----

// CHECK-NOT: graph.abs
// CHECK: graph.neg
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.neg %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// SHOWN-DAG: {{.*}}expected.mlir:7:8: error: 'graph.abs' should give tensor<4xf32>
// SHOWN-DAG: {{.*}}expected.mlir:14:18: error: %z is used here, but not defined
// SHOWN-DAG: graph.neg
