%x = "test.op"() : () -> tensor<4xf32>
%y = graph.abs %x : tensor<4xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.abs %x : (tensor<4xf32>) -> tensor<5xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
%y = graph.neg %x : tensor<4xf32>
