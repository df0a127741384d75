// RUN: INVALID

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, gm>)

// CHECK: !npu.buffer: 'gm' is not an on-chip space, such as l1, l0a, l0b, l0c, ub, bt, fb

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, ub, 0 slots>)

// CHECK: !npu.buffer: needs at least one slot

// -----

%x = "test.op"() : () -> (!npu.gm<8x16xf32, strides [1], offset 0>)

// CHECK: !npu.gm: 1 strides for 2 dimensions

// -----

%x = npu.alloc : () -> tensor<4xf32>
// CHECK: 'npu.alloc' gives a !npu.buffer, not tensor<4xf32>

// -----

%x = "test.op"() : () -> (tensor<4xf32>)
%y = npu.slot %x at [0] : tensor<4xf32>
// CHECK: 'npu.slot' needs buffers

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, ub, 2 slots>)
%y = npu.slot %x at [0] : (!npu.buffer<8x16xf32, ub, 2 slots>) -> !npu.buffer<8x8xf32, ub>
// CHECK: 'npu.slot' gives one slot of !npu.buffer<8x16xf32, ub, 2 slots>, not !npu.buffer<8x8xf32, ub>

// -----

%x = "test.op"() : () -> (tensor<4xf32>)
%y = npu.view %x : tensor<4xf32>
// CHECK: 'npu.view' needs device tensors

// -----

%x = "test.op"() : () -> (!npu.gm<4x4xf32>)
%y = npu.view %x : (!npu.gm<4x4xf32>) -> !npu.gm<17xf32>
// CHECK: 'npu.view' reaches elements 0..16 of a source of 16

// -----

%x, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, ub>)
npu.load_nd %x, %b at [0] {sizes = [8, 16]} : (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.load_nd' needs an offset, a size and a step for each of 2 dimensions

// -----

%x, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, ub>)
npu.load_nd %x, %b at [0, 0] {sizes = [8, 8]} : (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.load_nd' moves 64 elements to or from !npu.buffer<8x16xf32, ub>

// -----

%x, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, l0a>)
npu.load_nd %x, %b at [0, 0] {sizes = [8, 16]} : (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, l0a>)
// CHECK: 'npu.load_nd' fills ub or l1, not l0a

// -----

%x, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, ub>)
npu.load_nd2nz %x, %b at [0, 0] {sizes = [8, 16]} : (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.load_nd2nz' fills l1, not ub

// -----

%b = "test.op"() : () -> !npu.buffer<8x16xf32, ub>
npu.fill_l1 %b {value = 0.0 : f64} : (!npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.fill_l1' fills l1, not ub

// -----

%x, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, l1>)
npu.store_nd %b, %x at [0, 0] {sizes = [8, 16]} : (!npu.buffer<8x16xf32, l1>, !npu.gm<8x16xf32>)
// CHECK: 'npu.store_nd' drains ub, not l1

// -----

%x, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, ub>)
npu.store_nd %b, %x at [0, 0] {accumulate = "mul", sizes = [8, 16]} : (!npu.buffer<8x16xf32, ub>, !npu.gm<8x16xf32>)
// CHECK: 'npu.store_nd' accumulates by 'mul', which is not one of add, max, min

// -----

%x, %b = "test.op"() : () -> (!npu.gm<8x16xf32, strides [15, 1], offset 0>, !npu.buffer<8x16xf32, ub>)
npu.store_nd %b, %x at [0, 0] {accumulate = "min", sizes = [8, 16]} : (!npu.buffer<8x16xf32, ub>, !npu.gm<8x16xf32, strides [15, 1], offset 0>)
// CHECK: 'npu.store_nd' accumulates to one element more than once

// -----

%x, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<8x16xf32, ub>)
npu.fixpipe %b, %x at [0, 0] {sizes = [8, 16]} : (!npu.buffer<8x16xf32, ub>, !npu.gm<8x16xf32>)
// CHECK: 'npu.fixpipe' drains l0c, not ub

// -----

