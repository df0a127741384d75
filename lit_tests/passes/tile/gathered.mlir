// RUN: tilewright-opt %s -p graph-fuse,graph-schedule,graph-to-tile --split-input-file | filecheck %s

// A matrix for each product: its place is read once, and the loads begin there.
func.func @main(%x: tensor<6x40x96xf16>, %w: tensor<5x96x200xf16>, %i: tensor<6x1xi32>) -> tensor<6x40x200xf16> {
  %g = graph.gather %w, %i {offset_dims = [1, 2], collapsed_dims = [0], x_batch = [], indices_batch = [], start_map = [0], index_dim = 1, slice_sizes = [1, 96, 200]} : (tensor<5x96x200xf16>, tensor<6x1xi32>) -> tensor<6x96x200xf16>
  %y = graph.contract %x, %g {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : (tensor<6x40x96xf16>, tensor<6x96x200xf16>) -> tensor<6x40x200xf16>
  func.return %y : tensor<6x40x200xf16>
}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: tile.launch @contract_0
// CHECK-NEXT: func.return
// CHECK: tile.kernel @contract_0 {grid = [3]
// CHECK: scf.for %[[T:.*]] =
// CHECK-NEXT: %[[AT:.*]] = tile.scalar %{{.*}} at [%0 * 2 + %[[T]], 0] {high = 4, low = 0}
// CHECK: tile.load %{{.*}} at [%[[AT]], 0, 0] {sizes = [1, 96, 200]} : (!npu.gm<5x96x200xf16>)

// -----

// Windows of rows, which reach into each other, and the matrix of each: 7 products are for 7 cores or for 1.
func.func @main(%x: tensor<900x512xf16>, %w: tensor<5x512x256xf16>, %r: tensor<7x1xi32>, %i: tensor<7x1xi32>) -> tensor<7x128x256xf16> {
  %a = graph.gather %x, %r {offset_dims = [1, 2], collapsed_dims = [], x_batch = [], indices_batch = [], start_map = [0], index_dim = 1, slice_sizes = [128, 512]} : (tensor<900x512xf16>, tensor<7x1xi32>) -> tensor<7x128x512xf16>
  %b = graph.gather %w, %i {offset_dims = [1, 2], collapsed_dims = [0], x_batch = [], indices_batch = [], start_map = [0], index_dim = 1, slice_sizes = [1, 512, 256]} : (tensor<5x512x256xf16>, tensor<7x1xi32>) -> tensor<7x512x256xf16>
  %y = graph.contract %a, %b {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : (tensor<7x128x512xf16>, tensor<7x512x256xf16>) -> tensor<7x128x256xf16>
  func.return %y : tensor<7x128x256xf16>
}
// CHECK-LABEL: func.func @main
// CHECK: tile.kernel @contract_0 {grid = [7{{.*}}]
// CHECK: %[[ROW:.*]] = tile.scalar %{{.*}} at [%0, 0] {high = 772, low = 0}
// CHECK: %[[GROUP:.*]] = tile.scalar %{{.*}} at [%0, 0] {high = 4, low = 0}
// CHECK-DAG: tile.load %{{.*}} at [%[[ROW]], {{.*}}] {sizes = [128, {{.*}}]} : (!npu.gm<900x512xf16>)
// CHECK-DAG: tile.load %{{.*}} at [%[[GROUP]], {{.*}}] {sizes = [1, {{.*}}]} : (!npu.gm<5x512x256xf16>)

// -----

// A part of what is summed over is copied: behind it are other numbers, and not zeros.
func.func @main(%x: tensor<6x40x96xf16>, %w: tensor<5x200x100xf16>, %i: tensor<6x1xi32>) -> tensor<6x40x100xf16> {
  %g = graph.gather %w, %i {offset_dims = [1, 2], collapsed_dims = [0], x_batch = [], indices_batch = [], start_map = [0], index_dim = 1, slice_sizes = [1, 96, 100]} : (tensor<5x200x100xf16>, tensor<6x1xi32>) -> tensor<6x96x100xf16>
  %y = graph.contract %x, %g {lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : (tensor<6x40x96xf16>, tensor<6x96x100xf16>) -> tensor<6x40x100xf16>
  func.return %y : tensor<6x40x100xf16>
}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: tile.launch @gather_0
// CHECK-NEXT: tile.launch @contract_0
