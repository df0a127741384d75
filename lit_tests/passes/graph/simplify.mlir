// RUN: tilewright-opt %s -p graph-simplify --split-input-file | filecheck %s

// An op that nobody uses goes; one whose result has no elements becomes a constant.
func.func @main(%x: tensor<0x4xf32>, %y: tensor<4xf32>) -> (tensor<0x4xf32>, tensor<4xf32>) {
  %dead = graph.exp %y : tensor<4xf32>
  %e = graph.exp %x : tensor<0x4xf32>
  %sum = graph.reduce %x {dims = [0], kind = "sum"} : (tensor<0x4xf32>) -> tensor<4xf32>
  func.return %e, %sum : tensor<0x4xf32>, tensor<4xf32>
}
// CHECK: func.func @main
// CHECK-NOT: graph.exp
// CHECK: graph.constant {value = #graph.data<f32, [0, 4], {{.*}}>} : () -> tensor<0x4xf32>
// CHECK-NEXT: graph.constant {value = #graph.data<f32, [4], splat 0.0>} : () -> tensor<4xf32>
// CHECK-NEXT: func.return

// -----

// Two broadcasts are one, and one that changes nothing is none.
func.func @main(%x: tensor<8xf32>, %y: tensor<4x8xf32>) -> (tensor<2x4x8xf32>, tensor<4x8xf32>) {
  %row = graph.broadcast %x {dims = [1]} : (tensor<8xf32>) -> tensor<1x8xf32>
  %all = graph.broadcast %row {dims = [1, 2]} : (tensor<1x8xf32>) -> tensor<2x4x8xf32>
  %same = graph.broadcast %y {dims = [0, 1]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %all, %same : tensor<2x4x8xf32>, tensor<4x8xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[ALL:.*]] = graph.broadcast %x {dims = [2]} : (tensor<8xf32>) -> tensor<2x4x8xf32>
// CHECK-NEXT: func.return %[[ALL]], %y

// -----

// Interior padding becomes a strided update of a filled tensor.
func.func @main(%x: tensor<4xf32>) -> tensor<9xf32> {
  %z = graph.constant {value = #graph.data<f32, [], (0.0)>} : () -> tensor<f32>
  %p = graph.pad %x, %z {high = [1], interior = [1], low = [1]} : (tensor<4xf32>, tensor<f32>) -> tensor<9xf32>
  func.return %p : tensor<9xf32>
}
// CHECK: func.func @main
// CHECK: %[[F:.*]] = graph.constant {value = #graph.data<f32, [9], splat 0.0>}
// CHECK: %[[AT:.*]] = graph.constant {value = #graph.data<i32, [], (1)>}
// CHECK: graph.dynamic_update_slice %[[F]], %x, %[[AT]] {strides = [2]} : {{.*}} -> tensor<9xf32>

// -----

// Padding by zeros at the edges stays: loads fill.
func.func @main(%x: tensor<4xf32>) -> tensor<6xf32> {
  %z = graph.constant {value = #graph.data<f32, [], (0.0)>} : () -> tensor<f32>
  %p = graph.pad %x, %z {high = [1], interior = [0], low = [1]} : (tensor<4xf32>, tensor<f32>) -> tensor<6xf32>
  func.return %p : tensor<6xf32>
}
// CHECK: func.func @main
// CHECK: graph.pad %x, %{{.*}} {high = [1], interior = [0], low = [1]}

// -----

// The input dilation of a convolution (of a transposed one) becomes an interior pad, and that a strided update.
func.func @main(%x: tensor<1x4x4x16xf16>, %k: tensor<3x3x16x16xf16>) -> tensor<1x7x7x16xf16> {
  %y = graph.conv %x, %k {groups = 1, high = [1, 1], lhs_dilation = [2, 2], lhs_layout = [0, 3, 1, 2], low = [1, 1], out_layout = [0, 3, 1, 2], rhs_dilation = [1, 1], rhs_layout = [2, 3, 0, 1], strides = [1, 1]} : (tensor<1x4x4x16xf16>, tensor<3x3x16x16xf16>) -> tensor<1x7x7x16xf16>
  func.return %y : tensor<1x7x7x16xf16>
}
// CHECK: func.func @main
// CHECK: %[[U:.*]] = graph.dynamic_update_slice %{{.*}}, %x{{.*}} {strides = [1, 2, 2, 1]} : {{.*}} -> tensor<1x7x7x16xf16>
// CHECK: graph.conv %[[U]], %k {{.*}}lhs_dilation = [1, 1]{{.*}}low = [1, 1]

// -----

// Operands of different types are converted to the wider one.
func.func @main(%x: tensor<8x16xf16>, %w: tensor<16x8xf32>) -> tensor<8x8xf32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x16xf16>, tensor<16x8xf32>) -> tensor<8x8xf32>
  func.return %y : tensor<8x8xf32>
}
// CHECK: func.func @main
// CHECK: %[[C:.*]] = graph.convert %x : (tensor<8x16xf16>) -> tensor<8x16xf32>
// CHECK: graph.contract %[[C]], %w

// -----

// The cube has no i32: multiply and add on the vector cores.
func.func @main(%x: tensor<8x16xi32>, %w: tensor<16x4xi32>) -> tensor<8x4xi32> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<8x16xi32>, tensor<16x4xi32>) -> tensor<8x4xi32>
  func.return %y : tensor<8x4xi32>
}
// CHECK: func.func @main
// CHECK-NOT: graph.contract
// CHECK: %[[A:.*]] = graph.broadcast {{.*}} -> tensor<8x4x16xi32>
// CHECK: %[[B:.*]] = graph.broadcast {{.*}} -> tensor<8x4x16xi32>
// CHECK: %[[P:.*]] = graph.mul %[[A]], %[[B]]
// CHECK: graph.reduce %[[P]] {dims = [2], kind = "sum"} : (tensor<8x4x16xi32>) -> tensor<8x4xi32>

// -----