%x, %i, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<4x1xi32, ub>, !npu.buffer<8x16xf32, ub>)
npu.load_indirect %x, %i, %b {sizes = [1, 16]} : (!npu.gm<8x16xf32>, !npu.buffer<4x1xi32, ub>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.load_indirect' gives 64 elements, but the destination is !npu.buffer<8x16xf32, ub>

// -----

%x, %b = "test.op"() : () -> (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf32, ub>)
npu.load_l0 %x, %b at [0, 0] {sizes = [8, 16]} : (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.load_l0' moves l1 to l0a or l0b, not l1 to ub

// -----

%x, %b = "test.op"() : () -> (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf32, l0a>)
npu.load_l0 %x, %b at [0, 0] {sizes = [8, 8]} : (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf32, l0a>)
// CHECK: 'npu.load_l0' moves 64 elements into !npu.buffer<8x16xf32, l0a>

// -----

%x, %b = "test.op"() : () -> (!npu.buffer<8x16xf32, l1>, !npu.buffer<16x8xf32, l0a>)
npu.load_l0 %x, %b at [0, 0] {sizes = [16, 8]} : (!npu.buffer<8x16xf32, l1>, !npu.buffer<16x8xf32, l0a>)
// CHECK: 'npu.load_l0' box {{\[16, 8\]}} does not fit into {{\[8, 16\]}}

// -----

%x, %b = "test.op"() : () -> (!npu.buffer<8x16xf32, l1>, !npu.buffer<16x8xf32, l0a>)
npu.load_l0 %x, %b at [0, 0] {sizes = [8, 16]} : (!npu.buffer<8x16xf32, l1>, !npu.buffer<16x8xf32, l0a>)
// CHECK: 'npu.load_l0' makes a matrix of 16 x 8 of a box of {{\[8, 16\]}}, which has no such rows

// -----

%x, %b = "test.op"() : () -> (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf16, l0a>)
npu.load_l0 %x, %b at [0, 0] {sizes = [8, 16]} : (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf16, l0a>)
// CHECK: 'npu.load_l0' moves !npu.buffer<8x16xf32, l1> to !npu.buffer<8x16xf16, l0a>, and converts nothing

// -----

%a, %b, %c = "test.op"() : () -> (!npu.buffer<8x16xf16, l0b>, !npu.buffer<16x8xf16, l0b>, !npu.buffer<8x8xf32, l0c>)
npu.mmad %a, %b, %c at [0] : (!npu.buffer<8x16xf16, l0b>, !npu.buffer<16x8xf16, l0b>, !npu.buffer<8x8xf32, l0c>)
// CHECK: 'npu.mmad' needs operands in l0a, l0b, l0c, got l0b, l0b, l0c

// -----

%a, %b, %c = "test.op"() : () -> (!npu.buffer<8x16xf16, l0a>, !npu.buffer<8x8xf16, l0b>, !npu.buffer<8x8xf32, l0c>)
npu.mmad %a, %b, %c at [0] : (!npu.buffer<8x16xf16, l0a>, !npu.buffer<8x8xf16, l0b>, !npu.buffer<8x8xf32, l0c>)
// CHECK: 'npu.mmad' cannot multiply {{\[8, 16\] by \[8, 8\] into \[8, 8\]}}

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, l1>)
npu.vabs %x, %x : (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf32, l1>)
// CHECK: 'npu.vabs' works on ub, not l1

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x8xf32, ub>)
npu.vabs %x, %y : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x8xf32, ub>)
// CHECK: 'npu.vabs' operand of shape {{\[8, 16\]}} does not match the result's {{\[8, 8\]}}

// -----

// A row is repeated for one of two sources.
%x, %y = "test.op"() : () -> (!npu.buffer<1x8xf32, ub>, !npu.buffer<8x8xf32, ub>)
npu.vabs %x, %y : (!npu.buffer<1x8xf32, ub>, !npu.buffer<8x8xf32, ub>)
// CHECK: 'npu.vabs' operand of shape {{\[1, 8\]}} does not match the result's {{\[8, 8\]}}

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x2xf32, ub>, !npu.buffer<8x8xf32, ub>)
npu.vbroadcast %x, %y : (!npu.buffer<8x2xf32, ub>, !npu.buffer<8x8xf32, ub>)
// CHECK: 'npu.vbroadcast' cannot repeat {{\[8, 2\] into \[8, 8\]}}

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x1xf32, ub>)
npu.vreduce %x, %y {dims = [1], kind = "mean"} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x1xf32, ub>)
// CHECK: 'npu.vreduce' kind 'mean' is not one of sum, prod, max, min, and, or

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<1x16xf32, ub>)
npu.vreduce %x, %y {dims = [1], kind = "sum"} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<1x16xf32, ub>)
// CHECK: 'npu.vreduce' should give shape {{\[8, 1\]}}, not !npu.buffer<1x16xf32, ub>

// -----

