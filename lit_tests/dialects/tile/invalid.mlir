// RUN: INVALID

%x = "test.op"() : () -> (!tile.tile<8x16xf32, gm>)

// CHECK: !tile.tile: 'gm' is not an on-chip space, such as l1, l0a, l0b, l0c, ub, bt, fb

// -----

%x = "test.op"() : () -> (tensor<8x16xf32>)
%y = tile.abs %x : tensor<8x16xf32>
// CHECK: 'tile.abs' {{.*}}tensor<8x16xf32>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l1>)
%y = tile.abs %x : !tile.tile<8x16xf32, l1>
// CHECK: 'tile.abs' works on ub, not !tile.tile<8x16xf32, l1>

// -----

%x, %y = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !tile.tile<8x2xf32, ub>)
%z = tile.add %x, %y : (!tile.tile<8x16xf32, ub>, !tile.tile<8x2xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.add' operand of shape {{\[8, 2\]}} does not match the result's {{\[8, 16\]}}

// -----

%x, %y = "test.op"() : () -> (!tile.tile<1x16xf32, ub>, !tile.tile<1x16xf32, ub>)
%z = tile.add %x, %y : (!tile.tile<1x16xf32, ub>, !tile.tile<1x16xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.add' repeats a row, and needs another operand that has all rows

// -----

%x, %y = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !tile.tile<1x16xf32, ub>)
%z = tile.add %y, %x attributes {in_place} : (!tile.tile<1x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.add' cannot write !tile.tile<8x16xf32, ub> over !tile.tile<1x16xf32, ub>

// -----

tile.kernel @k {grid = [2], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%x: !npu.gm<4xf32>):
}
// CHECK: 'tile.kernel' @k needs 1 index arguments, then device tensors

// -----

tile.kernel @k {grid = [2], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: tensor<4xf32>):
}
// CHECK: 'tile.kernel' @k needs 1 index arguments, then device tensors

// -----

tile.kernel @k {grid = [0], kind = "vector", outputs = 0, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<4xf32>):
}
// CHECK: 'tile.kernel' @k has an empty grid

// -----

tile.kernel @k {grid = [2], kind = "vector", outputs = 2, slots = [1, 1, 1, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<4xf32>):
}
// CHECK: 'tile.kernel' @k has fewer arguments than outputs and workspaces

// -----

tile.kernel @k {grid = [2], kind = "vector", outputs = 1, slots = [1, 1, 0, 1, 1], workspaces = 0} {
^bb0(%i: index, %x: !npu.gm<4xf32>):
}
// CHECK: 'tile.kernel' @k needs five slot counts of at least 1

// -----

tile.section {core = "scalar", units = 1} {
^bb0(%u: index):
}
// CHECK: 'tile.section' core 'scalar' is not one of cube, vector, fused

// -----

tile.section {core = "cube", units = 1} {
^bb0(%u: !npu.gm<4xf32>):
}
// CHECK: 'tile.section' has one index argument, the unit's number

// -----

%x = "test.op"() : () -> (tensor<4xf32>)
%y = tile.launch @k %x {inits = []} : tensor<4xf32>
// CHECK: 'tile.launch' needs 1 inits, has 0

// -----

%x = "test.op"() : () -> (tensor<4xf32>)
%y = tile.launch @k %x {inits = [0]} : (tensor<4xf32>) -> tensor<5xf32>
// CHECK: 'tile.launch' output tensor<5xf32> cannot start as operand 0

// -----

%x = "test.op"() : () -> (tensor<4xf32>)
%y = tile.launch @k %x {inits = [1]} : tensor<4xf32>
// CHECK: 'tile.launch' output tensor<4xf32> cannot start as operand 1

// -----

%x = "test.op"() : () -> (!npu.gm<4x4xf32>)
%y = tile.view %x : (!npu.gm<4x4xf32>) -> !npu.gm<4x4xf16>
// CHECK: 'tile.view' cannot change the element type from f32 to f16

// -----