// Very many elements to few: a partial result for each core first.
func.func @main(%x: tensor<1048576xf32>) -> tensor<f32> {
  %y = graph.reduce %x {dims = [0], kind = "sum"} : (tensor<1048576xf32>) -> tensor<f32>
  func.return %y : tensor<f32>
}
// CHECK: func.func @main
// CHECK: graph.reshape %x : (tensor<1048576xf32>) -> tensor<[[N:.*]]x{{.*}}xf32>
// CHECK: graph.reduce {{.*}} -> tensor<[[N]]xf32>
// CHECK: graph.reduce {{.*}} -> tensor<f32>

// -----

// So are columns side by side: the rows over all cores, what is left of a prime number of them by itself.
func.func @main(%x: tensor<6011x40xf32>) -> tensor<40xf32> {
  %y = graph.reduce %x {dims = [0], kind = "max"} : (tensor<6011x40xf32>) -> tensor<40xf32>
  func.return %y : tensor<40xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: [[A:%.+]] = graph.slice %x {limits = [6000, 40], {{.*}} : (tensor<6011x40xf32>) -> tensor<6000x40xf32>
// CHECK-NEXT: [[B:%.+]] = graph.reshape [[A]] : (tensor<6000x40xf32>) -> tensor<48x125x40xf32>
// CHECK-NEXT: [[C:%.+]] = graph.reduce [[B]] {dims = [1], kind = "max"} : (tensor<48x125x40xf32>) -> tensor<48x40xf32>
// CHECK-NEXT: [[D:%.+]] = graph.reduce [[C]] {dims = [0], kind = "max"} : (tensor<48x40xf32>) -> tensor<40xf32>
// CHECK-NEXT: [[E:%.+]] = graph.slice %x {{.*}} starts = [6000, 0], {{.*}} -> tensor<11x40xf32>
// CHECK-NEXT: [[F:%.+]] = graph.reduce [[E]] {dims = [0], kind = "max"} : (tensor<11x40xf32>) -> tensor<40xf32>
// CHECK-NEXT: graph.max [[D]], [[F]]

// -----

// A dimension of as many rows as there are parts: one row each.
func.func @main(%x: tensor<32x32x32x64xf32>) -> tensor<64xf32> {
  %r = graph.reduce %x {dims = [0, 1, 2], kind = "sum"} : (tensor<32x32x32x64xf32>) -> tensor<64xf32>
  func.return %r : tensor<64xf32>
}
// CHECK: func.func @main
// CHECK: graph.reduce {{.*}} {dims = [1, 2, 3], kind = "sum"} : (tensor<32x1x32x32x64xf32>) -> tensor<32x64xf32>
// CHECK-NEXT: graph.reduce {{.*}} {dims = [0], kind = "sum"} : (tensor<32x64xf32>) -> tensor<64xf32>

// -----

// Many updates of few rows: each core has a copy of the rows for its part of the updates.
func.func @main(%x: tensor<32x4xf32>, %i: tensor<4800xi32>, %u: tensor<4800x4xf32>) -> tensor<32x4xf32> {
  %y = graph.scatter %x, %i, %u {kind = "sum"} : (tensor<32x4xf32>, tensor<4800xi32>, tensor<4800x4xf32>) -> tensor<32x4xf32>
  func.return %y : tensor<32x4xf32>
}
// CHECK: func.func @main
// CHECK: [[P:%.+]] = graph.iota {dim = 0} : () -> tensor<48xi32>
// CHECK: [[F:%.+]] = graph.mul [[P]], {{.+}} : tensor<48xi32>
// CHECK: graph.broadcast [[F]] {dims = [0]} : (tensor<48xi32>) -> tensor<48x100xi32>
// CHECK: [[S:%.+]] = graph.scatter {{.*}}, %u {groups = 48, kind = "sum"} : (tensor<1536x4xf32>, tensor<4800xi32>, tensor<4800x4xf32>) -> tensor<1536x4xf32>
// CHECK-NEXT: [[P:%.+]] = graph.reshape [[S]] : (tensor<1536x4xf32>) -> tensor<48x32x4xf32>
// CHECK-NEXT: [[R:%.+]] = graph.reduce [[P]] {dims = [0], kind = "sum"}
// CHECK-NEXT: graph.add %x, [[R]]

// -----

// Few enough rows to stay on chip whole, and enough results for all cores.
func.func @main(%x: tensor<512x512xf32>, %y: tensor<2000x5000xf32>) -> (tensor<512xf32>, tensor<5000xf32>) {
  %r = graph.reduce %x {dims = [0], kind = "sum"} : (tensor<512x512xf32>) -> tensor<512xf32>
  %s = graph.reduce %y {dims = [0], kind = "sum"} : (tensor<2000x5000xf32>) -> tensor<5000xf32>
  func.return %r, %s : tensor<512xf32>, tensor<5000xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: graph.reduce %x
// CHECK-NEXT: graph.reduce %y
// CHECK-NEXT: func.return

// -----

// A depthwise convolution has nothing to contract: a slice times weights for each window position, two outputs each.
func.func @main(%x: tensor<1x6x4xf16>, %w: tensor<2x1x8xf16>) -> tensor<1x3x8xf16> {
  %y = graph.conv %x, %w {groups = 4, low = [0], high = [1], strides = [2], lhs_dilation = [1], rhs_dilation = [2], lhs_layout = [0, 2, 1], rhs_layout = [1, 2, 0], out_layout = [0, 2, 1]} : (tensor<1x6x4xf16>, tensor<2x1x8xf16>) -> tensor<1x3x8xf16>
  func.return %y : tensor<1x3x8xf16>
}
// CHECK: func.func @main
// CHECK-NOT: graph.conv{{ }}
// CHECK: %[[PAD:.*]] = graph.pad %x
// CHECK: graph.slice %[[PAD]] {limits = [1, 5, 4], starts = [0, 0, 0], strides = [1, 2, 1]}
// CHECK: graph.mul {{.*}} : tensor<1x3x4x2xf32>
// CHECK: graph.slice %[[PAD]] {limits = [1, 7, 4], starts = [0, 2, 0], strides = [1, 2, 1]}
// CHECK: graph.slice %w {limits = [2, 1, 8], starts = [1, 0, 0], strides = [1, 1, 1]}
// CHECK: %[[SUM:.*]] = graph.add {{.*}} : tensor<1x3x4x2xf32>
// CHECK: %[[F16:.*]] = graph.convert %[[SUM]]
// CHECK: graph.reshape %[[F16]] : {{.*}} -> tensor<1x3x8xf16>

// -----

// A window that does not fit ub: the dimension with one place is reduced; then 1, 2, 4 and 8 neighbours make 11.
func.func @main(%x: tensor<100000x20xf32>) -> tensor<1x10xf32> {
  %y = graph.reduce_window %x {dilation = [1, 1], high = [0, 0], kind = "max", low = [0, 0], strides = [1, 1], window = [100000, 11]} : (tensor<100000x20xf32>) -> tensor<1x10xf32>
  func.return %y : tensor<1x10xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: [[P:%.+]] = graph.reshape %x : (tensor<100000x20xf32>) -> tensor<40x2500x20xf32>
// CHECK-NEXT: [[Q:%.+]] = graph.reduce [[P]] {dims = [1], kind = "max"}
// CHECK-NEXT: [[R:%.+]] = graph.reduce [[Q]] {dims = [0], kind = "max"} : (tensor<40x20xf32>) -> tensor<20xf32>
// CHECK-NEXT: [[ONE:%.+]] = graph.reshape [[R]] : (tensor<20xf32>) -> tensor<1x20xf32>
// CHECK-NEXT: [[A:%.+]] = graph.slice [[ONE]] {limits = [1, 10], starts = [0, 0], strides = [1, 1]}
// CHECK: graph.max {{.*}} : tensor<1x19xf32>
// CHECK: graph.max {{.*}} : tensor<1x10xf32>
// CHECK: graph.max {{.*}} : tensor<1x17xf32>
// CHECK: graph.max {{.*}} : tensor<1x13xf32>
// CHECK: graph.max {{.*}} : tensor<1x10xf32>
// CHECK-NEXT: func.return

// -----

// Rows too long for ub, of which few are kept: the first of each part, then of those.
func.func @main(%x: tensor<1x50001xf32>) -> tensor<1x4xf32> {
  %y = graph.sort %x {descending = [1], dim = 1, keep = 4, keys = [0], total = [1]} : (tensor<1x50001xf32>) -> tensor<1x4xf32>
  func.return %y : tensor<1x4xf32>
}
// CHECK: graph.sort {{.*}} {descending = [1], dim = 2, keep = 4, keys = [0], total = [1]}
// CHECK: graph.concat
// CHECK: graph.sort {{.*}} {descending = [1], dim = 1, keep = 4, keys = [0], total = [1]}

// -----

// All of them: the host sorts. Along another dimension: between transposes.
func.func @main(%x: tensor<50000x1xf32>, %z: tensor<30x7xf32>) -> (tensor<50000x1xf32>, tensor<30x7xf32>) {
  %y = graph.sort %x {descending = [0], dim = 0, keys = [0], total = [0]} : tensor<50000x1xf32>
  %w = graph.sort %z {descending = [0], dim = 0, keys = [0], total = [0]} : tensor<30x7xf32>
  func.return %y, %w : tensor<50000x1xf32>, tensor<30x7xf32>
}
// CHECK: graph.host {{.*}}stablehlo.sort
// CHECK: graph.transpose %z {perm = [1, 0]}
// CHECK: graph.sort %{{.*}} {descending = [0], dim = 1, {{.*}}} : tensor<7x30xf32>
// CHECK: graph.transpose

// -----

// A window over all that is before each element is a cumulative reduction, however long.
func.func @main(%x: tensor<4x90000xf32>) -> tensor<4x90000xf32> {
  %y = graph.reduce_window %x {dilation = [1, 1], high = [0, 0], kind = "sum", low = [0, 89999], strides = [1, 1], window = [1, 90000]} : tensor<4x90000xf32>
  func.return %y : tensor<4x90000xf32>
}
// CHECK: graph.cumulate %x {dim = 1, kind = "sum", reverse = 0} : tensor<4x90000xf32>

// -----

// A product that is only wanted with a row dimension last swaps its operands: its rows are then runs in memory.
func.func @main(%k: tensor<4x512x64xf16>, %q: tensor<4x128x2x64xf16>) -> tensor<4x2x128x512xf16> {
  %s = graph.contract %k, %q {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [3]} : (tensor<4x512x64xf16>, tensor<4x128x2x64xf16>) -> tensor<4x512x128x2xf16>
  %t = graph.transpose %s {perm = [0, 3, 2, 1]} : (tensor<4x512x128x2xf16>) -> tensor<4x2x128x512xf16>
  func.return %t : tensor<4x2x128x512xf16>
}
// CHECK: func.func @main
// CHECK: %[[S:.*]] = graph.contract %q, %k {lhs_batch = [0], lhs_contract = [3], rhs_batch = [0], rhs_contract = [2]} : {{.*}} -> tensor<4x128x2x512xf16>
// CHECK: graph.transpose %[[S]] {perm = [0, 2, 1, 3]} : {{.*}} -> tensor<4x2x128x512xf16>

// -----

// The whole transpose goes where nothing else moves.
func.func @main(%a: tensor<3x5xf32>, %b: tensor<5x7xf32>) -> tensor<7x3xf32> {
  %s = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<3x5xf32>, tensor<5x7xf32>) -> tensor<3x7xf32>
  %t = graph.transpose %s {perm = [1, 0]} : (tensor<3x7xf32>) -> tensor<7x3xf32>
  func.return %t : tensor<7x3xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[S:.*]] = graph.contract %b, %a {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [1]}
// CHECK-NEXT: func.return %[[S]]

// -----

// A product that is also used as it is stays.
func.func @main(%a: tensor<3x5xf32>, %b: tensor<5x7xf32>) -> (tensor<7x3xf32>, tensor<3x7xf32>) {
  %s = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<3x5xf32>, tensor<5x7xf32>) -> tensor<3x7xf32>
  %t = graph.transpose %s {perm = [1, 0]} : (tensor<3x7xf32>) -> tensor<7x3xf32>
  func.return %t, %s : tensor<7x3xf32>, tensor<3x7xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: graph.contract %a, %b

// -----

// A convolution whose window fills the input is a product over the window and the features of a group.
func.func @main(%x: tensor<2x6x5x4xf16>, %w: tensor<5x4x3x8xf16>) -> tensor<2x1x1x8xf16> {
  %y = graph.conv %x, %w {groups = 2, low = [0, 0], high = [0, 0], strides = [1, 1], lhs_dilation = [1, 1], rhs_dilation = [1, 1], lhs_layout = [0, 1, 2, 3], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2]} : (tensor<2x6x5x4xf16>, tensor<5x4x3x8xf16>) -> tensor<2x1x1x8xf16>
  func.return %y : tensor<2x1x1x8xf16>
}
// CHECK: %[[A:.*]] = graph.reshape %x : (tensor<2x6x5x4xf16>) -> tensor<2x2x3x5x4xf16>
// CHECK-NEXT: %[[B:.*]] = graph.reshape %w : (tensor<5x4x3x8xf16>) -> tensor<5x4x3x2x4xf16>
// CHECK-NEXT: %[[P:.*]] = graph.contract %[[A]], %[[B]] {lhs_batch = [1], lhs_contract = [2, 3, 4], rhs_batch = [3], rhs_contract = [2, 0, 1]}
// CHECK-SAME: -> tensor<2x2x4xf16>

// -----

// A convolution without a cube: place by place of the result where those are fewer than the window's positions.
func.func @main(%x: tensor<2x3x3x4xi32>, %k: tensor<5x3x2x3xi32>) -> tensor<2x5x2x2xi32> {
  %y = graph.conv %x, %k {groups = 1, high = [0, 0], lhs_dilation = [1, 1], lhs_layout = [0, 1, 2, 3], low = [0, 0], out_layout = [0, 1, 2, 3], rhs_dilation = [1, 1], rhs_layout = [1, 0, 2, 3], strides = [1, 1]} : (tensor<2x3x3x4xi32>, tensor<5x3x2x3xi32>) -> tensor<2x5x2x2xi32>
  func.return %y : tensor<2x5x2x2xi32>
}
// CHECK: func.func @main
// CHECK: graph.slice %x {limits = [2, 3, 2, 3], starts = [0, 0, 0, 0], strides = [1, 1, 1, 1]}
// CHECK: graph.reduce {{.*}} {dims = [3, 4, 5], kind = "sum"}
// CHECK: graph.slice %x {limits = [2, 3, 2, 4], starts = [0, 0, 0, 1], strides = [1, 1, 1, 1]}
// CHECK: graph.reduce {{.*}} {dims = [3, 4, 5], kind = "sum"}
// CHECK: graph.concat {{.*}} {dim = 0}
// CHECK-NOT: graph.conv

// -----

// Windows that do not overlap are cut out of the input and contracted at once; here only along the second dimension.
func.func @main(%x: tensor<2x3x5x8xi32>, %k: tensor<5x3x2x3xi32>) -> tensor<2x5x4x2xi32> {
  %y = graph.conv %x, %k {groups = 1, high = [0, 0], lhs_dilation = [1, 1], lhs_layout = [0, 1, 2, 3], low = [0, 0], out_layout = [0, 1, 2, 3], rhs_dilation = [1, 1], rhs_layout = [1, 0, 2, 3], strides = [1, 4]} : (tensor<2x3x5x8xi32>, tensor<5x3x2x3xi32>) -> tensor<2x5x4x2xi32>
  func.return %y : tensor<2x5x4x2xi32>
}
// CHECK: func.func @main
// CHECK: %[[R:.*]] = graph.reshape %x : (tensor<2x3x5x8xi32>) -> tensor<2x3x5x2x4xi32>
// CHECK-NEXT: %[[W:.*]] = graph.slice %[[R]] {limits = [2, 3, 5, 2, 3]
// CHECK: graph.slice {{.*}} {limits = [2, 3, 4, 2, 3], starts = [0, 0, 0, 0, 0]
// CHECK: %[[A:.*]] = graph.reduce {{.*}} {dims = [5, 6], kind = "sum"}
// CHECK: graph.slice {{.*}} {limits = [2, 3, 5, 2, 3], starts = [0, 0, 1, 0, 0]
// CHECK: %[[B:.*]] = graph.reduce {{.*}} {dims = [5, 6], kind = "sum"}
// CHECK: graph.add %[[A]], %[[B]]
// CHECK-NOT: graph.slice
// CHECK-NOT: graph.conv

// -----

// No elements to reduce, contract, pad or put somewhere.
func.func @main(%x: tensor<0x4xf32>, %w: tensor<4x0xf32>, %y: tensor<4xf32>, %v: tensor<f32>, %u: tensor<0xf32>, %i: tensor<i32>) -> (tensor<4xf32>, tensor<4x4xf32>, tensor<3xf32>, tensor<4xf32>) {
  %a = graph.reduce %x {dims = [0], kind = "max"} : (tensor<0x4xf32>) -> tensor<4xf32>
  %b = graph.contract %w, %x {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x0xf32>, tensor<0x4xf32>) -> tensor<4x4xf32>
  %c = graph.pad %u, %v {high = [1], interior = [0], low = [2]} : (tensor<0xf32>, tensor<f32>) -> tensor<3xf32>
  %d = graph.dynamic_update_slice %y, %u, %i : (tensor<4xf32>, tensor<0xf32>, tensor<i32>) -> tensor<4xf32>
  func.return %a, %b, %c, %d : tensor<4xf32>, tensor<4x4xf32>, tensor<3xf32>, tensor<4xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: graph.constant {value = #graph.data<f32, [4], "AACA/w==" splat>} : () -> tensor<4xf32>
// CHECK-NEXT: graph.constant {value = #graph.data<f32, [4, 4], splat 0.0>} : () -> tensor<4x4xf32>
// CHECK-NEXT: %[[C:.*]] = graph.broadcast %v {dims = []} : (tensor<f32>) -> tensor<3xf32>
// CHECK-NEXT: func.return %{{.*}}, %{{.*}}, %[[C]], %y

// -----

// Equal ops become one.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = graph.exp %x : tensor<4xf32>
  %b = graph.exp %x : tensor<4xf32>
  %d = graph.add %a, %b : tensor<4xf32>
  func.return %d : tensor<4xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[A:.*]] = graph.exp %x : tensor<4xf32>
// CHECK-NEXT: %[[D:.*]] = graph.add %[[A]], %[[A]]
// CHECK-NEXT: func.return %[[D]]

// -----

// A convolution of two types, whose padding crops: both in the wider type, of a slice.
func.func @main(%x: tensor<1x6x16xf16>, %w: tensor<3x16x16xf32>) -> tensor<1x3x16xf32> {
  %y = graph.conv %x, %w {groups = 1, high = [-2], lhs_dilation = [1], lhs_layout = [0, 2, 1], low = [1], out_layout = [0, 2, 1], rhs_dilation = [1], rhs_layout = [1, 2, 0], strides = [1]} : (tensor<1x6x16xf16>, tensor<3x16x16xf32>) -> tensor<1x3x16xf32>
  func.return %y : tensor<1x3x16xf32>
}
// CHECK: func.func @main
// CHECK: %[[P:.*]] = graph.pad %x, %{{.*}} {high = [0, -2, 0], {{.*}}low = [0, 0, 0]} : {{.*}} -> tensor<1x4x16xf16>
// CHECK-NEXT: %[[C:.*]] = graph.convert %[[P]] : (tensor<1x4x16xf16>) -> tensor<1x4x16xf32>
// CHECK-NEXT: graph.conv %[[C]], %w {groups = 1, high = [0], {{.*}}low = [1]

// -----

// Where the window is a point in each dimension, there is nothing to sum but features: it stays.
func.func @main(%x: tensor<2x6x16xf16>, %w: tensor<1x16x8xf16>) -> tensor<2x6x8xf16> {
  %y = graph.conv %x, %w {groups = 1, high = [0], lhs_dilation = [1], lhs_layout = [0, 2, 1], low = [0], out_layout = [0, 2, 1], rhs_dilation = [1], rhs_layout = [1, 2, 0], strides = [1]} : (tensor<2x6x16xf16>, tensor<1x16x8xf16>) -> tensor<2x6x8xf16>
  func.return %y : tensor<2x6x8xf16>
}
// CHECK: func.func @main
// CHECK-NEXT: graph.conv %x, %w

// -----

// Without a cube for its type: a product for each position of the window.
func.func @main(%x: tensor<1x9x4xi32>, %w: tensor<2x4x3xi32>) -> tensor<1x8x3xi32> {
  %y = graph.conv %x, %w {groups = 1, high = [0], lhs_dilation = [1], lhs_layout = [0, 2, 1], low = [0], out_layout = [0, 2, 1], rhs_dilation = [1], rhs_layout = [1, 2, 0], strides = [1]} : (tensor<1x9x4xi32>, tensor<2x4x3xi32>) -> tensor<1x8x3xi32>
  func.return %y : tensor<1x8x3xi32>
}
// CHECK: func.func @main
// CHECK: graph.slice {{.*}} starts = [0, 0, 0]
// CHECK: %[[A:.*]] = graph.reduce %{{.*}} {dims = [4], kind = "sum"}
// CHECK-NEXT: graph.slice {{.*}} starts = [0, 0, 1]
// CHECK: %[[B:.*]] = graph.reduce %{{.*}} {dims = [4], kind = "sum"}
// CHECK-NEXT: graph.add %[[A]], %[[B]]
// CHECK-NOT: graph.conv{{ }}
// CHECK: func.return

// -----

// A short window over all that is behind each element is one, too.
func.func @main(%x: tensor<3x7xf32>) -> tensor<3x7xf32> {
  %y = graph.reduce_window %x {dilation = [1, 1], high = [0, 6], kind = "max", low = [0, 0], strides = [1, 1], window = [1, 7]} : tensor<3x7xf32>
  func.return %y : tensor<3x7xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: graph.cumulate %x {dim = 1, kind = "max", reverse = 1} : tensor<3x7xf32>

// -----

// A product that contracts nothing, here a mask of 12 heads, is a broadcast multiplication.
func.func @main(%mask: tensor<12xf16>, %x: tensor<1x12x16x16xf16>) -> tensor<12x1x16x16xf16> {
  %y = graph.contract %mask, %x {lhs_batch = [0], lhs_contract = [], rhs_batch = [1], rhs_contract = []} : (tensor<12xf16>, tensor<1x12x16x16xf16>) -> tensor<12x1x16x16xf16>
  func.return %y : tensor<12x1x16x16xf16>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[M:.*]] = graph.broadcast %mask {dims = [0]} : (tensor<12xf16>) -> tensor<12x1x16x16xf16>
// CHECK-NEXT: %[[X:.*]] = graph.transpose %x {perm = [1, 0, 2, 3]} : {{.*}} -> tensor<12x1x16x16xf16>
// CHECK-NEXT: %[[Y:.*]] = graph.mul %[[M]], %[[X]] : tensor<12x1x16x16xf16>
// CHECK-NEXT: func.return %[[Y]]

// -----

// The same of one contracted element; products of bytes are the result's integers, those of f16 kept in f32 are made there.
func.func @main(%a: tensor<4x1xi8>, %b: tensor<1x3xi8>, %c: tensor<4xf16>, %d: tensor<3xf16>) -> (tensor<4x3xi32>, tensor<4x3xf32>) {
  %p = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x1xi8>, tensor<1x3xi8>) -> tensor<4x3xi32>
  %q = graph.contract %c, %d {lhs_batch = [], lhs_contract = [], rhs_batch = [], rhs_contract = []} : (tensor<4xf16>, tensor<3xf16>) -> tensor<4x3xf32>
  func.return %p, %q : tensor<4x3xi32>, tensor<4x3xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[A:.*]] = graph.reshape %a : (tensor<4x1xi8>) -> tensor<4xi8>
// CHECK-NEXT: %[[AI:.*]] = graph.convert %[[A]] : (tensor<4xi8>) -> tensor<4xi32>
// CHECK-NEXT: %[[AB:.*]] = graph.broadcast %[[AI]] {dims = [0]} : (tensor<4xi32>) -> tensor<4x3xi32>
// CHECK: %[[P:.*]] = graph.mul %[[AB]], %{{.*}} : tensor<4x3xi32>
// CHECK: graph.convert %c : (tensor<4xf16>) -> tensor<4xf32>
// CHECK: %[[Q:.*]] = graph.mul %{{.*}}, %{{.*}} : tensor<4x3xf32>
// CHECK-NEXT: func.return %[[P]], %[[Q]]

// -----

// A narrower result: floats are multiplied in f32 and rounded then, integers wrap in the result's type.
func.func @main(%a: tensor<4xf32>, %b: tensor<3xf32>, %c: tensor<4xi32>, %d: tensor<3xi32>) -> (tensor<4x3xf16>, tensor<4x3xi8>) {
  %p = graph.contract %a, %b {lhs_batch = [], lhs_contract = [], rhs_batch = [], rhs_contract = []} : (tensor<4xf32>, tensor<3xf32>) -> tensor<4x3xf16>
  %q = graph.contract %c, %d {lhs_batch = [], lhs_contract = [], rhs_batch = [], rhs_contract = []} : (tensor<4xi32>, tensor<3xi32>) -> tensor<4x3xi8>
  func.return %p, %q : tensor<4x3xf16>, tensor<4x3xi8>
}
// CHECK: func.func @main
// CHECK: %[[M:.*]] = graph.mul %{{.*}}, %{{.*}} : tensor<4x3xf32>
// CHECK-NEXT: %[[P:.*]] = graph.convert %[[M]] : (tensor<4x3xf32>) -> tensor<4x3xf16>
// CHECK: %[[Q:.*]] = graph.mul %{{.*}}, %{{.*}} : tensor<4x3xi8>
// CHECK-NEXT: func.return %[[P]], %[[Q]]

// -----

// A transpose behind the mask is in how it is broadcast.
func.func @main(%mask: tensor<12xf16>, %x: tensor<1x12x16x16xf16>) -> tensor<1x12x16x16xf16> {
  %y = graph.contract %mask, %x {lhs_batch = [0], lhs_contract = [], rhs_batch = [1], rhs_contract = []} : (tensor<12xf16>, tensor<1x12x16x16xf16>) -> tensor<12x1x16x16xf16>
  %t = graph.transpose %y {perm = [1, 0, 2, 3]} : (tensor<12x1x16x16xf16>) -> tensor<1x12x16x16xf16>
  func.return %t : tensor<1x12x16x16xf16>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[M:.*]] = graph.broadcast %mask {dims = [1]} : (tensor<12xf16>) -> tensor<1x12x16x16xf16>
// CHECK-NEXT: %[[Y:.*]] = graph.mul %[[M]], %x : tensor<1x12x16x16xf16>
// CHECK-NEXT: func.return %[[Y]]

// -----

// A product of bytes that is wanted as bytes: the cube adds up in i32, the vector cores convert.
func.func @main(%a: tensor<4x2xi8>, %b: tensor<2x3xi8>) -> tensor<4x3xi8> {
  %p = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x2xi8>, tensor<2x3xi8>) -> tensor<4x3xi8>
  func.return %p : tensor<4x3xi8>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[P:.*]] = graph.contract %a, %b {{.*}} -> tensor<4x3xi32>
// CHECK-NEXT: graph.convert %[[P]] : (tensor<4x3xi32>) -> tensor<4x3xi8>

// -----

// A product of scaled integers is the scaled product of the integers, with what a zero point adds taken out.
func.func @main(%p: tensor<4x8xi8>, %q: tensor<8x16xi8>, %s: tensor<16xf32>) -> tensor<4x16xf32> {
  %two = graph.constant {value = #graph.data<f32, [4, 8], splat 2.0>} : () -> tensor<4x8xf32>
  %half = graph.constant {value = #graph.data<f32, [4, 8], splat 0.5>} : () -> tensor<4x8xf32>
  %x = graph.convert %p : (tensor<4x8xi8>) -> tensor<4x8xf32>
  %moved = graph.sub %x, %two : tensor<4x8xf32>
  %a = graph.mul %moved, %half : tensor<4x8xf32>
  %y = graph.convert %q : (tensor<8x16xi8>) -> tensor<8x16xf32>
  %scale = graph.broadcast %s {dims = [1]} : (tensor<16xf32>) -> tensor<8x16xf32>
  %b = graph.mul %y, %scale : tensor<8x16xf32>
  %r = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  func.return %r : tensor<4x16xf32>
}
// CHECK: func.func @main
// CHECK: %[[SUMS:.*]] = graph.contract %p, %q {{.*}} -> tensor<4x16xi32>
// CHECK: graph.reduce %{{.*}} {dims = [0], kind = "sum"} : (tensor<8x16xi32>) -> tensor<16xi32>
// CHECK: %[[LESS:.*]] = graph.sub %[[SUMS]], %{{.*}} : tensor<4x16xi32>
// CHECK: %[[FLOAT:.*]] = graph.convert %[[LESS]] : (tensor<4x16xi32>) -> tensor<4x16xf32>
// CHECK: %[[HALF:.*]] = graph.mul %[[FLOAT]], %{{.*}} : tensor<4x16xf32>
// CHECK: %[[SCALE:.*]] = graph.broadcast %s {dims = [1]} : (tensor<16xf32>) -> tensor<4x16xf32>
// CHECK: %[[R:.*]] = graph.mul %[[HALF]], %[[SCALE]] : tensor<4x16xf32>
// CHECK: func.return %[[R]]

// -----

// Parts without elements are left out of a concatenation.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x0xf32>, %z: tensor<4x3xf32>) -> (tensor<4x11xf32>, tensor<4x8xf32>) {
  %r = graph.concat %x, %y, %z {dim = 1} : (tensor<4x8xf32>, tensor<4x0xf32>, tensor<4x3xf32>) -> tensor<4x11xf32>
  %s = graph.concat %y, %x {dim = 1} : (tensor<4x0xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %r, %s : tensor<4x11xf32>, tensor<4x8xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[R:.*]] = graph.concat %x, %z {dim = 1} : (tensor<4x8xf32>, tensor<4x3xf32>) -> tensor<4x11xf32>
// CHECK-NEXT: func.return %[[R]], %x

// -----

// The cube rounds the sums of a product on their way out: that is what a conversion behind it does, also behind layout
// ops. A bias is added behind the conversion as before.
func.func @main(%a: tensor<4x8xbf16>, %b: tensor<8x16xbf16>, %c: tensor<4x16xbf16>) -> (tensor<16x4xbf16>, tensor<4x16xbf16>) {
  %p = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xf32>
  %r = graph.reshape %p : (tensor<4x16xf32>) -> tensor<4x2x8xf32>
  %t = graph.transpose %r {perm = [1, 2, 0]} : (tensor<4x2x8xf32>) -> tensor<2x8x4xf32>
  %u = graph.convert %t : (tensor<2x8x4xf32>) -> tensor<2x8x4xbf16>
  %v = graph.reshape %u : (tensor<2x8x4xbf16>) -> tensor<16x4xbf16>
  %q = graph.contract %c, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : (tensor<4x16xbf16>, tensor<8x16xbf16>) -> tensor<4x8xf32>
  %w = graph.convert %q : (tensor<4x8xf32>) -> tensor<4x8xf16>
  %x = graph.convert %w : (tensor<4x8xf16>) -> tensor<4x8xf32>
  %y = graph.concat %x, %x {dim = 1} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>
  %z = graph.convert %y : (tensor<4x16xf32>) -> tensor<4x16xbf16>
  %s = graph.add %z, %c : tensor<4x16xbf16>
  func.return %v, %s : tensor<16x4xbf16>, tensor<4x16xbf16>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[P:.*]] = graph.contract %a, %b {{.*}} -> tensor<4x16xbf16>
// CHECK-NEXT: %[[R:.*]] = graph.reshape %[[P]] : (tensor<4x16xbf16>) -> tensor<4x2x8xbf16>
// CHECK-NEXT: %[[T:.*]] = graph.transpose %[[R]]
// CHECK-NEXT: %[[V:.*]] = graph.reshape %[[T]]
// CHECK-NEXT: %[[W:.*]] = graph.contract %c, %b {{.*}} -> tensor<4x8xf16>
// CHECK-NEXT: %[[X:.*]] = graph.convert %[[W]] : (tensor<4x8xf16>) -> tensor<4x8xf32>
// CHECK: %[[S:.*]] = graph.add %{{.*}}, %c
// CHECK-NEXT: func.return %[[V]], %[[S]]

// -----

// Not where something else reads the wide sums, where the cube rounds no sums to the type, or adds up in another one.
func.func @main(%a: tensor<4x8xbf16>, %b: tensor<8x16xbf16>, %c: tensor<4x8xi8>, %d: tensor<8x16xi8>) -> (tensor<4x16xf32>, tensor<4x16xbf16>, tensor<4x16xi32>, tensor<4x16xf16>) {
  %p = graph.contract %a, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xf32>
  %r = graph.convert %p : (tensor<4x16xf32>) -> tensor<4x16xbf16>
  %e = graph.exp %a : tensor<4x8xbf16>
  %q = graph.contract %e, %b {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xf32>
  %s = graph.convert %q : (tensor<4x16xf32>) -> tensor<4x16xi32>
  %t = graph.contract %c, %d {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  %u = graph.convert %t : (tensor<4x16xi32>) -> tensor<4x16xf16>
  func.return %p, %r, %s, %u : tensor<4x16xf32>, tensor<4x16xbf16>, tensor<4x16xi32>, tensor<4x16xf16>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[P:.*]] = graph.contract %a, %b {{.*}} -> tensor<4x16xf32>
// CHECK-NEXT: %[[R:.*]] = graph.convert %[[P]]
// CHECK: %[[Q:.*]] = graph.contract {{.*}} -> tensor<4x16xf32>
// CHECK-NEXT: %[[S:.*]] = graph.convert %[[Q]]
// CHECK-NEXT: %[[T:.*]] = graph.contract %c, %d {{.*}} -> tensor<4x16xi32>
// CHECK-NEXT: %[[U:.*]] = graph.convert %[[T]]
// CHECK-NEXT: func.return %[[P]], %[[R]], %[[S]], %[[U]]

// -----

// What is elementwise before a reduction that is cut is computed of the parts; a row is repeated for each of them.
func.func @main(%x: tensor<4800x16x64xf16>, %v: tensor<64xf32>, %m: tensor<f32>) -> tensor<f32> {
  %c = graph.convert %x : (tensor<4800x16x64xf16>) -> tensor<4800x16x64xf32>
  %n = graph.broadcast %m {dims = []} : (tensor<f32>) -> tensor<4800x16x64xf32>
  %d = graph.sub %c, %n : tensor<4800x16x64xf32>
  %w = graph.broadcast %v {dims = [2]} : (tensor<64xf32>) -> tensor<4800x16x64xf32>
  %e = graph.mul %d, %w : tensor<4800x16x64xf32>
  %f = graph.reshape %e : (tensor<4800x16x64xf32>) -> tensor<4800x16x64xf32>
  %r = graph.reduce %f {dims = [0, 1, 2], kind = "sum"} : (tensor<4800x16x64xf32>) -> tensor<f32>
  func.return %r : tensor<f32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[X:.*]] = graph.reshape %x : (tensor<4800x16x64xf16>) -> tensor<48x100x16x64xf16>
// CHECK-NEXT: %[[C:.*]] = graph.convert %[[X]] : (tensor<48x100x16x64xf16>) -> tensor<48x100x16x64xf32>
// CHECK-NEXT: %[[N:.*]] = graph.broadcast %m {dims = []} : (tensor<f32>) -> tensor<48x100x16x64xf32>
// CHECK-NEXT: %[[D:.*]] = graph.sub %[[C]], %[[N]] : tensor<48x100x16x64xf32>
// CHECK-NEXT: %[[W:.*]] = graph.broadcast %v {dims = [3]} : (tensor<64xf32>) -> tensor<48x100x16x64xf32>
// CHECK-NEXT: %[[E:.*]] = graph.mul %[[D]], %[[W]] : tensor<48x100x16x64xf32>
// CHECK-NEXT: %[[P:.*]] = graph.reduce %[[E]] {dims = [1, 2, 3], kind = "sum"}
// CHECK-NEXT: %[[R:.*]] = graph.reduce %[[P]] {dims = [0], kind = "sum"}
// CHECK-NEXT: func.return %[[R]]

// -----

// Not what something else needs as a tensor, and not the epilogue of a product.
func.func @main(%x: tensor<1000x4800xf32>, %y: tensor<1000x16xf16>, %z: tensor<16x4800xf16>) -> (tensor<1000x4800xf32>, tensor<f32>, tensor<f32>) {
  %e = graph.mul %x, %x : tensor<1000x4800xf32>
  %f = graph.add %e, %x : tensor<1000x4800xf32>
  %s = graph.reduce %f {dims = [0, 1], kind = "sum"} : (tensor<1000x4800xf32>) -> tensor<f32>
  %p = graph.contract %y, %z {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<1000x16xf16>, tensor<16x4800xf16>) -> tensor<1000x4800xf32>
  %q = graph.tanh %p : tensor<1000x4800xf32>
  %t = graph.reduce %q {dims = [0, 1], kind = "max"} : (tensor<1000x4800xf32>) -> tensor<f32>
  func.return %f, %s, %t : tensor<1000x4800xf32>, tensor<f32>, tensor<f32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[E:.*]] = graph.mul %x, %x
// CHECK-NEXT: %[[F:.*]] = graph.add %[[E]], %x : tensor<1000x4800xf32>
// CHECK-NEXT: graph.reshape %[[F]]
// CHECK: %[[P:.*]] = graph.contract
// CHECK-NEXT: %[[Q:.*]] = graph.tanh %[[P]] : tensor<1000x4800xf32>
// CHECK-NEXT: graph.reshape %[[Q]]

// -----

// The place of an extreme: of the parts that have it the first one says where. What is left has it where it is beyond.
func.func @main(%x: tensor<960001xf32>) -> (tensor<f32>, tensor<i32>) {
  %v, %i = graph.arg_reduce %x {dim = 0, kind = "max"} : (tensor<960001xf32>) -> (tensor<f32>, tensor<i32>)
  func.return %v, %i : tensor<f32>, tensor<i32>
}
// CHECK: func.func @main
// CHECK: %[[A:.*]] = graph.reshape %{{.*}} : (tensor<960000xf32>) -> tensor<48x20000xf32>
// CHECK-NEXT: %[[V:.*]], %[[I:.*]] = graph.arg_reduce %[[A]] {dim = 1, kind = "max"}
// CHECK-NEXT: %[[W:.*]], %[[P:.*]] = graph.arg_reduce %[[V]] {dim = 0, kind = "max"}
// CHECK: %[[B:.*]] = graph.broadcast %[[P]] {dims = []}
// CHECK-NEXT: %[[E:.*]] = graph.eq %{{.*}}, %[[B]]
// CHECK: %[[N:.*]] = graph.add %[[I]], %{{.*}} : tensor<48xi32>
// CHECK-NEXT: %[[S:.*]] = graph.select %[[E]], %[[N]], %{{.*}}
// CHECK-NEXT: graph.reduce %[[S]] {dims = [0], kind = "min"}
// CHECK: graph.gt %{{.*}}, %[[W]]
// CHECK-NEXT: graph.ne
// CHECK-NEXT: graph.eq %[[W]], %[[W]]

// -----

// A dot product fills one place of a block of the cube: vector cores add it up. Columns are not side by side.
func.func @main(%x: tensor<3x700x2xbf16>, %y: tensor<3x2x700xbf16>, %a: tensor<700x3xf32>, %b: tensor<700x3xf32>) -> (tensor<3xbf16>, tensor<3xf32>) {
  %r = graph.contract %x, %y {lhs_batch = [0], lhs_contract = [1, 2], rhs_batch = [0], rhs_contract = [2, 1]} : (tensor<3x700x2xbf16>, tensor<3x2x700xbf16>) -> tensor<3xbf16>
  %s = graph.contract %a, %b {lhs_batch = [1], lhs_contract = [0], rhs_batch = [1], rhs_contract = [0]} : (tensor<700x3xf32>, tensor<700x3xf32>) -> tensor<3xf32>
  func.return %r, %s : tensor<3xbf16>, tensor<3xf32>
}
// CHECK: func.func @main
// CHECK-NEXT: %[[X:.*]] = graph.convert %x : (tensor<3x700x2xbf16>) -> tensor<3x700x2xf32>
// CHECK-NEXT: %[[T:.*]] = graph.transpose %y {perm = [0, 2, 1]}
// CHECK-NEXT: %[[Y:.*]] = graph.convert %[[T]]
// CHECK-NEXT: %[[M:.*]] = graph.mul %[[X]], %[[Y]] : tensor<3x700x2xf32>
// CHECK-NEXT: %[[R:.*]] = graph.reduce %[[M]] {dims = [1, 2], kind = "sum"} : (tensor<3x700x2xf32>) -> tensor<3xf32>
// CHECK-NEXT: graph.convert %[[R]] : (tensor<3xf32>) -> tensor<3xbf16>
// CHECK-NEXT: graph.contract %a, %b