%x, %y, %i = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x1xf32, ub>, !npu.buffer<1x16xi32, ub>)
npu.varg_reduce %x, %y, %i {dim = 1, kind = "max"} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x1xf32, ub>, !npu.buffer<1x16xi32, ub>)
// CHECK: 'npu.varg_reduce' should give shape {{\[8, 1\]}}, not !npu.buffer<1x16xi32, ub>

// -----

%x, %y, %i = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x1xf32, ub>, !npu.buffer<8x1xi32, ub>)
npu.varg_reduce %x, %y, %i {dim = 1, kind = "sum"} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x1xf32, ub>, !npu.buffer<8x1xi32, ub>)
// CHECK: 'npu.varg_reduce' kind 'sum' is not one of max, min

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
npu.vtranspose %x, %y {perm = [1, 0]} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.vtranspose' perm {{\[1, 0\]}} of !npu.buffer<8x16xf32, ub> does not give !npu.buffer<8x16xf32, ub>

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xi32, ub>)
npu.viota %x at [0] {dim = 2, step = 1} : (!npu.buffer<8x16xi32, ub>)
// CHECK: 'npu.viota' dim 2 is outside !npu.buffer<8x16xi32, ub>

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>)
npu.vmask %x, %x at [0] {bounds = [8], value = 0.0 : f64} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.vmask' needs an offset and a bound for each of 2 dimensions

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x32xf32, ub>)
npu.vextract %x, %y at [0, 0] {sizes = [8, 32], steps = [1, 1]} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x32xf32, ub>)
// CHECK: 'npu.vextract' box {{\[8, 32\]}} does not fit into {{\[8, 16\]}}

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x4xf32, ub>)
npu.vextract %x, %y at [0, 0] {sizes = [8, 8], steps = [1, 2]} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x4xf32, ub>)
// CHECK: 'npu.vextract' box {{\[8, 8\]}} does not fill !npu.buffer<8x4xf32, ub>

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, l0c>, !npu.buffer<8x16xf16, ub>)
npu.fixpipe_l1 %x, %y : (!npu.buffer<8x16xf32, l0c>, !npu.buffer<8x16xf16, ub>)
// CHECK: 'npu.fixpipe_l1' drains l0c to l1, not l0c to ub

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, l0c>, !npu.buffer<16x8xf16, l1>)
npu.fixpipe_l1 %x, %y : (!npu.buffer<8x16xf32, l0c>, !npu.buffer<16x8xf16, l1>)
// CHECK: 'npu.fixpipe_l1' drains [8, 16] into [16, 8]

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
npu.copy_l0c %x, %y at [0, 0] {sizes = [8, 16]} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.copy_l0c' copies l0c to ub, not ub to ub

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, l0c>, !npu.buffer<8x4xf32, ub>)
npu.copy_l0c %x, %y at [0, 0] {sizes = [8, 16]} : (!npu.buffer<8x16xf32, l0c>, !npu.buffer<8x4xf32, ub>)
// CHECK: 'npu.copy_l0c' box {{\[8, 16\]}} does not fill !npu.buffer<8x4xf32, ub>

// -----

npu.set_flag at [0] {event = 0, slots = 1, source = "no pipe", target = "V"}
// CHECK: 'npu.set_flag' source 'no pipe' is not a pipe, such as S, V, M, MTE1, MTE2, MTE3, FIX

// -----

npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "no pipe"}
// CHECK: 'npu.wait_flag' target 'no pipe' is not a pipe, such as S, V, M, MTE1, MTE2, MTE3, FIX

// -----

npu.set_flag at [0] {event = 7, slots = 2, source = "MTE2", target = "V"}
// CHECK: 'npu.set_flag' uses events 7..8; a pipe pair has 0..7

// -----

npu.pipe_barrier {pipe = "no pipe"}
// CHECK: 'npu.pipe_barrier' pipe 'no pipe' is not a pipe, such as S, V, M, MTE1, MTE2, MTE3, FIX

// -----

npu.pipe_barrier {pipe = "S"}
// CHECK: 'npu.pipe_barrier' pipe S ends each instruction by itself, and has no barrier

// -----

npu.set_cross {event = 0, source = "no pipe"}
// CHECK: 'npu.set_cross' source 'no pipe' is not a pipe, such as S, V, M, MTE1, MTE2, MTE3, FIX

// -----

npu.wait_cross {event = 0, target = "no pipe"}
// CHECK: 'npu.wait_cross' target 'no pipe' is not a pipe, such as S, V, M, MTE1, MTE2, MTE3, FIX

// -----