%x = "test.op"() : () -> (!npu.gm<4x4xf32>)
%y = tile.view %x : (!npu.gm<4x4xf32>) -> !npu.gm<4x4xf32, strides [4, 1], offset 1>
// CHECK: 'tile.view' reaches elements 1..16 of a source of 16

// -----

%x = "test.op"() : () -> (!npu.gm<4x4xf32, strides [1, 4], offset 0>)
%y = tile.view %x : (!npu.gm<4x4xf32, strides [1, 4], offset 0>) -> !npu.gm<16xf32>
// CHECK: 'tile.view' needs a dense source, got !npu.gm<4x4xf32, strides {{\[1, 4\]}}, offset 0>

// -----

%x = "test.op"() : () -> (!npu.gm<8x16xf32>)
%y = tile.load %x at [0] {sizes = [8, 16]} : (!npu.gm<8x16xf32>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.load' needs an offset and a size for each of 2 dimensions

// -----

%x = "test.op"() : () -> (!npu.gm<8x16xf32>)
%y = tile.load %x at [0, 0] {sizes = [8, 8]} : (!npu.gm<8x16xf32>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.load' box {{\[8, 8\]}} does not fill !tile.tile<8x16xf32, ub>

// -----

%x = "test.op"() : () -> (!npu.gm<8x16xf32>)
%y = tile.load %x at [0, 0] {sizes = [8, 16]} : (!npu.gm<8x16xf32>) -> !tile.tile<8x16xf32, l0a>
// CHECK: 'tile.load' fills l1 or ub, not l0a

// -----

%x, %t = "test.op"() : () -> (!npu.gm<8x16xf32>, !tile.tile<8x16xf32, l1>)
tile.store %t, %x at [0, 0] {sizes = [8, 16]} : (!tile.tile<8x16xf32, l1>, !npu.gm<8x16xf32>)
// CHECK: 'tile.store' drains l0c or ub, not l1

// -----

%x, %i = "test.op"() : () -> (!npu.gm<8x16xf32>, !tile.tile<4x1xi32, ub>)
%y = tile.load_indirect %x, %i {sizes = [1, 16]} : (!npu.gm<8x16xf32>, !tile.tile<4x1xi32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.load_indirect' gives 64 elements, not !tile.tile<8x16xf32, ub>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.move %x at [0, 0] {sizes = [8, 16]} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf32, l0a>
// CHECK: 'tile.move' moves l1 to l0a or l0b, not ub to l0a

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l1>)
%y = tile.move %x at [0, 0] {sizes = [16, 8]} : (!tile.tile<8x16xf32, l1>) -> !tile.tile<8x16xf32, l0a>
// CHECK: 'tile.move' box {{\[16, 8\]}} does not fit into {{\[8, 16\]}}

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l1>)
%y = tile.move %x at [0, 0] {sizes = [8, 8]} : (!tile.tile<8x16xf32, l1>) -> !tile.tile<8x16xf32, l0a>
// CHECK: 'tile.move' moves 64 elements into !tile.tile<8x16xf32, l0a>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l0c>)
%y = tile.hand_on %x : (!tile.tile<8x16xf32, l0c>) -> !tile.tile<8x16xf16, ub>
// CHECK: 'tile.hand_on' drains l0c to l1, not l0c to ub

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l0c>)
%y = tile.hand_on %x : (!tile.tile<8x16xf32, l0c>) -> !tile.tile<16x8xf16, l1>
// CHECK: 'tile.hand_on' drains [8, 16] into [16, 8]

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l1>)
%y = tile.drain %x at [0, 0] {sizes = [8, 16]} : (!tile.tile<8x16xf32, l1>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.drain' works on l0c, not !tile.tile<8x16xf32, l1>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l0c>)
%y = tile.drain %x at [0, 0] {sizes = [8, 16]} : (!tile.tile<8x16xf32, l0c>) -> !tile.tile<8x16xf32, l1>
// CHECK: 'tile.drain' works on ub, not !tile.tile<8x16xf32, l1>

// -----

%y = tile.zero : () -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.zero' works on l0c, not !tile.tile<8x16xf32, ub>

// -----

%a, %b, %c = "test.op"() : () -> (!tile.tile<8x16xf16, l0a>, !tile.tile<16x8xf16, l0a>, !tile.tile<8x8xf32, l0c>)
%y = tile.mma %a, %b, %c at [0] : (!tile.tile<8x16xf16, l0a>, !tile.tile<16x8xf16, l0a>, !tile.tile<8x8xf32, l0c>) -> !tile.tile<8x8xf32, l0c>
// CHECK: 'tile.mma' needs operands in l0a, l0b, l0c, got l0a, l0a, l0c

// -----

%a, %b, %c = "test.op"() : () -> (!tile.tile<8x16xf16, l0a>, !tile.tile<8x8xf16, l0b>, !tile.tile<8x8xf32, l0c>)
%y = tile.mma %a, %b, %c at [0] : (!tile.tile<8x16xf16, l0a>, !tile.tile<8x8xf16, l0b>, !tile.tile<8x8xf32, l0c>) -> !tile.tile<8x8xf32, l0c>
// CHECK: 'tile.mma' cannot multiply {{\[8, 16\] by \[8, 8\] into \[8, 8\]}}

// -----

%x = "test.op"() : () -> (!tile.tile<8x2xf32, ub>)
%y = tile.broadcast %x : (!tile.tile<8x2xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.broadcast' cannot repeat {{\[8, 2\] into \[8, 16\]}}

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.reduce %x {dims = [1], kind = "mean"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x1xf32, ub>
// CHECK: 'tile.reduce' kind 'mean' is not one of sum, prod, max, min, and, or

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.reduce %x {dims = [1], kind = "sum"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<1x16xf32, ub>
// CHECK: 'tile.reduce' should give shape {{\[8, 1\]}}, not !tile.tile<1x16xf32, ub>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%v, %i = tile.arg_reduce %x {dim = 1, kind = "sum"} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x1xf32, ub>, !tile.tile<8x1xi32, ub>)
// CHECK: 'tile.arg_reduce' kind 'sum' is not one of max, min

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%v, %i = tile.arg_reduce %x {dim = 1, kind = "max"} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x1xf32, ub>, !tile.tile<1x16xi32, ub>)
// CHECK: 'tile.arg_reduce' should give shape {{\[8, 1\]}}, not !tile.tile<1x16xi32, ub>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.transpose %x {perm = [0, 1]} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<16x8xf32, ub>
// CHECK: 'tile.transpose' perm {{\[0, 1\]}} of !tile.tile<8x16xf32, ub> does not give !tile.tile<16x8xf32, ub>

// -----

%y = tile.iota at [0] {dim = 2, step = 1} : () -> !tile.tile<8x16xi32, ub>
// CHECK: 'tile.iota' dim 2 is outside !tile.tile<8x16xi32, ub>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.mask %x at [0] {bounds = [8], value = 0.0 : f64} : !tile.tile<8x16xf32, ub>
// CHECK: 'tile.mask' needs an offset and a bound for each of 2 dimensions

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.extract %x at [0, 0] {sizes = [8, 32], steps = [1, 1]} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x32xf32, ub>
// CHECK: 'tile.extract' box {{\[8, 32\]}} does not fit into {{\[8, 16\]}}

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.extract %x at [0, 0] {sizes = [8, 8], steps = [1, 2]} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x4xf32, ub>
// CHECK: 'tile.extract' box {{\[8, 8\]}} does not fill !tile.tile<8x4xf32, ub>

// -----

%x = "test.op"() : () -> (!npu.gm<4xi32>)
%y = tile.scalar %x at [%x] {high = 3, low = 0} : (!npu.gm<4xi32>) -> index
// CHECK: operand is used with type index, but has been previously used or defined with type !npu.gm<4xi32>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.abs %x {perm = [1]} : !tile.tile<8x16xf32, ub>
// CHECK: 'tile.abs' has no property 'perm'

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y, %work = tile.sort %x {descending = [0], keys = [0], total = [0]} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x4xf32, ub>, !tile.tile<8x16xui32, ub>)
// CHECK: 'tile.sort' {{.*}}needs [8, 64] words to work in

// -----

%x, %i, %u = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !tile.tile<5xi32, ub>, !tile.tile<5x16xf32, ub>)
%y = tile.scatter %x, %i, %u at [0] {kind = "and"} : (!tile.tile<8x16xf32, ub>, !tile.tile<5xi32, ub>, !tile.tile<5x16xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.scatter' {{.*}}kind 'and' is not one of set, sum, prod, max, min

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.cumulate %x {dim = 1, kind = "sum", reverse = 0} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x1xf32, ub>
// CHECK: 'tile.cumulate' {{.*}}cannot cumulate [8, 16] along dimension 1 into [8, 1]

// -----

%y = tile.fill {value = 1.0 : f64} : () -> !tile.tile<8x16xf32, l1>
// CHECK: 'tile.fill' works on ub, not !tile.tile<8x16xf32, l1>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l0c>)
%y = tile.reduce %x {dims = [1], kind = "sum"} : (!tile.tile<8x16xf32, l0c>) -> !tile.tile<8x1xf32, ub>
// CHECK: 'tile.reduce' works on ub, not !tile.tile<8x16xf32, l0c>

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.reduce %x {dims = [2], kind = "sum"} : !tile.tile<8x16xf32, ub>
// CHECK: 'tile.reduce' dims [2] are outside the rank of [8, 16]

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.bitcast %x : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf16, ub>
// CHECK: 'tile.bitcast' {{.*}}cannot take the bits of f32 for those of f16

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.mask %x at [0, 0] {bounds = [8, 16], value = 0.0 : f64} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x8xf32, ub>
// CHECK: 'tile.mask' cannot mask {{\[8, 16\] into \[8, 8\]}}

// -----

%m = "test.op"() : () -> (!npu.gm<4xi32>)
%y = tile.scalar %m at [0, 1] {high = 3, low = 0} : (!npu.gm<4xi32>) -> index
// CHECK: 'tile.scalar' needs at [...] with 1 expression, has 2

// -----

%m = "test.op"() : () -> (!npu.gm<4xf32>)
%y = tile.scalar %m at [0] {high = 3, low = 0} : (!npu.gm<4xf32>) -> index
// CHECK: 'tile.scalar' reads an integer, not one of !npu.gm<4xf32>

// -----

%x, %i = "test.op"() : () -> (!npu.gm<8x16xf32>, !tile.tile<8x1xf32, ub>)
%y = tile.load_indirect %x, %i {sizes = [1, 16]} : (!npu.gm<8x16xf32>, !tile.tile<8x1xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.load_indirect' takes places that are integers, not f32

// -----

%x, %i = "test.op"() : () -> (!npu.gm<8x16xf32>, !tile.tile<8x1xi32, ub>)
%y = tile.load_indirect %x, %i {sizes = [16]} : (!npu.gm<8x16xf32>, !tile.tile<8x1xi32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.load_indirect' needs a size for each of 2 dimensions

// -----

%x = "test.op"() : () -> (!npu.gm<8x16xf32>)
%y = tile.load %x at [0, 0] {sizes = [8, 16], steps = [1]} : (!npu.gm<8x16xf32>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.load' needs steps for each of 2 dimensions, has [1]

// -----

%x, %i = "test.op"() : () -> (!npu.gm<8x16xf32>, index)
%y = "tile.load"(%x, %i) <{offsets = array<i64: 0, 0, 1>, sizes = array<i64: 8, 16>}> : (!npu.gm<8x16xf32>, index) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.load' needs rows of 2 numbers in offsets

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l1>)
%y = tile.move %x at [0] {sizes = [8, 16]} : (!tile.tile<8x16xf32, l1>) -> !tile.tile<8x16xf32, l0a>
// CHECK: 'tile.move' needs at [...] with 2 expressions, has 1

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, l0c>)
%y = tile.drain %x at [0, 0] {sizes = [8, 16]} : (!tile.tile<8x16xf32, l0c>) -> !tile.tile<8x8xf32, ub>
// CHECK: 'tile.drain' box {{\[8, 16\]}} does not fill !tile.tile<8x8xf32, ub>

// -----

%a, %b, %c = "test.op"() : () -> (!tile.tile<8x16xf16, l0a>, !tile.tile<16x8xf16, l0b>, !tile.tile<8x8xf32, l0c>)
%y = tile.mma %a, %b, %c at [0, 0] : (!tile.tile<8x16xf16, l0a>, !tile.tile<16x8xf16, l0b>, !tile.tile<8x8xf32, l0c>) -> !tile.tile<8x8xf32, l0c>
// CHECK: 'tile.mma' needs at [...] with 1 expression, has 2

// -----

%y = tile.iota at [0, 0] {dim = 0, step = 1} : () -> !tile.tile<8x16xi32, ub>
// CHECK: 'tile.iota' needs at [...] with 1 expression, has 2

// -----

%x, %i, %u = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !tile.tile<5xi32, ub>, !tile.tile<5x8xf32, ub>)
%y = tile.scatter %x, %i, %u at [0] {kind = "sum"} : (!tile.tile<8x16xf32, ub>, !tile.tile<5xi32, ub>, !tile.tile<5x8xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: 'tile.scatter' cannot put rows of [5, 8] at [5] into {{\[8, 16\] for \[8, 16\]}}

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y = tile.cumulate %x {dim = 1, kind = "mean", reverse = 0} : !tile.tile<8x16xf32, ub>
// CHECK: 'tile.cumulate' kind 'mean' is not one of sum, prod, max, min, and, or

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y, %work = tile.sort %x {descending = [0], keys = [1], total = [0]} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x16xf32, ub>, !tile.tile<8x64xui32, ub>)
// CHECK: 'tile.sort' keys [1] are not among 1 operands

// -----

%x, %z = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !tile.tile<4x16xf32, ub>)
%y, %a, %work = tile.sort %x, %z {descending = [0], keys = [0], total = [0]} : (!tile.tile<8x16xf32, ub>, !tile.tile<4x16xf32, ub>) -> (!tile.tile<8x16xf32, ub>, !tile.tile<4x16xf32, ub>, !tile.tile<8x64xui32, ub>)
// CHECK: 'tile.sort' needs matrices of one shape and a result for each, got {{\[\[8, 16\], \[4, 16\]\]}}

// -----

%x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>)
%y, %work = tile.sort %x {descending = [0], keys = [0], total = [0]} : (!tile.tile<8x16xf32, ub>) -> (!tile.tile<8x17xf32, ub>, !tile.tile<8x64xui32, ub>)
// CHECK: 'tile.sort' cannot give {{\[\[8, 17\]\] of \[8, 16\]}}

