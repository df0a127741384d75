"""Regions of images: what is in them, and which of them are left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...bounding import compressed, first
from ..node import Node
from ..table import rule
from ..values import is_known
from .interpolation import tent
from .reductions import wide

# -- what is in them ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoxSide:
    """One dimension of regions. low, length: where they begin and how long they are [regions]. bins: how many parts a
    region has; samples: how many points each part has, or 0: as many as it has elements. size: that of the image."""

    low: Any
    length: Any
    bins: int
    samples: int
    size: Any

    @property
    def counts(self) -> Any:
        """The points of each part of each region."""
        import jax.numpy as jnp

        if self.samples > 0:
            return jnp.full_like(self.length, self.samples)
        return jnp.maximum(jnp.ceil(self.length / self.bins), 0)

    @property
    def most(self) -> Any:
        """The most points that a part has."""
        import jax.numpy as jnp

        return self.samples if self.samples > 0 else jnp.max(self.counts, initial=0).astype(jnp.int32)

    def points(self, i: Any) -> tuple[Any, Any]:
        """Where point `i` of each part is [regions, bins], within the image, and whether it was so before."""
        import jax.numpy as jnp

        each = (self.length / self.bins)[:, None]
        part = jnp.arange(self.bins, dtype=self.low.dtype)
        step = each / jnp.maximum(self.counts, 1)[:, None]
        middle = jnp.asarray(i).astype(step.dtype) + 0.5
        at = self.low[:, None] + part * each + middle * step
        return jnp.clip(at, 0, self.size - 1), (at >= -1) & (at <= self.size)

    def means(self) -> Any:
        """The matrices [regions, bins, size] that give the mean of linear interpolation at the points of a part."""
        import jax
        import jax.numpy as jnp

        counts = self.counts[:, None, None]
        columns = jnp.arange(self.size, dtype=self.low.dtype)

        def add(i: Any, total: Any) -> Any:
            at, there = self.points(i)
            return total + jnp.where(there[..., None] & (i < counts), tent(jnp, at[..., None] - columns), 0)

        total = jnp.zeros((self.low.shape[0], self.bins, self.size), self.low.dtype)
        if isinstance(self.most, int):
            for i in range(self.most):
                total = add(i, total)
        else:
            total = jax.lax.fori_loop(0, self.most, add, total)
        return total / jnp.maximum(counts, 1)


@rule("RoiAlign")
def _roi_align(node: Node, x: Any, rois: Any, batch: Any) -> Any:
    import jax.numpy as jnp

    y, kind = wide(x), node.get("coordinate_transformation_mode", "half_pixel")
    halved = kind == "half_pixel" and node.version >= 16
    boxes = rois.astype(y.dtype) * np.asarray(node.get("spatial_scale", 1.0), y.dtype)
    boxes = boxes - np.asarray(0.5 if halved else 0.0, y.dtype)
    lengths = boxes[:, 2:] - boxes[:, :2]
    lengths = lengths if halved else jnp.maximum(lengths, 1)
    samples = node.get("sampling_ratio", 0)
    across, down = (
        BoxSide(boxes[:, i], lengths[:, i], node.get(name, 1), samples, y.shape[3 - i])
        for i, name in enumerate(("output_width", "output_height"))
    )
    if node.get("mode", "avg") == "max":
        return _largest(y, batch, down, across).astype(x.dtype)
    # the mean over a grid of points is a product of matrices from both sides
    if isinstance(y.shape[0], int) and y.shape[0] == 1:
        lines = jnp.einsum("rph,chw->rpcw", down.means(), y[0])
    else:
        lines = jnp.einsum("rph,rchw->rpcw", down.means(), jnp.take(y, batch, 0, mode="clip"))
    return jnp.einsum("rpcw,rqw->rcpq", lines, across.means()).astype(x.dtype)


def _largest(x: Any, batch: Any, down: BoxSide, across: BoxSide) -> Any:
    """The largest of the weighed elements around the points of each part."""
    import jax
    import jax.numpy as jnp

    images, channels, *sizes = x.shape
    rows = jnp.moveaxis(x, 1, -1).reshape(images * sizes[0] * sizes[1], channels)
    least, wide_most = jnp.asarray(-jnp.inf, x.dtype), across.most
    image = batch.astype(jnp.int32).reshape(-1, 1, 1, 1, 1)

    def step(k: Any, most: Any) -> Any:
        i, j = k // wide_most, k % wide_most
        (y, inside_y), (z, inside_z) = down.points(i), across.points(j)
        tall, broad = _corners(y, down.size), _corners(z, across.size)
        place = (image * down.size + tall[0][:, :, None, :, None]) * across.size
        place = place + broad[0][:, None, :, None, :]
        weights = tall[1][:, :, None, :, None] * broad[1][:, None, :, None, :]
        weights = jnp.where((inside_y[:, :, None] & inside_z[:, None, :])[..., None, None], weights, 0)
        found = jnp.take(rows, place.astype(jnp.int32), 0, mode="clip") * weights[..., None]
        there = ((i < down.counts) & (j < across.counts))[:, None, None, None]
        return jnp.maximum(most, jnp.where(there, jnp.max(found, (3, 4)), least))

    begin = jnp.full((batch.shape[0], down.bins, across.bins, channels), least)
    made = jax.lax.fori_loop(0, down.most * wide_most, step, begin)
    some = ((down.counts > 0) & (across.counts > 0))[:, None, None, None]
    return jnp.moveaxis(jnp.where(some, made, 0), -1, 1)


def _corners(at: Any, size: Any) -> tuple[Any, Any]:
    """The two elements around points and their weights."""
    import jax.numpy as jnp

    low = jnp.floor(at)
    share = at - low
    places = jnp.stack([low, jnp.minimum(low + 1, size - 1)], -1).astype(jnp.int32)
    return places, jnp.stack([1 - share, share], -1)


# -- which of them are left --------------------------------------------------------------------------------


ALL = (1 << 31) - 1
"""What exporters write for `as many boxes as there are` is at least this."""


@rule("NonMaxSuppression")
def _non_max_suppression(
    node: Node, boxes: Any, scores: Any, limit: Any = None, overlap: Any = None, least: Any = None
) -> Any:
    """[n, 3]: batch, class and number of the boxes that are left: by batch, then by class, then by their scores."""
    import jax.numpy as jnp
    from jax.core import min_dim

    batches, classes, n = scores.shape
    most, bound = n, None
    if limit is None:
        most = 0
    elif is_known(node.inputs[2]):
        given = max(int(np.asarray(node.inputs[2]).reshape(-1)[0]), 0)
        most = n if given >= ALL else min_dim(n, given)
    else:
        bound = limit.reshape(())
    if isinstance(most, int) and most == 0:
        return first(jnp.zeros((0, 3), jnp.int64), 0)
    corners = _box_corners(boxes, bool(node.get("center_point_box", 0)))
    corners = jnp.repeat(corners, classes, axis=0)  # [groups, 4, n]
    values = scores.reshape(batches * classes, n)
    there = jnp.ones(values.shape, bool) if least is None else values > least.reshape(())
    threshold = jnp.zeros((), corners.dtype) if overlap is None else overlap.reshape(())
    chosen, counts = _suppressed(corners, values, there, threshold, most, bound)
    groups = batches * classes
    numbers = jnp.arange(groups, dtype=jnp.int64)[:, None]
    columns = (numbers // classes, numbers % classes, chosen.astype(jnp.int64))
    found = jnp.stack([jnp.broadcast_to(c, chosen.shape) for c in columns], -1).reshape(-1, 3)
    if isinstance(groups, int) and groups == 1:
        return first(found, counts[0])
    mask = jnp.arange(most, dtype=jnp.int32) < counts[:, None]
    (made,) = compressed(mask.reshape(-1), [found])
    return made


def _box_corners(boxes: Any, centred: bool) -> Any:
    """[batches, 4, n]: the lower two coordinates of boxes, and the upper ones."""
    import jax.numpy as jnp

    a, b = boxes[..., :2], boxes[..., 2:]
    ends = (a - b / 2, a + b / 2) if centred else (jnp.minimum(a, b), jnp.maximum(a, b))
    return jnp.swapaxes(jnp.concatenate(ends, -1), 1, 2)


def _suppressed(
    corners: Any, scores: Any, there: Any, overlap: Any, most: Any, bound: Any
) -> tuple[Any, Any]:
    """The i32 numbers [groups, most] of the boxes that are left in each group, and how many [groups]. bound: the most
    that count, where the program computes it."""
    import jax
    import jax.numpy as jnp

    groups, n = scores.shape
    numbers = jnp.arange(n, dtype=jnp.int32)
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    gone = jnp.asarray(-jnp.inf, scores.dtype)
    left = jnp.where(there, jnp.maximum(scores, jnp.finfo(scores.dtype).min), gone)
    end = most if bound is None else jnp.minimum(jnp.asarray(most, bound.dtype), bound).astype(jnp.int32)

    def goes_on(state: Any) -> Any:
        i, left, _, _ = state
        return (i < end) & jnp.any(left > gone)

    def step(state: Any) -> Any:
        i, left, chosen, counts = state
        best = jnp.argmax(left, 1).astype(jnp.int32)
        some = jnp.max(left, 1) > gone
        one = numbers == best[:, None]
        corner = jnp.sum(jnp.where(one[:, None], corners, 0), 2, keepdims=True)
        area = jnp.sum(jnp.where(one, areas, 0), 1, keepdims=True)
        sides = jnp.minimum(corners[:, 2:], corner[:, 2:]) - jnp.maximum(corners[:, :2], corner[:, :2])
        sides = jnp.maximum(sides, 0)
        common = sides[:, 0] * sides[:, 1]
        whole = areas + area - common
        counted = (common > 0) & (area > 0) & (areas > 0) & (whole > 0)
        share = common / jnp.where(counted, whole, 1)
        left = jnp.where((counted & (share > overlap)) | one, gone, left)
        chosen = jax.lax.dynamic_update_slice_in_dim(chosen, best[:, None], i, 1)
        return i + 1, left, chosen, counts + some.astype(jnp.int32)

    begin = jnp.int32(0), left, jnp.zeros((groups, most), jnp.int32), jnp.zeros(groups, jnp.int32)
    _, _, chosen, counts = jax.lax.while_loop(goes_on, step, begin)
    return chosen, counts