npu.set_flag at [0, 1] {event = 0, slots = 1, source = "MTE2", target = "V"}
// CHECK: 'npu.set_flag' needs one slot number, has 2

// -----

"npu.set_flag"() <{offsets = array<i64: 0>, source = "MTE2", target = "V", slots = 1 : i64}> : () -> ()
// CHECK: 'npu.set_flag' property 'event' expected

// -----

%i = "test.op"() : () -> index
"npu.set_flag"(%i) <{offsets = array<i64: 1, 0, 0>, event = 0 : i64, source = "MTE2", target = "V", slots = 1 : i64}> : (index) -> ()
// CHECK: 'npu.set_flag' needs rows of 2 numbers in offsets

// -----

npu.kernel @k {grid = [2], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%x: !npu.gm<4xf32>):
}
// CHECK: 'npu.kernel' @k needs 1 index arguments, then device tensors

// -----

npu.kernel @k {grid = [0], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<4xf32>):
}
// CHECK: 'npu.kernel' @k has an empty grid

// -----

npu.kernel @k {grid = [2], kind = "vector", outputs = 2, workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<4xf32>):
}
// CHECK: 'npu.kernel' @k has fewer arguments than outputs

// -----

npu.section {core = "scalar", units = 1} {
^bb0(%u: index):
}
// CHECK: 'npu.section' core 'scalar' is not one of cube, vector, fused

// -----

npu.section {core = "cube", units = 1} {
^bb0(%u: !npu.gm<4xf32>):
}
// CHECK: 'npu.section' has one index argument, the unit's number

// -----

%x, %y = "test.op"() : () -> (!npu.gm<4xf32>, !npu.gm<5xf32>)
npu.copy %x, %y : (!npu.gm<4xf32>, !npu.gm<5xf32>)
// CHECK: 'npu.copy' copies !npu.gm<4xf32> to !npu.gm<5xf32>

// -----

%x = "test.op"() : () -> (!npu.gm<4xf32>)
npu.launch @k %x {outputs = 2, workspaces = 0} : (!npu.gm<4xf32>)
// CHECK: 'npu.launch' @k has fewer operands than outputs and workspaces

// -----

%x, %y = "test.op"() : () -> (!npu.gm<4xf32>, !npu.gm<4xf32>)
npu.launch @k %x, %y {outputs = 1, updates = [1], workspaces = 0} : (!npu.gm<4xf32>, !npu.gm<4xf32>)
// CHECK: 'npu.launch' updates [1], but has outputs 0 to 0, each once

// -----

%x = "test.op"() : () -> (tensor<4xf32>)
npu.launch @k %x {outputs = 0, workspaces = 0} : (tensor<4xf32>)
// CHECK: 'npu.launch' {{.*}}tensor<4xf32>

// -----

%x, %n = "test.op"() : () -> (!npu.gm<i32>, tensor<i32>)
npu.launch @k %x, %n {outputs = 1, workspaces = 0} : (!npu.gm<i32>, tensor<i32>)
// CHECK: 'npu.launch' operand 1 is tensor<i32>: it must be a device tensor, or an input number

// -----

%n = "test.op"() : () -> tensor<4xi32>
%m = npu.scalars %n : tensor<4xi32> {
^bb0(%a: tensor<4xi32>):
  graph.yield %a : (tensor<4xi32>)
}
// CHECK: 'npu.scalars' takes and gives tensors of rank 0

// -----

%n = "test.op"() : () -> tensor<i32>
%m = npu.scalars %n : tensor<i32> {
^bb0(%a: tensor<i32>):
  graph.yield
}
// CHECK: 'npu.scalars' must end with graph.yield of the results' types

// -----

%n = "test.op"() : () -> !npu.gm<i32>
%m = npu.to_host %n : (!npu.gm<i32>) -> tensor<f32>
// CHECK: 'npu.to_host' reads !npu.gm<i32> as tensor<f32>

// -----

%n, %x = "test.op"() : () -> (tensor<i32>, !npu.gm<4xi32>)
npu.to_device %n, %x : (tensor<i32>, !npu.gm<4xi32>)
// CHECK: 'npu.to_device' writes tensor<i32> to !npu.gm<4xi32>

// -----

%x = "test.op"() : () -> !npu.gm<4xi32>
%m = npu.to_host %x {stream = "program"} : (!npu.gm<4xi32>) -> tensor<4xi32>
// CHECK: 'npu.to_host' stream 'program' is not one of compute, copy_in, copy_out, host

