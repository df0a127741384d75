// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// Open dimensions are `?`, and named behind the shape: each is an expression of symbols.

func.func @main(%x: tensor<?x128xf32, #graph.sizes<["b"]>>, %w: tensor<128x?xf32, #graph.sizes<["8*s"]>>)
    -> tensor<?x?xf32, #graph.sizes<["b", "8*s"]>> {
  // CHECK: func.func @main(%x: tensor<?x128xf32, #graph.sizes<["b"]>>, %w: tensor<128x?xf32, #graph.sizes<["8*s"]>>) -> tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
    : (tensor<?x128xf32, #graph.sizes<["b"]>>, tensor<128x?xf32, #graph.sizes<["8*s"]>>) -> tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>
  // CHECK: graph.contract
  func.return %y : tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>
}