// -----

"tile.sort"() <{descending = array<i64: 0>, keys = array<i64: 0>, total = array<i64: 0>}> : () -> ()
// CHECK: 'tile.sort' needs results, the last of which is a tile to work in

// -----

%t, %x = "test.op"() : () -> (!tile.tile<8x16xi32, l0c>, !npu.gm<8x16xi8>)
tile.store %t, %x at [0, 0] {sizes = [8, 16], zero = 3} : (!tile.tile<8x16xi32, l0c>, !npu.gm<8x16xi8>)
// CHECK: 'tile.store' adds a zero point to what it does not scale

// -----

%t, %x = "test.op"() : () -> (!tile.tile<8x16xi32, l0c>, !npu.gm<8x16xi8>)
tile.store %t, %x at [0, 0] {factor = 0.0 : f32, sizes = [8, 16]} : (!tile.tile<8x16xi32, l0c>, !npu.gm<8x16xi8>)
// CHECK: 'tile.store' scales by 0.0

// -----

%t, %x = "test.op"() : () -> (!tile.tile<8x16xi8, ub>, !npu.gm<8x16xi8>)
tile.store %t, %x at [0, 0] {factor = 0.5 : f32, sizes = [8, 16]} : (!tile.tile<8x16xi8, ub>, !npu.gm<8x16xi8>)
// CHECK: 'tile.store' scales what leaves ub: only accumulators are scaled on their way

