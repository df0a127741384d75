"""Integer types beside i8 and i32: arithmetic, reductions, layout, bits of one type as another, random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import INTEGERS, JAX_DTYPE, check, data, shapes, subset, targets
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples, sampled, some

import tilewright as tw

TARGETS = targets()
Shape = tuple[int, ...]

UNARY = (lax.neg, lax.sign, lax.bitwise_not, lax.population_count, lax.clz)
COMPARISONS = (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)
BINARY = (lax.add, lax.sub, lax.mul, lax.max, lax.min, lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
SHIFTS = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)
REDUCTIONS = (jnp.sum, jnp.prod, jnp.max, jnp.min)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_a_square_may_be_negative(dtype: str) -> None:
    """Against numpy: XLA takes it for never negative."""
    limit = np.iinfo(dtype).max
    x = np.array([0, 3, limit, int(limit**0.5) + 1, int(limit**0.5 * 1.2)], dtype)
    program = tw.compile(lambda x: (x * x < 0, jnp.abs(x * x)), x)
    square = (x.astype(object) ** 2 + limit + 1) % (2 * (limit + 1)) - limit - 1
    for memory in ("typed", "bytes"):
        negative, size = program.executable(memory)(x)
        np.testing.assert_array_equal(negative, square < 0)
        np.testing.assert_array_equal(size, abs(square).astype(dtype))
    assert (square < 0).any()


@examples(5)
@given(dtype=st.sampled_from(INTEGERS), shape=shapes(0, 4), target=TARGETS)
def test_functions(dtype: str, shape: Shape, target: str) -> None:
    """Every function of integers; shifts by less than the width, by more, and by what is negative if signed."""

    def fn(x: Any, y: Any, p: Any) -> list[Any]:
        width = jnp.iinfo(x.dtype).bits
        nonzero = lax.select(y == 0, lax.full_like(y, 3), y)
        by = lax.rem(lax.shift_right_logical(y, lax.full_like(y, 1)), lax.full_like(y, width))
        return [
            *(f(x) for f in UNARY),
            *(f(x, y) for f in (*COMPARISONS, *BINARY)),
            *(f(x, amount) for f in SHIFTS for amount in (by, y)),
            lax.div(x, nonzero),
            lax.rem(x, nonzero),
            lax.select(p, x, y),
            lax.clamp(lax.min(y, nonzero), x, lax.max(y, nonzero)),
        ]

    x, y = data(dtype, shape, 1), data(dtype, shape, 2)
    check(fn, x, y, data("i1", shape), target=target)


@examples(5)
@given(source=st.sampled_from(INTEGERS), shape=shapes(0, 3), target=TARGETS)
def test_convert(source: str, shape: Shape, target: str) -> None:
    kinds = [JAX_DTYPE[d] for d in ("f32", "f16", "i1", "i8", "i32", *INTEGERS)]
    small = {d: jnp.abs(data(d, shape)) for d in ("f32", "f16", "bf16")}
    check(
        lambda x, floats: [[x.astype(k) for k in kinds], [f.astype(x.dtype) for f in floats.values()]],
        data(source, shape),
        small,
        target=target,
    )


@examples(4)
@given(
    shape=shapes(1, 4, largest=4000),
    dtype=st.sampled_from(INTEGERS),
    draw=st.data(),
    target=TARGETS,
)
def test_reductions_and_layout(shape: Shape, dtype: str, draw: st.DataObject, target: str) -> None:
    axes = draw.draw(subset(len(shape), 1))
    order = draw.draw(st.permutations(range(len(shape))))

    def fn(x: Any) -> list[Any]:
        return [
            *(f(x, axes, dtype=x.dtype) if f in (jnp.sum, jnp.prod) else f(x, axes) for f in REDUCTIONS),
            jnp.argmax(x, axes[0]),
            jnp.argmin(x, axes[-1]),
            lax.transpose(x, order),
            lax.rev(x, axes),
            jnp.pad(x, [(1, 2)] * x.ndim, constant_values=7),
            jnp.concatenate([x, x[::2]]),
            x + lax.broadcasted_iota(x.dtype, x.shape, axes[0]),
        ]

    check(fn, data(dtype, shape), target=target)


@sampled(2)
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_64_bits(dtype: str) -> None:
    """As pairs of 32-bit lanes, in JAX's mode of wide types."""
    half = int(dtype == "uint64")
    jax.config.update("jax_enable_x64", True)
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    x, y = (jnp.asarray(rng.integers(info.min, info.max, (7, 31), dtype, endpoint=True)) for _ in range(2))

    def fn(x: Any, y: Any, t: Any) -> list[Any]:
        nonzero = lax.select(y == 0, lax.full_like(y, 3), y)
        functions = [*(f(x) for f in some(UNARY, half, 2))]
        functions += [f(x, y) for f in some((*COMPARISONS, *BINARY), half, 2)]
        shifted = [f(x, y & 63) for f in SHIFTS]
        reduced = [jnp.sum(x, 0), jnp.max(x, 1), jnp.argmin(x, 1)]
        return [
            *functions,
            *shifted,
            lax.div(x, nonzero),
            lax.rem(x, nonzero),
            *reduced,
            t[x[0]],
            x.astype(jnp.int32),
        ]

    check(fn, x, y, data("f32", (13,)))


