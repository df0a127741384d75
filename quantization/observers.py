"""Statistics of activations, gathered inside a jitted pass over batches, and limits and scales from them.

`start`, `update` and `merge` are traceable: a calibration pass carries one `Statistics` for each observed tensor
through its loops. `limits` and `scale_and_zero` are numpy, for after the pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

BINS = 2048
"""Bins of the histogram of |x|, as in TensorRT's calibration; the signed histogram has them on both sides of 0."""

SAMPLE = 65_536
"""At most so many elements of a tensor enter the histogram in each `update`; all enter every other statistic."""

MOVING = 0.9
"""Weight of the past in the moving averages of the least and the largest number, at each batch."""

LEAST_EXPONENT = -126
"""Exponent of the histogram's range before any data: it only grows."""

MOST_EXPONENT = 126
"""Exponent of the widest range, whose inverse is a normal f32. Numbers beyond it are counted in the last bins."""

COARSEST = 1 / 1024
"""The narrowest range that "mse" tries, as a fraction of the largest magnitude."""

CANDIDATES = 256
"""At most so many ranges "kl" tries, and as many again."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "batches", "count", "low", "high", "moving_low", "moving_high", "mean", "magnitude",
        "exponent", "histogram", "zeros",
    ],
    meta_fields=[],
)  # fmt: skip
@dataclass(frozen=True)
class Statistics:
    """What is known of the values that a tensor has taken; a pytree of f32 scalars where not said otherwise.

    `moving_low` and `moving_high` are sums that begin at 0 (Kingma and Ba 2015, algorithm 1): divided by
    1 - MOVING ** batches they are averages, so that states merge exactly. A NaN stays in `low` and `high`.
    """

    batches: jax.Array  # i32
    count: jax.Array  # elements
    low: jax.Array
    high: jax.Array
    moving_low: jax.Array
    moving_high: jax.Array
    mean: jax.Array  # of x
    magnitude: jax.Array  # mean of |x|
    exponent: jax.Array  # i32: the histogram spans -2**exponent to 2**exponent
    histogram: jax.Array  # f32[2 * BINS]: sampled elements that are not 0; bin BINS begins at 0
    zeros: jax.Array  # sampled elements that are 0


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["count", "low", "high", "mean", "magnitude"],
    meta_fields=[],
)
@dataclass(frozen=True)
class ChannelStatistics:
    """What is known of each channel of a tensor; f32 vectors but for the count."""

    count: jax.Array  # elements in each channel
    low: jax.Array
    high: jax.Array
    mean: jax.Array
    magnitude: jax.Array  # mean of |x|

    @property
    def largest(self) -> jax.Array:
        """The largest |x| of each channel."""
        return jnp.maximum(jnp.abs(self.low), jnp.abs(self.high))


def start() -> Statistics:
    """Statistics of no data."""
    zero = jnp.zeros((), jnp.float32)
    infinite = jnp.full((), jnp.inf, jnp.float32)
    return Statistics(
        batches=jnp.zeros((), jnp.int32),
        count=zero,
        low=infinite,
        high=-infinite,
        moving_low=zero,
        moving_high=zero,
        mean=zero,
        magnitude=zero,
        exponent=jnp.full((), LEAST_EXPONENT, jnp.int32),
        histogram=jnp.zeros(2 * BINS, jnp.float32),
        zeros=zero,
    )


def update(state: Statistics, x: ArrayLike) -> Statistics:
    """The statistics with one batch more, a tensor of any shape and real type. Traceable; a tensor without elements
    changes nothing.

    The histogram takes a strided sample of at most `SAMPLE` elements. The stride has no common divisor with the number
    of elements, so every channel is in the sample. Its range is a power of two that grows to hold the whole tensor.
    """
    given = jnp.ravel(jnp.asarray(x))
    if not given.size:
        return state
    x = _as_f32(given)
    low, high = jnp.min(x), jnp.max(x)
    magnitude = jnp.abs(x)
    sample = x[:: stride(x.size)]
    exponent = _exponent(jnp.maximum(jnp.abs(low), jnp.abs(high)))
    exponent = jnp.maximum(state.exponent, exponent)
    histogram = _coarser(state.histogram, exponent - state.exponent)
    at = jnp.where(sample == 0, 2 * BINS, _bin(sample, exponent))
    counts = jnp.zeros(2 * BINS + 1, jnp.float32).at[at].add(1.0, mode="promise_in_bounds")
    count = state.count + x.size
    share = x.size / count
    return Statistics(
        batches=state.batches + 1,
        count=count,
        low=jnp.minimum(state.low, low),
        high=jnp.maximum(state.high, high),
        moving_low=MOVING * state.moving_low + (1 - MOVING) * low,
        moving_high=MOVING * state.moving_high + (1 - MOVING) * high,
        mean=state.mean + (jnp.mean(x) - state.mean) * share,
        magnitude=state.magnitude + (jnp.mean(magnitude) - state.magnitude) * share,
        exponent=exponent,
        histogram=histogram + counts[:-1],
        zeros=state.zeros + counts[-1],
    )


def merge(first: Statistics, second: Statistics) -> Statistics:
    """The statistics of the batches of `first`, then those of `second`. Traceable and associative."""
    exponent = jnp.maximum(first.exponent, second.exponent)
    kept = jnp.float32(MOVING) ** second.batches
    count = first.count + second.count
    share = second.count / jnp.maximum(count, 1)
    return Statistics(
        batches=first.batches + second.batches,
        count=count,
        low=jnp.minimum(first.low, second.low),
        high=jnp.maximum(first.high, second.high),
        moving_low=kept * first.moving_low + second.moving_low,
        moving_high=kept * first.moving_high + second.moving_high,
        mean=first.mean + (second.mean - first.mean) * share,
        magnitude=first.magnitude + (second.magnitude - first.magnitude) * share,
        exponent=exponent,
        histogram=_coarser(first.histogram, exponent - first.exponent)
        + _coarser(second.histogram, exponent - second.exponent),
        zeros=first.zeros + second.zeros,
    )


def start_channels(channels: int) -> ChannelStatistics:
    """Statistics of so many channels without data."""
    zero = jnp.zeros(channels, jnp.float32)
    return ChannelStatistics(jnp.zeros((), jnp.float32), zero + jnp.inf, zero - jnp.inf, zero, zero)


def update_channels(state: ChannelStatistics, x: ArrayLike, axis: int = -1) -> ChannelStatistics:
    """The statistics with one batch more, whose channels are along an axis. Traceable. Raises ValueError where the
    batch has another number of channels."""
    x = jnp.asarray(x)
    if not x.ndim or x.shape[axis] != state.low.size:
        raise ValueError(
            f"statistics of {state.low.size} channels were begun, and axis {axis} of shape {list(x.shape)} has "
            "others: name the axis of the channels"
        )
    if not x.size:
        return state
    x = x.astype(jnp.float32)
    rest = tuple(d for d in range(x.ndim) if d != axis % x.ndim)
    many = x.size // state.low.size
    mean, magnitude = jnp.mean(x, rest), jnp.mean(jnp.abs(x), rest)
    batch = ChannelStatistics(jnp.float32(many), jnp.min(x, rest), jnp.max(x, rest), mean, magnitude)
    return merge_channels(state, batch)


def merge_channels(first: ChannelStatistics, second: ChannelStatistics) -> ChannelStatistics:
    """The statistics of the batches of both. Traceable and associative."""
    count = first.count + second.count
    share = second.count / jnp.maximum(count, 1)
    return ChannelStatistics(
        count=count,
        low=jnp.minimum(first.low, second.low),
        high=jnp.maximum(first.high, second.high),
        mean=first.mean + (second.mean - first.mean) * share,
        magnitude=first.magnitude + (second.magnitude - first.magnitude) * share,
    )


def stride(size: int) -> int:
    """The least stride that leaves at most `SAMPLE` of so many elements and has no common divisor with the number."""
    found = -(-size // SAMPLE)
    while math.gcd(found, size) > 1:
        found += 1
    return found


def edges(state: Statistics) -> np.ndarray:
    """The 2 * BINS + 1 edges of the histogram's bins, f64. A bin holds its edge nearer to 0."""
    return np.arange(-BINS, BINS + 1) * math.ldexp(1 / BINS, int(state.exponent))


