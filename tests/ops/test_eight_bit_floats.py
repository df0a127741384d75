"""8-bit floats on the chip that has them, and on the host of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from harness import check, host_ops
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from memories import outputs
from tiering import sampled

import tilewright as tw
from tilewright.machine import Machine

TARGET = "ascend-950pr"
NARROW = {"f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn), "f8E5M2": np.dtype(ml_dtypes.float8_e5m2)}
WIDE = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}


def every(dtype: np.dtype) -> np.ndarray:
    """All numbers of 8 or 16 bits, NaNs and infinities too."""
    bits = np.uint8 if dtype.itemsize == 1 else np.uint16
    return np.arange(256**dtype.itemsize, dtype=np.uint32).astype(bits).view(dtype)


def around(narrow: np.dtype) -> np.ndarray:
    """f32 numbers where their rounding changes: each number of a type, each tie between two, also behind the largest,
    their neighbours; and a random sample of all bits."""
    numbers = every(narrow).astype(np.float32)
    finite = np.unique(numbers[np.isfinite(numbers)])
    top = 2 * finite[-1] - finite[-2]
    ends = np.concatenate([[-top], finite, [top]]).astype(np.float32)
    points = np.concatenate([ends, (ends[1:] + ends[:-1]) / 2])
    infinity = np.float32(np.inf)
    random = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38], np.float32)
    return np.concatenate(
        [points, np.nextafter(points, infinity), np.nextafter(points, -infinity), random, special]
    )


def same(got: Any, want: Any) -> None:
    """The same numbers, zeros with their signs; a NaN is any NaN."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype
    wide = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(*wide)
    signs = [np.signbit(x)[~np.isnan(x)] for x in wide]
    np.testing.assert_array_equal(*signs)