// -----

%x, %y = "test.op"() : () -> (!npu.gm<4xi32>, !npu.gm<4xi32>)
npu.launch @k %x, %y {outputs = 1, stream = "main", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
// CHECK: 'npu.launch' stream 'main' is not one of compute, copy_in, copy_out, host

// -----

// There is nothing before it.
%x = "test.op"() : () -> !npu.gm<4xi32>
npu.launch @k %x {joined, outputs = 1, workspaces = 0} : (!npu.gm<4xi32>)
// CHECK: 'npu.launch' @k is joined, but right before it there is no npu.launch on its stream

// -----

// Only a stage of a launch has a barrier before it.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
npu.launch @k %x {nowait, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
// CHECK: 'npu.launch' @k waits for no barrier, but it is joined to no npu.launch before it

// -----

// Behind a barrier a launch begins on the first core.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
npu.launch @k %x {first_core = 2, joined, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
// CHECK: 'npu.launch' @k begins on core 2, but only a launch that waits for no barrier begins on another core than 0

// -----

// What is read ahead is read ahead of a barrier.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x, %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
npu.launch @k %x, %x {ahead = [0], joined, nowait, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
// CHECK: 'npu.launch' @k reads ahead of a barrier, but there is none before it

// -----

// Outputs are not read.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x, %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
npu.launch @k %x, %x {ahead = [0, 1], joined, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
// CHECK: 'npu.launch' @k reads [0, 1] ahead, but has inputs 0 to 0, each once

// -----

// It passes barriers with that, of which there are only so many.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x, %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
npu.launch @k %x, %x {ahead = [0], barriers = 2, joined, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
// CHECK: 'npu.launch' @k reads ahead of 2 barriers, but there are 1 that it could pass

// -----

// Who reads nothing ahead passes none.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x, %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
npu.launch @k %x, %x {barriers = 1, joined, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
// CHECK: 'npu.launch' @k reads ahead of 1 barriers, but there are 0 that it could pass

// -----

// Another command comes between.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
npu.copy %x, %x {stream = "copy_in"} : (!npu.gm<4xi32>, !npu.gm<4xi32>)
npu.launch @k %x {joined, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
// CHECK: 'npu.launch' @k is joined, but right before it there is no npu.launch on its stream

// -----

// An event comes between, of whatever stream.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
npu.record_event {event = 0, stream = "copy_in"}
npu.launch @k %x {joined, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
// CHECK: 'npu.launch' @k is joined, but right before it there is no npu.launch on its stream

// -----

// The launch before it is on another stream.
%x = npu.gm_alloc {address = 0} : () -> !npu.gm<4xi32>
npu.launch @k %x {outputs = 1, workspaces = 0} : (!npu.gm<4xi32>)
npu.launch @k %x {joined, outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<4xi32>)
// CHECK: 'npu.launch' @k is joined, but right before it there is no npu.launch on its stream

// -----

npu.record_event {event = 0, stream = "program"}
// CHECK: 'npu.record_event' stream 'program' is not one of compute, copy_in, copy_out, host

// -----

npu.wait_event {event = 0, stream = "main"}
// CHECK: 'npu.wait_event' stream 'main' is not one of compute, copy_in, copy_out, host, program

// -----

%h = "test.op"() : () -> tensor<4xf32>
%r = npu.host_call %h {module = "m", op = "sort", stream = "cube"} : tensor<4xf32>
// CHECK: 'npu.host_call' stream 'cube' is not one of compute, copy_in, copy_out, host

// -----

%n, %x = "test.op"() : () -> (tensor<i32>, !npu.gm<4xi32>)
%m = npu.loop %n, %x {trip_count = 3} : (tensor<i32>, !npu.gm<4xi32>) -> tensor<i32> {
  npu.yield
} {
  npu.yield %n, %x : (tensor<i32>, !npu.gm<4xi32>)
}
// CHECK: 'npu.loop' takes device tensors, then a number for each result

// -----

%x = "test.op"() : () -> !npu.gm<i1>
npu.loop %x : (!npu.gm<i1>) {
  npu.yield %x : (!npu.gm<i1>)
} {
  npu.yield %x : (!npu.gm<i1>)
}
// CHECK: 'npu.loop' its condition yields !npu.gm<i1> where tensor<i1> is expected

// -----

%x = "test.op"() : () -> (!npu.gm<4xf32>)
npu.loop %x {trip_count = 3} : (!npu.gm<4xf32>) {
^bb0(%s: !npu.gm<4xf32>):
  npu.yield
} {
^bb0(%s: !npu.gm<4xf32>):
  npu.yield
}
// CHECK: 'npu.loop' its body yields nothing where !npu.gm<4xf32> is expected

// -----

%x = "test.op"() : () -> (!npu.gm<4xf32>)
npu.loop %x {trip_count = 3} : (!npu.gm<4xf32>) {
^bb0(%s: !npu.gm<5xf32>):
  npu.yield
} {
^bb0(%s: !npu.gm<4xf32>):
  npu.yield %s : (!npu.gm<4xf32>)
}
// CHECK: 'npu.loop' block arguments must have the state's types

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, l1>)
npu.vfill %x {value = 1.0 : f64} : (!npu.buffer<8x16xf32, l1>)
// CHECK: 'npu.vfill' works on ub, not l1

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x1xf32, ub>)
npu.vcumulate %x, %y {dim = 1, kind = "sum", reverse = 0} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x1xf32, ub>)
// CHECK: 'npu.vcumulate' cannot cumulate [8, 16] along dimension 1 into [8, 1]

// -----

%x, %i, %u = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<5xi32, ub>, !npu.buffer<5x16xf32, ub>)
npu.vscatter %x, %i, %u, %x at [0, 0] {kind = "sum"} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<5xi32, ub>, !npu.buffer<5x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.vscatter' needs at [...] with 1 expression, has 2

// -----

%x = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>)
npu.vsort %x, %x {descending = [0], keys = [0], total = [0]} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
// CHECK: 'npu.vsort' needs sources, as many destinations, and a buffer to work in

// -----

%m = "test.op"() : () -> (!npu.gm<4x4xi32>)
%s = npu.load_scalar %m at [0] {high = 3, low = 0} : (!npu.gm<4x4xi32>) -> index
// CHECK: 'npu.load_scalar' needs at [...] with 2 expressions, has 1

// -----

%m, %b = "test.op"() : () -> (!npu.gm<4xi32>, !npu.buffer<2xi32, ub>)
npu.load_number %m, %b at [0] {sizes = [2]} : (!npu.gm<4xi32>, !npu.buffer<2xi32, ub>)
// CHECK: 'npu.load_number' loads one element, not 2

// -----

%b = "test.op"() : () -> (!npu.buffer<1xf32, ub>)
%s = npu.number_index %b {high = 3, low = 0} : (!npu.buffer<1xf32, ub>) -> index
// CHECK: 'npu.number_index' takes one integer of ub, not !npu.buffer<1xf32, ub>

// -----

%x, %i, %b = "test.op"() : () -> (!npu.gm<8x16xf32>, !npu.buffer<8x1xi32, ub>, !npu.buffer<8x16xf32, l1>)
npu.load_indirect %x, %i, %b {sizes = [1, 16]} : (!npu.gm<8x16xf32>, !npu.buffer<8x1xi32, ub>, !npu.buffer<8x16xf32, l1>)
// CHECK: 'npu.load_indirect' works on ub, not l1

// -----

%x, %b = "test.op"() : () -> (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf32, l0a>)
npu.load_l0 %x, %b at [0, 0] {sizes = [8, 16], window = [1, 1, 1]} : (!npu.buffer<8x16xf32, l1>, !npu.buffer<8x16xf32, l0a>)
// CHECK: 'npu.load_l0' needs window for each of 2 dimensions, has [1, 1, 1]

// -----

%x = npu.gm_alloc : () -> tensor<4xf32>
// CHECK: 'npu.gm_alloc' result {{.*}}tensor<4xf32> should be of base attribute npu.gm

// -----

%x = npu.gm_constant {value = #graph.data<f32, [64], splat 1.0>} : () -> !npu.gm<32xf32>
// CHECK: 'npu.gm_constant' should give !npu.gm<64xf32>, but is written as !npu.gm<32xf32>

// -----

%x = "test.op"() : () -> !npu.gm<4xf32>
npu.call @f %x {outputs = 2} : (!npu.gm<4xf32>)
// CHECK: 'npu.call' @f has fewer operands than outputs

// -----

%x = "test.op"() : () -> !npu.gm<4xf32>
npu.call @f %x, %x {outputs = 1, updates = [0, 0]} : (!npu.gm<4xf32>, !npu.gm<4xf32>)
// CHECK: 'npu.call' updates [0, 0], but has outputs 0 to 0, each once

// -----

%x = "test.op"() : () -> !npu.gm<4x4xf32, strides [1, 4], offset 0>
npu.call @f %x {outputs = 0} : (!npu.gm<4x4xf32, strides [1, 4], offset 0>)
// CHECK: 'npu.call' @f gets !npu.gm<4x4xf32, strides {{\[1, 4\]}}, offset 0>; it takes whole tensors

// -----

%i = "test.op"() : () -> tensor<i32>
npu.branch %i : (tensor<i32>)
// CHECK: 'npu.branch' needs a branch

// -----

%i = "test.op"() : () -> tensor<4xi32>
npu.branch %i : (tensor<4xi32>) {
  npu.yield
}
// CHECK: 'npu.branch' index and results must be tensors of rank 0

// -----

%i, %x = "test.op"() : () -> (tensor<i32>, !npu.gm<4xf32>)
npu.branch %i, %x : (tensor<i32>, !npu.gm<4xf32>) {
  npu.yield %i : (tensor<i32>)
}
// CHECK: 'npu.branch' its branch 0 yields tensor<i32> where !npu.gm<4xf32> is expected

// -----

%i = "test.op"() : () -> tensor<i32>
npu.branch %i : (tensor<i32>) {
  npu.yield {stream = "cube"}
}
// CHECK: 'npu.yield' stream 'cube' is not one of compute, copy_in, copy_out, host

// -----

%n = "test.op"() : () -> tensor<i32>
%m = npu.scalars %n : tensor<i32> {
^bb0(%a: tensor<f32>):
  %c = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
  graph.yield %c : (tensor<i32>)
}
// CHECK: 'npu.scalars' block arguments must have the inputs' types

// -----

%n = "test.op"() : () -> tensor<i32>
%m = npu.loop %n {trip_count = 3} : (tensor<i32>) -> tensor<f32> {
  npu.yield
} {
  npu.yield %n : (tensor<i32>)
}
// CHECK: 'npu.loop' results must have the types of the numbers it carries

// -----

%t, %x = "test.op"() : () -> (!npu.buffer<8x16xi32, l0c>, !npu.gm<8x16xi8>)
npu.fixpipe %t, %x at [0, 0] {sizes = [8, 16], zero = 3} : (!npu.buffer<8x16xi32, l0c>, !npu.gm<8x16xi8>)
// CHECK: 'npu.fixpipe' adds a zero point to what it does not scale

// -----

%t, %x = "test.op"() : () -> (!npu.buffer<8x16xi32, l0c>, !npu.gm<8x16xi8>)
npu.fixpipe %t, %x at [0, 0] {factor = 0.0 : f32, sizes = [8, 16]} : (!npu.buffer<8x16xi32, l0c>, !npu.gm<8x16xi8>)
// CHECK: 'npu.fixpipe' scales by 0.0

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, l0a>)
npu.load_row %x, %y at [0] {sizes = [16]} : (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, l0a>)
// CHECK: 'npu.load_row' moves l1 to bt or fb, not l1 to l0a

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, bt>)
npu.load_row %x, %y at [0] {sizes = [128]} : (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, bt>)
// CHECK: 'npu.load_row' box [128] does not fit into [64]

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, bt>)
npu.load_row %x, %y at [0] {sizes = [8]} : (!npu.buffer<64xi32, l1>, !npu.buffer<1x16xi32, bt>)
// CHECK: 'npu.load_row' moves 8 elements into [1, 16]

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<64xf32, l1>, !npu.buffer<1x16xi32, bt>)
npu.load_row %x, %y at [0] {sizes = [16]} : (!npu.buffer<64xf32, l1>, !npu.buffer<1x16xi32, bt>)
// CHECK: 'npu.load_row' moves !npu.buffer<64xf32, l1> to !npu.buffer<1x16xi32, bt>, and converts nothing

// -----

%v0, %v1, %v2, %v3 = "test.op"() : () -> (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xi32, fb>)
npu.mmad %v0, %v1, %v2, %v3 at [0] : (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xi32, fb>)
// CHECK: 'npu.mmad' takes its bias from bt, not fb

// -----

%v0, %v1, %v2, %v3 = "test.op"() : () -> (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x8xi32, bt>)
npu.mmad %v0, %v1, %v2, %v3 at [0] : (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x8xi32, bt>)
// CHECK: 'npu.mmad' needs a row of bias for the columns of [16, 16], has [1, 8]

// -----

%v0, %v1, %v2, %v3 = "test.op"() : () -> (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xf32, bt>)
npu.mmad %v0, %v1, %v2, %v3 at [0] : (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xf32, bt>)
// CHECK: 'npu.mmad' begins i32 accumulators as a bias of f32

// -----

%v0, %v1, %v2, %v3, %v4 = "test.op"() : () -> (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xi32, bt>, !npu.buffer<1x16xi32, bt>)
npu.mmad %v0, %v1, %v2, %v3, %v4 at [0] : (!npu.buffer<16x32xi8, l0a>, !npu.buffer<32x16xi8, l0b>, !npu.buffer<16x16xi32, l0c>, !npu.buffer<1x16xi32, bt>, !npu.buffer<1x16xi32, bt>)
// CHECK: 'npu.mmad' begins as one bias, not as 2

// -----

%v0, %v1, %v2 = "test.op"() : () -> (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xi8>, !npu.buffer<1x16xui64, bt>)
npu.fixpipe %v0, %v1, %v2 at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xi8>, !npu.buffer<1x16xui64, bt>)
// CHECK: 'npu.fixpipe' takes its scales from fb, not bt

