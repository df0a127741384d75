// RUN: tilewright-opt %s -p 'graph-schedule{target=ascend-910b1}' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-schedule{target=ascend-910b1 without=join}' | filecheck %s --check-prefix=ALONE

// A launch of its own is best on few cores. Between launches on all of them, as a stage of theirs, it is best on more,
// which are awake. The wide ones stay as they are.

// CHECK: domain = [2048, 2048], {{.*}} grid = [45]
// CHECK: domain = [64, 1024], {{.*}} grid = [35]
// CHECK: domain = [2048, 2048], {{.*}} grid = [45]
// ALONE: domain = [2048, 2048], {{.*}} grid = [45]
// ALONE: domain = [64, 1024], {{.*}} grid = [8]
// ALONE: domain = [2048, 2048], {{.*}} grid = [45]
func.func @main(%x: tensor<2048x2048xf32>, %y: tensor<64x1024xf32>) -> (tensor<2048x2048xf32>, tensor<64x1024xf32>, tensor<2048x2048xf32>) {
  %a = graph.fusion %x {domain = [2048, 2048], kind = "vector"} : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
  ^bb0(%0: tensor<2048x2048xf32>):
    %1 = graph.exp %0 attributes {axes = array<i64: 0, 1>} : tensor<2048x2048xf32>
    graph.yield %1 : (tensor<2048x2048xf32>)
  }
  %b = graph.fusion %y {domain = [64, 1024], kind = "vector"} : (tensor<64x1024xf32>) -> tensor<64x1024xf32> {
  ^bb0(%2: tensor<64x1024xf32>):
    %3 = graph.exp %2 attributes {axes = array<i64: 0, 1>} : tensor<64x1024xf32>
    graph.yield %3 : (tensor<64x1024xf32>)
  }
  %c = graph.fusion %a {domain = [2048, 2048], kind = "vector"} : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
  ^bb0(%4: tensor<2048x2048xf32>):
    %5 = graph.sqrt %4 attributes {axes = array<i64: 0, 1>} : tensor<2048x2048xf32>
    graph.yield %5 : (tensor<2048x2048xf32>)
  }
  func.return %a, %b, %c : tensor<2048x2048xf32>, tensor<64x1024xf32>, tensor<2048x2048xf32>
}
