// A form of each StableHLO op that has a rule of its own in the frontend: `tilewright ops` compiles it for each
// element type $T. Scalar functions need none: their form follows from their arity.

// form: square
func.func @main(%a: tensor<24x40x$T>) -> tensor<24x40x$T> {
  %r = stablehlo.multiply %a, %a : tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: convert
func.func @main(%a: tensor<24x40xf32>) -> tensor<24x40x$T> {
  %r = stablehlo.convert %a : (tensor<24x40xf32>) -> tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: compare
func.func @main(%a: tensor<24x40x$T>, %b: tensor<24x40x$T>) -> tensor<24x40xi1> {
  %r = stablehlo.compare LT, %a, %b : (tensor<24x40x$T>, tensor<24x40x$T>) -> tensor<24x40xi1>
  return %r : tensor<24x40xi1>
}

// form: select
func.func @main(%a: tensor<24x40xi1>, %b: tensor<24x40x$T>, %c: tensor<24x40x$T>) -> tensor<24x40x$T> {
  %r = stablehlo.select %a, %b, %c : tensor<24x40xi1>, tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: clamp
func.func @main(%a: tensor<24x40x$T>, %b: tensor<24x40x$T>, %c: tensor<24x40x$T>) -> tensor<24x40x$T> {
  %r = stablehlo.clamp %a, %b, %c : tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: dot
func.func @main(%a: tensor<24x40x$T>, %b: tensor<40x48x$T>) -> tensor<24x48x$T> {
  %r = stablehlo.dot %a, %b : (tensor<24x40x$T>, tensor<40x48x$T>) -> tensor<24x48x$T>
  return %r : tensor<24x48x$T>
}

// form: dot_general
func.func @main(%a: tensor<24x40x$T>, %b: tensor<40x48x$T>) -> tensor<24x48x$T> {
  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<24x40x$T>, tensor<40x48x$T>) -> tensor<24x48x$T>
  return %r : tensor<24x48x$T>
}

// form: convolution
func.func @main(%a: tensor<2x8x8x16x$T>, %b: tensor<3x3x16x32x$T>) -> tensor<2x8x8x32x$T> {
  %r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x8x16x$T>, tensor<3x3x16x32x$T>) -> tensor<2x8x8x32x$T>
  return %r : tensor<2x8x8x32x$T>
}

// form: reduce
func.func @main(%a: tensor<24x40x$T>, %b: tensor<$T>) -> tensor<24x$T> {
  %r = stablehlo.reduce(%a init: %b) applies stablehlo.maximum across dimensions = [1] : (tensor<24x40x$T>, tensor<$T>) -> tensor<24x$T>
  return %r : tensor<24x$T>
}

// form: reduce_window
func.func @main(%a: tensor<24x40x$T>, %b: tensor<$T>) -> tensor<24x20x$T> {
  %r = "stablehlo.reduce_window"(%a, %b) ({^bb0(%x: tensor<$T>, %y: tensor<$T>): %s = stablehlo.maximum %x, %y : tensor<$T> stablehlo.return %s : tensor<$T>}) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>} : (tensor<24x40x$T>, tensor<$T>) -> tensor<24x20x$T>
  return %r : tensor<24x20x$T>
}

// form: iota
func.func @main() -> tensor<24x40x$T> {
  %r = stablehlo.iota dim = 1 : tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: constant
func.func @main() -> tensor<24x40x$T> {
  %r = stablehlo.constant dense<$ZERO> : tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: transpose
func.func @main(%a: tensor<24x40x$T>) -> tensor<40x24x$T> {
  %r = stablehlo.transpose %a, dims = [1, 0] : (tensor<24x40x$T>) -> tensor<40x24x$T>
  return %r : tensor<40x24x$T>
}

// form: reshape
func.func @main(%a: tensor<24x40x$T>) -> tensor<960x$T> {
  %r = stablehlo.reshape %a : (tensor<24x40x$T>) -> tensor<960x$T>
  return %r : tensor<960x$T>
}

// form: slice
func.func @main(%a: tensor<24x40x$T>) -> tensor<18x26x$T> {
  %r = stablehlo.slice %a [2:20, 4:30] : (tensor<24x40x$T>) -> tensor<18x26x$T>
  return %r : tensor<18x26x$T>
}

// form: pad
func.func @main(%a: tensor<24x40x$T>, %b: tensor<$T>) -> tensor<28x46x$T> {
  %r = stablehlo.pad %a, %b, low = [1, 2], high = [3, 4], interior = [0, 0] : (tensor<24x40x$T>, tensor<$T>) -> tensor<28x46x$T>
  return %r : tensor<28x46x$T>
}

// form: reverse
func.func @main(%a: tensor<24x40x$T>) -> tensor<24x40x$T> {
  %r = stablehlo.reverse %a, dims = [1] : tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: concatenate
func.func @main(%a: tensor<24x40x$T>, %b: tensor<24x40x$T>) -> tensor<48x40x$T> {
  %r = stablehlo.concatenate %a, %b, dim = 0 : (tensor<24x40x$T>, tensor<24x40x$T>) -> tensor<48x40x$T>
  return %r : tensor<48x40x$T>
}

// form: broadcast_in_dim
func.func @main(%a: tensor<24x$T>) -> tensor<24x40x$T> {
  %r = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<24x$T>) -> tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: broadcast
func.func @main(%a: tensor<24x40x$T>) -> tensor<5x24x40x$T> {
  %r = stablehlo.broadcast %a, sizes = [5] : (tensor<24x40x$T>) -> tensor<5x24x40x$T>
  return %r : tensor<5x24x40x$T>
}

// form: gather
func.func @main(%a: tensor<24x40x$T>, %b: tensor<6xi32>) -> tensor<6x40x$T> {
  %r = "stablehlo.gather"(%a, %b) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 40>} : (tensor<24x40x$T>, tensor<6xi32>) -> tensor<6x40x$T>
  return %r : tensor<6x40x$T>
}

// form: scatter
func.func @main(%a: tensor<24x40x$T>, %b: tensor<6xi32>, %c: tensor<6x40x$T>) -> tensor<24x40x$T> {
  %r = "stablehlo.scatter"(%a, %b, %c) ({^bb0(%x: tensor<$T>, %y: tensor<$T>): %s = stablehlo.add %x, %y : tensor<$T> stablehlo.return %s : tensor<$T>}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<24x40x$T>, tensor<6xi32>, tensor<6x40x$T>) -> tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: sort
func.func @main(%a: tensor<24x40x$T>) -> tensor<24x40x$T> {
  %r = "stablehlo.sort"(%a) ({^bb0(%x: tensor<$T>, %y: tensor<$T>): %s = stablehlo.compare LT, %x, %y : (tensor<$T>, tensor<$T>) -> tensor<i1> stablehlo.return %s : tensor<i1>}) {dimension = 1 : i64, is_stable = true} : (tensor<24x40x$T>) -> tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: dynamic_slice
func.func @main(%a: tensor<24x40x$T>, %b: tensor<i32>, %c: tensor<i32>) -> tensor<8x40x$T> {
  %r = stablehlo.dynamic_slice %a, %b, %c, sizes = [8, 40] : (tensor<24x40x$T>, tensor<i32>, tensor<i32>) -> tensor<8x40x$T>
  return %r : tensor<8x40x$T>
}

// form: dynamic_update_slice
func.func @main(%a: tensor<24x40x$T>, %b: tensor<8x40x$T>, %c: tensor<i32>, %d: tensor<i32>) -> tensor<24x40x$T> {
  %r = stablehlo.dynamic_update_slice %a, %b, %c, %d : (tensor<24x40x$T>, tensor<8x40x$T>, tensor<i32>, tensor<i32>) -> tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: bitcast_convert
func.func @main(%a: tensor<24x40x$T>) -> tensor<24x40x$T> {
  %r = stablehlo.bitcast_convert %a : (tensor<24x40x$T>) -> tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}

// form: real
func.func @main(%a: tensor<24x40x$T>) -> tensor<24x40xf32> {
  %r = stablehlo.real %a : (tensor<24x40x$T>) -> tensor<24x40xf32>
  return %r : tensor<24x40xf32>
}

// form: imag
func.func @main(%a: tensor<24x40x$T>) -> tensor<24x40xf32> {
  %r = stablehlo.imag %a : (tensor<24x40x$T>) -> tensor<24x40xf32>
  return %r : tensor<24x40xf32>
}

// form: complex
func.func @main(%a: tensor<24x40x$T>, %b: tensor<24x40x$T>) -> tensor<24x40xcomplex<$T>> {
  %r = stablehlo.complex %a, %b : tensor<24x40xcomplex<$T>>
  return %r : tensor<24x40xcomplex<$T>>
}