// -----

%v0, %v1, %v2 = "test.op"() : () -> (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xi8>, !npu.buffer<16xui64, fb>)
npu.fixpipe %v0, %v1, %v2 at [0, 0] {sizes = [16, 16]} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xi8>, !npu.buffer<16xui64, fb>)
// CHECK: 'npu.fixpipe' needs a row of scales for the columns of [16, 16], has [16]

// -----

%v0, %v1, %v2 = "test.op"() : () -> (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xi8>, !npu.buffer<1x16xui64, fb>)
npu.fixpipe %v0, %v1, %v2 at [0, 0] {factor = 0.5 : f32, sizes = [16, 16]} : (!npu.buffer<16x16xi32, l0c>, !npu.gm<16x16xi8>, !npu.buffer<1x16xui64, fb>)
// CHECK: 'npu.fixpipe' scales by two things: by a factor, or by one row of scales

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xi32, ub>)
npu.vround_to %x, %y {mode = "up"} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xi32, ub>)
// CHECK: 'npu.vround_to' rounds to 'up', which is not one of even, odd

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x8xi32, ub>)
npu.vround_to %x, %y {mode = "even"} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x8xi32, ub>)
// CHECK: 'npu.vround_to' rounds {{\[8, 16\]}} elements to {{\[8, 8\]}}

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xi32, ub>, !npu.buffer<8x16xi8, ub>)
npu.vround_to %x, %y {mode = "even"} : (!npu.buffer<8x16xi32, ub>, !npu.buffer<8x16xi8, ub>)
// CHECK: 'npu.vround_to' rounds i32 to i8: to even, floats become integers

