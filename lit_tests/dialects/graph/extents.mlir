// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// A result whose size depends on data names the result that says how much of it counts, at every level.
func.func @main(%x: tensor<16x4xf32>, %y: tensor<3x16xi32>, %n: tensor<i32>)
    -> (tensor<16x4xf32> {graph.extents = array<i64: 2, -1>}, tensor<3x16xi32> {graph.extents = array<i64: -1, 2>},
        tensor<i32>) {
  func.return %x, %y, %n : tensor<16x4xf32>, tensor<3x16xi32>, tensor<i32>
}
// CHECK: @main
// CHECK-SAME: graph.extents = array<i64: 2, -1>
// CHECK-SAME: graph.extents = array<i64: -1, 2>

// -----

func.func @main(%x: !npu.gm<16xf16>, %n: !npu.gm<i32>)
    -> (!npu.gm<16xf16> {graph.extents = array<i64: 1>}, !npu.gm<i32>) {
  func.return %x, %n : !npu.gm<16xf16>, !npu.gm<i32>
}
// CHECK: @main
// CHECK-SAME: graph.extents = array<i64: 1>
