// RUN: tilewright-opt %s -p graph-partition | filecheck %s
// RUN: tilewright-opt %s -p graph-simplify,graph-partition,graph-fuse,graph-schedule,graph-to-tile,tile-to-npu,npu-allocate,npu-synchronize,npu-plan-memory,npu-schedule-host | tilewright-opt | filecheck %s --check-prefix NPU

// Calls with open dimensions become one, whose cost is an expression, and reach the npu level as they are.
func.func @main(%x: tensor<?x16xf32, #graph.sizes<["b"]>>) -> tensor<?x16xf32, #graph.sizes<["b"]>> {
  %y = graph.exp %x : tensor<?x16xf32, #graph.sizes<["b"]>>
  %a = graph.host %y {module = #graph.text<"module {\n  func.func public @main(%arg0: tensor<$[b]x16xf32>) -> tensor<$[b]x16xf32> {\n    return %arg0 : tensor<$[b]x16xf32>\n  }\n}\n">, op = "one"} : tensor<?x16xf32, #graph.sizes<["b"]>>
  %b = graph.host %a, %y {module = #graph.text<"module {\n  func.func public @main(%arg0: tensor<$[b]x16xf32>, %arg1: tensor<$[b]x16xf32>) -> tensor<$[b]x16xf32> {\n    return %arg1 : tensor<$[b]x16xf32>\n  }\n}\n">, op = "two"} : (tensor<?x16xf32, #graph.sizes<["b"]>>, tensor<?x16xf32, #graph.sizes<["b"]>>) -> tensor<?x16xf32, #graph.sizes<["b"]>>
  func.return %b : tensor<?x16xf32, #graph.sizes<["b"]>>
}
// CHECK: graph.host %{{.*}} {module = #graph.text<"module {
// CHECK-SAME: func.func public @main(%a0: tensor<$[b]x16xf32>) -> (tensor<$[b]x16xf32>) {
// CHECK-SAME: %r0 = func.call @part0(%a0) : (tensor<$[b]x16xf32>) -> (tensor<$[b]x16xf32>)
// CHECK-SAME: op = "one, two", work = "320*b"}

// NPU: npu.arena_bytes = #graph.size<
// NPU: npu.to_host %{{.*}} {stream = "copy_out"} : (!npu.gm<?x16xf32, sizes ["b"]>) -> tensor<?x16xf32, #graph.sizes<["b"]>>
// NPU: npu.host_call %{{.*}} {module = #graph.text<{{.*}}op = "one, two", stream = "host", work = "320*b"}
// NPU: npu.to_device
