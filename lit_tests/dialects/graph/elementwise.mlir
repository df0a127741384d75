// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP
// Written by lit_tests/dialects/elementwise.py

%i, %f, %p = "test.op"() : () -> (tensor<8x16xi32>, tensor<8x16xf32>, tensor<8x16xi1>)
%abs = graph.abs %f : tensor<8x16xf32>
// CHECK: graph.abs %{{.*}} : tensor<8x16xf32>
%neg = graph.neg %f : tensor<8x16xf32>
// CHECK: graph.neg %{{.*}} : tensor<8x16xf32>
%sign = graph.sign %f : tensor<8x16xf32>
// CHECK: graph.sign %{{.*}} : tensor<8x16xf32>
%exp = graph.exp %f : tensor<8x16xf32>
// CHECK: graph.exp %{{.*}} : tensor<8x16xf32>
%exp2 = graph.exp2 %f : tensor<8x16xf32>
// CHECK: graph.exp2 %{{.*}} : tensor<8x16xf32>
%expm1 = graph.expm1 %f : tensor<8x16xf32>
// CHECK: graph.expm1 %{{.*}} : tensor<8x16xf32>
%log = graph.log %f : tensor<8x16xf32>
// CHECK: graph.log %{{.*}} : tensor<8x16xf32>
%log1p = graph.log1p %f : tensor<8x16xf32>
// CHECK: graph.log1p %{{.*}} : tensor<8x16xf32>
%sqrt = graph.sqrt %f : tensor<8x16xf32>
// CHECK: graph.sqrt %{{.*}} : tensor<8x16xf32>
%rsqrt = graph.rsqrt %f : tensor<8x16xf32>
// CHECK: graph.rsqrt %{{.*}} : tensor<8x16xf32>
%cbrt = graph.cbrt %f : tensor<8x16xf32>
// CHECK: graph.cbrt %{{.*}} : tensor<8x16xf32>
%tanh = graph.tanh %f : tensor<8x16xf32>
// CHECK: graph.tanh %{{.*}} : tensor<8x16xf32>
%logistic = graph.logistic %f : tensor<8x16xf32>
// CHECK: graph.logistic %{{.*}} : tensor<8x16xf32>
%sin = graph.sin %f : tensor<8x16xf32>
// CHECK: graph.sin %{{.*}} : tensor<8x16xf32>
%cos = graph.cos %f : tensor<8x16xf32>
// CHECK: graph.cos %{{.*}} : tensor<8x16xf32>
%tan = graph.tan %f : tensor<8x16xf32>
// CHECK: graph.tan %{{.*}} : tensor<8x16xf32>
%erf = graph.erf %f : tensor<8x16xf32>
// CHECK: graph.erf %{{.*}} : tensor<8x16xf32>
%erfc = graph.erfc %f : tensor<8x16xf32>
// CHECK: graph.erfc %{{.*}} : tensor<8x16xf32>
%floor = graph.floor %f : tensor<8x16xf32>
// CHECK: graph.floor %{{.*}} : tensor<8x16xf32>
%ceil = graph.ceil %f : tensor<8x16xf32>
// CHECK: graph.ceil %{{.*}} : tensor<8x16xf32>
%round_even = graph.round_even %f : tensor<8x16xf32>
// CHECK: graph.round_even %{{.*}} : tensor<8x16xf32>
%round_away = graph.round_away %f : tensor<8x16xf32>
// CHECK: graph.round_away %{{.*}} : tensor<8x16xf32>
%not = graph.not %i : tensor<8x16xi32>
// CHECK: graph.not %{{.*}} : tensor<8x16xi32>
%popcnt = graph.popcnt %i : tensor<8x16xi32>
// CHECK: graph.popcnt %{{.*}} : tensor<8x16xi32>
%clz = graph.clz %i : tensor<8x16xi32>
// CHECK: graph.clz %{{.*}} : tensor<8x16xi32>
%shr_logical = graph.shr_logical %i, %i : tensor<8x16xi32>
// CHECK: graph.shr_logical %{{.*}} : tensor<8x16xi32>
%shr_arithmetic = graph.shr_arithmetic %i, %i : tensor<8x16xi32>
// CHECK: graph.shr_arithmetic %{{.*}} : tensor<8x16xi32>
%is_finite = graph.is_finite %f : (tensor<8x16xf32>) -> tensor<8x16xi1>
// CHECK: graph.is_finite %{{.*}} : (tensor<8x16xf32>) -> tensor<8x16xi1>
%convert = graph.convert %f : (tensor<8x16xf32>) -> tensor<8x16xf16>
// CHECK: graph.convert %{{.*}} : (tensor<8x16xf32>) -> tensor<8x16xf16>
%bitcast = graph.bitcast %f : (tensor<8x16xf32>) -> tensor<8x16xi32>
// CHECK: graph.bitcast %{{.*}} : (tensor<8x16xf32>) -> tensor<8x16xi32>
%add = graph.add %f, %f : tensor<8x16xf32>
// CHECK: graph.add %{{.*}} : tensor<8x16xf32>
%sub = graph.sub %f, %f : tensor<8x16xf32>
// CHECK: graph.sub %{{.*}} : tensor<8x16xf32>
%mul = graph.mul %f, %f : tensor<8x16xf32>
// CHECK: graph.mul %{{.*}} : tensor<8x16xf32>
%div = graph.div %f, %f : tensor<8x16xf32>
// CHECK: graph.div %{{.*}} : tensor<8x16xf32>
%max = graph.max %f, %f : tensor<8x16xf32>
// CHECK: graph.max %{{.*}} : tensor<8x16xf32>
%min = graph.min %f, %f : tensor<8x16xf32>
// CHECK: graph.min %{{.*}} : tensor<8x16xf32>
%pow = graph.pow %f, %f : tensor<8x16xf32>
// CHECK: graph.pow %{{.*}} : tensor<8x16xf32>
%rem = graph.rem %f, %f : tensor<8x16xf32>
// CHECK: graph.rem %{{.*}} : tensor<8x16xf32>
%atan2 = graph.atan2 %f, %f : tensor<8x16xf32>
// CHECK: graph.atan2 %{{.*}} : tensor<8x16xf32>
%and = graph.and %i, %i : tensor<8x16xi32>
// CHECK: graph.and %{{.*}} : tensor<8x16xi32>
%or = graph.or %i, %i : tensor<8x16xi32>
// CHECK: graph.or %{{.*}} : tensor<8x16xi32>
%xor = graph.xor %i, %i : tensor<8x16xi32>
// CHECK: graph.xor %{{.*}} : tensor<8x16xi32>
%shl = graph.shl %i, %i : tensor<8x16xi32>
// CHECK: graph.shl %{{.*}} : tensor<8x16xi32>
%eq = graph.eq %f, %f : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
// CHECK: graph.eq %{{.*}} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
%ne = graph.ne %f, %f : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
// CHECK: graph.ne %{{.*}} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
%lt = graph.lt %f, %f : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
// CHECK: graph.lt %{{.*}} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
%le = graph.le %f, %f : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
// CHECK: graph.le %{{.*}} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
%gt = graph.gt %f, %f : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
// CHECK: graph.gt %{{.*}} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
%ge = graph.ge %f, %f : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
// CHECK: graph.ge %{{.*}} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xi1>
%select = graph.select %p, %f, %f : (tensor<8x16xi1>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK: graph.select %{{.*}} : (tensor<8x16xi1>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
%clamp = graph.clamp %f, %f, %f : tensor<8x16xf32>
// CHECK: graph.clamp %{{.*}} : tensor<8x16xf32>
