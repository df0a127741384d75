// RUN: tilewright-opt %s -p graph-fuse,graph-schedule,graph-to-tile --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p 'graph-fuse,graph-schedule{without=placed},graph-to-tile' --split-input-file | filecheck %s --check-prefix=COPIED

// Two products and a kernel of the vector cores store into one tensor, each into what the one before it left.
func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>, %y: tensor<64x48xf16>) -> tensor<192x48xf16> {
  %a = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
    : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
  %b = graph.tanh %y : tensor<64x48xf16>
  %c = graph.contract %y, %y {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]}
    : (tensor<64x48xf16>, tensor<64x48xf16>) -> tensor<48x48xf16>
  %e = graph.contract %b, %c {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
    : (tensor<64x48xf16>, tensor<48x48xf16>) -> tensor<64x48xf16>
  %f = graph.exp %y : tensor<64x48xf16>
  %r = graph.concat %a, %f, %e {dim = 0} : (tensor<64x48xf16>, tensor<64x48xf16>, tensor<64x48xf16>) -> tensor<192x48xf16>
  func.return %r : tensor<192x48xf16>
}
// CHECK-NOT: tile.launch @concat
// CHECK: tile.launch {{.*}} {inits = [-1]} {{.*}} -> tensor<192x48xf16>
// CHECK: tile.launch {{.*}} {inits = [{{[12]}}]} {{.*}} -> tensor<192x48xf16>
// COPIED: tile.launch @concat
// COPIED: tile.launch @concat

// -----

// What something else reads as well is copied, behind what is in place.
func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>, %v: tensor<32x16xf16>) -> (tensor<64x64xf16>, tensor<64x16xf16>) {
  %a = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
    : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
  %b = graph.contract %x, %v {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
    : (tensor<64x32xf16>, tensor<32x16xf16>) -> tensor<64x16xf16>
  %r = graph.concat %b, %a {dim = 1} : (tensor<64x16xf16>, tensor<64x48xf16>) -> tensor<64x64xf16>
  func.return %r, %b : tensor<64x64xf16>, tensor<64x16xf16>
}
// CHECK: [[A:%.+]] = tile.launch @contract_{{[01]}} {{.*}} {inits = [-1]} {{.*}} -> tensor<64x64xf16>
// CHECK: tile.launch @concat_0 {{%.+}}, [[A]] {inits = [1]} {{.*}} -> tensor<64x64xf16>
// CHECK: tile.view {{.*}} -> !npu.gm<64x48xf16, strides [64, 1], offset 16>
