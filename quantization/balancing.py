"""Changes of a float network that make it easier to quantise and keep what it computes, and corrections of biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from .rounding import along


class EqualizedPair(NamedTuple):
    """Two weights whose channels between them have equal ranges. The first's outputs are those of before, divided by
    `scale`."""

    first: jax.Array
    bias: jax.Array | None
    second: jax.Array
    scale: jax.Array  # f32, one for each channel between


def largest_along(weights: Sequence[ArrayLike], axis: int) -> jax.Array:
    """The largest magnitude of each slice along an axis, over all weights, f32: what a channel that several products
    read is multiplied by. Raises ValueError where they have different numbers of channels, or no elements."""
    arrays = [jnp.asarray(w).astype(jnp.float32) for w in weights]
    if not arrays or any(not w.ndim or not w.size for w in arrays):
        raise ValueError("weights without elements have no largest one: leave them out")
    extents = {w.shape[axis] for w in arrays}
    if len(extents) > 1:
        raise ValueError(
            f"weights have {sorted(extents)} channels along axis {axis}: give those of one input"
        )
    each = [jnp.max(jnp.abs(w), tuple(d for d in range(w.ndim) if d != axis % w.ndim)) for w in arrays]
    return jnp.max(jnp.stack(each), axis=0)


def smooth_scale(inputs: ArrayLike, weights: ArrayLike, alpha: float = 0.5) -> jax.Array:
    """What each input channel is divided by, and its rows of the weights are multiplied by, so that the weights take
    over a part of the inputs' range: s = max|x| ** alpha / max|w| ** (1 - alpha) (SmoothQuant, Xiao et al. 2022,
    eq. 4).

    inputs, weights: the largest magnitude of each channel (`ChannelStatistics.largest`, `largest_along`), f32. alpha:
    0 leaves all to the inputs, 1 to the weights. Channels whose inputs or weights are all 0 get 1. Raises ValueError
    for an alpha beyond 0 to 1, for shapes that differ and for what is not finite.
    """
    x, w = jnp.asarray(inputs, jnp.float32), jnp.asarray(weights, jnp.float32)
    if not 0 <= alpha <= 1:
        raise ValueError(
            f"SmoothQuant divides ranges with an alpha of 0 to 1, not {alpha}: choose one, such as 0.5"
        )
    if x.shape != w.shape:
        raise ValueError(
            f"{list(x.shape)} channels of inputs and {list(w.shape)} of weights are not the same ones"
        )
    if not bool(jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(w))):
        raise ValueError(
            "magnitudes are not finite, or no data has been observed: calibrate with finite batches"
        )
    both = (x > 0) & (w > 0)
    scale = jnp.where(both, x, 1) ** alpha / jnp.where(both, w, 1) ** (1 - alpha)
    return _safe(scale)


def equalize(
    first: ArrayLike,
    second: ArrayLike,
    bias: ArrayLike | None = None,
    first_axis: int = -1,
    second_axis: int = 0,
) -> EqualizedPair:
    """Cross-layer equalisation (Nagel et al. 2019, section 4.1, eq. 9 to 11): the outputs of the first product (and
    its bias) are divided by s, the weights of the second multiplied by it, s = sqrt(r1 r2) / r2 for ranges r1 and r2
    of the channels, so that both ranges become sqrt(r1 r2).

    What is between must be positively homogeneous, f(s x) = s f(x) for s > 0: a relu, a leaky relu, a maximum, a
    sum over places. first_axis: the output channels of the first weight; second_axis: the input channels of the second
    (for a depthwise convolution, its output channels). Channels of which one range is 0 are left. Raises ValueError
    where the numbers of channels differ.
    """
    a, b = jnp.asarray(first), jnp.asarray(second)
    ranges = largest_along([a], first_axis), largest_along([b], second_axis)
    if ranges[0].shape != ranges[1].shape:
        raise ValueError(
            f"the first weight has {ranges[0].size} output channels, the second {ranges[1].size} input channels: "
            "name the axes of the channels between them"
        )
    both = (ranges[0] > 0) & (ranges[1] > 0)
    scale = _safe(jnp.sqrt(jnp.where(both, ranges[0], 1)) / jnp.sqrt(jnp.where(both, ranges[1], 1)))
    return EqualizedPair(
        (a.astype(jnp.float32) / along(scale, first_axis, a.ndim)).astype(a.dtype),
        None if bias is None else (jnp.asarray(bias, jnp.float32) / scale).astype(jnp.asarray(bias).dtype),
        (b.astype(jnp.float32) * along(scale, second_axis, b.ndim)).astype(b.dtype),
        scale,
    )


def expected_shift(
    w: ArrayLike,
    found: ArrayLike,
    mean: ArrayLike,
    input_axis: int = 0,
    output_axis: int = -1,
    groups: int = 1,
) -> jax.Array:
    """The mean error of each output channel where `found` stands in for w: E[(found - w) x] = (found - w) E[x] (Nagel
    et al. 2019, eq. 13 and 14); subtract it from the bias.

    mean: of each input channel, over all its places, f32 [groups * channels along input_axis]. Other axes of w are
    taps of a convolution; where it pads, the edges are as if the padding had the mean. groups: as a convolution's.
    Raises ValueError for shapes that do not fit.
    """
    apart = jnp.asarray(found).astype(jnp.float32) - jnp.asarray(w).astype(jnp.float32)
    mean = jnp.asarray(mean, jnp.float32)
    apart = jnp.moveaxis(apart, (input_axis, output_axis), (-2, -1))
    k, n = apart.shape[-2:]
    if mean.shape != (k * groups,) or n % groups:
        raise ValueError(
            f"means of shape {list(mean.shape)} do not fit {groups} groups of {k} input channels and {n} output "
            "channels: give one mean for each input channel"
        )
    apart = jnp.sum(apart, tuple(range(apart.ndim - 2))).reshape(k, groups, n // groups)
    return jnp.einsum("kgn,gk->gn", apart, mean.reshape(groups, k)).reshape(n)


def observed_shift(reference: ArrayLike, found: ArrayLike, axis: int = -1) -> jax.Array:
    """The mean error of each output channel on data, f32: `found` less the float outputs (Nagel et al. 2019, appendix
    D); subtract it from the bias. axis: the channels. Raises ValueError for shapes that differ or without data."""
    a, b = jnp.asarray(reference), jnp.asarray(found)
    if a.shape != b.shape or not a.ndim or not a.size:
        raise ValueError(
            f"outputs of shapes {list(a.shape)} and {list(b.shape)} have no mean difference: give the same batches"
        )
    rest = tuple(d for d in range(a.ndim) if d != axis % a.ndim)
    return jnp.mean(b.astype(jnp.float32) - a.astype(jnp.float32), rest)


def _safe(scale: jax.Array) -> jax.Array:
    """Scales of which f32 has the inverse, too."""
    return jnp.clip(scale, 2.0**-60, 2.0**60)
