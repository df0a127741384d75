// RUN: tilewright-opt %s -p 'graph-fuse{target=ascend-910b1},graph-schedule{schedule="cumulate_0:tile=1x4688x1,grid=3x1x1;scatter_0:tile=101x16x648,grid=1x3x1;reduce_window_0:tile=7x512,grid=8x1;gather_0:tile=1x10x48,grid=2x2x1"},graph-to-tile' | filecheck %s

// Tiles that loops carry from piece to piece, a loop through the places of a window, and places among batches.
func.func @main(%x: tensor<3x300000xf16>, %t: tensor<101x37xf16>, %k: tensor<5300xi32>, %u: tensor<5300x37xf16>,
    %w: tensor<64x512xbf16>, %b: tensor<6x40x48xf16>, %j: tensor<6x19x1xi32>)
  -> (tensor<3x300000xf16>, tensor<101x37xf16>, tensor<56x512xbf16>, tensor<6x19x48xf16>) {
  %0 = graph.cumulate %x {dim = 1, kind = "sum", reverse = 1} : tensor<3x300000xf16>
  %1 = graph.scatter %t, %k, %u {kind = "set"}
    : (tensor<101x37xf16>, tensor<5300xi32>, tensor<5300x37xf16>) -> tensor<101x37xf16>
  %2 = graph.reduce_window %w {dilation = [1, 2], high = [0, 4], kind = "max", low = [0, 4], strides = [1, 1], window = [9, 5]}
    : (tensor<64x512xbf16>) -> tensor<56x512xbf16>
  %3 = graph.gather %b, %j {index_dim = 2, offset_dims = [2], collapsed_dims = [1], x_batch = [0], indices_batch = [0],
      start_map = [1], slice_sizes = [1, 1, 48]} : (tensor<6x40x48xf16>, tensor<6x19x1xi32>) -> tensor<6x19x48xf16>
  func.return %0, %1, %2, %3 : tensor<3x300000xf16>, tensor<101x37xf16>, tensor<56x512xbf16>, tensor<6x19x48xf16>
}

// CHECK-LABEL: tile.kernel @cumulate_0
// CHECK:      %6 = tile.view %1 : (!npu.gm<3x300000xf16>) -> !npu.gm<3x300000x1xf16>
// CHECK:      %7 = tile.view %2 : (!npu.gm<3x300000xf16>) -> !npu.gm<3x300000x1xf16>
// CHECK:      %9 = tile.fill {value = 0.000000e+00 : f64} : () -> !tile.tile<1x1xf32, ub>
// CHECK:      %10 = scf.for %11 = %5 to %4 step %3 iter_args(%12 = %9) -> (!tile.tile<1x1xf32, ub>) {
// CHECK:      %13 = tile.load %6 at [%0, %11 * -4688 + 295344, 0] {sizes = [1, 4688, 1]} : (!npu.gm<3x300000x1xf16>) -> !tile.tile<1x4688xf16, ub>
// CHECK:      %14 = tile.convert %13 : (!tile.tile<1x4688xf16, ub>) -> !tile.tile<1x4688xf32, ub>
// CHECK:      %15 = tile.cumulate %14 {dim = 1, kind = "sum", reverse = 1} : !tile.tile<1x4688xf32, ub>
// CHECK:      %16 = tile.broadcast %12 : (!tile.tile<1x1xf32, ub>) -> !tile.tile<1x4688xf32, ub>
// CHECK:      %17 = tile.add %16, %15 : !tile.tile<1x4688xf32, ub>
// CHECK:      %18 = tile.extract %17 at [0, 0] {sizes = [1, 1], steps = [1, 1]} : (!tile.tile<1x4688xf32, ub>) -> !tile.tile<1x1xf32, ub>
// CHECK:      %19 = tile.convert %17 : (!tile.tile<1x4688xf32, ub>) -> !tile.tile<1x4688xf16, ub>
// CHECK:      tile.store %19, %7 at [%0, %11 * -4688 + 295344, 0] {sizes = [1, 4688, 1]} : (!tile.tile<1x4688xf16, ub>, !npu.gm<3x300000x1xf16>)
// CHECK:      scf.yield %18 : !tile.tile<1x1xf32, ub>

