// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

func.func @structure(%n: index, %p: !llvm.ptr<1>, %s: f32) {
  %i = hivm.hir.get_block_idx -> i64
  // CHECK: hivm.hir.get_block_idx -> i64
  %j = hivm.hir.get_block_num -> i64
  // CHECK: hivm.hir.get_block_num -> i64
  %k = hivm.hir.get_sub_block_idx -> i64
  // CHECK: hivm.hir.get_sub_block_idx -> i64
  %o = hivm.hir.get_sub_block_num -> i64
  // CHECK: hivm.hir.get_sub_block_num -> i64
  %t = hivm.hir.get_sys_cnt -> i64
  // CHECK: hivm.hir.get_sys_cnt -> i64
  %u = hivm.hir.pointer_cast(%i) : memref<4x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>
  // CHECK: hivm.hir.pointer_cast(%{{.*}}) : memref<4x1xf32, strided<[8, 1]>, #hivm.address_space<ub>>
  %v = hivm.hir.pointer_cast(%i, %j) : memref<16x16x16x16xf16, #hivm.address_space<cbuf>>
  // CHECK: hivm.hir.pointer_cast(%{{.*}}, %{{.*}}) : memref<16x16x16x16xf16, #hivm.address_space<cbuf>>
  %w = hivm.hir.pointer_cast(%i) [%n] : memref<?xf32, #hivm.address_space<ub>>
  // CHECK: hivm.hir.pointer_cast(%{{.*}}) [%{{.*}}] : memref<?xf32, #hivm.address_space<ub>>
  %x = hivm.hir.bitcast %v : memref<16x16x16x16xf16, #hivm.address_space<cbuf>> -> memref<16x16x16x16xi16, #hivm.address_space<cbuf>>
  // CHECK: hivm.hir.bitcast %{{.*}} : memref<16x16x16x16xf16, #hivm.address_space<cbuf>> -> memref<16x16x16x16xi16, #hivm.address_space<cbuf>>
  %z = hivm.hir.load_scalar %p : !llvm.ptr<1> -> f32
  // CHECK: hivm.hir.load_scalar %{{.*}} : !llvm.ptr<1> -> f32
  hivm.hir.debug {debugtype = "print", hex = false, prefix = "x"} %s : f32
  // CHECK: hivm.hir.debug {debugtype = "print", hex = false, prefix = "x"} %{{.*}} : f32
  return
}