// -----

%x, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xi8, ub>)
npu.vround_to %x, %y {mode = "odd"} : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xi8, ub>)
// CHECK: 'npu.vround_to' rounds f32 to i8: to odd, f32 becomes f16

// -----

npu.kernel @k {grid = [1], kind = "mix", outputs = 0, workspaces = 0} {
^bb0(%i: index):
  npu.section {core = "mixed", units = 2} {
  ^bb1(%u: index):
  }
}
// CHECK: 'npu.section' core 'mixed' is not one of cube, vector, fused

// -----

%x, %p, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<4xi32, ub>, !npu.buffer<4xf16, ub>)
npu.vgather %x, %p, %y : (!npu.buffer<8x16xf32, ub>, !npu.buffer<4xi32, ub>, !npu.buffer<4xf16, ub>)
// CHECK: 'npu.vgather' cannot give [4] of f16 from [8, 16] of f32 at [4] places

// -----

%x, %p, %y = "test.op"() : () -> (!npu.buffer<8x16xf32, ub>, !npu.buffer<4xui32, ub>, !npu.buffer<4xf32, ub>)
npu.vgather %x, %p, %y : (!npu.buffer<8x16xf32, ub>, !npu.buffer<4xui32, ub>, !npu.buffer<4xf32, ub>)
// CHECK: 'npu.vgather' takes places of i32, not ui32

// -----

%x, %p, %y = "test.op"() : () -> (!npu.buffer<8x12xf32, ub>, !npu.buffer<4xi32, ub>, !npu.buffer<4xf32, ub>)
npu.vgather %x, %p, %y : (!npu.buffer<8x12xf32, ub>, !npu.buffer<4xi32, ub>, !npu.buffer<4xf32, ub>)
// CHECK: 'npu.vgather' takes rows of whole blocks of 32 bytes, not of 12 f32
