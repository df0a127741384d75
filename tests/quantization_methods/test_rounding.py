"""Quantise, dequantise and fake quantisation against numpy, gradients against their formulas, scales of weights."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_layers import DTYPES
from tiering import covering, examples

from tilewright.quantization.rounding import (
    LEAST_RATIO,
    RATIOS,
    SCALE_METHODS,
    along,
    cosine,
    dequantize,
    fake,
    grid,
    quantize,
    rounded_up,
    spread,
    sqnr,
    stored_range,
    weight_scale,
)

BLOCKS: dict[str, tuple[tuple[int, ...], list[tuple[int, int]]]] = {
    "tensor": ((5, 7), []),
    "rows": ((5, 7), [(0, 1)]),
    "columns": ((5, 7), [(1, 1)]),
    "groups": ((12, 5), [(0, 4), (1, 1)]),
    "blocks": ((6, 8), [(0, 3), (1, 2)]),
    "one": ((1, 1), [(0, 1), (1, 1)]),
    "kernel": ((3, 3, 2, 5), [(3, 1)]),
    "number": ((), []),
}
FLOATS = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}


def spread_in_numpy(scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    for d, n in enumerate(shape):
        scale = scale.repeat(n // scale.shape[d], axis=d)
    return scale


def case(name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A tensor, scales and zero points."""
    shape, blocks = BLOCKS[name]
    rng = np.random.default_rng(seed)
    held = grid(shape, blocks)
    x = (rng.normal(size=shape) * 3).astype(np.float32)
    return x, rng.uniform(0.01, 0.1, held).astype(np.float32), rng.integers(-20, 20, held).astype(np.int32)


@covering()
@pytest.mark.parametrize("storage", ["i8", "i4"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BLOCKS)
def test_integers_are_numpy_s(name: str, dtype: str, storage: str) -> None:
    x, scale, zero = case(name)
    x = np.asarray(jnp.asarray(x, dtype))
    low, high = stored_range(storage)
    q = jax.jit(quantize, static_argnums=(3, 4))(x, scale, zero, low, high)
    units, zeros = (spread_in_numpy(a, x.shape) for a in (scale, zero))
    ours = np.clip(np.rint(x.astype(np.float32) / units) + zeros, low, high)
    np.testing.assert_array_equal(q, ours)
    assert q.dtype == jnp.int8 and q.shape == x.shape
    back = dequantize(q, scale, zero)
    np.testing.assert_array_equal(back, ((ours - zeros).astype(np.float32) * units))
    faked = fake(x, scale, zero, low, high)
    assert faked.dtype == x.dtype
    np.testing.assert_array_equal(faked, back.astype(x.dtype))


@covering()
@pytest.mark.parametrize("storage", FLOATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_saturate(storage: str, dtype: str) -> None:
    kind = FLOATS[storage]
    low, high = stored_range(storage)
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=500), rng.normal(size=200) * 1e4, [0, -0.0, 65504, -65504]])
    x = np.asarray(jnp.asarray(x, dtype))
    q = jax.jit(lambda x: quantize(x, 0.25, 0, low, high, kind))(x)
    ours = np.clip(x.astype(np.float32) / np.float32(0.25), low, high).astype(kind)
    np.testing.assert_array_equal(np.asarray(q).view(np.uint8), ours.view(np.uint8))
    back = ours.astype(np.float32) * np.float32(0.25)
    np.testing.assert_array_equal(fake(x, 0.25, 0, low, high, kind), back.astype(x.dtype))


def test_quotients_are_rounded_once() -> None:
    """XLA would multiply by the inverse, which rounds some of these to another integer."""
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.01, 1, 64).astype(np.float32)
    x = ((rng.integers(-100, 100, (4096, 64)) + 0.5) * scale).astype(np.float32)
    for f in (quantize, jax.jit(quantize, static_argnums=(3, 4))):
        np.testing.assert_array_equal(f(x, scale[None], 0, -127, 127), np.clip(np.rint(x / scale), -127, 127))


def test_ranges() -> None:
    assert stored_range("i8") == (-128, 127) and stored_range("i8", True) == (-127, 127)
    assert stored_range("i4") == (-8, 7) and stored_range("i4", True) == (-7, 7)
    assert stored_range("f8E4M3FN") == (-448, 448) and stored_range("f8E5M2", True) == (-57344, 57344)
    assert stored_range("ui8", True) == (0, 255)
    assert quantize(300.0, 1, 0, 0, 255).dtype == jnp.int32


def test_shapes_that_do_not_fit_are_refused() -> None:
    for scale in (np.ones(3), np.ones((2, 5)), np.ones((1, 1, 1)), np.ones((0, 1))):
        with pytest.raises(ValueError, match="do not fit"):
            spread(scale, (3, 5))
    for blocks in ([(2, 1)], [(-1, 1)], [(0, 2)], [(0, 0)]):
        with pytest.raises(ValueError, match="dimension"):
            grid((3, 5), blocks)
    assert along(np.ones(5), -2, 4).shape == (1, 1, 5, 1)


# -- gradients --------------------------------------------------------------------------------------------------


