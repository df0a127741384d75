// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule' -t nests | filecheck %s
// RUN: not tilewright-opt %s -p 'graph-fuse{target=ascend-910b1}' -t nests 2>&1 | filecheck %s --check-prefix=FREE

// The stages of kernels in the loops of their schedules: rows that are read in pieces, twice; a product whose sums the
// vector cores beside the cube take from a workspace.
func.func @main(%x: tensor<2x300000xf32>, %a: tensor<256x512xf16>, %w: tensor<512x256xf16>)
  -> (tensor<2x300000xf32>, tensor<256x256xf16>) {
  %m = graph.reduce %x {dims = [1], kind = "max"} : (tensor<2x300000xf32>) -> tensor<2xf32>
  %b = graph.broadcast %m {dims = [0]} : (tensor<2xf32>) -> tensor<2x300000xf32>
  %d = graph.sub %x, %b : (tensor<2x300000xf32>, tensor<2x300000xf32>) -> tensor<2x300000xf32>
  %c = graph.contract %a, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
    : (tensor<256x512xf16>, tensor<512x256xf16>) -> tensor<256x256xf16>
  %e = graph.exp %c : tensor<256x256xf16>
  func.return %d, %e : tensor<2x300000xf32>, tensor<256x256xf16>
}

// CHECK:      // 'graph.fusion' ({{.*}}): reduce
// CHECK-NEXT: // vector: {{[0-9a-f]{16}$}}
// CHECK-NEXT: nest {
// CHECK-NEXT:   for 2 by cores along [(0, 1)] {
// CHECK-NEXT:     %0 = fill {value = 0xFFF0000000000000} : f32 over [0, 1] tile [(1, 15000)]
// CHECK-NEXT:     for 20 along [(1, 15000)] carries [%0 to %2] {
// CHECK-NEXT:       %1 = load {input = 0, box = [2 by 300000 at 0, 300000 by 1 at 1]} : f32 over [0, 1] tile [(1, 15000)]
// CHECK-NEXT:       %2 = apply(%0, %1) {of = "max"} : f32 over [0, 1] tile [(1, 15000)]
// CHECK-NEXT:     }
// CHECK-NEXT:     %3 = reduce(%2) {by = "max", axes = [(1, 300000)]} : f32 over [0] tile [(1, 15000)]
// CHECK-NEXT:     store(%3) {output = 0, box = [2 by 1 at 0], element = f32} over [0] tile [(1, 15000)]
// CHECK-NEXT:   }
// CHECK-NEXT: }
// CHECK:      // 'graph.fusion' ({{.*}}): sub
// CHECK-NEXT: // vector: {{[0-9a-f]{16}$}}
// CHECK-NEXT: nest {
// CHECK-NEXT:   for 2 by cores along [(0, 1)] {
// CHECK-NEXT:     for 11 by cores along [(1, 27288)] {
// CHECK-NEXT:       %0 = load {input = 1, box = [2 by 1 at 0]} : f32 over [0] tile [(1, 9096)]
// CHECK-NEXT:       %1 = spread(%0) : f32 over [0, 1] tile [(1, 9096)]
// CHECK-NEXT:       for 3 along [(1, 9096)] {
// CHECK-NEXT:         %2 = load {input = 0, box = [2 by 300000 at 0, 300000 by 1 at 1]} : f32 over [0, 1] tile [(1, 9096)]
// CHECK-NEXT:         %3 = apply(%2, %1) {of = "sub"} : f32 over [0, 1] tile [(1, 9096)]
// CHECK-NEXT:         store(%3) {output = 0, box = [2 by 300000 at 0, 300000 by 1 at 1], element = f32} over [0, 1] tile [(1, 9096)]
// CHECK-NEXT:       }
// CHECK-NEXT:     }
// CHECK-NEXT:   }
// CHECK-NEXT: }
// CHECK:      // 'graph.fusion' ({{.*}}): contract
// CHECK-NEXT: // cube: {{[0-9a-f]{16}$}}
// CHECK-NEXT: nest {
// CHECK-NEXT:   for 4 by cores along [(0, 64)] {
// CHECK-NEXT:     for 2 by cores along [(1, 128)] {
// CHECK-NEXT:       %0 = no_sums {rows = [0], columns = [1]} : f32 over [0, 1] tile [(0, 64), (1, 128), (2, 128)]
// CHECK-NEXT:       %1 = load_l1 {input = 1, box = [{{.*}}]} : f16 over [1, 2] tile [(0, 64), (1, 128), (2, 512)]
// CHECK-NEXT:       %2 = load_l1 {input = 0, box = [{{.*}}]} : f16 over [0, 2] tile [(0, 64), (1, 128), (2, 512)]
// CHECK-NEXT:       for 4 along [(2, 128)] carries [%0 to %5] steps [1, 0] {
// CHECK-NEXT:         %3 = move(%2) {to = "l0a", box = [{{.*}}], rows = [0], columns = [2]} : f16 over [0, 2] tile [(0, 64), (1, 128), (2, 128)]
// CHECK-NEXT:         %4 = move(%1) {to = "l0b", box = [{{.*}}], rows = [2], columns = [1]} : f16 over [1, 2] tile [(0, 64), (1, 128), (2, 128)]
// CHECK-NEXT:         %5 = multiply(%3, %4, %0) {rows = [0], columns = [1], summed = [2]} : f32 over [0, 1] tile [(0, 64), (1, 128), (2, 128)]
// CHECK-NEXT:       }
// CHECK-NEXT:       store_sums(%5) {output = 1, box = [256 by 256 at 0, 256 by 1 at 1]} over [0, 1] tile [(0, 64), (1, 128), (2, 128)]
// CHECK-NEXT:     }
// CHECK-NEXT:   }
// CHECK-NEXT: }
// CHECK-NEXT: // vector, shared by 2 vector cores: {{[0-9a-f]{16}$}}
// CHECK-NEXT: nest over 3 {
// CHECK-NEXT:   for 4 by cores along [(0, 64)] {
// CHECK-NEXT:     for 2 by cores along [(1, 128)] {
// CHECK-NEXT:       for 2 by units along [(0, 32)] {
// CHECK-NEXT:         %0 = load {input = 3, box = [256 by 256 at 0, 256 by 1 at 1]} : f16 over [0, 1] as [0, 1] tile [(0, 32), (1, 128)]
// CHECK-NEXT:         %1 = apply(%0) {of = "exp"} : f16 over [0, 1] as [0, 1] tile [(0, 32), (1, 128)]
// CHECK-NEXT:         store(%1) {output = 0, box = [256 by 256 at 0, 256 by 1 at 1], element = f16} over [0, 1] tile [(0, 32), (1, 128)]
// CHECK-NEXT:       }
// CHECK-NEXT:     }
// CHECK-NEXT:   }
// CHECK-NEXT: }

// FREE: error: nests: 'graph.fusion' ({{.*}}) has no complete schedule: run graph-schedule before
