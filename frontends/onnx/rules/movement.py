"""Ops that move elements: transpose, concatenate, slice, pad, and rearrange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import bounding
from ..node import Node
from ..table import rule
from ..values import as_traced, elements_at, is_known, larger
from .indexing import check_indices


@rule("Transpose", folds=True)
def _transpose(node: Node, x: Any) -> Any:
    perm = node.get("perm")
    if perm is not None and sorted(perm) != list(range(x.ndim)):
        raise node.unsupported(f"perm {perm} is no order of {x.ndim} dimensions")
    return node.xp.transpose(x, perm)


@rule("Concat", folds=True)
def _concat(node: Node, *parts: Any) -> Any:
    axis = node.place(node.get("axis", 0), parts[0].ndim)
    return node.library(_joined([p.shape for p in parts], axis)).concatenate(parts, axis=axis)


def _joined(shapes: Sequence[Any], axis: int) -> list[Any]:
    """The shape of arrays behind each other along an axis."""
    size: Any = 0
    for shape in shapes:
        size = size + shape[axis]
    return [size if i == axis else n for i, n in enumerate(shapes[0])]


@rule("Slice", folds=True)
def _slice(
    node: Node, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Any:
    import jax
    from jax.errors import InconclusiveDimensionOperation

    first, last = node.numbers(1, "starts"), node.numbers(2, "ends")
    which = node.axes(3)
    which = list(range(len(first))) if which is None else which
    strides = node.integers(4) or [1] * len(first)
    spans = list(zip(node.places(which, x.ndim), first, last, strides, strict=True))
    for axis, _, _, step in spans:
        if step == 0:
            raise node.unsupported(f"the step of dimension {axis} is 0")

    def is_computed(axis: int, begin: Any, end: Any, step: int) -> bool:
        """Whether the program finds how many elements there are: of none, and backwards, JAX finds too many."""
        backwards = node.by_data and step < 0 and not isinstance(x.shape[axis], int)
        return backwards or isinstance(begin, jax.Array) or isinstance(end, jax.Array)

    computed = [is_computed(*s) for s in spans]
    try:
        made = _spanned(x, [s for s, here in zip(spans, computed, strict=True) if not here])
    except InconclusiveDimensionOperation:
        if not node.by_data:
            raise
        made, computed = x, [True] * len(spans)
    for span in (s for s, here in zip(spans, computed, strict=True) if here):
        made = _computed_span(made, *span)
    return made


def _spanned(x: Any, spans: Sequence[tuple[int, Any, Any, int]]) -> Any:
    """The elements from begins to ends, by steps, along axes."""
    index: list[Any] = [slice(None)] * x.ndim
    for axis, begin, end, step in spans:
        index[axis] = _span(x.shape[axis], begin, end, step)
    symbolic = any(not isinstance(n, int | np.integer) for _, begin, end, _ in spans for n in (begin, end))
    return (as_traced(x) if symbolic else x)[tuple(index)]


def _computed_span(x: Any, axis: int, begin: Any, end: Any, step: int) -> Any:
    """The same along one axis, where the program computes how many there are."""
    import jax.numpy as jnp

    x, size = as_traced(x), x.shape[axis]
    n = jnp.asarray(size, jnp.int64)
    low, high = (0, n) if step > 0 else (-1, n - 1)
    begin, end = (jnp.asarray(v, jnp.int64) for v in (begin, end))
    begin, end = (jnp.clip(jnp.where(v < 0, v + n, v), low, high) for v in (begin, end))
    count = (end - begin + step - (1 if step > 0 else -1)) // step
    places = begin + jnp.arange(-(-size // abs(step)), dtype=jnp.int64) * step
    return bounding.first(elements_at(x, places, axis), count, axis)


_FAR = 1 << 31
"""What ONNX's exporters write as `to the end` is at least this."""


def _span(size: Any, begin: Any, end: Any, step: int) -> slice:
    """A slice of a dimension. Behind the end means up to it; before the begin, for a negative step, all down to it."""
    if (
        isinstance(end, int)
        and step > 0
        and end >= min(_FAR - 1, size if isinstance(size, int) else _FAR - 1)
    ):
        end = None
    if step < 0 and isinstance(size, int) and isinstance(end, int) and isinstance(begin, int):
        begin, end = min(begin, size - 1), None if end < -size else end
        if begin < -size:
            return slice(0, 0)
    return slice(begin, end, step)


