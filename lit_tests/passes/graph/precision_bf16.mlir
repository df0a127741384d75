// RUN: tilewright-opt %s -p 'graph-precision{precision=mixed_bfloat16}' --split-input-file | filecheck %s
// RUN: not tilewright-opt %s -p 'graph-precision{precision=mixed_bfloat16 target=ascend-310}' --split-input-file 2>&1 | filecheck %s --check-prefix REFUSED
// RUN: not tilewright-opt %s -p 'graph-precision{precision=mixed}' --split-input-file 2>&1 | filecheck %s --check-prefix UNKNOWN

// The same rules with bf16: a mask of -1e9 fits.
func.func @main(%x: tensor<4x4xf32>, %i: tensor<4x4xi1>) -> tensor<4x4xf32> {
  %a = graph.contract %x, %x {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = graph.constant {value = #graph.data<f32, [4, 4], splat -1.0e+09>} : () -> tensor<4x4xf32>
  %s = graph.select %i, %a, %c : (tensor<4x4xi1>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %r = graph.contract %s, %x {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %r : tensor<4x4xf32>
}
// CHECK: kept = [], mode = "mixed_bfloat16", narrow = 3 : i64, products = 2 : i64
// CHECK-LABEL: @main
// CHECK: %[[X:.*]] = graph.convert %x : (tensor<4x4xf32>) -> tensor<4x4xbf16>
// CHECK: graph.contract %[[X]], %[[X]] {{.*}} : tensor<4x4xbf16>
// CHECK: graph.select %i, {{.*}} -> tensor<4x4xbf16>
// CHECK: graph.contract {{.*}} : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xf32>
// REFUSED: precision mixed_bfloat16: ascend-310 does not multiply bf16; take precision mixed_float16 or float16
// UNKNOWN: precision must be 'origin' or 'mixed_float16' or 'mixed_bfloat16' or 'float16', not 'mixed'