def magnitudes(state: Statistics) -> np.ndarray:
    """The histogram of |x|, f64[BINS], of sampled elements that are not 0."""
    both = np.asarray(state.histogram, np.float64)
    return both[BINS:] + both[BINS - 1 :: -1]


def scale_and_zero(
    low: ArrayLike,
    high: ArrayLike,
    stored: tuple[float, float] = (-128, 127),
    symmetric: bool = True,
    mantissa_bits: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The f32 scales and i32 zero points with which all numbers from `low` to `high` are stored without clamping but
    for their rounding; arrays of one shape, or numbers.

    stored: the least and the largest stored number. symmetric: zero points are 0. Otherwise 0 is among the numbers
    that are stored exactly, whatever the limits are (Jacob et al. 2018, eq. 1 and 2). Scales are at least 2 ** -126,
    the least normal f32, and 1 where both limits are 0. mantissa_bits: scales are rounded up to so many bits behind
    the point. Raises ValueError for limits that are not finite or in the wrong order, and for numbers of one sign that
    a symmetric range of the other sign cannot store.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError("limits that are not finite have no scale: leave out the data with NaN or infinity")
    if (low > high).any():
        raise ValueError("a lower limit is above its upper limit: give the lower one first")
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    least, most = stored
    if symmetric:
        if (low < 0).any() and least >= 0:
            raise ValueError(
                "a symmetric range without negative numbers cannot hold some: set symmetric=False"
            )
        below = low / least if least < 0 else np.zeros_like(low)
        scale = np.maximum(below, high / most)
    else:
        scale = (high - low) / (most - least)
    scale = np.where((low == 0) & (high == 0), 1.0, np.maximum(scale, 2.0**LEAST_EXPONENT))
    scale = _rounded_up(scale, 23 if mantissa_bits is None else mantissa_bits)
    zero = np.zeros(scale.shape) if symmetric else np.clip(np.rint(least - low / scale), least, most)
    return scale, zero.astype(np.int32)


def limits(
    state: Statistics, method: str = "auto", bits: int = 8, symmetric: bool = True, percentile: float = 99.99
) -> tuple[float, float]:
    """The least and the largest number to be stored, after calibration; 0 is between them. With `symmetric` they are
    the same but for their sign. No method goes beyond the data.

    "minmax"      the least and the largest number of all batches
    "ema"         the moving averages of both over batches (Jacob et al. 2018, section 3.1)
    "percentile"  so many percent of the elements that are not 0 lie between the limits, and what lies outside is
                  divided evenly between both ends, unless `symmetric`
    "mse"         the least squared error on the histogram: the aim of OCTAV (Sakr et al. 2022, eq. 4), with the
                  histogram's own rounding error for its estimate of it (`squared_error`); found by a search
    "kl"          the least divergence of the histogram of |x| from its quantised one (Migacz 2017, "8-bit inference
                  with TensorRT", slides 26 and 38)
    "aciq"        the best range for a Laplace or a Gauss distribution with the data's spread (Banner et al. 2019,
                  eq. 7 and 9), whichever has the lesser squared error on the histogram
    "auto"        of all these, the one with the least squared error on the histogram

    Where no sampled element differs from 0, all but "ema" are "minmax". Raises ValueError for another method, without
    data, and for data with NaN or infinity.
    """
    if method not in METHODS:
        raise ValueError(f'no calibration method is called "{method}": choose one of {", ".join(METHODS)}')
    if bits < 2:
        raise ValueError(f"limits for {bits} bits are not known: choose 2 or more")
    if not 50 <= percentile <= 100:
        raise ValueError(
            f"the percentile {percentile} is not between 50 and 100: choose one near 100, such as 99.99"
        )
    if not int(state.batches):
        raise ValueError("no data has been observed: calibrate with at least one batch that is not empty")
    low, high = float(state.low), float(state.high)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("the observed data has NaN or infinity: leave such batches out")
    data = _Data(state, bits, symmetric, percentile)
    if not data.sampled and method != "ema":
        method = "minmax"
    if method != "auto":
        return data.within(_METHODS[method](data))
    found = [data.within(_METHODS[name](data)) for name in _METHODS]
    return min(found, key=lambda pair: squared_error(state, *pair, bits, symmetric))


def squared_error(state: Statistics, low: float, high: float, bits: int, symmetric: bool = True) -> float:
    """The mean squared error of storing the observed values between limits, from the histogram: exact for values that
    are spread evenly within each bin. Zeros have none. 0 where no sampled element differs from 0."""
    counts = np.asarray(state.histogram, np.float64)
    total = counts.sum() + float(state.zeros)
    used = np.flatnonzero(counts)
    if not used.size:
        return 0.0
    most = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
    if low == high == 0:
        step, below, above = 1.0, 0, 0
    elif symmetric:
        step, below, above = max(-low, high) / most, -most, most
    else:
        step = (high - low) / most
        below = round(low / step)
        above = below + most
    part = slice(used[0], used[-1] + 1)
    at = edges(state)[used[0] : used[-1] + 2]
    # the integral of (x - rounded x) ** 2 from 0, in units of the step: 1/12 for each whole step, a cube for the rest,
    # and a cube from the last stored number on
    place = at / step
    nearest = np.clip(np.rint(place), below, above)
    integral = nearest / 12 + (place - nearest) ** 3 / 3
    share = np.diff(integral) / (at[1] - at[0]) * step
    return float(counts[part] @ share) * step * step / total


class _Data:
    """The histogram as numpy, for the methods, which return limits that may go beyond the data."""

    def __init__(self, state: Statistics, bits: int, symmetric: bool, percentile: float) -> None:
        self.state, self.bits, self.symmetric, self.percentile = state, bits, symmetric, percentile
        self.low, self.high = float(state.low), float(state.high)
        self.counts = np.asarray(state.histogram, np.float64)
        self.sampled = self.counts.sum()
        self.at = edges(state)
        self.one_sided = self.low >= 0 or self.high <= 0

    def within(self, pair: tuple[float, float]) -> tuple[float, float]:
        """The limits, no wider than the data, with 0 between them, and symmetric where they must be."""
        low, high = max(pair[0], min(self.low, 0.0)), min(pair[1], max(self.high, 0.0))
        low, high = min(low, 0.0), max(high, 0.0)
        bound = max(-low, high)
        return (-bound, bound) if self.symmetric else (low, high)

    def error(self, low: float, high: float) -> float:
        return squared_error(self.state, *self.within((low, high)), self.bits, self.symmetric)


def _minmax(data: _Data) -> tuple[float, float]:
    return data.low, data.high


def _ema(data: _Data) -> tuple[float, float]:
    weight = 1 - MOVING ** int(data.state.batches)
    return float(data.state.moving_low) / weight, float(data.state.moving_high) / weight


def _percentile(data: _Data) -> tuple[float, float]:
    outside = 1 - data.percentile / 100
    if data.symmetric or data.one_sided:
        inside = np.concatenate([[0], np.cumsum(magnitudes(data.state))]) / data.sampled
        bound = float(np.interp(1 - outside, inside, data.at[BINS:]))
        return -bound, bound
    inside = np.concatenate([[0], np.cumsum(data.counts)]) / data.sampled
    low, high = np.interp([outside / 2, 1 - outside / 2], inside, data.at)
    return float(low), float(high)


def _mse(data: _Data) -> tuple[float, float]:
    """A search over both limits together, then over each alone, each refined twice around the best."""
    low, high = data.within((data.low, data.high))

    def best(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
        return min(pairs, key=lambda pair: data.error(*pair))

    def search(move_low: bool, move_high: bool) -> tuple[float, float]:
        start, found = 1.0, (low, high)
        for span, count in ((COARSEST, 48), (0.75, 12), (0.95, 12)):
            ratios = (start * np.geomspace(span, 1 / span, count)).tolist()
            pairs = [(low * r if move_low else low, high * r if move_high else high) for r in ratios]
            found = best([found, *pairs])
            start = found[1] / high if move_high and high else found[0] / low if low else 1.0
        return found

    low, high = search(True, True)
    if not (data.symmetric or data.one_sided):
        low, high = search(True, False)
        low, high = search(False, True)
    return low, high


def _kl(data: _Data) -> tuple[float, float]:
    """The reference has what lies beyond the range in its last bin; the candidate has so many levels, each spread over
    the bins of its own that are not empty."""
    counts = magnitudes(data.state)
    levels = 2**data.bits if data.one_sided and not data.symmetric else 2 ** (data.bits - 1)
    used = int(np.flatnonzero(counts)[-1]) + 1
    best, chosen = math.inf, used
    for size in range(levels, used + 1, max(1, (used - levels) // CANDIDATES)):
        reference = counts[:size].copy()
        reference[-1] += counts[size:].sum()
        first = np.arange(levels) * size // levels
        filled = reference > 0
        shares = np.maximum(np.add.reduceat(filled.astype(float), first), 1)
        each = np.add.reduceat(counts[:size], first) / shares
        candidate = np.where(filled, np.repeat(each, np.diff(first, append=size)), 0)
        p = reference[filled] / reference.sum()
        q = np.maximum(candidate[filled], 1e-9) / max(candidate.sum(), 1e-9)
        divergence = float(p @ np.log(p / q))
        if divergence < best:
            best, chosen = divergence, size
    bound = float(data.at[BINS + chosen])
    return -bound, bound


def _aciq(data: _Data) -> tuple[float, float]:
    middle = (data.at[1:] + data.at[:-1]) / 2
    about_zero = data.symmetric or data.one_sided
    zeros = 0.0 if about_zero else float(data.state.zeros)
    count = data.sampled + zeros
    centre = 0.0 if about_zero else float(data.counts @ middle) / count
    away = middle - centre
    spread = float(data.counts @ np.abs(away) + zeros * abs(centre)) / count
    deviation = math.sqrt(float(data.counts @ away**2 + zeros * centre**2) / count)
    bits = data.bits + 1 if data.one_sided and not data.symmetric else data.bits
    bounds = (spread * laplace_bound(bits), deviation * gauss_bound(bits))
    return min(((centre - b, centre + b) for b in bounds), key=lambda pair: data.error(*pair))


def laplace_bound(bits: int) -> float:
    """The best range of a Laplace distribution in units of its mean magnitude: u with u exp(u) = 3 * 4 ** bits, where
    the derivative of Banner et al. 2019, eq. 6, is 0."""
    u, aim = 1.0, math.log(3) + bits * math.log(4)
    for _ in range(50):
        u -= (u + math.log(u) - aim) / (1 + 1 / u)
    return u


def gauss_bound(bits: int) -> float:
    """The best range of a Gauss distribution in units of its deviation: where the derivative of its squared error
    (Banner et al. 2019, appendix A) is 0."""

    def derivative(u: float) -> float:
        beyond = u * math.erfc(u / math.sqrt(2)) - math.sqrt(2 / math.pi) * math.exp(-u * u / 2)
        return 2 * beyond + 2 * u / (3 * 4.0**bits)

    least, most = 0.0, 40.0
    for _ in range(80):
        middle = (least + most) / 2
        least, most = (middle, most) if derivative(middle) < 0 else (least, middle)
    return least


_METHODS = {
    "minmax": _minmax,
    "ema": _ema,
    "percentile": _percentile,
    "mse": _mse,
    "kl": _kl,
    "aciq": _aciq,
}
METHODS = (*_METHODS, "auto")
"""The names of calibration methods."""


def _rounded_up(scale: np.ndarray, mantissa_bits: int) -> np.ndarray:
    """The least f32 that is no less and has so many bits behind the point."""
    if not 0 <= mantissa_bits <= 23:
        raise ValueError(f"an f32 has 0 to 23 bits behind the point, not {mantissa_bits}: choose so many")
    fraction, exponent = np.frexp(scale)
    whole = np.ceil(np.ldexp(fraction, mantissa_bits + 1))
    return np.ldexp(whole, exponent - mantissa_bits - 1).astype(np.float32)


def _as_f32(x: jax.Array) -> jax.Array:
    """x in f32, converted once: XLA would convert it for each statistic, which takes 2.5 times as long in all."""
    converted = x.astype(jnp.float32)
    return converted if x.dtype == jnp.float32 else lax.optimization_barrier(converted)


def _exponent(largest: jax.Array) -> jax.Array:
    """The least e with largest < 2 ** e, within what f32 has; anything for what is not finite."""
    return jnp.clip(jnp.frexp(largest)[1], LEAST_EXPONENT, MOST_EXPONENT).astype(jnp.int32)


def _bin(x: jax.Array, exponent: jax.Array) -> jax.Array:
    """The bins of numbers in a histogram that spans -2 ** exponent to 2 ** exponent."""
    # the product of a number and a power of two is exact
    place = jnp.minimum(jnp.floor(jnp.abs(x) * _power(-exponent) * BINS), BINS - 1).astype(jnp.int32)
    place = jnp.clip(place, 0, BINS - 1)  # a NaN has none; it is refused afterwards
    return jnp.where(x < 0, BINS - 1 - place, BINS + place)


def _power(exponent: jax.Array) -> jax.Array:
    """2 ** exponent in f32, exact for -126 to 126."""
    return lax.bitcast_convert_type((exponent + 127) << 23, jnp.float32)


def _coarser(histogram: jax.Array, steps: jax.Array) -> jax.Array:
    """The histogram over 2 ** steps times the range: each bin joins the one that holds it."""

    def merged(held: jax.Array) -> jax.Array:
        place = jnp.arange(BINS) >> jnp.minimum(steps, 31)
        at = jnp.concatenate([BINS - 1 - place[::-1], BINS + place])
        return jnp.zeros_like(held).at[at].add(held)

    return lax.cond(steps > 0, merged, lambda held: held, histogram)