def on_device(fn: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """The results of a program that runs on the NPU alone; both memories give the same bits."""
    program = tw.compile(fn, *args, target=TARGET)
    assert not host_ops(program)
    return outputs(program, program.flatten(args))


@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("wide", WIDE)
def test_every_conversion_is_that_of_jax_and_of_ml_dtypes(wide: str, narrow: str) -> None:
    source, target = WIDE[wide], NARROW[narrow]
    x = around(target) if wide == "f32" else every(source)
    q = every(target)

    def fn(x: jax.Array, q: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x.astype(target), q.astype(source)

    with np.errstate(all="ignore"):
        wanted = x.astype(target), q.astype(source)
    for got, jax_has, numpy_has in zip(on_device(fn, x, q), jax.jit(fn)(x, q), wanted, strict=True):
        same(got, jax_has)
        same(got, numpy_has)


def test_between_the_two_types() -> None:
    def fn(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        return a.astype(NARROW["f8E5M2"]), b.astype(NARROW["f8E4M3FN"])

    args = every(NARROW["f8E4M3FN"]), every(NARROW["f8E5M2"])
    for got, want in zip(on_device(fn, *args), jax.jit(fn)(*args), strict=True):
        same(got, want)


SIZES = st.sampled_from([0, 1, 2, 3, 7, 16, 17, 31, 64, 97, 130])
TYPES = st.sampled_from([*NARROW.values()])


@given(m=SIZES, k=SIZES, n=SIZES, left=TYPES, right=TYPES, seed=st.integers(0, 99))
def test_products_of_any_two_types(
    m: int, k: int, n: int, left: np.dtype, right: np.dtype, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k)).astype(left), rng.standard_normal((k, n)).astype(right)

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot(a, b, preferred_element_type=jnp.float32)

    (got,) = on_device(fn, a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    allowed = 2.0**-23 * max(k, 1) * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))
    assert got.shape == (m, n) and (np.abs(got - exact) <= allowed).all()


E4, E5 = NARROW["f8E4M3FN"], NARROW["f8E5M2"]
RNG = np.random.default_rng(3)


def numbers(*shape: int, dtype: np.dtype = E4) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        w,
        (2, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=jnp.float32,
    )


PROGRAMS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "a sum in 8 bits": (lambda a, b: jnp.dot(a, b), [numbers(33, 40), numbers(40, 17)]),
    "to f16": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.float16),
        [numbers(33, 40), numbers(40, 17)],
    ),
    "a convolution": (convolved, [numbers(2, 9, 7, 20), numbers(3, 3, 20, 24)]),
    "of two types": (
        lambda x, w: convolved(x.astype(jnp.float32), w.astype(jnp.float32)),
        [numbers(2, 9, 7, 20), numbers(3, 3, 20, 24, dtype=E5)],
    ),
    "heads": (
        lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32),
        [numbers(2, 6, 3, 8, dtype=E5), numbers(2, 5, 3, 8)],
    ),
    "scaled by tensor and feature": (
        lambda x, w, s: (x.astype("f4") * 0.5) @ (w.astype("f4") * s),
        [numbers(17, 33), numbers(33, 20), np.linspace(0.5, 2, 20, dtype=np.float32)],
    ),
    "moves": (
        lambda x: (x.T, x[2:9, ::3], jnp.pad(x, 2), x.reshape(-1, 2), x[::-1], jnp.concatenate([x, x])),
        [numbers(12, 14)],
    ),
    "indices": (
        lambda x, i: (x[i], x.at[i].set(x[0]), lax.dynamic_slice(x, (i[0], 1), (3, 5))),
        [numbers(12, 14), np.array([5, 1, 9], np.int32)],
    ),
    "arithmetic": (
        lambda x, y: (x + y, x * y, x / y, jnp.maximum(x, y), jnp.where(x > y, x, -y), jnp.abs(x)),
        [numbers(13, 31), numbers(13, 31)],
    ),
    "functions": (lambda x: (jnp.exp(x), jnp.tanh(x), lax.rsqrt(jnp.abs(x))), [numbers(13, 31)]),
    "reductions": (
        lambda x: (x.sum(0), x.max(1), x.min(), jnp.argmax(x, 1), lax.cumsum(x), lax.cummax(x)),
        [numbers(13, 31, dtype=E5)],
    ),
    "windows and sorts": (
        lambda x: (
            lax.reduce_window(x, np.array(-np.inf, E5), lax.max, (2, 2), (1, 2), "VALID"),
            jnp.sort(x, 1),
            lax.top_k(x, 3),
        ),
        [numbers(13, 30, dtype=E5)],
    ),
    "extremes without infinity": (
        lambda x: (
            lax.reduce_window(x, np.array(-448, E4), lax.max, (3, 2), (2, 2), "SAME"),
            lax.reduce_window(x, np.array(448, E4), lax.min, (3, 2), (1, 2), "SAME"),
            x.max(0),
            x.min(),
            lax.cummax(x),
            jnp.argmin(x, 0),
        ),
        [numbers(13, 31)],
    ),
    "bits": (
        lambda x: (lax.bitcast_convert_type(x, jnp.uint8), lax.bitcast_convert_type(x, jnp.int8) + 1),
        [every(E4)],
    ),
    "a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: (c.astype(jnp.float32) * 0.75 + i).astype(E4), x),
        [numbers(9, 40)],
    ),
    "a constant": (lambda x: (x, jnp.asarray([0.1, 448, -7], E4), jnp.full((3, 4), 0.3, E5)), [numbers(3)]),
}


@sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    fn, args = PROGRAMS[name]
    check(fn, *args, target=TARGET, length=40)


def test_products_are_of_what_is_stored() -> None:
    """However they are written, and in the types that they are stored in."""
    for name in ("of two types", "scaled by tensor and feature", "a sum in 8 bits"):
        fn, args = PROGRAMS[name]
        program = tw.compile(fn, *args, target=TARGET)
        assert len({op.name for op in program.module("npu").walk() if op.name == "npu.mmad"}) == 1
        loaded = {str(op.operands[1].type) for op in program.module("npu").walk() if op.name == "npu.load_l0"}
        assert loaded and all("xf8" in kind for kind in loaded)