// -----

%t, %x = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !npu.gm<8x16xf32>)
tile.store %t, %x at [0, 0] {relu, sizes = [8, 16]} : (!tile.tile<8x16xf32, ub>, !npu.gm<8x16xf32>)
// CHECK: 'tile.store' has relu for what leaves ub: only accumulators become 0 on their way

// -----

%x = "test.op"() : () -> (!tile.tile<64xi32, l1>)
%y = tile.move_row %x at [0] {sizes = [16]} : (!tile.tile<64xi32, l1>) -> !tile.tile<1x16xi32, l0a>
// CHECK: 'tile.move_row' moves l1 to bt or fb, not l1 to l0a

// -----

%x = "test.op"() : () -> (!tile.tile<64xi32, l1>)
%y = tile.move_row %x at [0] {sizes = [128]} : (!tile.tile<64xi32, l1>) -> !tile.tile<1x16xi32, bt>
// CHECK: 'tile.move_row' box [128] does not fit into [64]

// -----

%x = "test.op"() : () -> (!tile.tile<64xi32, l1>)
%y = tile.move_row %x at [0] {sizes = [8]} : (!tile.tile<64xi32, l1>) -> !tile.tile<1x16xi32, bt>
// CHECK: 'tile.move_row' moves 8 elements into [1, 16]

