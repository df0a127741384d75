// RUN: tilewright-opt %s -p graph-simplify,graph-fuse,graph-schedule,graph-to-tile,tile-to-npu,npu-allocate,npu-synchronize,npu-plan-memory | tilewright-opt | filecheck %s --check-prefixes CHECK,SPLIT
// RUN: tilewright-opt %s -p 'graph-simplify{target=ascend-310},graph-fuse{target=ascend-310},graph-schedule,graph-to-tile{target=ascend-310},tile-to-npu,npu-allocate{target=ascend-310},npu-synchronize{target=ascend-310},npu-plan-memory{target=ascend-310}' | tilewright-opt | filecheck %s --check-prefixes CHECK,FUSED
// RUN: tilewright-opt %s -p graph-simplify,graph-fuse,graph-schedule,graph-to-tile,cse,canonicalize,dce,tile-to-npu --print-debuginfo | filecheck %s --check-prefix PLACES

// From matmul + bias + relu to instructions: cross flags between split cores, none on a fused one.
func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x48xf16>, %b: tensor<48xf16>) -> tensor<64x48xf16> {
  %y = graph.contract %x, %w {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : (tensor<64x32xf16>, tensor<32x48xf16>) -> tensor<64x48xf16>
  %c = graph.broadcast %b {dims = [1]} : (tensor<48xf16>) -> tensor<64x48xf16>
  %s = graph.add %y, %c : tensor<64x48xf16>
  %z = graph.constant {value = #graph.data<f16, [], (0.0)>} : () -> tensor<f16>
  %zz = graph.broadcast %z {dims = []} : (tensor<f16>) -> tensor<64x48xf16>
  %r = graph.max %s, %zz : tensor<64x48xf16>
  func.return %r : tensor<64x48xf16>
}

// CHECK: func.func @main(%x: !npu.gm<64x32xf16>, {{.*}} attributes {npu.addresses = array<i64: 0, {{.*}}>, npu.arena_bytes = {{.*}} : i64}
// CHECK: npu.gm_alloc {address =
// CHECK: npu.launch @contract_0
// SPLIT: npu.section {core = "cube", units = 1}
// FUSED: npu.section {core = "fused", units = 1}
// CHECK: npu.alloc {address = 0} : () -> !npu.buffer<{{.*}}, l0c>
// CHECK: npu.load_nd2nz
// CHECK: npu.set_flag at [0] {{.*}}source = "MTE2", target = "MTE1"
// CHECK: npu.load_l0
// CHECK: npu.mmad
// SPLIT: npu.fixpipe
// SPLIT: npu.set_cross {event = 0, source = "FIX"}
// SPLIT: npu.section {core = "vector", units = 2}
// SPLIT: npu.wait_cross {event = 0, target = "MTE2"}
// FUSED-NOT: npu.set_cross
// FUSED: npu.copy_l0c
// CHECK: npu.vadd
// CHECK: npu.vmax
// CHECK: npu.store_nd

// Every instruction knows the line that it comes from.
// PLACES: npu.launch @contract_0 {{.*}}loc("{{.*}}pipeline.mlir":{{[0-9]+}}:
// PLACES: npu.mmad {{.*}}loc("{{.*}}pipeline.mlir":7:
// PLACES: npu.vadd {{.*}}loc("{{.*}}pipeline.mlir":
// PLACES: npu.vmax {{.*}}loc("{{.*}}pipeline.mlir":
