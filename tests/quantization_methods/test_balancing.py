"""Balanced networks compute what they did; corrections of biases take the mean error away."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from random_layers import DTYPES, layer
from tiering import covering, examples

from tilewright.quantization.balancing import (
    equalize,
    expected_shift,
    largest_along,
    observed_shift,
    smooth_scale,
)
from tilewright.quantization.observers import start_channels, update_channels
from tilewright.quantization.rounding import fake, weight_scale
from tilewright.quantization.weights import nearest

NUMBERS = ("NHWC", "HWIO", "NHWC")


def conv(x: Any, w: Any, groups: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=NUMBERS, feature_group_count=groups, precision="highest"
    )


@examples(20)
@given(
    st.integers(0, 2**32),
    st.sampled_from([(1, 1, 1), (7, 5, 3), (3, 31, 8)]),
    st.sampled_from([0, 0.3, 0.5, 1]),
)
def test_smoothing_keeps_the_product(seed: int, shape: tuple[int, int, int], alpha: float) -> None:
    x, w = layer(*shape, seed, skew=2)
    x[:, 0] *= seed % 2  # a channel without values
    inputs, rows = np.abs(x).max(0), largest_along([w], 0)
    s = np.asarray(smooth_scale(inputs, rows, alpha))
    used = inputs > 0
    np.testing.assert_allclose(s[used], (inputs**alpha / np.asarray(rows) ** (1 - alpha))[used], rtol=1e-4)
    assert (s[~used] == 1).all()
    np.testing.assert_allclose((x / s) @ (w * s[:, None]), x @ w, rtol=1e-3, atol=1e-4 * np.abs(x @ w).max())
    if alpha == 0.5:
        np.testing.assert_allclose((inputs / s)[used], (np.asarray(rows) * s)[used], rtol=1e-4)


def test_smoothing_helps_products_of_i8() -> None:
    x, w = layer(300, 64, 32, 1, skew=2)
    state = update_channels(start_channels(64), x)
    s = np.asarray(smooth_scale(state.largest, largest_along([w, w[:, :3]], 0)))

    def loss(x: np.ndarray, w: np.ndarray) -> float:
        inputs = np.asarray(fake(x, np.abs(x).max() / 127))
        return float(((inputs @ np.asarray(nearest(w).dequantized()) - y) ** 2).sum())

    y = x @ w
    assert loss(x / s, w * s[:, None]) < 0.3 * loss(x, w)


@covering()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 7, 3), (5, 1, 11)])
def test_equalisation_keeps_the_network(shape: tuple[int, int, int], dtype: str) -> None:
    rng = np.random.default_rng(0)
    k, h, n = shape
    w1 = jnp.asarray(rng.normal(size=(k, h)) * np.exp(rng.normal(0, 2, h)), dtype)
    b1 = jnp.asarray(rng.normal(size=h), dtype)
    w2 = jnp.asarray(rng.normal(size=(h, n)), dtype)
    pair = equalize(w1, w2, b1)
    assert pair.bias is not None and pair.first.dtype == pair.second.dtype == pair.bias.dtype == w1.dtype
    coarse = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    ours, theirs = largest_along([pair.first], -1), largest_along([pair.second], 0)
    np.testing.assert_allclose(ours, theirs, rtol=coarse)
    x = rng.normal(size=(9, k)).astype(np.float32)

    def network(w1: Any, b1: Any, w2: Any) -> np.ndarray:
        w1, b1, w2 = (np.asarray(a, np.float64) for a in (w1, b1, w2))
        y = x @ w1 + b1
        return np.where(y > 0, y, 0.1 * y) @ w2

    before = network(w1, b1, w2)
    np.testing.assert_allclose(
        network(pair.first, pair.bias, pair.second), before, atol=3 * coarse * np.abs(before).max()
    )


def test_equalisation_of_convolutions() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 6, 6, 3)).astype(np.float32)
    w1 = (rng.normal(size=(3, 3, 3, 8)) * np.exp(rng.normal(0, 2, 8))).astype(np.float32)
    depthwise = rng.normal(size=(3, 3, 1, 8)).astype(np.float32)
    w3 = rng.normal(size=(1, 1, 8, 5)).astype(np.float32)

    def network(w1: Any, depthwise: Any, w3: Any) -> np.ndarray:
        y = jax.nn.relu(conv(x, w1))
        return np.asarray(conv(jax.nn.relu(conv(y, depthwise, 8)), w3))

    before = network(w1, depthwise, w3)
    first = equalize(w1, depthwise, second_axis=-1)
    second = equalize(first.second, w3, second_axis=2)
    assert first.bias is None
    np.testing.assert_allclose(
        network(first.first, second.first, second.second), before, rtol=1e-3, atol=1e-3
    )

    def loss(*held: Any) -> float:
        rough = [w * 0 + fake(w, weight_scale(w, (), high=127)) for w in held]
        return float(((network(*rough) - before) ** 2).sum())

    assert loss(first.first, second.first, second.second) < 0.5 * loss(w1, depthwise, w3)


def test_channels_without_a_range_are_left() -> None:
    w1, w2 = np.ones((3, 4), np.float32), np.ones((4, 2), np.float32)
    w1[:, 0], w2[1] = 0, 0
    w1[:, 2], w2[3] = 1e30, 1e-30
    pair = equalize(w1, w2)
    np.testing.assert_array_equal(pair.scale[:2], [1, 1])
    assert bool(jnp.isfinite(pair.first).all() & jnp.isfinite(pair.second).all())
    assert bool((smooth_scale([0.0, 1.0, 1e-40, 3e38], [1.0, 0.0, 3e38, 1e-40]) > 0).all())


# -- biases -----------------------------------------------------------------------------------------------------


@examples(12)
@given(st.integers(0, 2**32), st.sampled_from([(40, 1, 1), (40, 13, 7)]))
def test_the_expected_shift_of_a_product_is_the_observed_one(seed: int, shape: tuple[int, int, int]) -> None:
    x, w = layer(*shape, seed)
    x = np.abs(x)
    rough = np.asarray(nearest(w, (-7, 7)).dequantized())
    shift = expected_shift(w, rough, x.mean(0))
    np.testing.assert_allclose(
        shift, observed_shift(x @ w, x @ rough), rtol=1e-2, atol=1e-4 * np.abs(x @ w).max()
    )
    corrected = x @ rough - np.asarray(shift)
    np.testing.assert_allclose(corrected.mean(0), (x @ w).mean(0), atol=1e-4 * np.abs(x @ w).max())


@pytest.mark.parametrize(("groups", "channels", "outputs"), [(1, 4, 6), (3, 2, 9), (5, 1, 10)])
def test_the_expected_shift_of_a_convolution(groups: int, channels: int, outputs: int) -> None:
    rng = np.random.default_rng(0)
    x = np.ones((2, 7, 7, 1)) * rng.uniform(
        1, 2, groups * channels
    )  # the same everywhere: padding would differ
    x = x.astype(np.float32)
    w = rng.normal(size=(3, 3, channels, outputs)).astype(np.float32)
    rough = np.asarray(fake(w, 0.2))
    shift = expected_shift(w, rough, x.mean((0, 1, 2)), 2, 3, groups)
    inner = (slice(None), slice(1, -1), slice(1, -1))
    ours = observed_shift(conv(x, w, groups)[inner], conv(x, rough, groups)[inner])
    np.testing.assert_allclose(shift, ours, rtol=1e-3, atol=1e-4)
    laid = expected_shift(np.moveaxis(w, 3, 0), np.moveaxis(rough, 3, 0), x.mean((0, 1, 2)), 3, 0, groups)
    np.testing.assert_allclose(laid, shift, rtol=1e-5)


# -- mistakes ---------------------------------------------------------------------------------------------------


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        smooth_scale(np.ones(3), np.ones(3), 1.5)
    with pytest.raises(ValueError, match="not the same"):
        smooth_scale(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="not finite"):
        smooth_scale(start_channels(3).largest, np.ones(3))
    with pytest.raises(ValueError, match="name the axes"):
        equalize(np.ones((3, 4)), np.ones((5, 2)))
    for bad in ([], [np.ones((0, 3))], [np.ones(())]):
        with pytest.raises(ValueError, match="without elements"):
            largest_along(bad, 0)
    with pytest.raises(ValueError, match="one input"):
        largest_along([np.ones((3, 4)), np.ones((5, 4))], 0)
    with pytest.raises(ValueError, match="one mean for each"):
        expected_shift(np.ones((3, 4)), np.ones((3, 4)), np.ones(4))
    with pytest.raises(ValueError, match="same batches"):
        observed_shift(np.ones((3, 4)), np.ones((2, 4)))
    with pytest.raises(ValueError, match="same batches"):
        observed_shift(np.ones((0, 4)), np.ones((0, 4)))
