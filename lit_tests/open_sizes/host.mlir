// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

// In the StableHLO of host ops with open dimensions a size stands in the place of a number, as `$[8*s]`.

func.func @main(%x: tensor<?x128xf32, #graph.sizes<["b"]>>) -> tensor<?x128xf32, #graph.sizes<["b"]>> {
  // CHECK: graph.host %x {module = #graph.text<"func.func @main(%x: tensor<$[b]x128xf32>) -> tensor<$[b]x128xf32> { return %x : tensor<$[b]x128xf32> }">, op = "stablehlo.sort", work = "1024*b"} : tensor<?x128xf32, #graph.sizes<["b"]>>
  %y = graph.host %x {module = #graph.text<"func.func @main(%x: tensor<$[b]x128xf32>) -> tensor<$[b]x128xf32> { return %x : tensor<$[b]x128xf32> }">, op = "stablehlo.sort", work = "1024*b"} : tensor<?x128xf32, #graph.sizes<["b"]>>
  func.return %y : tensor<?x128xf32, #graph.sizes<["b"]>>
}

func.func @calls(%x: !npu.gm<?x128xf32, sizes ["b"]>, %z: !npu.gm<?x128xf32, sizes ["b"]>) {
  %a = npu.to_host %x : (!npu.gm<?x128xf32, sizes ["b"]>) -> tensor<?x128xf32, #graph.sizes<["b"]>>
  // CHECK: npu.host_call %{{.*}} {module = #graph.text<"{{.*}}tensor<$[b]x128xf32>{{.*}} $$ {{.*}}">, op = "stablehlo.sort"} : tensor<?x128xf32, #graph.sizes<["b"]>>
  %b = npu.host_call %a {module = #graph.text<"func.func @main(%x: tensor<$[b]x128xf32>) -> tensor<$[b]x128xf32> { return %x : tensor<$[b]x128xf32> } // $$ ">, op = "stablehlo.sort"} : tensor<?x128xf32, #graph.sizes<["b"]>>
  npu.to_device %b, %z : (tensor<?x128xf32, #graph.sizes<["b"]>>, !npu.gm<?x128xf32, sizes ["b"]>)
  func.return
}
