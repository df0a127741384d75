"""Pools over windows, over all of the spatial dimensions, and over regions; and what takes a pool back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import is_float
from .reductions import wide
from .windows import WindowShape, windows_of


def _least(dtype: Any) -> np.ndarray:
    """The number that is below all others of a type."""
    import jax.numpy as jnp

    return np.asarray(-np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min, dtype)


def _reduced(x: Any, neutral: Any, function: Callable[..., Any], windows: WindowShape) -> Any:
    """What a function makes of each window; x may be a tuple, of which it takes two, and gives one."""
    import jax

    return jax.lax.reduce_window(
        x,
        neutral,
        function,
        (1, 1, *windows.kernel),
        (1, 1, *windows.strides),
        ((0, 0), (0, 0), *windows.padding),
        window_dilation=(1, 1, *windows.dilations),
    )


# -- over windows ------------------------------------------------------------------------------------------


@rule("MaxPool")
def _max_pool(node: Node, x: Any) -> Any:
    import jax

    windows = windows_of(node, x, node.get("kernel_shape"))
    y = _reduced(x, _least(x.dtype), jax.lax.max, windows)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return y
    return y, _places(x, windows, bool(node.get("storage_order", 0)))


def _places(x: Any, windows: WindowShape, columns_first: bool) -> Any:
    """Where the maximum of each window is, the first one of equals, a NaN where there is one: the i64 number of the
    element in the whole operand, whose last dimension changes first, or in each channel the first one."""
    import jax
    import jax.numpy as jnp

    sizes, rank, floats = x.shape[2:], x.ndim - 2, is_float(x)
    place, stride = jnp.zeros(x.shape, jnp.int32), 1
    for i in range(rank) if columns_first else reversed(range(rank)):
        place = place + jax.lax.broadcasted_iota(jnp.int32, x.shape, 2 + i) * stride
        stride = stride * sizes[i]

    def better(one: Any, other: Any) -> Any:
        (a, i), (b, j) = one, other
        wins = (a > b) | ((a == b) & (i < j))
        if floats:
            wins |= (a != a) & ((b == b) | (i < j))
        return jnp.where(wins, a, b), jnp.where(wins, i, j)

    operands = jax.lax.stop_gradient(x), place
    neutral = _least(x.dtype), np.asarray(np.iinfo(np.int32).max, np.int32)
    _, found = _reduced(operands, neutral, better, windows)
    channels = jnp.arange(x.shape[0] * x.shape[1], dtype=jnp.int64) * stride
    return found.astype(jnp.int64) + channels.reshape(*x.shape[:2], *[1] * rank)


@rule("AveragePool")
def _average_pool(node: Node, x: Any) -> Any:
    import jax

    windows = windows_of(node, x, node.get("kernel_shape"))
    y = wide(x)
    total = _reduced(y, np.zeros((), y.dtype), jax.lax.add, windows)
    counts: Any = np.ones((), np.int64)
    for i in range(len(windows.kernel)):
        line = windows.inside(i, bool(node.get("count_include_pad", 0)))
        counts = counts[..., None] * line
    if isinstance(counts, np.ndarray) and counts.size and (counts == counts.flat[0]).all():
        counts = counts.flat[0]
    return (total / counts.astype(y.dtype)).astype(x.dtype)


@rule("LpPool")
def _lp_pool(node: Node, x: Any) -> Any:
    import jax

    windows = windows_of(node, x, node.get("kernel_shape"))

    def total(y: Any) -> Any:
        return _reduced(y, np.zeros((), y.dtype), jax.lax.add, windows)

    return _norm(x, node.get("p", 2), total)


def _norm(x: Any, p: float, total: Callable[[Any], Any]) -> Any:
    """The p-th root of sums of the p-th powers."""
    import jax.numpy as jnp

    y = wide(x)
    if p == 1:
        made = total(jnp.abs(y))
    elif p == 2:
        made = jnp.sqrt(total(jnp.square(y)))
    else:
        made = total(jnp.abs(y) ** np.asarray(p, y.dtype)) ** np.asarray(1 / p, y.dtype)
    return made.astype(x.dtype)


# -- over all spatial dimensions ---------------------------------------------------------------------------


def _spatial(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@rule("GlobalAveragePool")
def _global_average_pool(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.mean(x, _spatial(x), keepdims=True)


@rule("GlobalMaxPool")
def _global_max_pool(node: Node, x: Any) -> Any:
    import jax

    return jax.lax.expand_dims(jax.lax.reduce_max(x, _spatial(x)), _spatial(x))


@rule("GlobalLpPool")
def _global_lp_pool(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    return _norm(x, node.get("p", 2), lambda y: jnp.sum(y, _spatial(x), keepdims=True))


# -- back from a pool --------------------------------------------------------------------------------------


@rule("MaxUnpool")
def _max_unpool(node: Node, x: Any, indices: Any, output_shape: Any = None) -> Any:
    """Elements at the places where a pool has found them; indices are those of the smallest operand that such a pool
    has, which stands in the corner of a larger one."""
    import jax.numpy as jnp

    kernel = node.get("kernel_shape")
    rank = len(kernel)
    strides, pads = node.get("strides") or [1] * rank, node.get("pads") or [0] * 2 * rank
    sizes = list(x.shape[:2])
    for i in range(rank):
        sizes.append((x.shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i])
    count: Any = 1
    for n in sizes:
        count = count * n
    flat = jnp.zeros(count, x.dtype).at[indices.reshape(-1)].set(x.reshape(-1), mode="drop")
    y = flat.reshape(sizes)
    wanted = node.integers(2)
    return y if wanted is None else _in_corner(y, wanted)


def _in_corner(x: Any, sizes: Sequence[Any]) -> Any:
    """x in the corner of zeros of other sizes."""
    import jax

    widths = [(0, n - own, 0) for own, n in zip(x.shape, sizes, strict=True)]
    return jax.lax.pad(x, np.zeros((), x.dtype), widths)


# -- over regions ------------------------------------------------------------------------------------------


@rule("MaxRoiPool")
def _max_roi_pool(node: Node, x: Any, rois: Any) -> Any:
    """The maxima of the cells of each region, whose corners are rounded to elements; 0 where a cell has none."""
    import jax
    import jax.numpy as jnp

    rows, columns = node.get("pooled_shape")
    y, scale = wide(x), node.get("spatial_scale", 1.0)
    numbers = rois.astype(y.dtype)
    corners = numbers[:, 1:] * np.asarray(scale, y.dtype)
    corners = jnp.sign(corners) * jnp.floor(jnp.abs(corners) + 0.5)  # halves away from 0
    batch = numbers[:, 0].astype(jnp.int32)
    low, high = corners[:, :2], corners[:, 2:]
    tall = _cells(low[:, 1], high[:, 1], rows, y.shape[2])
    broad = _cells(low[:, 0], high[:, 0], columns, y.shape[3])
    least = _least(y.dtype)

    def pooled(region: Any) -> Any:
        image, tall, broad = region
        picture = jax.lax.dynamic_index_in_dim(y, image, keepdims=False)
        lines = jnp.max(jnp.where(broad[:, None, None, :], picture, least), -1)  # [columns, c, h]
        cells = jnp.max(jnp.where(tall[:, None, None, :], lines, least), -1)  # [rows, columns, c]
        some = jnp.any(tall, -1)[:, None] & jnp.any(broad, -1)
        return jnp.where(some, jnp.moveaxis(cells, -1, 0), 0)

    return jax.lax.map(pooled, (batch, tall, broad)).astype(x.dtype)


def _cells(low: Any, high: Any, count: int, size: Any) -> Any:
    """Which elements of a dimension are in each of the cells of each region: bools [regions, cells, size]."""
    import jax.numpy as jnp

    each = jnp.maximum(high - low + 1, 1) / count
    cells = jnp.arange(count, dtype=low.dtype)
    begins = jnp.floor(cells * each[:, None]) + low[:, None]
    ends = jnp.ceil((cells + 1) * each[:, None]) + low[:, None]
    places = jnp.arange(size, dtype=low.dtype)
    return (places >= begins[..., None]) & (places < ends[..., None])
