// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

func.func @vector(%f: memref<16x64xf32, #hivm.address_space<ub>>, %g: memref<64x16xf32, #hivm.address_space<ub>>, %c: memref<16x1xf32, #hivm.address_space<ub>>, %r: memref<1x64xf32, #hivm.address_space<ub>>, %n: memref<16x1xi32, #hivm.address_space<ub>>, %t: memref<8xf32, #hivm.address_space<ub>>, %s: f32, %o: index, %a: memref<64xf32, #hivm.address_space<ub>>, %d: memref<128xf32, #hivm.address_space<ub>>, %e: memref<64xi32, #hivm.address_space<ub>>, %b: memref<64xi1, #hivm.address_space<ub>>, %z: memref<1xi64, #hivm.address_space<ub>>) {
  hivm.hir.vbrc ins(%s : f32) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vbrc ins(%{{.*}} : f32) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.vbrc ins(%c : memref<16x1xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>) broadcast_dims = [1]
  // CHECK: hivm.hir.vbrc ins(%{{.*}} : memref<16x1xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>) broadcast_dims = [1]
  hivm.hir.vreduce <sum> ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%c : memref<16x1xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>) reduce_dims = [1]
  // CHECK: hivm.hir.vreduce <sum> ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x1xf32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>) reduce_dims = [1]
  hivm.hir.vreduce <max_with_index_left> ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%c, %n : memref<16x1xf32, #hivm.address_space<ub>>, memref<16x1xi32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>) tie_break_left = true reduce_dims = [1]
  // CHECK: hivm.hir.vreduce <max_with_index_left> ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}}, %{{.*}} : memref<16x1xf32, #hivm.address_space<ub>>, memref<16x1xi32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>) tie_break_left = true reduce_dims = [1]
  hivm.hir.vtranspose ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%g : memref<64x16xf32, #hivm.address_space<ub>>) permutation = [1, 0]
  // CHECK: hivm.hir.vtranspose ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<64x16xf32, #hivm.address_space<ub>>) permutation = [1, 0]
  hivm.hir.varange offset[%o] strides[%o, %o] outs(%f : memref<16x64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.varange offset[%{{.*}}] strides[%{{.*}}, %{{.*}}] outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>)
  hivm.hir.varange strides[%o] outs(%a : memref<64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.varange strides[%{{.*}}] outs(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>)
  hivm.hir.vinterleave ins(%a, %a : memref<64xf32, #hivm.address_space<ub>>, memref<64xf32, #hivm.address_space<ub>>) outs(%d : memref<128xf32, #hivm.address_space<ub>>) interleave_channel_nums = 2 temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vinterleave ins(%{{.*}}, %{{.*}} : memref<64xf32, #hivm.address_space<ub>>, memref<64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<128xf32, #hivm.address_space<ub>>) interleave_channel_nums = 2 temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>)
  hivm.hir.vdeinterleave ins(%d : memref<128xf32, #hivm.address_space<ub>>) outs(%a : memref<64xf32, #hivm.address_space<ub>>) channel_num = 2 index_mode = <CHANNEL_1>
  // CHECK: hivm.hir.vdeinterleave ins(%{{.*}} : memref<128xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>) channel_num = 2 index_mode = <CHANNEL_1>
  hivm.hir.vdeinterleave ins(%d : memref<128xf32, #hivm.address_space<ub>>) outs(%a, %a : memref<64xf32, #hivm.address_space<ub>>, memref<64xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vdeinterleave ins(%{{.*}} : memref<128xf32, #hivm.address_space<ub>>) outs(%{{.*}}, %{{.*}} : memref<64xf32, #hivm.address_space<ub>>, memref<64xf32, #hivm.address_space<ub>>)
  hivm.hir.vflip ins(%a : memref<64xf32, #hivm.address_space<ub>>) outs(%a : memref<64xf32, #hivm.address_space<ub>>) flip_axis = 0
  // CHECK: hivm.hir.vflip ins(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>) flip_axis = 0
  hivm.hir.vcumsum ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>) cum_dims = [1] reverse = false
  // CHECK: hivm.hir.vcumsum ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>) cum_dims = [1] reverse = false
  hivm.hir.vcumprod ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) cum_dims = [0] reverse = false
  // CHECK: hivm.hir.vcumprod ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) cum_dims = [0] reverse = false
  hivm.hir.vcummax ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) cum_dims = [0] reverse = true
  // CHECK: hivm.hir.vcummax ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) cum_dims = [0] reverse = true
  hivm.hir.vcummin ins(%f : memref<16x64xf32, #hivm.address_space<ub>>) outs(%f : memref<16x64xf32, #hivm.address_space<ub>>) cum_dims = [0] reverse = true
  // CHECK: hivm.hir.vcummin ins(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<16x64xf32, #hivm.address_space<ub>>) cum_dims = [0] reverse = true
  hivm.hir.vsort ins(%a : memref<64xf32, #hivm.address_space<ub>>) outs(%a : memref<64xf32, #hivm.address_space<ub>>) descending = false sort_axis = 0 temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vsort ins(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>) descending = false sort_axis = 0 temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>)
  hivm.hir.vgather ins(%a : memref<64xf32, #hivm.address_space<ub>>) indices(%e : memref<64xi32, #hivm.address_space<ub>>) outs(%a : memref<64xf32, #hivm.address_space<ub>>) temp_buffer(%t : memref<8xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vgather ins(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>) indices(%{{.*}} : memref<64xi32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>) temp_buffer(%{{.*}} : memref<8xf32, #hivm.address_space<ub>>)
  hivm.hir.vgathermask ins(%a : memref<64xf32, #hivm.address_space<ub>>) mask(%b : memref<64xi1, #hivm.address_space<ub>>) outs(%a, %z : memref<64xf32, #hivm.address_space<ub>>, memref<1xi64, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vgathermask ins(%{{.*}} : memref<64xf32, #hivm.address_space<ub>>) mask(%{{.*}} : memref<64xi1, #hivm.address_space<ub>>) outs(%{{.*}}, %{{.*}} : memref<64xf32, #hivm.address_space<ub>>, memref<1xi64, #hivm.address_space<ub>>)
  hivm.hir.vconcat dim(0) ins(%a, %a : memref<64xf32, #hivm.address_space<ub>>, memref<64xf32, #hivm.address_space<ub>>) outs(%d : memref<128xf32, #hivm.address_space<ub>>)
  // CHECK: hivm.hir.vconcat dim(0) ins(%{{.*}}, %{{.*}} : memref<64xf32, #hivm.address_space<ub>>, memref<64xf32, #hivm.address_space<ub>>) outs(%{{.*}} : memref<128xf32, #hivm.address_space<ub>>)
  return
}
