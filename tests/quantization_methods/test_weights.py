"""GPTQ against the algorithm written out in numpy, AWQ against a search, convolutions against their matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from random_layers import DTYPES, layer, output_loss
from tiering import covering, examples, sampled

from tilewright.quantization import weights
from tilewright.quantization.rounding import weight_scale
from tilewright.quantization.weights import (
    Im2col,
    StoredWeight,
    awq,
    gptq,
    nearest,
    output_error,
    start_hessian,
    update_hessian,
)

I4, I8 = (-7, 7), (-127, 127)


def hessian_of(x: np.ndarray) -> jax.Array:
    return update_hessian(start_hessian(x.shape[-1]), x)


def found(weight: StoredWeight) -> np.ndarray:
    return np.asarray(weight.dequantized(), np.float64)


def check_stored(weight: StoredWeight, w: np.ndarray, stored: tuple[float, float], group: int | None) -> None:
    k = w.shape[-2]
    assert weight.q.shape == w.shape and weight.q.dtype == jnp.int8
    assert weight.scale.shape == (*w.shape[:-2], 1 if group is None else k // group, w.shape[-1])
    assert int(weight.q.min()) >= stored[0] and int(weight.q.max()) <= stored[1]
    assert bool((weight.scale > 0).all())


def gptq_in_numpy(w: np.ndarray, h: np.ndarray, scale: np.ndarray, damping: float = 0.01) -> np.ndarray:
    """Optimal brain quantisation, row after row: each row's error is spread over those that are left by the inverse of
    their part of the Hessian (Frantar et al. 2022, eq. 2), without blocks or a factorisation."""
    w, h = w.astype(np.float64).copy(), h.astype(np.float64).copy()
    h += np.diag(np.where(np.diag(h) > 0, damping * np.diag(h).mean(), 1))
    q = np.zeros_like(w)
    for i in range(len(w)):
        q[i] = np.clip(np.rint(w[i] / scale[i]), -7, 7)
        inverse = np.linalg.inv(h[i:, i:])
        w[i:] -= np.outer(inverse[:, 0], (w[i] - q[i] * scale[i]) / inverse[0, 0])
    return q


@examples(12)
@given(st.sampled_from([(64, 1, 1), (64, 13, 5), (200, 40, 7), (100, 70, 3)]), st.integers(0, 2**32))
def test_gptq_is_the_algorithm_written_out(shape: tuple[int, int, int], seed: int) -> None:
    x, w = layer(*shape, seed)
    h = hessian_of(x)
    plain = gptq(w, h)
    check_stored(plain, w, I4, None)
    ours = gptq_in_numpy(w, np.asarray(h), np.asarray(plain.scale).repeat(len(w), 0))
    assert np.mean(ours != np.asarray(plain.q)) <= 0.02  # ties, and numbers near them
    ordered = gptq(w, h, act_order=True)
    order = np.argsort(-np.diag(np.asarray(h)), kind="stable")
    q = gptq_in_numpy(w[order], np.asarray(h)[order][:, order], np.asarray(ordered.scale).repeat(len(w), 0))
    assert np.mean(q != np.asarray(ordered.q)[order]) <= 0.02


@covering(2)
@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("method", ["absmax", "mse"])
@pytest.mark.parametrize("group", [None, 8, 24])
def test_gptq_beats_rounding_to_nearest(group: int | None, method: str, act_order: bool) -> None:
    gains = []
    for seed in range(3):
        x, w = layer(400, 48, 33, seed)
        weight = gptq(w, hessian_of(x), I4, group, method, act_order)
        check_stored(weight, w, I4, group)
        gains.append(
            output_loss(x, w, found(weight)) / output_loss(x, w, found(nearest(w, I4, group, method)))
        )
    assert max(gains) < 0.75


@sampled(2)
@pytest.mark.parametrize("group", [None, 5, 1])
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq_with_a_diagonal_hessian_is_rounding_to_nearest(act_order: bool, group: int | None) -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(35, 11)).astype(np.float32)
    strength = rng.uniform(0, 5, 35) * (rng.uniform(size=35) < 0.7)  # some inputs are always 0
    weight, ours = gptq(w, np.diag(strength), I4, group, act_order=act_order), nearest(w, I4, group)
    np.testing.assert_array_equal(weight.q, ours.q)
    np.testing.assert_array_equal(weight.scale, ours.scale)


def test_the_block_of_gptq_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = layer(200, 50, 9, 1)
    h = hessian_of(x)
    held = []
    for block in (1, 7, 50, 64):
        monkeypatch.setattr(weights, "BLOCK", block)
        held.append(np.asarray(gptq(w, h).q))
    assert all(np.mean(q != held[0]) <= 0.01 for q in held)


def test_the_unit_of_inputs_changes_nothing() -> None:
    x, w = layer(200, 30, 9, 1)
    x[:, 4] = 0
    h = hessian_of(x)
    held = [gptq(w, h * unit).q for unit in (1, 2.0**-40, 2.0**40)]
    np.testing.assert_array_equal(held[0], held[1])
    np.testing.assert_array_equal(held[0], held[2])


def test_groups_of_gptq_are_chosen_as_their_turn_comes() -> None:
    """The scales of later groups are those of the corrected weight, and fit it better than those of the old one."""
    x, w = layer(400, 64, 16, 2)
    weight = gptq(w, hessian_of(x), I4, 16)
    first = np.asarray(weight_scale(w, [(0, 16), (1, 1)], "absmax", 7))
    np.testing.assert_array_equal(weight.scale[0], first[0])
    assert (np.asarray(weight.scale[1:]) != first[1:]).mean() > 0.9


def test_inputs_with_fewer_rows_than_channels() -> None:
    x, w = layer(5, 40, 6, 3)
    weight = gptq(w, hessian_of(x), I4)
    assert output_loss(x, w, found(weight)) < output_loss(x, w, found(nearest(w, I4)))


@covering(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(8, 1, 1), (8, 1, 7), (8, 13, 1), (50, 31, 17)])
@pytest.mark.parametrize("method", ["nearest", "gptq", "awq"])
def test_odd_shapes_and_float_types(method: str, shape: tuple[int, int, int], dtype: str) -> None:
    x, w = (jnp.asarray(a, dtype) for a in layer(*shape, 4))
    h = update_hessian(start_hessian(shape[1]), x)
    magnitude = jnp.mean(jnp.abs(x.astype(jnp.float32)), 0)
    run = {
        "nearest": lambda: nearest(w, I8),
        "gptq": lambda: gptq(w, h, I8),
        "awq": lambda: awq(w, h, magnitude, I8),
    }
    weight = run[method]()
    wide = np.asarray(w, np.float32)
    check_stored(weight, wide, I8, None)
    loss = output_loss(np.asarray(x, np.float32), wide, found(weight))
    assert loss <= 1e-3 * output_loss(np.asarray(x, np.float32), wide, 0 * wide) + 1e-12


@sampled(3)
@pytest.mark.parametrize("method", ["nearest", "gptq", "gptq groups", "gptq order", "awq", "awq clip"])
def test_several_matrices_are_each_alone(method: str) -> None:
    parts = [layer(60, 12, 5, seed) for seed in range(3)]
    x, w = (np.stack(a) for a in zip(*parts))
    h = update_hessian(start_hessian(12, 3), x)
    strength = np.abs(x).mean(1)

    def run(w: Any, h: Any, strength: Any) -> StoredWeight:
        group = 4 if "groups" in method else None
        if method == "nearest":
            return nearest(w, I4)
        if "gptq" in method:
            return gptq(w, h, I4, group, act_order="order" in method)
        return awq(w, h, strength, I4, clip="clip" in method)

    together = run(w, h, strength)
    for i in range(3):
        alone = run(w[i], h[i], strength[i])
        np.testing.assert_array_equal(together.q[i], alone.q)
        np.testing.assert_allclose(together.scale[i], alone.scale, rtol=1e-6)
    check_stored(together, w, I4, 4 if "groups" in method else None)


def test_mantissas_are_short() -> None:
    x, w = layer(64, 24, 6, 5)
    h, strength = hessian_of(x), np.abs(x).mean(0)
    for weight in (
        nearest(w, I8, mantissa_bits=10),
        gptq(w, h, I4, mantissa_bits=10),
        gptq(w, h, I4, 8, mantissa_bits=10),
        awq(w, h, strength, I4, clip=True, mantissa_bits=10),
    ):
        assert (np.asarray(weight.scale).view(np.uint32) & 0x1FFF == 0).all()


# -- AWQ --------------------------------------------------------------------------------------------------------


@examples(8)
@given(st.integers(0, 2**32), st.sampled_from([None, 8]), st.booleans())
def test_awq_is_the_best_of_its_grid(seed: int, group: int | None, clip: bool) -> None:
    x, w = layer(120, 32, 9, seed, skew=1.5)
    h, strength = hessian_of(x), np.abs(x).mean(0)
    weight = awq(w, h, strength, I4, group, clip=clip)
    check_stored(weight, w, I4, group)
    losses = []
    for alpha in np.linspace(0, 1, weights.ALPHAS + 1):
        s = np.maximum(strength, weights.LEAST_MAGNITUDE * strength.max()) ** alpha
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32)
        scaled = nearest(w * s[:, None], I4, group)
        losses.append(output_loss(x, w, found(scaled) / s[:, None]))
    ours = output_loss(x, w, found(weight))
    assert ours <= min(losses) * 1.001
    if not clip:
        assert ours >= min(losses) * 0.999


def test_awq_protects_strong_inputs() -> None:
    x, w = layer(200, 64, 16, 0, skew=2)
    h, strength = hessian_of(x), np.abs(x).mean(0)
    weight = awq(w, h, strength, I4)
    assert output_loss(x, w, found(weight)) < 0.7 * output_loss(x, w, found(nearest(w, I4)))
    scaled = (x / np.asarray(weight.input_scale)) @ (np.asarray(weight.q) * np.asarray(weight.scale))
    np.testing.assert_allclose(scaled, x @ found(weight), rtol=1e-3, atol=1e-3)


def test_inputs_that_are_always_0_do_no_harm() -> None:
    x, w = layer(50, 10, 4, 0)
    x[:, 3] = 0
    for weight in (awq(w, hessian_of(x), np.abs(x).mean(0), I4), gptq(w, hessian_of(x), I4)):
        assert np.isfinite(found(weight)).all()
    for weight in (awq(w, hessian_of(0 * x), np.zeros(10), I4), gptq(w, hessian_of(0 * x), I4)):
        np.testing.assert_array_equal(weight.q, nearest(w, I4).q)


def test_the_error_of_outputs() -> None:
    x, w = layer(50, 10, 4, 0)
    near = nearest(w, I4)
    np.testing.assert_allclose(
        output_error(w, near.dequantized(), hessian_of(x)).sum(), output_loss(x, w, found(near)), rtol=1e-4
    )


# -- convolutions -----------------------------------------------------------------------------------------------

CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "3x3": {"x": (2, 9, 7, 5), "w": (3, 3, 5, 6)},
    "stride, VALID": {"x": (3, 9, 8, 4), "w": (3, 2, 4, 6), "strides": (2, 3), "padding": "VALID"},
    "dilation": {"x": (1, 11, 11, 2), "w": (3, 3, 2, 3), "rhs_dilation": (2, 1), "padding": [(1, 2), (0, 3)]},
    "transposed": {"x": (2, 4, 5, 3), "w": (3, 3, 3, 2), "lhs_dilation": (2, 2), "padding": [(1, 1), (2, 1)]},
    "groups": {"x": (2, 6, 6, 6), "w": (3, 3, 2, 9), "groups": 3},
    "depthwise": {"x": (2, 6, 6, 5), "w": (3, 3, 1, 10), "groups": 5},
    "1x1": {"x": (2, 3, 3, 7), "w": (1, 1, 7, 11)},
    "NCHW": {"x": (2, 5, 9, 7), "w": (6, 5, 3, 3), "dimension_numbers": ("NCHW", "OIHW", "NCHW")},
    "odd layout": {"x": (5, 9, 2, 7), "w": (3, 6, 5, 2), "dimension_numbers": ("CHNW", "HOIW", "NHWC")},
    "1d": {"x": (2, 17, 3), "w": (5, 3, 4), "dimension_numbers": ("NWC", "WIO", "NWC")},
}


@sampled(12)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_products_of_patches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = dict(CONVOLUTIONS[name])
    numbers = case.setdefault("dimension_numbers", ("NHWC", "HWIO", "NHWC"))
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=case.pop(key)).astype(np.float32) for key in "xw")
    described = Im2col.of(x.shape, w.shape, **case)
    matrix = described.matrix(w)
    assert matrix.shape[:2] == (described.groups, described.k)
    np.testing.assert_array_equal(described.kernel(matrix), w)
    patches = described.patches(x)
    groups = case.pop("groups", 1)
    strides, padding = case.pop("strides", (1,) * (x.ndim - 2)), case.pop("padding", "SAME")
    y = lax.conv_general_dilated(x, w, strides, padding, feature_group_count=groups, **case)
    features = np.moveaxis(np.asarray(y), [numbers[2].index("N"), numbers[2].index("C")], [0, -1])
    products = np.einsum("gmk,gkn->mgn", patches, matrix).reshape(features.shape)
    np.testing.assert_allclose(products, features, atol=1e-4)
    # the Hessian is that of all patches, whether a batch is cut or not
    h = np.einsum("gmi,gmj->gij", patches, patches)
    for most in (weights.PATCH_BYTES, 1):
        monkeypatch.setattr(weights, "PATCH_BYTES", most)
        held = described.update_hessian(start_hessian(described.k, groups), x)
        np.testing.assert_allclose(held, h, atol=1e-3)
    # each output channel has the scale of its column
    weight = gptq(matrix, held, I8)
    scale = described.channels(weight.scale)
    at = numbers[1].index("O")
    back = np.asarray(described.kernel(weight.q), np.float32)
    shaped = [1] * w.ndim
    shaped[at] = -1
    assert np.abs(back * np.asarray(scale).reshape(shaped) - w).max() < 0.3 * np.abs(w).max()
    np.testing.assert_array_equal(scale, nearest(matrix, I8).scale.ravel())


def test_awq_of_a_convolution_scales_input_channels() -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(4, 8, 8, 6)) * np.exp(rng.normal(0, 2, 6))).astype(np.float32)
    w = rng.normal(size=(3, 3, 6, 8)).astype(np.float32)
    described = Im2col.of(x.shape, w.shape, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    h = described.update_hessian(start_hessian(described.k, 1), x)
    weight = awq(described.matrix(w), h, np.abs(x).mean((0, 1, 2))[None], I4, repeats=described.taps)
    assert weight.input_scale is not None
    s = np.asarray(weight.input_scale).reshape(6, 9)
    np.testing.assert_array_equal(s, s[:, :1].repeat(9, 1))
    scaled = np.asarray(described.kernel(weight.q)) * np.asarray(described.channels(weight.scale))

    def conv(x: Any, w: Any) -> np.ndarray:
        return np.asarray(
            lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        )

    y = conv(x, w)
    near = found(nearest(described.matrix(w), I4)).astype(np.float32)
    ours = ((conv(x / s[:, 0], scaled) - y) ** 2).sum()
    assert ours < 0.8 * ((conv(x, described.kernel(near)) - y) ** 2).sum()


# -- mistakes ---------------------------------------------------------------------------------------------------


def test_mistakes_are_refused() -> None:
    x, w = layer(20, 6, 4, 0)
    h = hessian_of(x)
    for bad in (np.zeros((0, 4)), np.zeros((4, 0)), np.zeros(4), np.zeros((1, 1, 1, 1))):
        with pytest.raises(ValueError, match="no matrix with elements"):
            nearest(bad)
    for bad in (np.nan, np.inf):
        broken = w.copy()
        broken[2, 1] = bad
        with pytest.raises(ValueError, match="weight has NaN"):
            gptq(broken, h)
        with pytest.raises(ValueError, match="Hessian has NaN"):
            gptq(w, h.at[1, 1].set(bad))
    with pytest.raises(ValueError, match="choose a divisor"):
        gptq(w, h, group=4)
    with pytest.raises(ValueError, match="does not fit"):
        gptq(w, h[:5, :5])
    with pytest.raises(ValueError, match="above 0"):
        gptq(w, h, damping=0)
    with pytest.raises(ValueError, match="choose a larger one"):
        gptq(w, -h, damping=1e-6)
    with pytest.raises(ValueError, match="one for each input channel"):
        awq(w, h, np.ones(5))
    with pytest.raises(ValueError, match="do not fit a Hessian"):
        update_hessian(start_hessian(5), x)
    with pytest.raises(ValueError, match="do not fit a Hessian"):
        update_hessian(start_hessian(6, 2), x[None])
    with pytest.raises(ValueError, match="method"):
        nearest(w, method="median")
