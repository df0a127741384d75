// RUN: tilewright-opt %s -p graph-schedule --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p 'graph-schedule{without=placed}' --split-input-file | filecheck %s --check-prefix=COPIED
// RUN: tilewright-opt %s -p graph-schedule --split-input-file | tilewright-opt -p graph-to-tile --split-input-file | filecheck %s --check-prefix=TILE
// RUN: tilewright-opt %s -p 'graph-schedule{without=placed}' --split-input-file | tilewright-opt -p graph-to-tile --split-input-file | filecheck %s --check-prefix=STAYS

// The kernel of the first part stores it where the concatenation has it; an argument of the program is copied behind it, as its schedule says.
func.func @main(%x: tensor<64x48xf16>, %y: tensor<32x48xf16>) -> tensor<96x48xf16> {
  %a = graph.fusion %x {domain = [64, 48], kind = "vector"} : (tensor<64x48xf16>) -> tensor<64x48xf16> {
  ^bb0(%0: tensor<64x48xf16>):
    %1 = graph.tanh %0 attributes {axes = array<i64: 0, 1>} : tensor<64x48xf16>
    graph.yield %1 : (tensor<64x48xf16>)
  }
  %r = graph.fusion %y, %a {domain = [96, 48], kind = "move"} : (tensor<32x48xf16>, tensor<64x48xf16>) -> tensor<96x48xf16> {
  ^bb0(%0: tensor<32x48xf16>, %1: tensor<64x48xf16>):
    %2 = graph.concat %0, %1 {dim = 0} : (tensor<32x48xf16>, tensor<64x48xf16>) -> tensor<96x48xf16>
    graph.yield %2 : (tensor<96x48xf16>)
  }
  func.return %r : tensor<96x48xf16>
}
// CHECK:      [[A:%.+]] = graph.fusion %x {domain = [64, 48], kind = "vector", schedule = #graph.vector_schedule<
// CHECK:        graph.place {{%.+}} {dim = 0, extent = 96, start = 32} : (tensor<64x48xf16>) -> tensor<96x48xf16>
// CHECK:      %r = graph.fusion %y, [[A]] {domain = [96, 48], kind = "move", schedule = #graph.vector_schedule<{{[^>]*}}>}
// CHECK-NEXT: ^bb0([[X:%.+]]: tensor<32x48xf16>, [[B:%.+]]: tensor<96x48xf16>):
// CHECK-NEXT:   graph.place [[X]], [[B]] {dim = 0, extent = 96, start = 0}
// COPIED-NOT: graph.place
// COPIED:     graph.concat
// TILE:       [[T:%.+]] = tile.launch @tanh_0 %x {inits = [-1]} : (tensor<64x48xf16>) -> tensor<96x48xf16>
// TILE-NEXT:  tile.launch @concat_0 %y, [[T]] {inits = [1]}
// TILE:       tile.kernel @concat_0
// STAYS:      tile.launch @concat_0
// STAYS-NEXT: tile.launch @concat_1

// -----

// Nothing is left to copy: the fusion of the concatenation is gone.
func.func @main(%x: tensor<64x48xf16>) -> tensor<128x48xf16> {
  %a = graph.fusion %x {domain = [64, 48], kind = "vector"} : (tensor<64x48xf16>) -> tensor<64x48xf16> {
  ^bb0(%0: tensor<64x48xf16>):
    %1 = graph.tanh %0 attributes {axes = array<i64: 0, 1>} : tensor<64x48xf16>
    graph.yield %1 : (tensor<64x48xf16>)
  }
  %b = graph.fusion %x {domain = [64, 48], kind = "vector"} : (tensor<64x48xf16>) -> tensor<64x48xf16> {
  ^bb0(%0: tensor<64x48xf16>):
    %1 = graph.exp %0 attributes {axes = array<i64: 0, 1>} : tensor<64x48xf16>
    graph.yield %1 : (tensor<64x48xf16>)
  }
  %r = graph.fusion %a, %b {domain = [128, 48], kind = "move"} : (tensor<64x48xf16>, tensor<64x48xf16>) -> tensor<128x48xf16> {
  ^bb0(%0: tensor<64x48xf16>, %1: tensor<64x48xf16>):
    %2 = graph.concat %0, %1 {dim = 0} : (tensor<64x48xf16>, tensor<64x48xf16>) -> tensor<128x48xf16>
    graph.yield %2 : (tensor<128x48xf16>)
  }
  func.return %r : tensor<128x48xf16>
}
// CHECK:      [[A:%.+]] = graph.fusion %x {
// CHECK:        graph.place {{%.+}} {dim = 0, extent = 128, start = 0} :
// CHECK:      %r = graph.fusion %x, [[A]] {
// CHECK:        graph.place {{%.+}}, {{%.+}} {dim = 0, extent = 128, start = 64} :
// CHECK-NOT:  graph.fusion
// COPIED:     graph.concat
// TILE-NOT:   @concat
// TILE:       [[A:%.+]] = tile.launch @tanh_0 %x {inits = [-1]}
// TILE-NEXT:  %r = tile.launch @exp_0 %x, [[A]] {inits = [1]}
// STAYS:      tile.launch @concat_1
