// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

func.func @upstream(%w: memref<?xi8, #hivm.address_space<gm>>, %n: index, %i: i64, %x: memref<4x8xf32>, %v: vector<1x64xf32>, %a: vector<1xf32>, %o: vector<f32>, %p: vector<4xi32>) {
  annotation.mark %x {hivm.multi_buffer = 2 : i32} : memref<4x8xf32>
  // CHECK: annotation.mark %{{.*}} {hivm.multi_buffer = 2 : i32} : memref<4x8xf32>
  annotation.mark %x keys = ["size"] values = [%n : index] : memref<4x8xf32>
  // CHECK: annotation.mark %{{.*}} keys = ["size"] values = [%{{.*}} : index] : memref<4x8xf32>
  %q = memref_ext.alloc_workspace() from %w offset = [%n] : from memref<?xi8, #hivm.address_space<gm>> to memref<64x64xf32, #hivm.address_space<gm>>
  // CHECK: memref_ext.alloc_workspace() from %{{.*}} offset = [%{{.*}}] : from memref<?xi8, #hivm.address_space<gm>> to memref<64x64xf32, #hivm.address_space<gm>>
  %r = memref_ext.alloc_workspace(%n) : memref<2x?xi32>
  // CHECK: memref_ext.alloc_workspace(%{{.*}}) : memref<2x?xi32>
  %s = memref.cast %x : memref<4x8xf32> to memref<?x?xf32>
  // CHECK: memref.cast %{{.*}} : memref<4x8xf32> to memref<?x?xf32>
  %sp = memref.memory_space_cast %x : memref<4x8xf32> to memref<4x8xf32, #hivm.address_space<ub>>
  // CHECK: memref.memory_space_cast %{{.*}} : memref<4x8xf32> to memref<4x8xf32, #hivm.address_space<ub>>
  memref.copy %x, %x : memref<4x8xf32> to memref<4x8xf32>
  // CHECK: memref.copy %{{.*}}, %{{.*}} : memref<4x8xf32> to memref<4x8xf32>
  %t = affine.max affine_map<(d0)[s0, s1] -> (d0, (s0 * s1))>(%n)[%n, %n]
  // CHECK: affine.max affine_map<(d0)[s0, s1] -> (d0, (s0 * s1))>(%{{.*}})[%{{.*}}, %{{.*}}]
  %u = affine.apply affine_map<()[s0, s1] -> (((s0 + 1) floordiv s1))> ()[%n, %n]
  // CHECK: affine.apply affine_map<()[s0, s1] -> (((s0 + 1) floordiv s1))> ()[%{{.*}}, %{{.*}}]
  %b = affine.apply affine_map<()[s0, s1] -> (((s0 mod s1) ceildiv s0))> ()[%n, %n]
  // CHECK: affine.apply affine_map<()[s0, s1] -> (((s0 mod s1) ceildiv s0))> ()[%{{.*}}, %{{.*}}]
  %c = arith.index_castui %n : index to i64
  // CHECK: arith.index_castui %{{.*}} : index to i64
  %d = arith.cmpi slt, %i, %i : i64
  // CHECK: arith.cmpi slt, %{{.*}}, %{{.*}} : i64
  %e = arith.cmpi ne, %p, %p : vector<4xi32>
  // CHECK: arith.cmpi ne, %{{.*}}, %{{.*}} : vector<4xi32>
  %f = arith.select %e, %p, %p : vector<4xi1>, vector<4xi32>
  // CHECK: arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<4xi1>, vector<4xi32>
  %g = arith.select %d, %n, %n : index
  // CHECK: arith.select %{{.*}}, %{{.*}}, %{{.*}} : index
  %h = vector.multi_reduction <add>, %v, %a [1 : i64] : vector<1x64xf32> to vector<1xf32>
  // CHECK: vector.multi_reduction <add>, %{{.*}}, %{{.*}} [1 : i64] : vector<1x64xf32> to vector<1xf32>
  %j = vector.constant_mask [32 : i64] : vector<64xi1>
  // CHECK: vector.constant_mask [32 : i64] : vector<64xi1>
  %k = vector.shape_cast %v : vector<1x64xf32> to vector<64xf32>
  // CHECK: vector.shape_cast %{{.*}} : vector<1x64xf32> to vector<64xf32>
  %l = vector.extractelement %o[] : vector<f32>
  // CHECK: vector.extractelement %{{.*}}[] : vector<f32>
  %m = vector.extractelement %a[%n : index] : vector<1xf32>
  // CHECK: vector.extractelement %{{.*}}[%{{.*}} : index] : vector<1xf32>
  %lowest = arith.constant dense<0xFF800000> : vector<64xf32>
  // CHECK: arith.constant dense<0xff800000> : vector<64xf32>
  %several = arith.constant dense<[0x7C00, 1.0]> : vector<2xf16>
  // CHECK: arith.constant dense<[0x7c00, 1.000000e+00]> : vector<2xf16>
  return
}