@pytest.mark.parametrize(
    ("factor", "relu", "drained"),
    [(0.25, False, True), (0.25, True, True), (-0.5, False, True), (0.3, False, False)],
)
def test_sums_leave_the_cube_as_8_bit_floats(factor: float, relu: bool, drained: bool) -> None:
    """Saturated, and times a number of few bits; another one is for the vector cores."""

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        y = lax.dot(a, b, preferred_element_type=jnp.float32)
        y = jax.nn.relu(y * factor) if relu else y * factor
        return jnp.clip(y, -448, 448).astype(E4)

    a, b = numbers(50, 96) * E4.type(16), numbers(96, 40) * E4.type(16)
    (got,) = on_device(fn, a, b)
    want = np.asarray(jax.jit(fn)(a, b)).astype(np.float32)
    assert (np.abs(got.astype(np.float32) - want) <= np.abs(want) / 8).all()
    assert (np.abs(want) == 448).any() and (got.astype(np.float32) == want).mean() > 0.99
    names = [op.name for op in tw.compile(fn, a, b, target=TARGET).module("npu").walk()]
    assert ("npu.vconvert" not in names) == drained


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("result", WIDE)
def test_sums_leave_the_cube_times_the_factors_of_their_columns(result: str, biased: bool) -> None:
    columns = np.arange(1, 41, dtype=np.float32) / 32
    dtype = WIDE[result]

    def fn(a: jax.Array, b: jax.Array, bias: jax.Array) -> jax.Array:
        sums = lax.dot(a, b, preferred_element_type=jnp.float32)
        return ((sums + bias if biased else sums) * columns).astype(dtype)

    args = a, b, bias = numbers(50, 96), numbers(96, 40, dtype=E5), numbers(40, dtype=WIDE["f32"])
    (got,) = on_device(fn, *args)
    exact = (a.astype(np.float64) @ b.astype(np.float64) + biased * bias.astype(np.float64)) * columns
    allowed = 2.0**-16 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) + 1) * columns
    allowed += float(ml_dtypes.finfo(dtype).eps) * np.abs(exact)
    assert (np.abs(got.astype(np.float64) - exact) <= allowed).all()
    ops = [*tw.compile(fn, *args, target=TARGET).module("npu").walk()]
    drains = [op for op in ops if op.name == "npu.fixpipe"]
    begun = [str(op.operands[3].type) for op in ops if op.name == "npu.mmad" and len(op.operands) > 3]
    assert any("bt>" in kind for kind in begun) == biased
    assert drains and all(op.scales is not None for op in drains)  # pyright: ignore[reportAttributeAccessIssue]


def test_sums_that_overflow_are_nan_unless_they_are_clipped() -> None:
    a, b = np.full((4, 64), 8, E4), np.full((64, 4), 8, E4)
    (got,) = on_device(
        lambda a, b: (lax.dot(a, b, preferred_element_type=jnp.float32) * 0.5).astype(E4), a, b
    )
    assert np.isnan(got.astype(np.float32)).all()


@pytest.mark.parametrize("target", [n for n in Machine.names() if n != TARGET])
def test_other_chips_leave_them_to_the_host(target: str) -> None:
    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot(a.astype(E4), b.astype(E4), preferred_element_type=jnp.float32)

    args = numbers(5, 9, dtype=WIDE["f32"]), numbers(9, 4, dtype=WIDE["f32"])
    program = check(fn, *args, target=target, host=True)
    assert [h.name for h in program.report().host_ops] == ["stablehlo.convert, stablehlo.dot_general"]


def test_stablehlo_text_and_stages_of_jax_run_there_too() -> None:
    def fn(a: jax.Array) -> jax.Array:
        return a.astype(E5).astype(jnp.float32)

    x = numbers(5, 9, dtype=WIDE["f32"])
    for source in (jax.jit(fn).lower(x).as_text(), jax.jit(fn).lower(x), jax.export.export(jax.jit(fn))(x)):
        assert not host_ops(tw.compile(source, target=TARGET))
        assert host_ops(tw.compile(source))


def test_what_is_moved_costs_its_bytes_and_a_product_its_energy() -> None:
    a, b = numbers(512, 512), numbers(512, 512)

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot(a, b, preferred_element_type=jnp.float32)

    narrow = tw.compile(fn, a, b, target=TARGET).report()
    wide = tw.compile(fn, a.astype(np.float16), b.astype(np.float16), target=TARGET).report()
    assert narrow.energy["macs"] == pytest.approx(512**3 * 0.157e-12)
    assert wide.energy["macs"] == pytest.approx(512**3 * 0.30e-12)
    for kind in ("l1", "l0"):
        assert narrow.energy[kind] < wide.energy[kind]
    assert narrow.microseconds < wide.microseconds
