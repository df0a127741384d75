// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// Open dimensions are `?`, and named behind the shape: each is an expression of symbols.

func.func @main(%x: tensor<?x128xf32, #graph.sizes<["b"]>>, %w: tensor<128x?xf32, #graph.sizes<["8*s"]>>)
    -> tensor<?x?xf32, #graph.sizes<["b", "8*s"]>> {
  // CHECK: func.func @main(%x: tensor<?x128xf32, #graph.sizes<["b"]>>, %w: tensor<128x?xf32, #graph.sizes<["8*s"]>>) -> tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}
    : (tensor<?x128xf32, #graph.sizes<["b"]>>, tensor<128x?xf32, #graph.sizes<["8*s"]>>) -> tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>
  // CHECK: graph.contract
  %z = graph.slice %y {starts = [1, 0], limits = ["b", "8*s"], strides = [1, 1]}
    : (tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>) -> tensor<?x?xf32, #graph.sizes<["b - 1", "8*s"]>>
  // CHECK: graph.slice %y {limits = ["b", "8*s"], starts = [1, 0], strides = [1, 1]} : (tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>) -> tensor<?x?xf32, #graph.sizes<["b - 1", "8*s"]>>
  %r = graph.reshape %x : (tensor<?x128xf32, #graph.sizes<["b"]>>) -> tensor<?x2xf32, #graph.sizes<["ceildiv(128*b, 2)"]>>
  // CHECK: graph.reshape %x : (tensor<?x128xf32, #graph.sizes<["b"]>>) -> tensor<?x2xf32, #graph.sizes<["64*b"]>>
  func.return %y : tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>
}