// -----

%x = "test.op"() : () -> (!tile.tile<64xf32, l1>)
%y = tile.move_row %x at [0] {sizes = [16]} : (!tile.tile<64xf32, l1>) -> !tile.tile<1x16xi32, bt>
// CHECK: 'tile.move_row' moves !tile.tile<64xf32, l1> to !tile.tile<1x16xi32, bt>, and converts nothing

// -----

%v0, %v1, %v2, %v3 = "test.op"() : () -> (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xi32, fb>)
%y = tile.mma %v0, %v1, %v2, %v3 at [0] : (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xi32, fb>) -> !tile.tile<16x16xi32, l0c>
// CHECK: 'tile.mma' takes its bias from bt, not fb

// -----

%v0, %v1, %v2, %v3 = "test.op"() : () -> (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x8xi32, bt>)
%y = tile.mma %v0, %v1, %v2, %v3 at [0] : (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x8xi32, bt>) -> !tile.tile<16x16xi32, l0c>
// CHECK: 'tile.mma' needs a row of bias for the columns of [16, 16], has [1, 8]

// -----

%v0, %v1, %v2, %v3 = "test.op"() : () -> (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xf32, bt>)
%y = tile.mma %v0, %v1, %v2, %v3 at [0] : (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xf32, bt>) -> !tile.tile<16x16xi32, l0c>
// CHECK: 'tile.mma' begins i32 accumulators as a bias of f32

