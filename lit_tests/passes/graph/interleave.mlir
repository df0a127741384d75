// RUN: tilewright-opt %s -p 'graph-simplify{target=ascend-910b1 only=interleave-as-select}' | filecheck %s
// RUN: tilewright-opt %s -p 'graph-simplify{target=ascend-310 only=interleave-as-select}' | filecheck %s --check-prefix=LEFT

// Runs of one number: each element of the result is taken from one of the parts.
func.func @main(%a: tensor<512x64x1xf16>, %b: tensor<512x64x1xf16>, %c: tensor<512x64x16xf16>, %d: tensor<8x4x1xf16>)
    -> (tensor<512x64x2xf16>, tensor<512x64x32xf16>, tensor<8x4x2xf16>, tensor<512x64x17xf16>) {
  %0 = graph.concat %a, %b {dim = 2} : (tensor<512x64x1xf16>, tensor<512x64x1xf16>) -> tensor<512x64x2xf16>
  %1 = graph.concat %c, %c {dim = 2} : (tensor<512x64x16xf16>, tensor<512x64x16xf16>) -> tensor<512x64x32xf16>
  %2 = graph.concat %d, %d {dim = 2} : (tensor<8x4x1xf16>, tensor<8x4x1xf16>) -> tensor<8x4x2xf16>
  %3 = graph.concat %a, %c {dim = 2} : (tensor<512x64x1xf16>, tensor<512x64x16xf16>) -> tensor<512x64x17xf16>
  func.return %0, %1, %2, %3 : tensor<512x64x2xf16>, tensor<512x64x32xf16>, tensor<8x4x2xf16>, tensor<512x64x17xf16>
}

// CHECK:      %[[PLACE:.*]] = graph.iota {dim = 0} : () -> tensor<2xi32>
// CHECK:      %[[B:.*]] = graph.broadcast %b {dims = [0, 1, 3]} : (tensor<512x64x1xf16>) -> tensor<512x64x2x1xf16>
// CHECK:      %[[A:.*]] = graph.broadcast %a {dims = [0, 1, 3]} : (tensor<512x64x1xf16>) -> tensor<512x64x2x1xf16>
// CHECK:      %[[FIRST:.*]] = graph.eq %[[PLACE]], %{{.*}} : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
// CHECK:      %[[MASK:.*]] = graph.broadcast %[[FIRST]] {dims = [2]} : (tensor<2xi1>) -> tensor<512x64x2x1xi1>
// CHECK:      %[[R:.*]] = graph.select %[[MASK]], %[[A]], %[[B]]
// CHECK:      graph.reshape %[[R]] : (tensor<512x64x2x1xf16>) -> tensor<512x64x2xf16>

// Whole blocks, few runs, and parts of different lengths are moved.
// CHECK:      graph.concat %c, %c
// CHECK:      graph.concat %d, %d
// CHECK:      graph.concat %a, %c

// Where vector cores repeat single numbers slowly, nothing changes.
// LEFT:       graph.concat %a, %b
// LEFT-NOT:   graph.select
