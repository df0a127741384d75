// RUN: tilewright-opt %s | tilewright-opt | filecheck %s
// RUN: tilewright-opt %s --print-op-generic | tilewright-opt | filecheck %s

%x = "test.op"() : () -> (tensor<4x8xi32>)
%y = acme.prefix_xor %x : tensor<4x8xi32>
// CHECK: acme.prefix_xor %{{.*}} : tensor<4x8xi32>

%u = "test.op"() : () -> (!tile.tile<4x8xi32, ub>)
%p = acme.tile_copy_px %u : (!tile.tile<4x8xi32, ub>) -> !tile.tile<4x8xi32, px>
%v = acme.tile_prefix_xor %p : (!tile.tile<4x8xi32, px>) -> !tile.tile<4x8xi32, ub>
// CHECK: acme.tile_copy_px %{{.*}} : (!tile.tile<4x8xi32, ub>) -> !tile.tile<4x8xi32, px>
// CHECK: acme.tile_prefix_xor %{{.*}} : (!tile.tile<4x8xi32, px>) -> !tile.tile<4x8xi32, ub>

%a, %b = "test.op"() : () -> (!npu.buffer<4x8xi32, ub>, !npu.buffer<4x8xi32, px>)
acme.copy_px %a, %b : (!npu.buffer<4x8xi32, ub>, !npu.buffer<4x8xi32, px>)
acme.vprefix_xor %b, %a : (!npu.buffer<4x8xi32, px>, !npu.buffer<4x8xi32, ub>)
// CHECK: acme.copy_px
// CHECK: acme.vprefix_xor

%m = "test.op"() : () -> (tensor<4x8xf32>)
%n = graph.mish %m : tensor<4x8xf32>
// CHECK: graph.mish %{{.*}} : tensor<4x8xf32>
