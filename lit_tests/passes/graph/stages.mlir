// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule' -t stages | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-310p3},graph-schedule' -t stages | filecheck %s --check-prefix=FUSED

// What the kernels of fusions do, as text: a vector kernel with a reduction, a product and its epilogue, a copy.
func.func @main(%x: tensor<64x512xf16>, %w: tensor<512x256xf16>, %i: tensor<i32>)
  -> (tensor<64xf16>, tensor<64x256xf16>, tensor<8x512xf16>) {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<64x512xf16>) -> tensor<64xf16>
  %c = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
    : (tensor<64x512xf16>, tensor<512x256xf16>) -> tensor<64x256xf16>
  %e = graph.exp %c : tensor<64x256xf16>
  %s = graph.dynamic_slice %x, %i, %i {sizes = [8, 512]}
    : (tensor<64x512xf16>, tensor<i32>, tensor<i32>) -> tensor<8x512xf16>
  func.return %m, %e, %s : tensor<64xf16>, tensor<64x256xf16>, tensor<8x512xf16>
}

// CHECK:      // 'graph.fusion' ({{.*}}): reduce
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   %0 = load {input = 0, box = [64 by 512 at 0, 512 by 1 at 1]} : f16 over [0, 1]
// CHECK-NEXT:   %1 = reduce(%0) {by = "max", axes = [(1, 512)]} : f16 over [0]
// CHECK-NEXT:   store(%1) {output = 0, box = [64 by 1 at 0], element = f16} over [0]
// CHECK-NEXT: }
// CHECK:      contract
// CHECK-NEXT: // product: {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   %0 = no_sums {rows = [0], columns = [1]} : f32 over [0, 1]
// CHECK-NEXT:   %1 = load_l1 {input = 1, box = [dim {extent = 512, stride = 256, along = [(2, 1)]}, dim {extent = 256, stride = 1, along = [(1, 1)]}]} : f16 over [1, 2]
// CHECK-NEXT:   %2 = load_l1 {input = 0, box = [dim {extent = 64, stride = 512, along = [(0, 1)]}, dim {extent = 512, stride = 1, along = [(2, 1)]}]} : f16 over [0, 2]
// CHECK-NEXT:   %3 = move(%2) {to = "l0a", box = [{{.*}}], rows = [0], columns = [2]} : f16 over [0, 2]
// CHECK-NEXT:   %4 = move(%1) {to = "l0b", box = [{{.*}}], rows = [2], columns = [1]} : f16 over [1, 2]
// CHECK-NEXT:   %5 = multiply(%3, %4, %0) {rows = [0], columns = [1], summed = [2]} : f32 over [0, 1]
// CHECK-NEXT:   hand_over(%5) {order = [0, 1]} over [0, 1]
// CHECK-NEXT: }
// CHECK-NEXT: // epilogue: {{[0-9a-f]{16}$}}
// CHECK:        %0 = given {name = "accumulator", counts_as = "load", along = [0, 1]} : f16 over [0, 1]
// CHECK-NEXT:   %1 = apply(%0) {of = "exp"} : f16 over [0, 1]
// CHECK-NOT:  not of stages
// CHECK:      slice
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   %0 = scalar {input = 1, low = 0, high = 56} : i32
// CHECK-NEXT:   %1 = load(%0) {input = 0, box = [64 by 512 at 0 plus 0, 512 by 1 at 1]} : f16 over [0, 1]
// CHECK-NEXT:   store(%1) {output = 0, box = [8 by 512 at 0, 512 by 1 at 1], element = f16} over [0, 1]
// CHECK-NOT:  not of stages

// FUSED: %0 = given {name = "accumulator", counts_as = "drain", along = [0, 1]} : f16 over [0, 1]
