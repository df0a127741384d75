// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule' -t stages | filecheck %s

// What kernels that move by index, sort or run along an axis do with a tile.
func.func @main(%x: tensor<64x512xf16>, %i: tensor<i32>, %t: tensor<101x37xf16>, %j: tensor<53x1xi32>, %k: tensor<53xi32>)
  -> (tensor<8x512xf16>, tensor<53x37xf16>, tensor<64x512xf16>, tensor<64x512xf16>, tensor<101x37xf16>, tensor<56x512xf16>) {
  %s = graph.dynamic_slice %x, %i, %i {sizes = [8, 512]}
    : (tensor<64x512xf16>, tensor<i32>, tensor<i32>) -> tensor<8x512xf16>
  %g = graph.gather %t, %j {index_dim = 1, offset_dims = [1], collapsed_dims = [0], x_batch = [], indices_batch = [],
      start_map = [0], slice_sizes = [1, 37]} : (tensor<101x37xf16>, tensor<53x1xi32>) -> tensor<53x37xf16>
  %o = graph.sort %x {dim = 1, keys = [0], descending = [0], total = [1]} : tensor<64x512xf16>
  %c = graph.cumulate %x {dim = 1, kind = "sum", reverse = 1} : tensor<64x512xf16>
  %a = graph.scatter %t, %k, %g {kind = "sum"} : (tensor<101x37xf16>, tensor<53xi32>, tensor<53x37xf16>) -> tensor<101x37xf16>
  %w = graph.reduce_window %x {dilation = [1, 1], high = [0, 2], kind = "max", low = [0, 2], strides = [1, 1], window = [9, 5]}
    : (tensor<64x512xf16>) -> tensor<56x512xf16>
  func.return %s, %g, %o, %c, %a, %w
    : tensor<8x512xf16>, tensor<53x37xf16>, tensor<64x512xf16>, tensor<64x512xf16>, tensor<101x37xf16>, tensor<56x512xf16>
}

// CHECK:      // 'graph.fusion' ({{.*}}): slice
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   %0 = scalar {input = 1, low = 0, high = 56} : i32
// CHECK-NEXT:   %1 = load(%0) {input = 0, box = [64 by 512 at 0 plus 0, 512 by 1 at 1]} : f16 over [0, 1]
// CHECK-NEXT:   store(%1) {output = 0, box = [8 by 512 at 0, 512 by 1 at 1], element = f16} over [0, 1]
// CHECK-NEXT: }
// CHECK:      // 'graph.fusion' ({{.*}}): gather
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   %0 = load {input = 1, box = [53 by 1 at 0]} : i32 over [0] as [0]
// CHECK-NEXT:   %1 = fill {value = 0} : i32 as [0]
// CHECK-NEXT:   %2 = apply(%0, %1) {of = "max"} : i32 over [0] as [0]
// CHECK-NEXT:   %3 = fill {value = 100} : i32 as [0]
// CHECK-NEXT:   %4 = apply(%2, %3) {of = "min"} : i32 over [0] as [0]
// CHECK-NEXT:   %5 = fill {value = 37} : i32 as [0]
// CHECK-NEXT:   %6 = apply(%4, %5) {of = "mul"} : i32 over [0] as [0]
// CHECK-NEXT:   %7 = count(%6) {places = [(1, 1)]} : i32 over [0] as [0]
// CHECK-NEXT:   %8 = load_indirect(%7) {input = 0, box = [37 by 1 at 1]} : f16 over [0, 1] as [0, 1]
// CHECK-NEXT:   store(%8) {output = 0, box = [53 by 37 at 0, 37 by 1 at 1], element = f16} over [0, 1]
// CHECK-NEXT: }
// CHECK:      // 'graph.fusion' ({{.*}}): sort
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   axis 2 {what = "kept", least = 512}
// CHECK-NEXT:   axis 3 {what = "worked in", least = 2048}
// CHECK-NEXT:   %0 = load {input = 0, box = [64 by 512 at 0, 512 by 1 at 1]} : f16 over [0, 1] as [0, 1]
// CHECK-NEXT:   %1 = sort(%0) {keys = [0], descending = [0], total = [1], work = 3} : f16 over [0, 2] as [0, 2]
// CHECK-NEXT:   store(%1) {output = 0, box = [64 by 512 at 0, 512 by 1 at 2], element = f16} over [0, 2]
// CHECK-NEXT: }
// CHECK:      // 'graph.fusion' ({{.*}}): cumulate
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   %0 = load {input = 0, box = [64 by 512 at 0, 512 by 1 at 1, 1 by 1 at 2], fill = 0} : f16 over [0, 1, 2] as [0, 1]
// CHECK-NEXT:   %1 = apply(%0) {of = "convert"} : f32 over [0, 1, 2] as [0, 1]
// CHECK-NEXT:   %2 = cumulate(%1) {by = "sum", axis = 1, neutral = 0, reverse = true} : f32 over [0, 1, 2] as [0, 1]
// CHECK-NEXT:   %3 = apply(%2) {of = "convert"} : f16 over [0, 1, 2] as [0, 1]
// CHECK-NEXT:   store(%3) {output = 0, box = [64 by 512 at 0, 512 by 1 at 1, 1 by 1 at 2], element = f16} over [0, 1, 2]
// CHECK-NEXT: }
// CHECK:      // 'graph.fusion' ({{.*}}): reduce_window
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   axis 2 {what = "border", least = 9, of = 0}
// CHECK-NEXT:   axis 3 {what = "border", least = 5, of = 1, start = -2}
// CHECK-NEXT:   axis 4 {what = "place in the window"}
// CHECK-NEXT:   axis 5 {what = "place in the window"}
// CHECK-NEXT:   %0 = load {input = 0, box = [64 by 512 at 2, 512 by 1 at 3], fill = 0xFFF0000000000000} : f16 over [2, 3] as [2, 3]
// CHECK-NEXT:   %1 = fill {value = 0xFFF0000000000000} : f16 over [0, 1] as [0, 1]
// CHECK-NEXT:   %2 = extract(%0) {taken = [(0, 0, 1), (1, 0, 1)], moved = [(0, 4, 1), (1, 5, 1)]} : f16 over [0, 1] as [0, 1]
// CHECK-NEXT:   %3 = accumulate(%1, %2) {by = "max", axes = [(4, 9), (5, 5)]} : f16 over [0, 1] as [0, 1]
// CHECK-NEXT:   store(%3) {output = 0, box = [56 by 512 at 0, 512 by 1 at 1], element = f16} over [0, 1]
// CHECK-NEXT: }
// CHECK:      // 'graph.fusion' ({{.*}}): scatter
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK-NEXT:   %0 = load {input = 0, box = [101 by 37 at 0, 37 by 1 at 1]} : f16 over [0, 1] as [0, 1]
// CHECK-NEXT:   %1 = load {input = 1, box = [53 by 1 at 2], fill = -1} : i32 over [2] as [2]
// CHECK-NEXT:   %2 = load {input = 2, box = [53 by 37 at 2, 37 by 1 at 1]} : f16 over [1, 2] as [2, 1]
// CHECK-NEXT:   %3 = scatter(%0, %1, %2) {by = "sum", rows = 0, updates = 2, extent = 53} : f16 over [0, 1] as [0, 1]
// CHECK-NEXT:   store(%3) {output = 0, box = [101 by 37 at 0, 37 by 1 at 1], element = f16} over [0, 1]
// CHECK-NEXT: }
