// RUN: tilewright-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

%x = "test.op"() : () -> (tensor<4x8xf32>)
%y = acme.prefix_xor %x : tensor<4x8xf32>
// CHECK: 'acme.prefix_xor' takes i32 or ui32, not f32

// -----

%a, %b = "test.op"() : () -> (!npu.buffer<4x8xi32, ub>, !npu.buffer<4x8xi32, ub>)
acme.copy_px %a, %b : (!npu.buffer<4x8xi32, ub>, !npu.buffer<4x8xi32, ub>)
// CHECK: 'acme.copy_px' copies ub to px, not ub to ub