@covering()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BLOCKS)
def test_gradients(name: str, dtype: str) -> None:
    x, scale, zero = case(name, 1)
    x = jnp.asarray(x, dtype)
    low, high = -40, 30

    def loss(x: Any, scale: Any, zero: Any) -> Any:
        return jnp.sum(fake(x, scale, zero, low, high).astype(jnp.float32) * weights)

    weights = np.random.default_rng(2).normal(size=x.shape).astype(np.float32)
    dx, dscale, dzero = jax.jit(jax.grad(loss, (0, 1, 2)))(x, scale, zero.astype(np.float32))
    units, zeros = (spread_in_numpy(a, x.shape) for a in (scale, zero))
    wide = np.asarray(x, np.float32)
    q = np.rint(wide / units) + zeros
    inside = (q >= low) & (q <= high)
    of_scale = np.where(inside, np.rint(wide / units) - wide / units, np.clip(q, low, high) - zeros)

    def gathered(each: np.ndarray) -> np.ndarray:
        parts = [part for n, s in zip(x.shape, scale.shape) for part in (s, n // s)]
        return each.reshape(parts).sum(tuple(range(1, len(parts), 2)))

    coarse = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    given = weights.astype(x.dtype).astype(np.float32)
    np.testing.assert_allclose(np.asarray(dx, np.float32), np.where(inside, given, 0), rtol=coarse)
    np.testing.assert_allclose(dscale, gathered(of_scale * given), rtol=coarse, atol=1e-4)
    np.testing.assert_allclose(dzero, gathered(np.where(inside, 0, -units) * given), rtol=coarse, atol=1e-5)


def test_a_fake_float_has_a_straight_gradient() -> None:
    low, high = stored_range("f8E4M3FN")
    slopes = jax.grad(lambda x: jnp.sum(fake(x, 0.5, 0, low, high, jnp.float8_e4m3fn)))(
        jnp.asarray([1.3, 300.0, -1e9])
    )
    np.testing.assert_array_equal(slopes, [1, 0, 0])


# -- scales -----------------------------------------------------------------------------------------------------


@covering()
@pytest.mark.parametrize("method", SCALE_METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [n for n in BLOCKS if n != "number"])
def test_scales_of_weights(name: str, dtype: str, method: str) -> None:
    shape, blocks = BLOCKS[name]
    w = np.asarray(jnp.asarray(np.random.default_rng(3).standard_t(3, shape), dtype), np.float32)
    found = np.asarray(weight_scale(w, blocks, method, 7))
    assert found.shape == grid(shape, blocks) and (found > 0).all()
    for at in np.ndindex(*found.shape):
        part = w[tuple(slice(i * (n // s), (i + 1) * (n // s)) for i, n, s in zip(at, shape, found.shape))]
        full = np.abs(part).max() / np.float32(7)

        def loss(scale: float, part: np.ndarray = part) -> float:
            return float(((np.clip(np.rint(part / scale), -7, 7) * scale - part) ** 2).sum())

        if method == "absmax":
            np.testing.assert_allclose(found[at], full, rtol=1e-6)
        elif method == "extended":
            np.testing.assert_allclose(found[at], np.abs(part).max() / np.float32(7.5), rtol=1e-6)
            off = np.abs(np.clip(np.rint(part / found[at]), -7, 7) * found[at] - part)
            assert off.max() <= 0.5 * found[at] * (1 + 1e-5)
        else:
            ours = loss(float(found[at]))
            assert ours <= loss(float(full)) * (1 + 1e-5) + 1e-12
            ratios = [1, *np.geomspace(1, LEAST_RATIO, RATIOS) * 7 / 7.5]
            tried = min(loss(float(full * np.float32(r))) for r in ratios)
            assert ours <= 1.001 * tried + 1e-6 * float((part**2).sum())


def test_weights_without_a_range() -> None:
    for method in SCALE_METHODS:
        w = np.zeros((4, 3), np.float32)
        w[:, 1], w[:, 2] = 1e-45, 1e-38
        scale = np.asarray(weight_scale(w, [(1, 1)], method))
        assert scale[0, 0] == 1 and (scale >= np.finfo(np.float32).tiny).all()
    with pytest.raises(ValueError, match="no elements"):
        weight_scale(np.zeros((0, 3), np.float32))
    with pytest.raises(ValueError, match="absmax"):
        weight_scale(np.ones(3), method="rms")


@examples(40)
@given(st.floats(1e-30, 1e30), st.sampled_from([0, 7, 10, 22, 23]))
def test_scales_are_rounded_up(scale: float, bits: int) -> None:
    scale = float(np.float32(scale))
    found = float(rounded_up(scale, bits))
    assert scale <= found <= scale * (1 + 2.0**-bits)
    assert int(np.float32(found).view(np.uint32)) & ((1 << 23 - bits) - 1) == 0
    assert float(rounded_up(found, bits)) == found


def test_mantissas_are_checked() -> None:
    assert float(rounded_up(0.3, None)) == float(np.float32(0.3))
    with pytest.raises(ValueError, match="0 to 23"):
        rounded_up(0.3, 24)
    w = np.random.default_rng(0).normal(size=(8, 4))
    for method in SCALE_METHODS:
        bits = np.asarray(weight_scale(w, [(1, 1)], method, 7, mantissa_bits=10)).view(np.uint32)
        assert (bits & 0x1FFF == 0).all()


# -- how good -----------------------------------------------------------------------------------------------------


def test_measures() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(31, 7)).astype(np.float32)
    b = a + rng.normal(size=a.shape).astype(np.float32) * 0.01
    for factor in (1.0, 1e-30, 1e30):
        assert abs(sqnr(a * factor, b * factor) - 10 * math.log10((a**2).sum() / ((a - b) ** 2).sum())) < 0.01
        ours = (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum())
        assert abs(cosine(a * factor, b * factor) - ours) < 1e-5
    assert sqnr(a, a) == math.inf and sqnr(a * 0, b) == -math.inf and sqnr(a * 0, a * 0) == math.inf
    assert cosine(a * 0, a * 0) == 1 and cosine(a * 0, b) == 0 and abs(cosine(a, -3 * a) + 1) < 1e-6
