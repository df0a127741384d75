"""Value rules: rounding, special values and integer semantics."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from tiering import sampled

from tilewright.backends.functions import values
from tilewright.backends.functions.compiling import OPTIONS
from tilewright.backends.functions.products import mma
from tilewright.dialects.elementwise import FUNCTIONS, PARTS

jax.config.update("jax_platforms", "cpu")


def run(name: str, *operands: np.ndarray, dtype: type | np.dtype | None = None) -> np.ndarray:
    wanted = np.dtype(dtype or operands[-1].dtype)
    with jax.enable_x64(True):
        function = jax.jit(lambda *xs: values.apply(name, xs, wanted), compiler_options=OPTIONS)
        return np.asarray(function(*operands))


def test_every_function_has_a_rule() -> None:
    assert all(callable(values.SCALAR[name]) for name in {*FUNCTIONS, *PARTS} - {"convert", "bitcast"})


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_chains_round_every_op(dtype: type) -> None:
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(1000).astype(dtype) for _ in range(3))

    def chain(x, y, z):
        product = values.apply("mul", [x, y], np.dtype(dtype))
        total = values.apply("add", [product, z], np.dtype(dtype))
        return values.apply("div", [total, y], np.dtype(dtype))

    got = np.asarray(jax.jit(chain, compiler_options=OPTIONS)(x, y, z))
    np.testing.assert_array_equal(got, ((x * y) + z) / y)


def test_division_by_one_value_for_all_is_exact() -> None:
    x = np.random.default_rng(0).standard_normal((64, 100)).astype(np.float32)
    rows = x.sum(1, keepdims=True)

    def divide(x, rows):
        wide = jax.lax.broadcast_in_dim(rows, x.shape, (0, 1))
        by_seven = values.apply(
            "div", [x, values.full(x.shape, 7.0, np.dtype(np.float32))], np.dtype(np.float32)
        )
        return values.apply("div", [x, wide], np.dtype(np.float32)), by_seven

    by_row, by_seven = jax.jit(divide)(x, rows)
    np.testing.assert_array_equal(np.asarray(by_row), x / rows)
    np.testing.assert_array_equal(np.asarray(by_seven), x / np.float32(7))


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("div", ([7, -7, 7, -7], [2, 2, -2, -2]), [3, -3, -3, 3]),
        ("rem", ([7, -7, 7, -7], [4, 4, -4, -4]), [3, -3, 3, -3]),
        ("pow", ([2, -3, 2, -1, 5], [10, 3, -1, -3, 0]), [1024, -27, 0, -1, 1]),
        ("shl", ([1, 1, -1], [3, 32, 40]), [8, 0, 0]),
        ("shr_logical", ([-1, 8, 8], [28, 2, 32]), [15, 2, 0]),
        ("shr_arithmetic", ([-8, -8, 8], [1, 40, 40]), [-4, -1, 0]),
        ("popcnt", ([0, 255, -1],), [0, 8, 32]),
        ("clz", ([0, 1, -1],), [32, 31, 0]),
        ("sign", ([-5, 0, 7],), [-1, 0, 1]),
        ("clamp", ([0, 0, 0], [-4, 5, 90], [10, 10, 10]), [0, 5, 10]),
    ],
)
def test_integers(name: str, operands: tuple[list[int], ...], expected: list[int]) -> None:
    got = run(name, *(np.array(o, np.int32) for o in operands))
    np.testing.assert_array_equal(got, np.array(expected, np.int32))


def test_booleans_add_and_multiply_as_or_and_and() -> None:
    x, y = np.array([True, True, False]), np.array([True, False, False])
    np.testing.assert_array_equal(run("add", x, y), x | y)
    np.testing.assert_array_equal(run("mul", x, y), x & y)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_denormals_are_not_zero_where_a_result_would_jump(dtype: type) -> None:
    info = ml_dtypes.finfo(dtype)
    small, large = float(info.smallest_subnormal), float(info.smallest_normal)
    x = np.array([small, -small, large - small, small - large, large, -large, 0, -0.0, 1.5, np.nan], dtype)
    for name in ("sign", "floor", "ceil"):
        want = getattr(np, name)(x.astype(np.float64)).astype(dtype)
        got = run(name, x)
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
        zeros = want == 0
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(x[zeros]))


@pytest.mark.parametrize("name", ["max", "min", "rem", "mul", "div", "pow"])
def test_nan_wins_and_is_always_the_same_one(name: str) -> None:
    x = np.array([np.nan, 1.5, -np.nan, 1.5, -np.nan], np.float32)
    y = np.array([1.5, np.nan, 1.5, -np.nan, np.nan], np.float32)
    np.testing.assert_array_equal(run(name, x, y).view(np.int32), np.full(5, 0x7FC00000))


@pytest.mark.parametrize("kind", ["max", "min", "prod"])
def test_reductions_give_the_same_nan(kind: str) -> None:
    x = np.array([[1, -np.nan, 2], [np.nan, 1, -np.nan], [-np.nan, -np.nan, 0]], np.float32)
    got = np.asarray(values.reduce(jnp.asarray(x), kind, [1]))
    np.testing.assert_array_equal(got.view(np.int32), np.full(3, 0x7FC00000))


def test_conversions() -> None:
    x = np.array([1.9, -1.9, 0.0, 2.5], np.float32)
    np.testing.assert_array_equal(run("convert", x, dtype=np.int32), [1, -1, 0, 2])
    np.testing.assert_array_equal(run("convert", x, dtype=np.bool_), [True, True, False, True])
    np.testing.assert_array_equal(run("convert", np.float32([1 + 2**-11]), dtype=np.float16), np.float16([1]))


def test_sums_of_narrow_floats_round_once() -> None:
    x = np.ones((3, 4096), np.float16)
    got = values.reduce(jnp.asarray(x), "sum", [1], keep=True)
    np.testing.assert_array_equal(np.asarray(got), np.full((3, 1), 4096, np.float16))


@pytest.mark.parametrize(
    ("kind", "row", "value", "index"),
    [
        ("max", [1, 3, 3, 2], 3, 1),
        ("min", [1, 0, 3, 0], 0, 1),
        ("max", [1, np.nan, 5, np.nan], np.nan, 1),
        ("max", [-np.inf, -np.inf], -np.inf, 0),
    ],
)
def test_arg_reduce(kind: str, row: list[float], value: float, index: int) -> None:
    found, at = values.arg_reduce(jnp.asarray([row], np.float32), kind, 1, np.dtype(np.int32))
    np.testing.assert_array_equal(np.asarray(found), np.float32([value]))
    np.testing.assert_array_equal(np.asarray(at), [index])


def test_mma_starts_from_zero_at_step_zero() -> None:
    a, b = jnp.ones((4, 8), np.float16), jnp.ones((8, 3), np.float16)
    acc = np.full((4, 3), 100, np.float32)
    for step, expected in ((0, 8), (2, 108)):
        assert (np.asarray(mma(a, b, acc, step)) == expected).all()
        assert (np.asarray(jax.jit(mma)(a, b, acc, np.int32(step))) == expected).all()


def test_int8_products_are_exact() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (16, 300), np.int8), rng.integers(-128, 128, (300, 8), np.int8)
    got = jax.jit(lambda *sides: mma(*sides, 0))(a, b, np.zeros((16, 8), np.int32))
    np.testing.assert_array_equal(np.asarray(got), a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.int8])
def test_raw_keeps_every_bit(dtype: type) -> None:
    x = np.arange(256, dtype=np.uint8).repeat(2).view(dtype)
    back = values.cooked(values.raw(jnp.asarray(x)), np.dtype(dtype))
    np.testing.assert_array_equal(np.asarray(back).view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32])
def test_division_of_constants_without_quotient(dtype: type) -> None:
    """XLA stops the process where it folds such a division itself."""
    info = np.iinfo(dtype)
    x, y = np.array([[7, info.min, info.max], [0, 0, 2]], dtype)
    quotient, rest = run_constants("div", x, y), run_constants("rem", x, y)
    ones = dtype(-1) if info.min else info.max
    np.testing.assert_array_equal(quotient, [ones, ones, info.max // 2])
    np.testing.assert_array_equal(rest, [7, info.min, 1])
    if info.min:
        pair = np.full(2, info.min, dtype), np.full(2, -1, dtype)
        np.testing.assert_array_equal(run_constants("div", *pair), pair[0])
        np.testing.assert_array_equal(run_constants("rem", *pair), [0, 0])


@sampled(2)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("kind", ["max", "min", "sum", "prod"])
@pytest.mark.parametrize("shape", [(5,), (4096,), (64, 64), (3, 4099)])
def test_reductions_keep_nan(shape: tuple[int, ...], kind: str, dtype: type) -> None:
    x = np.ones(shape, dtype)
    x.reshape(-1)[x.size // 3] = np.nan
    reduce = jax.jit(lambda x: values.reduce(x, kind, range(x.ndim)), compiler_options=OPTIONS)
    assert np.isnan(reduce(x))


def test_leading_zeros_of_constants() -> None:
    x = np.array([0, 1, -1, -(2**31), 2**30], np.int32)
    np.testing.assert_array_equal(run_constants("clz", x), [32, 31, 0, 0, 1])


def run_constants(name: str, *operands: np.ndarray) -> np.ndarray:
    """A function of constants, which XLA computes while it compiles."""
    with jax.enable_x64(True):
        constants = [jnp.asarray(x) for x in operands]
        return np.asarray(jax.jit(lambda: values.apply(name, constants, operands[0].dtype))())


@pytest.mark.parametrize(
    ("x", "y"), [((1, 1), (1, 96)), ((64, 1), (1, 96)), ((64, 96), (1, 96)), ((64, 96), (64, 1)), ((1, 1), (1, 1))]
)
def test_a_quotient_rounds_once_however_few_divisors_there_are(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    """XLA by itself would multiply by the reciprocal of what is the same for many elements."""
    a, b = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate((x, y)))

    def divide(a: jax.Array, b: jax.Array) -> jax.Array:
        shape = np.broadcast_shapes(x, y)
        wide = jnp.broadcast_to(a * a, shape), jnp.broadcast_to(jnp.abs(b) + 0.5, shape)
        return values.apply("div", wide, np.dtype(np.float32))

    want = (a * a) / (np.abs(b) + np.float32(0.5))
    np.testing.assert_array_equal(np.asarray(jax.jit(divide)(a, b)), np.broadcast_to(want, np.broadcast_shapes(x, y)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("sign", ["abs", "neg", None])
def test_a_product_that_is_no_nan_for_sure_is_not_merged_with_a_sum(dtype: str, sign: str | None) -> None:
    """LLVM knows of a converted integer times a constant that it is no NaN, and would drop a test for one."""
    rng = np.random.default_rng(0)
    integers = rng.integers(-127, 128, 1024).astype(np.int8)
    added = (50 * rng.standard_normal(1024)).astype(dtype)
    element = np.dtype(dtype)

    def product(i: jax.Array) -> jax.Array:
        x = values.convert(i, element)
        x = x if sign is None else values.apply(sign, [x], element)
        return values.apply("mul", [x, jnp.full_like(x, 0.7183)], element)

    with jax.enable_x64(True):
        wanted = added + np.asarray(product(jnp.asarray(integers)))
        got = jax.jit(lambda i, a: values.apply("add", [a, product(i)], element))(integers, added)
    assert np.array_equal(np.asarray(got), wanted)
