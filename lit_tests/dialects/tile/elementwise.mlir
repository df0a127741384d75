// RUN: ROUNDTRIP
// RUN: GENERIC_ROUNDTRIP
// Written by lit_tests/dialects/elementwise.py

%i, %f, %p = "test.op"() : () -> (!tile.tile<8x16xi32, ub>, !tile.tile<8x16xf32, ub>, !tile.tile<8x16xi1, ub>)
%abs = tile.abs %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.abs %{{.*}} : !tile.tile<8x16xf32, ub>
%neg = tile.neg %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.neg %{{.*}} : !tile.tile<8x16xf32, ub>
%sign = tile.sign %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.sign %{{.*}} : !tile.tile<8x16xf32, ub>
%exp = tile.exp %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.exp %{{.*}} : !tile.tile<8x16xf32, ub>
%exp2 = tile.exp2 %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.exp2 %{{.*}} : !tile.tile<8x16xf32, ub>
%expm1 = tile.expm1 %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.expm1 %{{.*}} : !tile.tile<8x16xf32, ub>
%log = tile.log %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.log %{{.*}} : !tile.tile<8x16xf32, ub>
%log1p = tile.log1p %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.log1p %{{.*}} : !tile.tile<8x16xf32, ub>
%sqrt = tile.sqrt %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.sqrt %{{.*}} : !tile.tile<8x16xf32, ub>
%rsqrt = tile.rsqrt %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.rsqrt %{{.*}} : !tile.tile<8x16xf32, ub>
%cbrt = tile.cbrt %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.cbrt %{{.*}} : !tile.tile<8x16xf32, ub>
%tanh = tile.tanh %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.tanh %{{.*}} : !tile.tile<8x16xf32, ub>
%logistic = tile.logistic %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.logistic %{{.*}} : !tile.tile<8x16xf32, ub>
%sin = tile.sin %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.sin %{{.*}} : !tile.tile<8x16xf32, ub>
%cos = tile.cos %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.cos %{{.*}} : !tile.tile<8x16xf32, ub>
%tan = tile.tan %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.tan %{{.*}} : !tile.tile<8x16xf32, ub>
%erf = tile.erf %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.erf %{{.*}} : !tile.tile<8x16xf32, ub>
%erfc = tile.erfc %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.erfc %{{.*}} : !tile.tile<8x16xf32, ub>
%floor = tile.floor %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.floor %{{.*}} : !tile.tile<8x16xf32, ub>
%ceil = tile.ceil %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.ceil %{{.*}} : !tile.tile<8x16xf32, ub>
%round_even = tile.round_even %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.round_even %{{.*}} : !tile.tile<8x16xf32, ub>
%round_away = tile.round_away %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.round_away %{{.*}} : !tile.tile<8x16xf32, ub>
%not = tile.not %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.not %{{.*}} : !tile.tile<8x16xi32, ub>
%popcnt = tile.popcnt %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.popcnt %{{.*}} : !tile.tile<8x16xi32, ub>
%clz = tile.clz %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.clz %{{.*}} : !tile.tile<8x16xi32, ub>
%shr_logical = tile.shr_logical %i, %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.shr_logical %{{.*}} : !tile.tile<8x16xi32, ub>
%shr_arithmetic = tile.shr_arithmetic %i, %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.shr_arithmetic %{{.*}} : !tile.tile<8x16xi32, ub>
%is_finite = tile.is_finite %f : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
// CHECK: tile.is_finite %{{.*}} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
%convert = tile.convert %f : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf16, ub>
// CHECK: tile.convert %{{.*}} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf16, ub>
%bitcast = tile.bitcast %f : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi32, ub>
// CHECK: tile.bitcast %{{.*}} : (!tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi32, ub>
%add = tile.add %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.add %{{.*}} : !tile.tile<8x16xf32, ub>
%sub = tile.sub %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.sub %{{.*}} : !tile.tile<8x16xf32, ub>
%mul = tile.mul %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.mul %{{.*}} : !tile.tile<8x16xf32, ub>
%div = tile.div %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.div %{{.*}} : !tile.tile<8x16xf32, ub>
%max = tile.max %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.max %{{.*}} : !tile.tile<8x16xf32, ub>
%min = tile.min %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.min %{{.*}} : !tile.tile<8x16xf32, ub>
%pow = tile.pow %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.pow %{{.*}} : !tile.tile<8x16xf32, ub>
%rem = tile.rem %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.rem %{{.*}} : !tile.tile<8x16xf32, ub>
%atan2 = tile.atan2 %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.atan2 %{{.*}} : !tile.tile<8x16xf32, ub>
%and = tile.and %i, %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.and %{{.*}} : !tile.tile<8x16xi32, ub>
%or = tile.or %i, %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.or %{{.*}} : !tile.tile<8x16xi32, ub>
%xor = tile.xor %i, %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.xor %{{.*}} : !tile.tile<8x16xi32, ub>
%shl = tile.shl %i, %i : !tile.tile<8x16xi32, ub>
// CHECK: tile.shl %{{.*}} : !tile.tile<8x16xi32, ub>
%eq = tile.eq %f, %f : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
// CHECK: tile.eq %{{.*}} : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
%ne = tile.ne %f, %f : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
// CHECK: tile.ne %{{.*}} : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
%lt = tile.lt %f, %f : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
// CHECK: tile.lt %{{.*}} : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
%le = tile.le %f, %f : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
// CHECK: tile.le %{{.*}} : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
%gt = tile.gt %f, %f : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
// CHECK: tile.gt %{{.*}} : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
%ge = tile.ge %f, %f : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
// CHECK: tile.ge %{{.*}} : (!tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xi1, ub>
%select = tile.select %p, %f, %f : (!tile.tile<8x16xi1, ub>, !tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf32, ub>
// CHECK: tile.select %{{.*}} : (!tile.tile<8x16xi1, ub>, !tile.tile<8x16xf32, ub>, !tile.tile<8x16xf32, ub>) -> !tile.tile<8x16xf32, ub>
%clamp = tile.clamp %f, %f, %f : !tile.tile<8x16xf32, ub>
// CHECK: tile.clamp %{{.*}} : !tile.tile<8x16xf32, ub>
