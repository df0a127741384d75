// RUN: INVALID

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.host %x {module = #graph.text<"tensor<4xf32>">, op = "stablehlo.sort"} : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
// CHECK: a text without open sizes is a string

// -----

func.func @main(%x: tensor<?xf32, #graph.sizes<["b"]>>) -> tensor<?xf32, #graph.sizes<["b"]>> {
  %y = graph.host %x {module = #graph.text<"tensor<$[b +]xf32>">, op = "stablehlo.sort"} : tensor<?xf32, #graph.sizes<["b"]>>
  func.return %y : tensor<?xf32, #graph.sizes<["b"]>>
}
// CHECK: 'b +' is no size
