// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%f, %z, %p = "test.op"() : () -> (tensor<4x6xf32>, tensor<4x6xcomplex<f32>>, tensor<4x6x2xf32>)
%complex = graph.complex %f, %f : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xcomplex<f32>>
// CHECK: graph.complex %{{.*}}, %{{.*}} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xcomplex<f32>>
%real = graph.real %z : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xf32>
// CHECK: graph.real %{{.*}} : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xf32>
%imag = graph.imag %z : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xf32>
// CHECK: graph.imag %{{.*}} : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xf32>
%abs = graph.abs %z : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xf32>
// CHECK: graph.abs %{{.*}} : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xf32>
%parts = graph.view %z : (tensor<4x6xcomplex<f32>>) -> tensor<4x6x2xf32>
// CHECK: graph.view %{{.*}} : (tensor<4x6xcomplex<f32>>) -> tensor<4x6x2xf32>
%whole = graph.view %p : (tensor<4x6x2xf32>) -> tensor<4x6xcomplex<f32>>
// CHECK: graph.view %{{.*}} : (tensor<4x6x2xf32>) -> tensor<4x6xcomplex<f32>>
%constant = graph.constant {value = #graph.data<c64, [2], "AACAPwAAAAAAAAAAAACAPw==">} : () -> tensor<2xcomplex<f32>>
// CHECK: graph.constant {value = #graph.data<c64, [2], "AACAPwAAAAAAAAAAAACAPw==">} : () -> tensor<2xcomplex<f32>>
