"""Images in other sizes, and at the points of grids. What is of regions is in `regions.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import is_known
from .interpolation import as_before, cubic, interpolated, measured, taps, tent
from .reductions import wide

# -- other sizes -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResizedLine:
    """One dimension that gets another size.

    size, to: before and after; scale: a number, or a fraction of symbolic sizes as a traced one; width: the size that
    the scale says, which may not be whole. begin, end: the part of it that is sampled, from 0 to 1.
    """

    size: Any
    to: Any
    scale: Any
    width: Any
    begin: Any = 0.0
    end: Any = 1.0

    @property
    def known(self) -> bool:
        """Whether numpy has all the numbers."""
        return all(isinstance(n, int | float) for n in (self.size, self.to, self.scale, self.begin, self.end))

    @property
    def xp(self) -> Any:
        """What computes with the numbers."""
        import jax.numpy as jnp

        return np if self.known else jnp

    def places(self, mode: str) -> Any:
        """Where the elements of the result are in the operand: floats [to]."""
        return self._placed(self.xp.arange(self.to, dtype=np.float64 if self.known else np.float32), mode)

    def rounded_places(self, mode: str) -> Any:
        """Places that are as exact as the scale is, which is one of f32: those that are whole numbers, or halfway
        between two, are so again."""
        places = self.places(mode)
        if self.known:
            return np.asarray(places, np.float32).astype(np.float64)
        return self.xp.round(places * 4096) / 4096

    def _placed(self, at: Any, mode: str) -> Any:
        xp = self.xp
        size, to, width = (
            n if self.known else xp.asarray(n).astype(at.dtype) for n in (self.size, self.to, self.width)
        )
        half = (at + 0.5) / self.scale - 0.5
        if mode == "half_pixel" or mode == "pytorch_half_pixel":
            alone = mode != "half_pixel" and isinstance(self.to, int) and self.to == 1
            return xp.zeros_like(at) if alone else half
        if mode == "half_pixel_symmetric":
            return half + size / 2 * (1 - to / width)
        if mode == "asymmetric":
            return at / self.scale
        if mode == "tf_half_pixel_for_nn":
            return (at + 0.5) / self.scale
        last, steps = size - 1, width - 1
        if mode == "align_corners":
            return xp.where(steps == 0, 0.0, at * last / xp.where(steps == 0, 1.0, steps))
        part = self.end - self.begin
        alone = 0.5 * (self.begin + self.end) * last
        inner = self.begin * last + at * part * last / xp.where(steps == 0, 1.0, steps)
        return xp.where(steps == 0, alone, inner)


ROUNDINGS = {
    "round_prefer_floor": lambda xp, at: xp.ceil(at - 0.5),
    "round_prefer_ceil": lambda xp, at: xp.floor(at + 0.5),
    "floor": lambda xp, at: xp.floor(at),
    "ceil": lambda xp, at: xp.ceil(at),
}
"""Which element is the nearest to a place, by `nearest_mode`."""


def nearest(x: Any, axis: int, line: ResizedLine, mode: str, rounding: str) -> Any:
    """The elements of a dimension that are nearest to places: repeated, a slice, or any."""
    import jax
    import jax.numpy as jnp

    times = _times(line, mode, rounding)
    if times:
        shape = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
        dims = [i for i in range(len(shape)) if i != axis + 1]
        repeated = jax.lax.broadcast_in_dim(x, shape, dims)
        return repeated.reshape(*x.shape[:axis], line.to, *x.shape[axis + 1 :])
    chosen = _chosen(line, mode, rounding)
    if line.known and line.to:
        begin, step = int(chosen[0]), int(chosen[1] - chosen[0]) if line.to > 1 else 1
        if step > 0 and np.array_equal(chosen, begin + step * np.arange(line.to)):
            return jax.lax.slice_in_dim(x, begin, int(chosen[-1]) + 1, step, axis)
    return jnp.take(x, chosen, axis, mode="clip")


def _chosen(line: ResizedLine, mode: str, rounding: str) -> Any:
    """The i32 numbers of the elements that are nearest to places."""
    xp, places = line.xp, line.rounded_places(mode)
    return xp.clip(ROUNDINGS[rounding](xp, places), 0, line.size - 1).astype(np.int32)


def _times(line: ResizedLine, mode: str, rounding: str) -> int:
    """How often each element is repeated, where that is all that there is to do; otherwise 0. With a scale that is a
    whole number, what is true of some elements is true of any number of them."""
    if not isinstance(line.scale, float) or line.scale != int(line.scale):
        return 0
    times = int(line.scale)
    if not isinstance(line.size, int) and mode in ("half_pixel", "half_pixel_symmetric", "asymmetric"):
        line = ResizedLine(4, 4 * times, line.scale, 4 * line.scale)
    if not line.known or line.to != line.size * times:
        return 0
    repeated = np.arange(line.size).repeat(times)
    return times if np.array_equal(_chosen(line, mode, rounding), repeated) else 0


def weights(node: Node, line: ResizedLine, mode: str) -> Any:
    """The matrix [to, size] of interpolation along a dimension. What is outside is the element at the edge, or is left
    out."""
    xp = line.xp
    places = line.places(mode)
    cubes, narrow = node.get("mode") == "cubic", 1.0
    if node.get("antialias", 0):
        if not isinstance(line.scale, int | float):
            raise node.unsupported("an antialiasing filter is as wide as a scale says, which has to be known")
        narrow = min(float(line.scale), 1.0)
    radius = int(np.ceil((2 if cubes else 1) / narrow))
    taps = xp.floor(places)[:, None] + np.arange(1 - radius, radius + 1)
    apart = (taps - places[:, None]) * narrow
    made = cubic(xp, apart, node.get("cubic_coeff_a", -0.75)) if cubes else tent(xp, apart)
    if node.get("exclude_outside", 0):
        made = xp.where((taps < 0) | (taps > line.size - 1), 0.0, made)
    if node.get("exclude_outside", 0) or node.get("antialias", 0):
        total = xp.sum(made, 1, keepdims=True)
        made = made / xp.where(total == 0, 1.0, total)
    at = xp.clip(taps, 0, line.size - 1)
    columns = xp.arange(line.size, dtype=at.dtype)
    return sum(made[:, k, None] * (at[:, k, None] == columns) for k in range(2 * radius))


def weighed(x: Any, axis: int, matrix: Any) -> Any:
    """The product of a matrix and each line of a dimension."""
    import jax.numpy as jnp

    matrix = matrix.astype(x.dtype)
    if axis == x.ndim - 1:
        return jnp.matmul(x, matrix.T)
    return jnp.moveaxis(jnp.tensordot(x, matrix, ((axis,), (1,))), -1, axis)


@rule("Resize")
def _resize(node: Node, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    import jax.numpy as jnp

    old = node.version < 11
    mode = node.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    lines = _scaled(node, x, node.integers(1)) if old else _lines(node, x, mode)
    kind = node.get("mode", "nearest")
    y = x if kind == "nearest" else measured(x)
    outside: Any = None
    for axis, line in lines.items():
        if _same(line, mode):
            continue
        if kind == "nearest":
            by_scale = "ceil" if old and line.known and line.scale < 1 else "floor"
            rounding = by_scale if old else node.get("nearest_mode", "round_prefer_floor")
            y = nearest(y, axis, line, mode, rounding)
        else:
            y = weighed(y, axis, weights(node, line, mode))
        if mode == "tf_crop_and_resize":
            places = line.rounded_places(mode)
            beyond = jnp.asarray((places < 0) | (places > line.size - 1))
            beyond = beyond.reshape(-1, *[1] * (x.ndim - 1 - axis))
            outside = beyond if outside is None else outside | beyond
    if outside is not None:
        y = jnp.where(outside, jnp.asarray(node.get("extrapolation_value", 0.0)).astype(y.dtype), y)
    return y if kind == "nearest" else as_before(y, x.dtype, rounded=True)


@rule("Upsample")
def _upsample(node: Node, x: Any, scales: Any = None) -> Any:
    given = node.get("scales") if scales is None else node.integers(1)
    y = x if node.get("mode", "nearest") == "nearest" else measured(x)
    for axis, line in _scaled(node, x, given).items():
        if _same(line, "asymmetric"):
            continue
        if node.get("mode", "nearest") == "nearest":
            y = nearest(y, axis, line, "asymmetric", "floor")
        else:
            y = weighed(y, axis, weights(node, line, "asymmetric"))
    return as_before(y, x.dtype, rounded=True)


def _same(line: ResizedLine, mode: str) -> bool:
    """Whether a dimension stays as it is."""
    if isinstance(line.scale, float) and line.scale != 1:
        return False
    if mode == "tf_crop_and_resize" and not (
        isinstance(line.begin, float) and (line.begin, line.end) == (0.0, 1.0)
    ):
        return False
    return bool(line.size is line.to or line.size == line.to)


def _scaled(node: Node, x: Any, scales: Any, axes: Sequence[int] | None = None) -> dict[int, ResizedLine]:
    """The dimensions that scales say, by number. A size is the product in f32, rounded down."""
    which = range(x.ndim) if axes is None else axes
    if scales is None or len(scales) != len(which):
        raise node.unsupported("it needs a scale for each dimension")
    made: dict[int, ResizedLine] = {}
    for axis, scale in zip(which, scales, strict=True):
        n = x.shape[axis]
        if isinstance(n, int):
            made[axis] = ResizedLine(
                n, int(np.float32(n) * np.float32(scale)), float(scale), n * float(scale)
            )
        else:
            ratio = Fraction(float(scale)).limit_denominator(1 << 12)
            to = n * ratio.numerator // ratio.denominator
            made[axis] = ResizedLine(n, to, float(scale), to)
    return made


def _lines(node: Node, x: Any, mode: str) -> dict[int, ResizedLine]:
    """The dimensions that a Resize names, by number."""
    axes = node.get("axes")
    which = list(range(x.ndim)) if axes is None else node.places(axes, x.ndim)
    sizes = node.integers(3)
    if sizes:
        lines = _sized(node, x, sizes, which)
    else:
        lines = _scaled(node, x, node.integers(2), which)
    if mode != "tf_crop_and_resize":
        return lines
    roi = node.inputs[1]
    if roi is None:
        raise node.unsupported("tf_crop_and_resize needs the region that is resized")
    known = is_known(roi)
    ends = (
        [float(v) for v in roi.reshape(-1)] if known else node.traced(roi)[0].reshape(-1).astype(np.float32)
    )
    count = len(which)
    return {
        a: ResizedLine(v.size, v.to, v.scale, v.width, ends[which.index(a)], ends[count + which.index(a)])
        for a, v in lines.items()
    }


def _sized(node: Node, x: Any, sizes: Sequence[Any], which: Sequence[int]) -> dict[int, ResizedLine]:
    """The dimensions that sizes say, by number."""
    import jax.numpy as jnp

    policy = node.get("keep_aspect_ratio_policy", "stretch")
    made: dict[int, ResizedLine] = {}
    if policy == "stretch":
        for axis, to in zip(which, sizes, strict=True):
            n = x.shape[axis]
            if isinstance(n, int) and isinstance(to, int):
                scale: Any = to / n if n else 1.0
            elif n is to or n == to:
                scale = 1.0
            else:
                scale = jnp.asarray(to).astype(np.float32) / jnp.asarray(n).astype(np.float32)
            made[axis] = ResizedLine(n, to, scale, to)
        return made
    pairs = [(x.shape[a], to) for a, to in zip(which, sizes, strict=True)]
    if not all(isinstance(n, int) for pair in pairs for n in pair):
        raise node.unsupported(f"keep_aspect_ratio_policy {policy} needs sizes that are known")
    choose = min if policy == "not_larger" else max
    scale = choose(to / n for n, to in pairs)
    for axis, (n, _) in zip(which, pairs, strict=True):
        made[axis] = ResizedLine(n, int(scale * n + 0.5), scale, scale * n)
    return made


# -- points of grids ---------------------------------------------------------------------------------------


KINDS = {"bilinear": "linear", "bicubic": "cubic"}
"""What modes are called in later opsets."""


@rule("GridSample")
def _grid_sample(node: Node, x: Any, grid: Any) -> Any:
    """What x is at points, whose last coordinate is that of the first dimension, from -1 to 1."""
    mode, padding = str(node.get("mode", "linear")), node.get("padding_mode", "zeros")
    kind = KINDS.get(mode, mode)
    rank, batch, out = x.ndim - 2, x.shape[0], grid.shape[1:-1]
    grid, count = wide(grid), 1
    for n in out:
        count = count * n
    lines: list[tuple[Any, Any]] = []
    for i in range(rank):
        n = x.shape[2 + i]
        at = grid[..., rank - 1 - i].reshape(batch, count)
        if node.get("align_corners", 0):
            at, ends = (at + 1) / 2 * (n - 1), (0, n - 1)
        else:
            at, ends = ((at + 1) * n - 1) / 2, (-0.5, n - 0.5)
        lines.append(taps(at, n, kind, padding, ends))
    y = interpolated(x if kind == "nearest" else measured(x), lines)
    return as_before(y.reshape(*x.shape[:2], *out), x.dtype)