@rule("Split", folds=True)
def _split(node: Node, x: Any, split: Any = None) -> Any:
    axis = node.place(node.get("axis", 0), x.ndim)
    parts = node.integers(1) if split is not None else node.get("split")
    size = x.shape[axis]
    if parts is None:
        count = node.get("num_outputs", len(node.outputs))
        each = -(-size // count)
        parts = [each] * (count - 1)
        parts.append(size - each * (count - 1))
    if any(isinstance(n, int) and n < 0 for n in parts):
        raise node.unsupported(f"its parts are {parts} of {size} elements")
    if all(isinstance(n, int) for n in (size, *parts)) and sum(parts) != size:
        raise node.unsupported(f"its parts are {sum(parts)} elements of {size} in dimension {axis}")
    index: list[Any] = [slice(None)] * x.ndim
    out, begin = [], 0
    for n in parts:
        index[axis] = slice(begin, begin + n)
        out.append(x[tuple(index)])
        begin = begin + n
    return tuple(out)


@rule("DepthToSpace")
def _depth_to_space(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    n, c, h, w = x.shape
    b = node.get("blocksize")
    if node.get("mode", "DCR") == "DCR":
        cells = jnp.transpose(x.reshape(n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2))
    else:
        cells = jnp.transpose(x.reshape(n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3))
    return cells.reshape(n, c // (b * b), h * b, w * b)


@rule("SpaceToDepth")
def _space_to_depth(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    n, c, h, w = x.shape
    b = node.get("blocksize")
    first = node.get("mode", "DCR") == "DCR"
    cells = jnp.transpose(
        x.reshape(n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4) if first else (0, 1, 3, 5, 2, 4)
    )
    return cells.reshape(n, c * b * b, h // b, w // b)


@rule("Pad")
def _pad(node: Node, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    import jax.numpy as jnp

    widths = node.dims(1, "pads")
    which = node.integers(3)
    which = list(range(x.ndim)) if which is None else node.places(which, x.ndim)
    before: list[Any] = [0] * x.ndim
    behind: list[Any] = [0] * x.ndim
    for k, axis in enumerate(which):
        before[axis], behind[axis] = widths[k], widths[len(which) + k]
    mode = node.get("mode", "constant")
    cut = [
        slice(larger(-b, 0), x.shape[i] - larger(-e, 0))
        for i, (b, e) in enumerate(zip(before, behind, strict=True))
    ]
    x = x[tuple(cut)]
    wide = [(larger(b, 0), larger(e, 0)) for b, e in zip(before, behind, strict=True)]
    if mode != "constant":
        return jnp.pad(x, wide, mode=mode)
    filler = node.get("value", 0.0) if value is None else value.reshape(())
    return jnp.pad(x, wide, constant_values=jnp.asarray(filler, x.dtype))


@rule("Trilu")
def _trilu(node: Node, x: Any, k: Any = None) -> Any:
    import jax.numpy as jnp

    shift = 0 if k is None else k.reshape(())
    rows, columns = jnp.arange(x.shape[-2])[:, None], jnp.arange(x.shape[-1])[None, :]
    kept = columns - rows >= shift if node.get("upper", 1) else columns - rows <= shift
    return jnp.where(kept, x, jnp.zeros((), x.dtype))


@rule("CenterCropPad")
def _center_crop_pad(node: Node, x: Any, shape: Any) -> Any:
    import jax.numpy as jnp

    wanted = node.dims(1)
    which = node.places(node.get("axes", range(x.ndim)), x.ndim)
    for axis, n in zip(which, wanted, strict=True):
        size = x.shape[axis]
        index: list[Any] = [slice(None)] * x.ndim
        if n <= size:
            begin = (size - n) // 2
            index[axis] = slice(begin, begin + n)
            x = x[tuple(index)]
        else:
            widths = [(0, 0)] * x.ndim
            widths[axis] = ((n - size) // 2, n - size - (n - size) // 2)
            x = jnp.pad(x, widths)
    return x


@rule("ReverseSequence")
def _reverse_sequence(node: Node, x: Any, lengths: Any) -> Any:
    import jax.numpy as jnp

    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    moved = jnp.moveaxis(x, (batch, time), (0, 1))
    steps = jnp.arange(moved.shape[1])[None, :]
    count = lengths.reshape(-1, 1)
    places = jnp.where(steps < count, count - 1 - steps, steps)
    places = places.reshape(*places.shape, *[1] * (moved.ndim - 2))
    return jnp.moveaxis(jnp.take_along_axis(moved, places, axis=1), (0, 1), (batch, time))


def _slice_at(x: Any, axis: int, indices: np.ndarray, n: int) -> Any:
    """The elements of x at known indices along an axis of n, as a slice; None where they are at no equal distances, or
    outside of x."""
    import jax

    flat = np.where(indices < 0, indices + n, indices).reshape(-1)
    steps = np.unique(np.diff(flat))
    if not flat.size or flat.min() < 0 or flat.max() >= n or steps.size > 1 or (steps.size and steps[0] < 1):
        return None
    first, stride = int(flat[0]), int(steps[0]) if steps.size else 1
    made = jax.lax.slice_in_dim(x, first, int(flat[-1]) + 1, stride, axis)
    return made.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@rule("Gather", folds=True)
def _gather(node: Node, x: Any, indices: Any) -> Any:
    axis = node.place(node.get("axis", 0), x.ndim)
    n = x.shape[axis]
    check_indices(node, 1, n)
    shape = [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]
    if node.xp is np and node.library(shape) is np:
        return np.take(x, np.asarray(indices, np.int64), axis=axis)
    import jax.numpy as jnp

    x = as_traced(x)
    if is_known(node.inputs[1]) and isinstance(n, int):
        found = _slice_at(x, axis, np.asarray(node.inputs[1]), n)
        if found is not None:
            return found
    indices = as_traced(indices)
    return elements_at(x, jnp.where(indices < 0, indices + n, indices), axis)
