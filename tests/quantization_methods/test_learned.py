"""Learned rounding against rounding to nearest and against all roundings there are; the gradient of learned scales."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from random_layers import DTYPES, layer, output_loss
from tiering import covering

from tilewright.quantization import learned
from tilewright.quantization.learned import first_scale, learn_rounding, learned_scale
from tilewright.quantization.rounding import fake, spread, weight_scale


def columns(w: np.ndarray) -> jax.Array:
    return weight_scale(w, [(w.ndim - 1, 1)], high=7)


def rectified_product(w: jax.Array, x: Any) -> jax.Array:
    return jax.nn.relu(x["a"] @ w + x["b"])


def convolution(w: jax.Array, x: Any) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def test_learned_rounding_beats_rounding_to_nearest() -> None:
    for seed in range(3):
        x, w = layer(400, 48, 24, seed, skew=0.3)
        scale = columns(w)
        found = learn_rounding(w, scale, x, x @ w, seed=seed)
        q = np.asarray(found.q, np.float64)
        near = np.clip(np.rint(w / np.asarray(scale)), -7, 7)
        assert found.q.dtype == jnp.int8 and np.abs(q - w / np.asarray(scale)).max() < 1 + 1e-5
        np.testing.assert_allclose(
            found.error, output_loss(x, w, q * np.asarray(scale)) / (400 * 24), rtol=1e-3
        )
        np.testing.assert_allclose(
            found.nearest_error, output_loss(x, w, near * np.asarray(scale)) / (400 * 24), rtol=1e-3
        )
        assert found.error < 0.5 * found.nearest_error


def test_learned_rounding_is_near_the_best_of_all() -> None:
    ratios = []
    for seed in range(4):
        x, w = layer(100, 8, 1, seed, skew=0.3)
        scale = np.asarray(columns(w))
        found = learn_rounding(w, scale, x, x @ w)
        floor = np.floor(w / scale)
        all_of_them = [
            output_loss(x, w, np.clip(floor + np.reshape(up, (8, 1)), -7, 7) * scale)
            for up in itertools.product((0, 1), repeat=8)
        ]
        ratios.append(found.error * 100 / min(all_of_them))
        assert found.error <= found.nearest_error * 1.001
    assert np.median(ratios) < 1.5


def test_a_layer_with_its_activation_and_several_inputs() -> None:
    x, w = layer(300, 32, 16, 0, skew=0.3)
    b = np.random.default_rng(1).normal(size=(300, 16)).astype(np.float32)
    inputs = {"a": x, "b": b}
    y = rectified_product(jnp.asarray(w), inputs)
    found = learn_rounding(w, columns(w), inputs, y, rectified_product)
    assert found.error < 0.6 * found.nearest_error


def test_a_convolution() -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, 6, 6, 4)) + 3 * rng.normal(size=(40, 1, 1, 1))).astype(np.float32)
    w = rng.normal(size=(3, 3, 4, 5)).astype(np.float32)
    y = convolution(jnp.asarray(w), x)
    found = learn_rounding(w, columns(w), x, y, convolution, steps=1000, batch=16)
    assert found.q.shape == w.shape and found.error < 0.7 * found.nearest_error


@covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 1), (37, 5, 3)])
def test_odd_shapes_and_float_types(shape: tuple[int, int, int], dtype: str) -> None:
    x, w = (jnp.asarray(a, dtype) for a in layer(*shape, 0))
    wide = w.astype(jnp.float32)
    groups = weight_scale(wide, [(0, 1), (1, 1)], high=3)
    y = x.astype(jnp.float32) @ wide
    # with scales of single elements each is stored exactly, so there is nothing to learn
    kept = learn_rounding(w, groups, x.astype(jnp.float32), y, stored=(-3, 3), steps=20)
    assert kept.error <= 1e-6 * float(jnp.mean(y**2)) and bool((jnp.abs(kept.q) == 3).all())
    found = learn_rounding(w, weight_scale(wide, (), high=3), x, y.astype(x.dtype), stored=(-3, 3), steps=20)
    assert found.q.shape == w.shape and int(jnp.abs(found.q).max()) <= 3


def test_a_weight_that_is_stored_exactly() -> None:
    x, _ = layer(20, 6, 4, 0)
    w = np.random.default_rng(0).integers(-7, 8, (6, 4)).astype(np.float32)
    found = learn_rounding(w, 1.0, x, x @ w)
    np.testing.assert_array_equal(found.q, w)


def test_the_first_step_of_adam_is_of_the_rate() -> None:
    x, w = layer(50, 6, 4, 0)
    unit = spread(columns(w), w.shape)
    held = [
        learned._learn(
            w,
            unit,
            x,
            x @ w,
            jax.random.key(0),
            jnp.float32(1),
            learned.matrix_product,
            (-7.0, 7.0),
            (steps, 8, 0.01, 0),
        )
        for steps in (0, 1, 2)
    ]
    np.testing.assert_allclose(learned._rectified(held[0]), w / unit - np.floor(w / unit), atol=1e-5)
    # v begins where the error is least: its first slopes are those of roundings, some of them 0
    moved = np.abs(held[1] - held[0])
    assert np.all((moved < 1e-6) | (np.abs(moved - 0.01) < 1e-4)) and (moved > 0.005).any()
    assert np.abs(held[2] - held[1]).max() < 0.02


def test_the_same_seed_learns_the_same() -> None:
    x, w = layer(50, 6, 4, 0)
    first, second = (learn_rounding(w, columns(w), x, x @ w, steps=50, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.q, second.q)


def test_mistakes_are_refused() -> None:
    x, w = layer(20, 6, 4, 0)
    for inputs, outputs in (
        (x, (x @ w)[:5]),
        (x[:0], (x @ w)[:0]),
        ({"a": x, "b": x[:3]}, x @ w),
        (1.0, 2.0),
    ):
        with pytest.raises(ValueError, match="same examples"):
            learn_rounding(w, 0.1, inputs, outputs)
    with pytest.raises(ValueError, match="at least one of each"):
        learn_rounding(w, 0.1, x, x @ w, steps=0)
    with pytest.raises(ValueError, match="NaN"):
        learn_rounding(w, 0.1, x, x @ w * np.nan)
    with pytest.raises(ValueError, match="do not fit"):
        learn_rounding(w, np.ones((1, 3)), x, x @ w)


# -- learned scales ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [(), (1, 5), (3, 5)])
def test_a_learned_scale_has_its_gradient(held: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 5)).astype(np.float32)
    scale = rng.uniform(0.1, 0.5, held).astype(np.float32)
    np.testing.assert_array_equal(learned_scale(x, scale, 0, -7, 7), fake(x, scale, 0, -7, 7))
    grads = [
        jax.grad(lambda s, f=f: jnp.sum(f(x, s, 0, -7, 7) ** 2))(scale)  # type: ignore[misc]
        for f in (learned_scale, fake)
    ]
    share = x.size / max(scale.size, 1)
    np.testing.assert_allclose(grads[0], grads[1] / np.sqrt(share * 7), rtol=1e-5)


def test_learning_a_scale_lessens_the_error() -> None:
    x = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    start = scale = first_scale(x, 7, [(1, 1)])
    np.testing.assert_allclose(start, 2 * np.abs(x).mean(0, keepdims=True) / np.sqrt(7), rtol=1e-5)

    def loss(scale: Any) -> Any:
        return jnp.mean((learned_scale(x, scale, 0, -7, 7) - x) ** 2)

    slope = jax.jit(jax.grad(loss))
    for _ in range(300):
        scale = scale - 20 * slope(scale)
    assert float(loss(scale)) < 0.7 * float(loss(start))
    best = min(float(loss(jnp.full_like(start, s))) for s in np.linspace(0.1, 0.6, 30))
    assert float(loss(scale)) < 1.05 * best


def test_first_scales() -> None:
    assert first_scale(np.zeros((4, 2)), 7).shape == (1, 1)
    assert float(first_scale(np.zeros((4, 2)), 7)[0, 0]) == 1
    assert first_scale(np.ones((4, 2)), 7, [(0, 2), (1, 1)]).shape == (2, 2)
