// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-310},graph-schedule,graph-to-tile{target=ascend-310}' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=systolic-tpu1},graph-schedule,graph-to-tile{target=systolic-tpu1}' | filecheck %s --check-prefix PLAIN

// What rounds, limits and converts is two casts: to odd, then to even and within the type. A limit within it stays.
func.func @main(%x: tensor<512xf32>) -> tensor<512xi8> {
  %r = graph.round_even %x : tensor<512xf32>
  %low = graph.constant {value = #graph.data<f32, [], (0.0)>} : () -> tensor<f32>
  %high = graph.constant {value = #graph.data<f32, [], (127.0)>} : () -> tensor<f32>
  %lows = graph.broadcast %low {dims = []} : (tensor<f32>) -> tensor<512xf32>
  %highs = graph.broadcast %high {dims = []} : (tensor<f32>) -> tensor<512xf32>
  %c = graph.clamp %lows, %r, %highs : tensor<512xf32>
  %i = graph.convert %c : (tensor<512xf32>) -> tensor<512xi8>
  func.return %i : tensor<512xi8>
}

// CHECK: [[X:%.*]] = tile.load
// CHECK: [[HALF:%.*]] = tile.round_to [[X]] {mode = "odd"} : (!tile.tile<512xf32, ub>) -> !tile.tile<512xf16, ub>
// CHECK-NEXT: [[ZERO:%.*]] = tile.fill {value = 0.000000e+00 : f64} : () -> !tile.tile<1xf16, ub>
// CHECK-NEXT: [[RELU:%.*]] = tile.max [[HALF]], [[ZERO]]
// CHECK-NEXT: [[BYTES:%.*]] = tile.round_to [[RELU]] {mode = "even"} : (!tile.tile<512xf16, ub>) -> !tile.tile<512xi8, ub>
// CHECK-NEXT: tile.store [[BYTES]]

// PLAIN: tile.round_even
// PLAIN: tile.clamp
// PLAIN: tile.convert {{.*}} -> !tile.tile<512xi8, ub>