// -----

%v0, %v1, %v2, %v3, %v4 = "test.op"() : () -> (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xi32, bt>, !tile.tile<1x16xi32, bt>)
%y = tile.mma %v0, %v1, %v2, %v3, %v4 at [0] : (!tile.tile<16x32xi8, l0a>, !tile.tile<32x16xi8, l0b>, !tile.tile<16x16xi32, l0c>, !tile.tile<1x16xi32, bt>, !tile.tile<1x16xi32, bt>) -> !tile.tile<16x16xi32, l0c>
// CHECK: 'tile.mma' begins as one bias, not as 2

// -----

%v0, %v1, %v2 = "test.op"() : () -> (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>, !tile.tile<1x16xui64, bt>)
tile.store %v0, %v1, %v2 at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>, !tile.tile<1x16xui64, bt>)
// CHECK: 'tile.store' takes its scales from fb, not bt

// -----

%v0, %v1, %v2 = "test.op"() : () -> (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>, !tile.tile<16xui64, fb>)
tile.store %v0, %v1, %v2 at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>, !tile.tile<16xui64, fb>)
// CHECK: 'tile.store' needs a row of scales for the columns of [16, 16], has [16]

// -----

%v0, %v1, %v2 = "test.op"() : () -> (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>, !tile.tile<1x16xui64, fb>)
tile.store %v0, %v1, %v2 at [0, 0] {factor = 0.5 : f32, sizes = [16, 16]} : (!tile.tile<16x16xi32, l0c>, !npu.gm<16x16xi8>, !tile.tile<1x16xui64, fb>)
// CHECK: 'tile.store' scales by two things: by a factor, or by one row of scales

