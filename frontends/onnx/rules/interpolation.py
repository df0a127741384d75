"""Elements between elements: weights at distances, and sums of the elements around points. It holds no rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..values import dtype_of, is_float
from .reductions import wide


def measured(x: Any) -> Any:
    """x as floats that hold its elements, to be weighed."""
    import jax.numpy as jnp

    if is_float(x):
        return wide(x)
    if dtype_of(x).kind == "c":
        return x
    return x.astype(jnp.float32 if x.dtype.itemsize == 1 else jnp.float64)


def as_before(y: Any, dtype: Any, rounded: bool = False) -> Any:
    """Weighed elements in the type that they had: integers are cut off or rounded, and do not leave their range."""
    import jax.numpy as jnp

    if y.dtype == dtype or not jnp.issubdtype(dtype, jnp.integer):
        return y.astype(dtype)
    if np.dtype(dtype).itemsize == 1:
        y = jnp.round(y * 1024) / 1024  # what sums in f32 miss of whole numbers
    if np.dtype(dtype).itemsize < 8:
        y = jnp.clip(y, jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
    return (jnp.round(y) if rounded else y).astype(dtype)


def tent(xp: Any, t: Any) -> Any:
    """The weights of linear interpolation at distances."""
    return xp.maximum(1 - xp.abs(t), 0)


def cubic(xp: Any, t: Any, a: float = -0.75) -> Any:
    """The weights of cubic convolution at distances."""
    t = xp.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return xp.where(t <= 1, near, xp.where(t < 2, far, 0.0))


TAPS = {"nearest": (0, 1), "linear": (0, 2), "cubic": (-1, 3)}
"""Which elements, from the one before a point on, are around it."""


def taps(at: Any, size: Any, kind: str, padding: str, ends: tuple[Any, Any]) -> tuple[Any, Any]:
    """The elements around points of a dimension: their i32 places, and their weights, which are bools for the nearest
    one. Both have a dimension more than the points.

    padding: `zeros`: what is outside is 0; `border`: the element at the edge; `reflection`: the one that a mirror at
    `ends` shows.
    """
    import jax.numpy as jnp

    if kind == "nearest":
        at = jnp.rint(at)
    low, high = ends
    if padding == "border":
        at = jnp.where((at < low) | (at > high), jnp.clip(at, 0, size - 1), at)
    elif padding == "reflection":
        at = reflected(at, low, high)
    places = jnp.floor(at)[..., None] + np.arange(*TAPS[kind]).astype(at.dtype)
    apart = places - at[..., None]
    if kind == "nearest":
        weights = jnp.ones(apart.shape, bool)
    else:
        weights = tent(jnp, apart) if kind == "linear" else cubic(jnp, apart)
    if padding == "zeros":
        weights = weights * ((places >= 0) & (places < size))
    elif padding == "reflection":
        places = reflected(places, low, high)
    return jnp.clip(places, 0, size - 1).astype(jnp.int32), weights


def reflected(at: Any, low: Any, high: Any) -> Any:
    """Points as mirrors at both ends show them, as often as it takes."""
    import jax.numpy as jnp

    span = jnp.asarray(high - low).astype(at.dtype)
    period = jnp.where(span == 0, 1, 2 * span)
    behind = jnp.abs(at - low)
    behind = behind - jnp.floor(behind / period) * period
    return low + jnp.where(span == 0, 0, jnp.minimum(behind, period - behind))


def interpolated(x: Any, lines: Sequence[tuple[Any, Any]]) -> Any:
    """[b, c, points]: what x [b, c, *sizes] is at points. lines: for each dimension the places [b, points, taps] of the
    elements around points, and their weights.

    Elements are read as rows that have all channels, in one gather.
    """
    import jax.numpy as jnp

    batch, channels, *sizes = x.shape
    count: Any = batch
    index: Any = jnp.arange(batch, dtype=jnp.int32).reshape(batch, 1, 1)
    weights = jnp.ones((1, 1, 1), bool)
    for n, (places, weight) in zip(sizes, lines, strict=True):
        shape = (*places.shape[:2], index.shape[2] * places.shape[2])
        index = ((index * n)[..., None] + places[..., None, :]).reshape(shape)
        weights = (weights[..., None] * weight[..., None, :]).reshape(shape)
        count = count * n
    if isinstance(count, int) and not count:
        return jnp.zeros((batch, channels, index.shape[1]), x.dtype)
    rows = jnp.moveaxis(x, 1, -1).reshape(count, channels)
    found = jnp.take(rows, index.astype(jnp.int32), 0, mode="clip")  # [b, points, taps, c]
    if weights.dtype == bool:
        made = jnp.where(weights, found[:, :, 0], jnp.zeros((), x.dtype))
    else:
        made = jnp.sum(found * weights[..., None].astype(x.dtype), 2)
    return jnp.moveaxis(made, -1, 1)
