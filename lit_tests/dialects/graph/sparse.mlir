// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP

%values, %index = "test.op"() : () -> (tensor<40x64xi8>, tensor<40x16xi8>)
%dense = graph.expand %values, %index {dim = 1} : (tensor<40x64xi8>, tensor<40x16xi8>) -> tensor<40x128xi8>
// CHECK: graph.expand %{{.*}}, %{{.*}} {dim = 1} : (tensor<40x64xi8>, tensor<40x16xi8>) -> tensor<40x128xi8>
