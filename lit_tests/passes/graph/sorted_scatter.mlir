// RUN: tilewright-opt %s -p 'graph-simplify{target=ascend-910b1 only=sort-scatter}' --split-input-file | filecheck %s

// Many updates of a large table of zeros: they are sorted by number in two columns, combined in chunks of 128, and the
// table takes the row that is for each of its own, or one of zeros.
func.func @main(%index: tensor<6000xi32>, %updates: tensor<6000x256xf32>) -> tensor<20000x256xf32> {
  %zero = graph.constant {value = #graph.data<f32, [20000, 256], splat 0.0>} : () -> tensor<20000x256xf32>
  %r = graph.scatter %zero, %index, %updates {kind = "sum"} : (tensor<20000x256xf32>, tensor<6000xi32>, tensor<6000x256xf32>) -> tensor<20000x256xf32>
  func.return %r : tensor<20000x256xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: graph.ge %index
// CHECK: graph.lt %index
// CHECK: graph.sort {{.*}} : (tensor<2x3000xf32>, tensor<2x3000xf32>)
// CHECK: graph.transpose
// CHECK: graph.sort {{.*}} : (tensor<2x3000xf32>, tensor<2x3000xf32>)
// CHECK: graph.transpose
// CHECK: graph.sort {{.*}} : (tensor<2x3000xf32>, tensor<2x3000xf32>)
// CHECK: graph.sort {{.*}} : (tensor<3x3000xf32>, tensor<3x3000xf32>)
// CHECK: %[[U:.*]] = graph.gather %updates, {{.*}} -> tensor<6016x256xf32>
// CHECK: graph.cumulate {{.*}} : tensor<47x128xi32>
// CHECK: %[[Z:.*]] = graph.scatter %{{.*}}, %{{.*}}, %[[U]] {groups = 47{{.*}}, kind = "sum"} : (tensor<6063x256xf32>
// CHECK: graph.gather %[[Z]], {{.*}} -> tensor<94x256xf32>
// CHECK: graph.scatter {{.*}} {kind = "sum"} : (tensor<95x256xf32>
// CHECK: %[[T:.*]] = graph.concat %[[Z]], {{.*}} -> tensor<6158x256xf32>
// CHECK: graph.scatter {{.*}} {kind = "max"} : (tensor<20000x1xi32>
// CHECK: %[[R:.*]] = graph.gather %[[T]], {{.*}} -> tensor<20000x256xf32>
// CHECK-NEXT: func.return %[[R]]

// -----

// Rows that are there are combined with those, or left where there is no update; a table that is on chip in few parts, and
// few updates, stay.
func.func @main(%x: tensor<60000x256xbf16>, %index: tensor<4000xi32>, %updates: tensor<4000x256xbf16>, %y: tensor<1000x64xf32>, %small: tensor<4000x64xf32>) -> (tensor<60000x256xbf16>, tensor<60000x256xbf16>, tensor<1000x64xf32>) {
  %a = graph.scatter %x, %index, %updates {kind = "max"} : (tensor<60000x256xbf16>, tensor<4000xi32>, tensor<4000x256xbf16>) -> tensor<60000x256xbf16>
  %b = graph.scatter %x, %index, %updates {kind = "set"} : (tensor<60000x256xbf16>, tensor<4000xi32>, tensor<4000x256xbf16>) -> tensor<60000x256xbf16>
  %c = graph.scatter %y, %index, %small {kind = "sum"} : (tensor<1000x64xf32>, tensor<4000xi32>, tensor<4000x64xf32>) -> tensor<1000x64xf32>
  func.return %a, %b, %c : tensor<60000x256xbf16>, tensor<60000x256xbf16>, tensor<1000x64xf32>
}
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]] = graph.max %x, %{{.*}} : tensor<60000x256xbf16>
// CHECK: graph.ne
// CHECK: %[[B:.*]] = graph.select %{{.*}}, %{{.*}}, %x
// CHECK: %[[C:.*]] = graph.scatter %y, %index, %small
// CHECK-NEXT: func.return %[[A]], %[[B]], %[[C]]