// CHECK-LABEL: tile.kernel @scatter_0
// CHECK:      %9 = tile.load %1 at [0, %0 * 16] {sizes = [101, 16]} : (!npu.gm<101x37xf16>) -> !tile.tile<101x16xf16, ub>
// CHECK:      %10 = scf.for %11 = %7 to %6 step %5 iter_args(%12 = %9) -> (!tile.tile<101x16xf16, ub>) {
// CHECK:      %13 = tile.load %2 at [%11 * 648] {fill = -1.000000e+00 : f64, sizes = [648]} : (!npu.gm<5300xi32>) -> !tile.tile<648xi32, ub>
// CHECK:      %14 = tile.load %3 at [%11 * 648, %0 * 16] {sizes = [648, 16]} : (!npu.gm<5300x37xf16>) -> !tile.tile<648x16xf16, ub>
// CHECK:      %15 = tile.scatter %12, %13, %14 at [0] {kind = "set"} : (!tile.tile<101x16xf16, ub>, !tile.tile<648xi32, ub>, !tile.tile<648x16xf16, ub>) -> !tile.tile<101x16xf16, ub>
// CHECK:      scf.yield %15 : !tile.tile<101x16xf16, ub>
// CHECK:      tile.store %10, %4 at [0, %0 * 16] {sizes = [101, 16]} : (!tile.tile<101x16xf16, ub>, !npu.gm<101x37xf16>)

// CHECK-LABEL: tile.kernel @reduce_window_0
// CHECK:      %8 = tile.load %1 at [%0 * 7, -4] {fill = 0xfff0000000000000 : f64, sizes = [15, 520]} : (!npu.gm<64x512xbf16>) -> !tile.tile<15x520xbf16, ub>
// CHECK:      %9 = tile.convert %8 : (!tile.tile<15x520xbf16, ub>) -> !tile.tile<15x520xf32, ub>
// CHECK:      %10 = tile.fill {value = 0xfff0000000000000 : f64} : () -> !tile.tile<7x512xf32, ub>
// CHECK:      %11 = scf.for %12 = %6 to %3 step %4 iter_args(%13 = %10) -> (!tile.tile<7x512xf32, ub>) {
// CHECK:      %14 = scf.for %15 = %6 to %5 step %4 iter_args(%16 = %13) -> (!tile.tile<7x512xf32, ub>) {
// CHECK:      %17 = tile.extract %9 at [%12, %15 * 2] {sizes = [7, 512], steps = [1, 1]} : (!tile.tile<15x520xf32, ub>) -> !tile.tile<7x512xf32, ub>
// CHECK:      %18 = tile.max %16, %17 : !tile.tile<7x512xf32, ub>
// CHECK:      scf.yield %18 : !tile.tile<7x512xf32, ub>
// CHECK:      scf.yield %14 : !tile.tile<7x512xf32, ub>
// CHECK:      %19 = tile.convert %11 : (!tile.tile<7x512xf32, ub>) -> !tile.tile<7x512xbf16, ub>
// CHECK:      tile.store %19, %2 at [%0 * 7, 0] {sizes = [7, 512]} : (!tile.tile<7x512xbf16, ub>, !npu.gm<56x512xbf16>)

// CHECK-LABEL: tile.kernel @gather_0
// CHECK:      %8 = tile.view %3 : (!npu.gm<6x19x1xi32>) -> !npu.gm<6x19xi32>
// CHECK:      %9 = tile.view %2 : (!npu.gm<6x40x48xf16>) -> !npu.gm<48xf16>
// CHECK:      scf.for %11 = %7 to %6 step %5 {
// CHECK:      %12 = tile.load %8 at [%0 * 3 + %11, %1 * 10] {sizes = [1, 10]} : (!npu.gm<6x19xi32>) -> !tile.tile<10xi32, ub>
// CHECK:      %13 = tile.fill {value = 0.000000e+00 : f64} : () -> !tile.tile<1xi32, ub>
// CHECK:      %14 = tile.max %12, %13 : (!tile.tile<10xi32, ub>, !tile.tile<1xi32, ub>) -> !tile.tile<10xi32, ub>
// CHECK:      %15 = tile.fill {value = 3.900000e+01 : f64} : () -> !tile.tile<1xi32, ub>
// CHECK:      %16 = tile.min %14, %15 : (!tile.tile<10xi32, ub>, !tile.tile<1xi32, ub>) -> !tile.tile<10xi32, ub>
// CHECK:      %17 = tile.fill {value = 4.800000e+01 : f64} : () -> !tile.tile<1xi32, ub>
// CHECK:      %18 = tile.mul %16, %17 : (!tile.tile<10xi32, ub>, !tile.tile<1xi32, ub>) -> !tile.tile<10xi32, ub>
// CHECK:      %19 = tile.iota at [%0 * 5760 + %11 * 1920] {dim = 0, step = 0} : () -> !tile.tile<1xi32, ub>
// CHECK:      %20 = tile.add %18, %19 : (!tile.tile<10xi32, ub>, !tile.tile<1xi32, ub>) -> !tile.tile<10xi32, ub>
// CHECK:      %21 = tile.load_indirect %9, %20 {sizes = [48]} : (!npu.gm<48xf16>, !tile.tile<10xi32, ub>) -> !tile.tile<10x48xf16, ub>
// CHECK:      tile.store %21, %4 at [%0 * 3 + %11, %1 * 10, 0] {sizes = [1, 10, 48]} : (!tile.tile<10x48xf16, ub>, !npu.gm<6x19x48xf16>)
