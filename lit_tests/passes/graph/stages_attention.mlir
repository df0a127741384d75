// RUN: tilewright-opt %s -p graph-schedule -t stages | filecheck %s

// Attention is stages from end to end: products, the softmax with what it carries over the keys, and what is handed over
// through workspaces (input 4 is that of scores, 5 of weights, 6 of parts of the result).
builtin.module attributes {tilewright.target = "ascend-910b1"} {
  func.func @main(%q: tensor<2x32x16xf16>, %k: tensor<2x64x16xf16>, %v: tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    %o = graph.fusion %q, %k, %v {domain = [2, 32, 64, 16], kind = "mix", schedule = #graph.attention_schedule<rows = 32, keys = 32, places = 2>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16> {
    ^bb0(%0: tensor<2x32x16xf16>, %1: tensor<2x64x16xf16>, %2: tensor<2x64x16xf16>):
      %s = graph.contract %0, %1 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x16xf16>, tensor<2x64x16xf16>) -> tensor<2x32x64xf32>
      %c = graph.constant {value = #graph.data<f32, [], (0.25)>} : () -> tensor<f32>
      %cs = graph.broadcast %c {dims = []} : (tensor<f32>) -> tensor<2x32x64xf32>
      %x = graph.mul %s, %cs attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %m = graph.reduce %x {dims = [2], kind = "max"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %d = graph.sub %x, %mb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %e = graph.exp %d attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %l = graph.reduce %e {dims = [2], kind = "sum"} attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32xf32>
      %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
      %p = graph.div %e, %lb attributes {axes = array<i64: 0, 1, 2>} : tensor<2x32x64xf32>
      %w = graph.convert %p attributes {axes = array<i64: 0, 1, 2>} : (tensor<2x32x64xf32>) -> tensor<2x32x64xf16>
      %o_1 = graph.contract %w, %2 {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} attributes {axes = array<i64: 0, 1, 3>} : (tensor<2x32x64xf16>, tensor<2x64x16xf16>) -> tensor<2x32x16xf16>
      graph.yield %o_1 : (tensor<2x32x16xf16>)
    }
    func.return %o : tensor<2x32x16xf16>
  }
}
// CHECK:      // 'graph.fusion' ({{.*}}): attention
// CHECK-NEXT: // {{[0-9a-f]{16}$}}
// CHECK-NEXT: stages {
// CHECK:        axis 4 {what = "core", of = 0, step = 0}
// CHECK:        axis 6 {what = "line of scores", least = 32, of = 2, step = 0}
// CHECK:        axis 11 {what = "summed up"}
// CHECK:        %1 = load_l1 {input = 0, box = [dim {extent = 2, stride = 512, along = [(0, 1)]}, dim {extent = 32, stride = 16, along = [(1, 1)]}, dim {extent = 16, stride = 1, along = [(11, 1)]}]} : f16 over [0, 1, 11]
// CHECK:        %2 = fill {value = 0.0} : f16 over [1, 2] as [0, 2, 1]
// CHECK:        store(%2) {output = 2, box = [2 by 2048 at 4, 2 by 1024 at 5, 32 by 32 at 6, 32 by 1 at 10], element = f16} over [4, 5, 6, 10]
// CHECK:        %15 = multiply(%13, %14, %12) {rows = [2], columns = [1], summed = [11]} : f32 over [1, 2]
// CHECK:        store_sums(%15) {output = 1, box = [2 by 2048 at 4, 2 by 1024 at 5, 32 by 16 at 6, 2 by 512 at 8, 16 by 1 at 9]} over [4, 5, 6, 8, 9]
// CHECK:        %18 = load_handed {input = 5, box = [2 by 2048 at 4, 2 by 1024 at 5, 32 by 32 at 6, 32 by 1 at 10], as_dims = [6, 10]} : f16 over [4, 5, 6, 10]
// CHECK:        %22 = multiply(%20, %21, %19) {rows = [3], columns = [1], summed = [2]} : f32 over [1, 3]
// CHECK:        %24 = load {input = 4, box = [2 by 2048 at 4, 2 by 1024 at 5, 2 by 512 at 8, 32 by 16 at 6, 16 by 1 at 9]} : f32 over [1, 2] as [0, 2, 1]
// CHECK:        %26 = reduce(%25) {by = "max", axes = [(2, 32)]} : f32 over [1] as [0, 2, 1]
// CHECK:        %29 = apply(%25, %27) {of = "sub", over = true} : f32 over [0, 1, 2] as [0, 2, 1]
// CHECK:        %30 = apply(%29) {of = "exp", over = true} : f32 over [0, 1, 2] as [0, 2, 1]
// CHECK:        store(%31) {output = 2, box = [2 by 2048 at 4, 2 by 1024 at 5, 32 by 32 at 6, 32 by 1 at 10], element = f16} over [4, 5, 6, 10]
// CHECK:        %37 = apply(%10, %7) {of = "mul", over = true} : f32 over [1, 3] as [0, 3, 1]
// CHECK:        %39 = apply(%37, %38) {of = "add"} : f32 over [1, 3] as [0, 3, 1]
// CHECK:        %41 = apply(%4, %26) {of = "max"} : f32 over [1] as [0, 2, 1]
// CHECK:        %57 = apply(%55, %51) {of = "div"} : f32 over [1, 3] as [0, 3, 1]
// CHECK:        %58 = apply(%57) {of = "convert"} : f16 over [1, 3] as [0, 3, 1]
// CHECK:        store(%59) {output = 0, box = [2 by 512 at 0, 32 by 16 at 1, 16 by 1 at 3], element = f16} over [0, 1, 3]
// CHECK-NOT:  not of stages
