// RUN: tilewright-opt %s -p graph-fuse,graph-schedule,graph-to-tile --split-input-file | filecheck %s

// Along rows: each is loaded whole, and what is asked for is picked from it.
func.func @main(%x: tensor<6x900xf32>, %i: tensor<6x400x1xi32>) -> tensor<6x400xf32> {
  %g = graph.gather %x, %i {collapsed_dims = [1], index_dim = 2, indices_batch = [0], offset_dims = [], slice_sizes = [1, 1], start_map = [1], x_batch = [0]} : (tensor<6x900xf32>, tensor<6x400x1xi32>) -> tensor<6x400xf32>
  func.return %g : tensor<6x400xf32>
}
// CHECK: tile.kernel @gather_0 {grid = [3]
// CHECK: %[[ROW:.*]] = tile.load %{{.*}} at [%0 * 2 + %{{.*}}, 0] {sizes = [1, 900]} : (!npu.gm<6x900xf32>) -> !tile.tile<900xf32, ub>
// CHECK: %[[I:.*]] = tile.load %{{.*}} at [%0 * 2 + %{{.*}}, 0] {sizes = [1, 400]} : (!npu.gm<6x400xi32>) -> !tile.tile<400xi32, ub>
// CHECK: %[[LOW:.*]] = tile.max %[[I]]
// CHECK: %[[IN:.*]] = tile.min %[[LOW]]
// CHECK: %[[Y:.*]] = tile.gather %[[ROW]], %[[IN]] : (!tile.tile<900xf32, ub>, !tile.tile<400xi32, ub>) -> !tile.tile<400xf32, ub>
// CHECK: tile.store %[[Y]]

// -----

// Along columns: a tile has whole blocks of them, and places count through its rows.
func.func @main(%x: tensor<300x64xf16>, %i: tensor<200x64x1xi32>) -> tensor<200x64xf16> {
  %g = graph.gather %x, %i {collapsed_dims = [0], index_dim = 2, indices_batch = [1], offset_dims = [], slice_sizes = [1, 1], start_map = [0], x_batch = [1]} : (tensor<300x64xf16>, tensor<200x64x1xi32>) -> tensor<200x64xf16>
  func.return %g : tensor<200x64xf16>
}
// CHECK: tile.kernel @gather_0 {grid = [4]
// CHECK: %[[ROWS:.*]] = tile.load %{{.*}} at [0, %0 * 16] {sizes = [300, 16]} : (!npu.gm<300x64xf16>) -> !tile.tile<300x16xf16, ub>
// CHECK: %[[FIRST:.*]] = tile.mul
// CHECK: %[[COLUMN:.*]] = tile.iota at [0] {dim = 1, step = 1} {{.*}}!tile.tile<200x16xi32, ub>
// CHECK: %[[AT:.*]] = tile.add %[[FIRST]], %[[COLUMN]]
// CHECK: tile.gather %[[ROWS]], %[[AT]] : (!tile.tile<300x16xf16, ub>, !tile.tile<200x16xi32, ub>) -> !tile.tile<200x16xf16, ub>

// -----

// A few elements of long rows are loaded alone: less is moved so.
func.func @main(%x: tensor<6x30000xf32>, %i: tensor<6x2x1xi32>) -> tensor<6x2xf32> {
  %g = graph.gather %x, %i {collapsed_dims = [1], index_dim = 2, indices_batch = [0], offset_dims = [], slice_sizes = [1, 1], start_map = [1], x_batch = [0]} : (tensor<6x30000xf32>, tensor<6x2x1xi32>) -> tensor<6x2xf32>
  func.return %g : tensor<6x2xf32>
}
// CHECK: tile.kernel @gather_0
// CHECK-NOT: tile.gather
// CHECK: tile.load_indirect
