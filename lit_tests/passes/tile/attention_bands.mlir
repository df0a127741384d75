// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="attention_0: bands=2,rows=64,keys=128"}' | filecheck %s --check-prefix CHOSEN
// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="attention_0: bands=2,rows=64,keys=128"},graph-to-tile' | filecheck %s

// Under a causal mask, the first 128 of 256 rows see 128 keys. Two bands of rows are two launches into one tensor: one
// piece of the keys, without a loop over them, and two pieces with one.
func.func @main(%q: tensor<24x256x16xf16>, %k: tensor<24x256x16xf16>, %v: tensor<24x256x16xf16>) -> tensor<24x256x16xf16> {
  %s = graph.contract %q, %k {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} : (tensor<24x256x16xf16>, tensor<24x256x16xf16>) -> tensor<24x256x256xf32>
  %row = graph.iota {dim = 0} : () -> tensor<256x256xi32>
  %key = graph.iota {dim = 1} : () -> tensor<256x256xi32>
  %sees = graph.ge %row, %key : (tensor<256x256xi32>, tensor<256x256xi32>) -> tensor<256x256xi1>
  %mask = graph.broadcast %sees {dims = [1, 2]} : (tensor<256x256xi1>) -> tensor<24x256x256xi1>
  %n = graph.constant {value = #graph.data<f32, [], (-1.0e30)>} : () -> tensor<f32>
  %never = graph.broadcast %n {dims = []} : (tensor<f32>) -> tensor<24x256x256xf32>
  %x = graph.select %mask, %s, %never : (tensor<24x256x256xi1>, tensor<24x256x256xf32>, tensor<24x256x256xf32>) -> tensor<24x256x256xf32>
  %m = graph.reduce %x {dims = [2], kind = "max"} : (tensor<24x256x256xf32>) -> tensor<24x256xf32>
  %mb = graph.broadcast %m {dims = [0, 1]} : (tensor<24x256xf32>) -> tensor<24x256x256xf32>
  %d = graph.sub %x, %mb : tensor<24x256x256xf32>
  %e = graph.exp %d : tensor<24x256x256xf32>
  %l = graph.reduce %e {dims = [2], kind = "sum"} : (tensor<24x256x256xf32>) -> tensor<24x256xf32>
  %lb = graph.broadcast %l {dims = [0, 1]} : (tensor<24x256xf32>) -> tensor<24x256x256xf32>
  %p = graph.div %e, %lb : tensor<24x256x256xf32>
  %w = graph.convert %p : (tensor<24x256x256xf32>) -> tensor<24x256x256xf16>
  %o = graph.contract %w, %v {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : (tensor<24x256x256xf16>, tensor<24x256x16xf16>) -> tensor<24x256x16xf16>
  func.return %o : tensor<24x256x16xf16>
}

// CHOSEN: graph.fusion {{.*}} schedule = [#graph.attention_schedule<rows = 64, keys = 128, {{.*}} bands = 2, {{.*}}>, #graph.attention_schedule<rows = 64, keys = 128, {{.*}} bands = 2, {{.*}}>]

// CHECK: %[[FIRST:.*]] = tile.launch @attention_0 %q, %k, %v {inits = [-1]}
// CHECK-NEXT: tile.launch @attention_band_0 %q, %k, %v, %[[FIRST]] {inits = [3]}

// CHECK: tile.kernel @attention_0
// CHECK-NOT: iter_args
// CHECK: tile.kernel @attention_band_0
// CHECK: tile.load {{.*}} + 128, 0] {sizes = [1, 64, 16]
// CHECK: iter_args
