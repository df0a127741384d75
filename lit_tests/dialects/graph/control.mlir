// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%x, %n, %p = "test.op"() : () -> (tensor<4xf32>, tensor<i32>, tensor<i1>)

%fusion = graph.fusion %x {domain = [4], kind = "vector"} : (tensor<4xf32>) -> tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  %y = graph.exp %a attributes {axes = array<i64: 0>} : tensor<4xf32>
  graph.yield %y : (tensor<4xf32>)
}
// CHECK: graph.fusion %{{.*}} {domain = [4], kind = "vector"} : {{.*}} {
// CHECK-NEXT: ^{{.*}}(%{{.*}}: tensor<4xf32>):
// CHECK-NEXT: graph.exp %{{.*}} attributes {axes = array<i64: 0>} : tensor<4xf32>
// CHECK-NEXT: graph.yield %{{.*}} : (tensor<4xf32>)

// A schedule is a property: complete, or what is pinned of it, or one for each launch.
%wide = graph.fusion %x {domain = [4], kind = "vector", schedule = #graph.vector_schedule<axes = [[0]], tile = [4], grid = [1], ub = 2>}
  : (tensor<4xf32>) -> tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: graph.fusion {{.*}} schedule = #graph.vector_schedule<axes = {{\[\[0]]}}, tile = [4], grid = [1], ub = 2>}
%two = graph.fusion %x {domain = [4], kind = "cube", schedule = [#graph.cube_schedule<inner = n, base_m = 64, split_k = 4>, #graph.vector_schedule<>]}
  : (tensor<4xf32>) -> tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: graph.fusion {{.*}} schedule = [#graph.cube_schedule<inner = n, base_m = 64, split_k = 4>, #graph.vector_schedule<>]}
%rows = graph.fusion %x {domain = [4], kind = "vector"} : (tensor<4xf32>) -> tensor<8xf32> {
^bb0(%in: tensor<4xf32>):
  %e = graph.exp %in attributes {axes = array<i64: 0>} : tensor<4xf32>
  %wider = graph.widen %e {row = 8} : (tensor<4xf32>) -> tensor<8xf32>
  graph.yield %wider : (tensor<8xf32>)
}
// CHECK: graph.widen %{{.*}} {row = 8} : (tensor<4xf32>) -> tensor<8xf32>
%front = graph.fusion %x {domain = [4], kind = "vector"} : (tensor<4xf32>) -> tensor<7xf32> {
^bb0(%in: tensor<4xf32>):
  %e = graph.exp %in attributes {axes = array<i64: 0>} : tensor<4xf32>
  %placed = graph.place %e {dim = 0, start = 0, extent = 7} : (tensor<4xf32>) -> tensor<7xf32>
  graph.yield %placed : (tensor<7xf32>)
}
// CHECK: graph.place %{{.*}} {dim = 0, extent = 7, start = 0} : (tensor<4xf32>) -> tensor<7xf32>
%both = graph.fusion %x, %front {domain = [3], kind = "vector"} : (tensor<4xf32>, tensor<7xf32>) -> tensor<7xf32> {
^bb0(%in: tensor<4xf32>, %base: tensor<7xf32>):
  %some = graph.slice %in {limits = [3], starts = [0], strides = [1]} : (tensor<4xf32>) -> tensor<3xf32>
  %e = graph.exp %some attributes {axes = array<i64: 0>} : tensor<3xf32>
  %placed = graph.place %e, %base {dim = 0, start = 4, extent = 7} : (tensor<3xf32>, tensor<7xf32>) -> tensor<7xf32>
  graph.yield %placed : (tensor<7xf32>)
}
// CHECK: graph.place %{{.*}}, %{{.*}} {dim = 0, extent = 7, start = 4} : (tensor<3xf32>, tensor<7xf32>) -> tensor<7xf32>
%last = graph.fusion %x {domain = [4], kind = "mix", schedule = [#graph.cube_schedule<split_k = 4, stream_m = 32>, #graph.cube_schedule<>]}
  : (tensor<4xf32>) -> tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: graph.fusion {{.*}} schedule = [#graph.cube_schedule<split_k = 4, stream_m = 32>, #graph.cube_schedule<>]}
%attention = graph.fusion %x {domain = [4], kind = "mix", schedule = #graph.attention_schedule<rows = 128, keys = 256, features = 64, summed = 256, grid = [2, 4], l1 = 2>}
  : (tensor<4xf32>) -> tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: graph.fusion {{.*}} schedule = #graph.attention_schedule<rows = 128, keys = 256, features = 64, summed = 256, grid = [2, 4], l1 = 2>}
%few = graph.fusion %x {domain = [4], kind = "mix", schedule = [#graph.row_attention_schedule<rows = 1, keys = 40, grid = [4], split_keys = 2, ub = 2>, #graph.vector_schedule<tile = [4], split_k = 2>]}
  : (tensor<4xf32>) -> tensor<4xf32> {
^bb0(%a: tensor<4xf32>):
  graph.yield %a : (tensor<4xf32>)
}
// CHECK: graph.fusion {{.*}} schedule = [#graph.row_attention_schedule<rows = 1, keys = 40, grid = [4], split_keys = 2, ub = 2>, #graph.vector_schedule<tile = [4], split_k = 2>]}

%i, %v = graph.while %n, %x {counter = 0, trip_count = 10} : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
  %ten = graph.constant {value = #graph.data<i32, [], (10)>} : () -> tensor<i32>
  %more = graph.lt %j, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
  graph.yield %more : (tensor<i1>)
} {
^bb0(%j: tensor<i32>, %b: tensor<4xf32>):
  %one = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
  %k = graph.add %j, %one : tensor<i32>
  %c = graph.sin %b : tensor<4xf32>
  graph.yield %k, %c : (tensor<i32>, tensor<4xf32>)
}
// CHECK: %{{.*}}, %{{.*}} = graph.while %{{.*}}, %{{.*}} {counter = 0, trip_count = 10}
// CHECK: graph.lt
// CHECK-NEXT: graph.yield %{{.*}} : (tensor<i1>)
// CHECK-NEXT: } {
// CHECK: graph.yield %{{.*}}, %{{.*}} : (tensor<i32>, tensor<4xf32>)

%next = graph.fusion %n {domain = [], kind = "scalar"} : tensor<i32> {
^bb0(%a: tensor<i32>):
  %sum = graph.add %a, %a : tensor<i32>
  graph.yield %sum : (tensor<i32>)
}
// CHECK: graph.fusion %{{.*}} {domain = [], kind = "scalar"} : tensor<i32> {
%read = graph.to_host %n : tensor<i32>
// CHECK: graph.to_host %{{.*}} : tensor<i32>
%away = graph.offload %x : tensor<4xf32>
// CHECK: %[[AWAY:.*]] = graph.offload %{{.*}} : tensor<4xf32>
%back = graph.restore %away : tensor<4xf32>
// CHECK: graph.restore %[[AWAY]] : tensor<4xf32>
%number = graph.case %read {host = [0]} : tensor<i32> {
  graph.yield %next : (tensor<i32>)
}
// CHECK: graph.case %{{.*}} {host = [0]} : tensor<i32> {

%case = graph.case %n : (tensor<i32>) -> tensor<4xf32> {
  graph.yield %x : (tensor<4xf32>)
} {
  %neg = graph.neg %x : tensor<4xf32>
  graph.yield %neg : (tensor<4xf32>)
}
// CHECK: graph.case %{{.*}} : (tensor<i32>) -> tensor<4xf32> {
// CHECK-NEXT: graph.yield
// CHECK-NEXT: } {
// CHECK-NEXT: graph.neg

%sorted = graph.host %x {module = "func.func public @main() {\n  stablehlo.sort\n}", op = "sort", reasons = ["no engine sorts"]} : tensor<4xf32>
// CHECK: graph.host %{{.*}} {module = "func.func{{.*}}", op = "sort", reasons = ["no engine sorts"]} : tensor<4xf32>

"test.op"() ({
  graph.yield
}) : () -> ()
// CHECK: graph.yield{{$}}
