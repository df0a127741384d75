"""Statistics against numpy's over all data; limits against searches and published constants."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_layers import DTYPES
from tiering import covering, examples

from tilewright.quantization import observers
from tilewright.quantization.observers import (
    BINS,
    METHODS,
    MOVING,
    SAMPLE,
    ChannelStatistics,
    Statistics,
    edges,
    limits,
    magnitudes,
    merge,
    merge_channels,
    scale_and_zero,
    squared_error,
    start,
    start_channels,
    stride,
    update,
    update_channels,
)

UPDATE, MERGE = jax.jit(update), jax.jit(merge)
ODD = ((), (1,), (7,), (3, 1, 13), (2, 64))


def batches(seed: int, count: int = 4, size: int = 200) -> list[np.ndarray]:
    """Batches of very different ranges, with zeros."""
    rng = np.random.default_rng(seed)
    found = [rng.normal(rng.normal(), 1, size) * 10.0 ** rng.uniform(-6, 6) for _ in range(count)]
    return [np.where(rng.uniform(size=size) < 0.2, 0, x).astype(np.float32) for x in found]


def observed(*data: np.ndarray) -> Statistics:
    state = start()
    for x in data:
        state = UPDATE(state, x)
    return state


def check_against_numpy(state: Statistics, data: list[np.ndarray]) -> None:
    everything = np.concatenate([x.astype(np.float32).ravel() for x in data])
    assert float(state.low) == everything.min() and float(state.high) == everything.max()
    assert int(state.batches) == len(data) and float(state.count) == everything.size
    np.testing.assert_allclose(state.magnitude, np.abs(everything).mean(), rtol=1e-5)
    np.testing.assert_allclose(state.mean, everything.mean(), atol=1e-5 * np.abs(everything).mean())
    moving = 0.0
    for x in data:
        moving = MOVING * moving + (1 - MOVING) * float(x.max())
    np.testing.assert_allclose(state.moving_high, moving, rtol=1e-5, atol=1e-6 * np.abs(everything).max())
    others = everything[everything != 0]
    assert int(state.zeros) == everything.size - others.size
    # a bin holds its edge nearer to 0, numpy's its lower edge: negative numbers are counted in the mirror
    at = edges(state)
    above = np.histogram(others[others > 0], at)[0]
    below = np.histogram(-others[others < 0], at)[0][::-1]
    np.testing.assert_array_equal(state.histogram, above + below)
    np.testing.assert_array_equal(magnitudes(state), np.histogram(np.abs(others), at[BINS:])[0])
    largest = np.abs(everything).max()
    assert not largest or at[-1] / 2 <= largest < at[-1]


@examples(12)
@given(st.integers(0, 2**32))
def test_statistics_are_those_of_all_batches(seed: int) -> None:
    data = batches(seed)
    check_against_numpy(observed(*data), data)


@examples(12)
@given(st.integers(0, 2**32), st.integers(0, 4))
def test_merging_is_observing_one_after_another(seed: int, cut: int) -> None:
    data = batches(seed)
    merged = MERGE(observed(*data[:cut]), observed(*data[cut:]))
    check_against_numpy(merged, data)
    a, b, c = observed(*data[:1]), observed(*data[1:2]), observed(*data[2:])
    for x, y in zip(jax.tree.leaves(MERGE(MERGE(a, b), c)), jax.tree.leaves(MERGE(a, MERGE(b, c)))):
        # averages of numbers of both signs are as exact as their largest summand
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6 * float(np.abs(np.concatenate(data)).max()))


@covering()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ODD)
def test_odd_shapes_and_float_types(shape: tuple[int, ...], dtype: str) -> None:
    x = jnp.asarray(np.random.default_rng(1).normal(size=shape), dtype)
    check_against_numpy(UPDATE(start(), x), [np.asarray(x, np.float32)])


def test_integers_are_observed() -> None:
    x = np.arange(-5, 100, dtype=np.int32)
    check_against_numpy(observed(x), [x])


def test_a_scan_carries_statistics() -> None:
    data = np.stack(batches(3))
    carried, _ = jax.jit(lambda xs: jax.lax.scan(lambda s, x: (update(s, x), None), start(), xs))(data)
    check_against_numpy(carried, list(data))


def test_statistics_are_stacked() -> None:
    data = np.stack(batches(4))
    stacked = jax.jit(jax.vmap(lambda x: update(start(), x)))(data)
    for i, x in enumerate(data):
        check_against_numpy(jax.tree.map(lambda leaf: leaf[i], stacked), [x])  # noqa: B023


@given(st.integers(1, 1 << 22))
def test_a_sample_is_small_and_sees_each_channel(size: int) -> None:
    step = stride(size)
    assert -(-size // step) <= SAMPLE and math.gcd(step, size) == 1
    assert step == 1 or size > SAMPLE


def test_a_large_tensor_is_sampled() -> None:
    x = np.random.default_rng(0).normal(size=(30, 100, 64)).astype(np.float32)
    x[3, 5, 7] = 50.0  # not in the sample, and yet in the range
    state = observed(x)
    assert float(state.high) == 50 and edges(state)[-1] == 64
    assert 0 < float(state.histogram.sum() + state.zeros) <= SAMPLE
    x = np.arange(64, dtype=np.float32)[None].repeat(5000, 0) + 1
    seen = np.histogram(np.arange(1, 65), edges(observed(x)))[0] > 0
    assert ((np.asarray(observed(x).histogram) > 0) == seen).all()


@pytest.mark.parametrize("scale", [1e-37, 1e-30, 1e30, 3e38])
def test_extreme_ranges(scale: float) -> None:
    x = (np.linspace(-1, 1, 101) * scale).astype(np.float32)
    state = observed(x)
    low, high = limits(state, "minmax")
    assert high == float(np.float32(scale)) == -low
    assert float(state.histogram.sum() + state.zeros) == 101


@covering()
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", METHODS)
def test_data_that_is_not_finite_is_refused(bad: float, method: str) -> None:
    state = observed(np.asarray([1.0, bad, 2.0], np.float32), np.ones(3, np.float32))
    with pytest.raises(ValueError, match="NaN or infinity"):
        limits(state, method)


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="no data"):
        limits(start())
    with pytest.raises(ValueError, match="no data"):
        limits(update(start(), np.zeros((0, 3), np.float32)))
    state = observed(np.ones(3, np.float32))
    with pytest.raises(ValueError, match="entropy"):
        limits(state, "entropy")
    with pytest.raises(ValueError, match="2 or more"):
        limits(state, bits=1)
    with pytest.raises(ValueError, match=r"99\.99"):
        limits(state, "percentile", percentile=0.9999)


# -- limits ---------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(7)
SHAPES = {
    "gauss": RNG.normal(0, 1, 40000),
    "laplace": RNG.laplace(0, 2, 40000),
    "relu": np.maximum(RNG.normal(0, 1, 40000), 0),
    "shifted": RNG.normal(3, 1, 40000),
    "below 0": -np.abs(RNG.normal(0, 1e-3, 40000)),
    "outlier": np.append(RNG.normal(0, 1, 40000), 60.0),
    "heavy": RNG.standard_t(3, 40000) * 1e4,
    "two values": np.where(RNG.uniform(size=40000) < 0.5, -1.0, 3.0),
    "sparse": np.where(RNG.uniform(size=40000) < 0.999, 0, RNG.normal(size=40000)),
    "zeros": np.zeros(50),
    "constant": np.full(50, 2.5),
    "one": np.asarray([-0.3]),
}


def measured_error(x: np.ndarray, low: float, high: float, bits: int, symmetric: bool) -> float:
    stored = (-(2 ** (bits - 1)) + symmetric, 2 ** (bits - 1) - 1)
    scale, zero = scale_and_zero(low, high, stored, symmetric)
    q = np.clip(np.rint(x / scale) + zero, *stored)
    return float((((q - zero) * scale.astype(np.float64) - x) ** 2).mean())


@covering()
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("name", SHAPES)
def test_limits(name: str, bits: int, symmetric: bool) -> None:
    x = SHAPES[name].astype(np.float32)
    state = observed(x)
    errors = {}
    for method in METHODS:
        low, high = limits(state, method, bits, symmetric)
        assert (low <= 0 <= high and (low, high) != (0, 0)) or not x.any()
        assert not symmetric or low == -high
        assert max(-low, high) <= np.abs(x).max()
        modelled = squared_error(state, low, high, bits, symmetric)
        errors[method] = modelled
        if name in ("gauss", "laplace", "relu", "shifted", "below 0"):
            np.testing.assert_allclose(modelled, measured_error(x, low, high, bits, symmetric), rtol=0.05)
    assert errors["auto"] == min(errors.values())
    if x.any():
        assert errors["mse"] <= errors["minmax"]


@pytest.mark.parametrize("name", ["gauss", "laplace", "relu", "heavy"])
@pytest.mark.parametrize("bits", [8, 4])
def test_mse_is_as_good_as_a_search_on_the_data(name: str, bits: int) -> None:
    x = SHAPES[name].astype(np.float32)
    bound = limits(observed(x), "mse", bits)[1]
    tried = [measured_error(x, -b, b, bits, True) for b in np.abs(x).max() * np.linspace(0.01, 1, 400)]
    assert measured_error(x, -bound, bound, bits, True) <= 1.01 * min(tried)


def test_percentile_is_numpy_s() -> None:
    for name in ("gauss", "heavy", "relu", "sparse"):
        x = SHAPES[name].astype(np.float32)
        state = observed(x)
        width = edges(state)[-1] / BINS
        others = x[x != 0]
        for percentile in (99.0, 99.9):
            found = limits(state, "percentile", percentile=percentile)[1]
            ranked = np.sort(np.abs(others))
            place = int(len(ranked) * percentile / 100)
            assert ranked[place - 1] - width <= found <= ranked[min(place, len(ranked) - 1)] + width
    low, high = limits(observed(SHAPES["gauss"].astype(np.float32)), "percentile", 8, False, percentile=98.0)
    np.testing.assert_allclose([low, high], np.percentile(SHAPES["gauss"], [1, 99]), atol=0.01)


def test_moving_averages_follow_the_batches() -> None:
    state = observed(*[np.asarray([-1.0, 1.0], np.float32)] * 20, np.asarray([-9.0, 11.0], np.float32))
    assert limits(state, "minmax", symmetric=False) == (-9, 11)
    share = (1 - MOVING) / (1 - MOVING**21)
    np.testing.assert_allclose(
        limits(state, "ema", symmetric=False), (-1 - 8 * share, 1 + 10 * share), rtol=1e-5
    )


def test_aciq_has_the_published_bounds() -> None:
    laplace = [2.83, 3.89, 5.03, 6.20, 7.41, 8.64, 9.89]
    gauss = [1.71, 2.15, 2.55, 2.93, 3.28, 3.61, 3.92]
    np.testing.assert_allclose([observers.laplace_bound(b) for b in range(2, 9)], laplace, atol=0.011)
    np.testing.assert_allclose([observers.gauss_bound(b) for b in range(2, 9)], gauss, atol=0.011)
    assert abs(limits(observed(SHAPES["gauss"].astype(np.float32)), "aciq", 4)[1] - 2.55) < 0.05
    assert abs(limits(observed(SHAPES["laplace"].astype(np.float32)), "aciq", 4)[1] - 2 * 5.03) < 0.3


def test_aciq_is_about_the_mean_where_zero_points_are() -> None:
    x = np.random.default_rng(5).normal(0.5, 1, 40000).astype(np.float32)
    np.testing.assert_allclose(limits(observed(x), "aciq", 4, False), (0.5 - 2.55, 0.5 + 2.55), atol=0.05)
    # about 0 without zero points: the deviation from 0 is larger
    assert abs(limits(observed(x), "aciq", 4)[1] - 2.55 * np.sqrt(1.25)) < 0.1


def test_kl_keeps_all_of_even_data_and_drops_an_outlier() -> None:
    even = np.linspace(-1, 1, 50001).astype(np.float32)
    assert limits(observed(even), "kl")[1] > 0.99
    assert limits(observed(SHAPES["outlier"].astype(np.float32)), "kl")[1] < 12


# -- scales -----------------------------------------------------------------------------------------------------

RANGES = [(-127, 127), (-128, 127), (0, 255), (-7, 7), (-8, 7), (-448.0, 448.0)]


@given(
    st.floats(-1e30, 1e30),
    st.floats(-1e30, 1e30),
    st.sampled_from(RANGES),
    st.booleans(),
    st.sampled_from([None, 0, 7, 10, 23]),
)
def test_scales_cover_the_limits(
    a: float, b: float, stored: tuple[float, float], symmetric: bool, mantissa_bits: int | None
) -> None:
    low, high = sorted((a, b))
    if symmetric and stored[0] >= 0 and low < 0:
        with pytest.raises(ValueError, match="symmetric=False"):
            scale_and_zero(low, high, stored, symmetric)
        return
    scale, zero = scale_and_zero(low, high, stored, symmetric, mantissa_bits)
    assert scale.dtype == np.float32 and zero.dtype == np.int32
    assert np.isfinite(scale) and scale >= np.finfo(np.float32).tiny and np.isfinite(1 / scale)
    assert stored[0] <= zero <= stored[1] and (not symmetric or zero == 0)
    if mantissa_bits is not None:
        assert int(scale.view(np.uint32)) & ((1 << 23 - mantissa_bits) - 1) == 0
    q = np.asarray([low, high]) / np.float64(scale) + zero
    # the zero point is rounded: at most half a step is cut off
    room = 1e-6 * np.abs(q) if symmetric else 0.5 + 1e-6 * np.abs(q)
    assert (q >= stored[0] - room).all() and (q <= stored[1] + room).all()


def test_scales_without_a_range() -> None:
    scale, zero = scale_and_zero([0, 0, -3, 1e-45], [0, 5, -2, 1e-45], (-128, 127), False)
    assert scale[0] == 1 and zero[1] == -128 and zero[2] == 127
    assert scale[3] == np.finfo(np.float32).tiny
    for bad in ((np.nan, 1), (0, np.inf), (2, 1)):
        with pytest.raises(ValueError, match="limit"):
            scale_and_zero(*bad)
    with pytest.raises(ValueError, match="0 to 23"):
        scale_and_zero(-1, 1, mantissa_bits=24)


# -- channels ---------------------------------------------------------------------------------------------------


@covering()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), [((5, 7), -1), ((3, 1, 11), 1), ((13,), 0), ((2, 3, 4, 5), 1)])
def test_channels(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    data = [jnp.asarray(rng.normal(size=shape), dtype) for _ in range(3)]
    state: ChannelStatistics = start_channels(shape[axis])
    other = state
    for x in data[:2]:
        state = update_channels(state, x, axis)
    state = merge_channels(state, update_channels(other, data[2], axis))
    flat = np.concatenate(
        [np.moveaxis(np.asarray(x, np.float32), axis, -1).reshape(-1, shape[axis]) for x in data]
    )
    np.testing.assert_array_equal(state.low, flat.min(0))
    np.testing.assert_array_equal(state.largest, np.abs(flat).max(0))
    np.testing.assert_allclose(state.mean, flat.mean(0), atol=1e-6)
    np.testing.assert_allclose(state.magnitude, np.abs(flat).mean(0), rtol=1e-5)
    assert float(state.count) == len(flat)


def test_other_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="axis of the channels"):
        update_channels(start_channels(3), np.ones((3, 4), np.float32))
    state = update_channels(start_channels(4), np.ones((0, 4), np.float32))
    assert float(state.count) == 0
