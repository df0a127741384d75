// RUN: tilewright-opt %s -p graph-simplify --split-input-file | filecheck %s
// RUN: tilewright-opt %s -p graph-simplify,graph-fuse --split-input-file | filecheck %s --check-prefix=FUSED

// The two halves of a rotation, as it is often written, each by itself: their concatenation comes last.
// CHECK-LABEL: @main
// CHECK-NOT:   graph.concat
// CHECK:       [[A:%[0-9]+]] = graph.add %{{[0-9]+}}, %{{[0-9]+}} : tensor<8x32xf16>
// CHECK:       [[B:%[0-9]+]] = graph.add %{{[0-9]+}}, %{{[0-9]+}} : tensor<8x32xf16>
// CHECK-NEXT:  graph.concat [[A]], [[B]] {dim = 1}
// FUSED-LABEL: @main
// FUSED:       graph.fusion {{.*}}domain = [8, 32]
// FUSED-NOT:   graph.fusion
func.func @main(%x: tensor<8x64xf16>, %c: tensor<32xf16>, %s: tensor<32xf16>) -> tensor<8x64xf16> {
  %cc = graph.concat %c, %c {dim = 0} : (tensor<32xf16>, tensor<32xf16>) -> tensor<64xf16>
  %ss = graph.concat %s, %s {dim = 0} : (tensor<32xf16>, tensor<32xf16>) -> tensor<64xf16>
  %cos = graph.broadcast %cc {dims = [1]} : (tensor<64xf16>) -> tensor<8x64xf16>
  %sin = graph.broadcast %ss {dims = [1]} : (tensor<64xf16>) -> tensor<8x64xf16>
  %a = graph.slice %x {limits = [8, 32], starts = [0, 0], strides = [1, 1]} : (tensor<8x64xf16>) -> tensor<8x32xf16>
  %b = graph.slice %x {limits = [8, 64], starts = [0, 32], strides = [1, 1]} : (tensor<8x64xf16>) -> tensor<8x32xf16>
  %n = graph.neg %b : tensor<8x32xf16>
  %t = graph.concat %n, %a {dim = 1} : (tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<8x64xf16>
  %p = graph.mul %x, %cos : tensor<8x64xf16>
  %q = graph.mul %t, %sin : tensor<8x64xf16>
  %r = graph.add %p, %q : tensor<8x64xf16>
  func.return %r : tensor<8x64xf16>
}

// -----

// One concatenation alone stays where it is, and so do those that are cut in other places.
// FUSED-LABEL: @main
// CHECK-LABEL: @main
// CHECK:       graph.concat
// CHECK-NEXT:  graph.concat
// CHECK-NEXT:  graph.mul
// CHECK-NEXT:  graph.exp
func.func @main(%x: tensor<8x32xf16>, %y: tensor<8x16xf16>, %z: tensor<8x48xf16>) -> tensor<8x64xf16> {
  %a = graph.concat %x, %x {dim = 1} : (tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<8x64xf16>
  %b = graph.concat %y, %z {dim = 1} : (tensor<8x16xf16>, tensor<8x48xf16>) -> tensor<8x64xf16>
  %c = graph.mul %a, %b : tensor<8x64xf16>
  %d = graph.exp %c : tensor<8x64xf16>
  func.return %d : tensor<8x64xf16>
}

// -----

// What is computed has 8 columns each; the slice behind it, of 16, is two of these.
// CHECK-LABEL: @main
// CHECK:       graph.concat %e, %f, %{{[0-9]+}}, %{{[0-9]+}} {dim = 1}
// CHECK-NOT:   graph.concat
// FUSED-LABEL: @main
// FUSED:       graph.fusion {{.*}}domain = [8, 8]
// FUSED-NOT:   graph.fusion
func.func @main(%x: tensor<8x32xf16>) -> tensor<8x32xf16> {
  %a = graph.slice %x {limits = [8, 8], starts = [0, 0], strides = [1, 1]} : (tensor<8x32xf16>) -> tensor<8x8xf16>
  %b = graph.slice %x {limits = [8, 16], starts = [0, 8], strides = [1, 1]} : (tensor<8x32xf16>) -> tensor<8x8xf16>
  %c = graph.slice %x {limits = [8, 32], starts = [0, 16], strides = [1, 1]} : (tensor<8x32xf16>) -> tensor<8x16xf16>
  %e = graph.exp %b : tensor<8x8xf16>
  %f = graph.sub %a, %b : tensor<8x8xf16>
  %g = graph.concat %e, %f {dim = 1} : (tensor<8x8xf16>, tensor<8x8xf16>) -> tensor<8x16xf16>
  %h = graph.concat %g, %c {dim = 1} : (tensor<8x16xf16>, tensor<8x16xf16>) -> tensor<8x32xf16>
  func.return %h : tensor<8x32xf16>
}