SAME_WIDTH = {"f32": ("i32", "ui32"), "f16": ("i16", "ui16"), "bf16": ("i16", "ui16"), "i8": ("ui8",)}


@examples(5)
@given(source=st.sampled_from(sorted(SAME_WIDTH)), shape=shapes(0, 3), target=TARGETS)
def test_bits_of_one_type_as_another(source: str, shape: Shape, target: str) -> None:
    def fn(x: Any) -> list[Any]:
        bits = [lax.bitcast_convert_type(x, JAX_DTYPE[k]) for k in SAME_WIDTH[source]]
        return [*bits, *(lax.bitcast_convert_type(b ^ 1, x.dtype) for b in bits)]

    check(fn, data(source, shape), target=target)


@pytest.mark.parametrize(
    ("a", "b", "out"), [("ui8", "ui8", "ui32"), ("i8", "ui8", "i32"), ("i16", "i16", "i32")]
)
def test_products(a: str, b: str, out: str) -> None:
    def fn(x: Any, y: Any) -> Any:
        return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=JAX_DTYPE[out])

    check(fn, data(a, (13, 31)), data(b, (31, 7)))


KEY = jax.random.key_data(jax.random.key(7))
RANDOM: dict[str, Callable[..., Any]] = {
    "uniform": lambda k: jax.random.uniform(k, (7, 31)),
    "normal": lambda k: jax.random.normal(k, (130,)),
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (5, 17)),
    "split": lambda k: jax.random.key_data(jax.random.split(k, 3)),
    "bits": lambda k: jax.random.bits(k, (13,), jnp.uint8),
    "an odd number of small integers": lambda k: jax.random.randint(k, (17,), -5, 90, jnp.int32),
    "categorical": lambda k: jax.random.categorical(k, jnp.zeros((3, 11))),
    "dropout": lambda k: jnp.where(jax.random.bernoulli(k, 0.9, (64, 33)), 1 / 0.9, 0.0),
}


@sampled(2)
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers(name: str) -> None:
    """Threefry as JAX lowers it: bits are exact; what floats are made of them differs by roundings."""
    fn = RANDOM[name]
    program = check(lambda k: fn(jax.random.wrap_key_data(k)), KEY, memories=("typed",), length=64)
    assert program.report().microseconds > 0


@pytest.mark.parametrize("dtype", INTEGERS)
def test_indices(dtype: str) -> None:
    """Of any integer type; what is beyond the table, or beyond i32, is clamped."""
    at = jnp.asarray([0, 1, 7, 3, 40, jnp.iinfo(JAX_DTYPE[dtype]).max], JAX_DTYPE[dtype])
    table = data("f32", (13, 5))

    def fn(t: Any, i: Any) -> list[Any]:
        rows = lax.GatherDimensionNumbers((1,), (0,), (0,))
        return [
            lax.gather(t, i[:, None], rows, (1, 5), mode="clip"),
            lax.dynamic_slice(t, (i[3], i[0]), (2, 3)),
        ]

    check(fn, table, at)


def test_a_long_sum_of_bytes() -> None:
    x = data("ui8", (3, 70_000))
    got = check(lambda x: (jnp.sum(x, 1, dtype=jnp.uint8), jnp.sum(x, 1, dtype=jnp.uint32)), x)
    total = np.asarray(x).astype(np.uint64).sum(1)
    np.testing.assert_array_equal(np.asarray(got(x)[1]), total.astype(np.uint32))
    assert math.prod(x.shape) == 210_000


KINDS = [jnp.float32, jnp.float16, jnp.bfloat16]


@sampled(3)
@pytest.mark.parametrize("dtype", KINDS)
def test_reduce_precision(dtype: Any) -> None:
    """Every format of fewer exponents and digits; numbers that carry, overflow, vanish; infinities, NaN, zeros."""
    info, width = jnp.finfo(dtype), jnp.finfo(dtype).bits
    bits = np.random.default_rng(0).integers(0, 1 << width, 600).astype(f"uint{width}")
    special = jnp.asarray([0, -0.0, jnp.inf, -jnp.inf, jnp.nan, info.max, -info.max, info.tiny, 1], dtype)
    x = jnp.concatenate([lax.bitcast_convert_type(jnp.asarray(bits), dtype), special])
    formats = [(e, m) for e in (1, 2, 5, info.nexp, 9) for m in (0, 1, 7, 10, info.nmant)]
    formats = some(formats, KINDS.index(dtype), len(KINDS))
    check(lambda x: [lax.reduce_precision(x, e, m) for e, m in formats], x)