// -----

%v0, %v1, %v2 = "test.op"() : () -> (!tile.tile<16x16xi8, ub>, !npu.gm<16x16xi8>, !tile.tile<1x16xui64, fb>)
tile.store %v0, %v1, %v2 at [0, 0] {sizes = [16, 16]} : (!tile.tile<16x16xi8, ub>, !npu.gm<16x16xi8>, !tile.tile<1x16xui64, fb>)
// CHECK: 'tile.store' scales what leaves ub: only accumulators are scaled on their way

// -----

%x = "test.op"() : () -> (!tile.tile<64xi32, l1>)
%y = tile.move_row %x at [0] {sizes = [16], slots = 0} : (!tile.tile<64xi32, l1>) -> !tile.tile<1x16xi32, bt>
// CHECK: 'tile.move_row' has 0 slots; it needs at least one

// -----

%x = "test.op"() : () -> !tile.tile<8x16xf32, ub>
%y = tile.round_to %x {mode = "up"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi32, ub>
// CHECK: 'tile.round_to' rounds to 'up', which is not one of even, odd

// -----

%x = "test.op"() : () -> !tile.tile<8x16xf32, ub>
%y = tile.round_to %x {mode = "even"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x8xi32, ub>
// CHECK: 'tile.round_to' rounds {{\[8, 16\]}} elements to {{\[8, 8\]}}

// -----

%x = "test.op"() : () -> !tile.tile<8x16xi32, ub>
%y = tile.round_to %x {mode = "even"} : (!tile.tile<8x16xi32, ub>) -> !tile.tile<8x16xi8, ub>
// CHECK: 'tile.round_to' rounds i32 to i8: to even, floats become integers

// -----

%x = "test.op"() : () -> !tile.tile<8x16xf32, ub>
%y = tile.round_to %x {mode = "odd"} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi8, ub>
// CHECK: 'tile.round_to' rounds f32 to i8: to odd, f32 becomes f16

// -----

%x, %p = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !tile.tile<4xi32, ub>)
%y = tile.gather %x, %p : (!tile.tile<8x16xf32, ub>, !tile.tile<4xi32, ub>) -> !tile.tile<5xf32, ub>
// CHECK: 'tile.gather' {{.*}}cannot give [5] of f32 from [8, 16] of f32 at [4] places

// -----

%x, %p = "test.op"() : () -> (!tile.tile<8x16xf32, ub>, !tile.tile<4xi64, ub>)
%y = tile.gather %x, %p : (!tile.tile<8x16xf32, ub>, !tile.tile<4xi64, ub>) -> !tile.tile<4xf32, ub>
// CHECK: 'tile.gather' {{.*}}takes places of i32, not i64

// -----

%x, %p = "test.op"() : () -> (!tile.tile<8x17xf32, ub>, !tile.tile<4xi32, ub>)
%y = tile.gather %x, %p : (!tile.tile<8x17xf32, ub>, !tile.tile<4xi32, ub>) -> !tile.tile<4xf32, ub>
// CHECK: 'tile.gather' {{.*}}takes rows of whole blocks of 32 bytes, not of 17 f32
