// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="rows=128,scored=32,keys=64"},graph-to-tile' --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="rows=128,scored=32,keys=64"},graph-to-tile,tile-to-npu,npu-allocate,npu-synchronize,npu-plan-memory,npu-check' --split-input-file | filecheck %s --check-prefix NPU
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1 without=attention}' --split-input-file | filecheck %s --check-prefix APART

// Two products between which there is a relu: a cube core hands tiles from l0c to l1, and goes on. While the weights of
// one part of a piece are on their way, the scores of the other are made.
func.func @main(%x: tensor<512x48xf16>, %a: tensor<48x128xf16>, %b: tensor<128x32xf16>) -> tensor<512x32xf16> {
  %h = graph.contract %x, %a {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<512x48xf16>, tensor<48x128xf16>) -> tensor<512x128xf16>
  %0 = graph.constant {value = #graph.data<f16, [], (0.0)>} : () -> tensor<f16>
  %zero = graph.broadcast %0 {dims = []} : (tensor<f16>) -> tensor<512x128xf16>
  %r = graph.max %h, %zero : tensor<512x128xf16>
  %y = graph.contract %r, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<512x128xf16>, tensor<128x32xf16>) -> tensor<512x32xf16>
  func.return %y : tensor<512x32xf16>
}

// CHECK: tile.launch @chain_0 %x, %a, %b
// CHECK: tile.kernel @chain_0 {{.*}}kind = "cube"
// CHECK: %[[X:.*]] = tile.load {{.*}} -> !tile.tile<128x48xf16, l1>
// CHECK: %[[ROWS:.*]] = tile.move %[[X]] {{.*}} -> !tile.tile<128x48xf16, l0a>
// CHECK: scf.for
// CHECK: tile.mma %[[ROWS]],
// CHECK: %[[FIRST:.*]] = tile.hand_on %{{.*}} {relu} : (!tile.tile<128x32xf32, l0c>) -> !tile.tile<128x32xf16, l1>
// CHECK: tile.mma %[[ROWS]],
// CHECK: %[[SECOND:.*]] = tile.hand_on %{{.*}} {relu}
// CHECK: tile.move %[[FIRST]]
// CHECK: tile.mma
// CHECK: tile.move %[[SECOND]]
// CHECK: tile.mma
// CHECK: tile.store {{.*}} : (!tile.tile<128x32xf32, l0c>, !npu.gm<512x32xf16>)

// NPU: npu.mmad {{.*}} {unit_flag}
// NPU: npu.fixpipe_l1 {{.*}} {relu, unit_flag}
// NPU: npu.set_flag {{.*}} {event = {{.*}}, source = "FIX", target = "MTE1"}
// NPU: npu.mmad {{.*}} {unit_flag}
// NPU: npu.fixpipe {{.*}} unit_flag}

// APART: graph.fusion
// APART: graph.fusion

// -----

// What stands behind the second product is its epilogue: two kernels.
func.func @main(%x: tensor<512x48xf16>, %a: tensor<48x128xf16>, %b: tensor<128x32xf16>) -> tensor<512x32xf16> {
  %h = graph.contract %x, %a {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<512x48xf16>, tensor<48x128xf16>) -> tensor<512x128xf16>
  %y = graph.contract %h, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<512x128xf16>, tensor<128x32xf16>) -> tensor<512x32xf16>
  %t = graph.tanh %y : tensor<512x32xf16>
  func.return %t : tensor<512x32xf16>
}

// CHECK-NOT: tile.hand_on
