"""Reads and writes at places that are known when the program runs, as nodes of ONNX. Places are clamped as the graph
level says, and shapes do not depend on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import numpy_dtype, size
from ...dialects.graph import DynamicSliceOp, DynamicUpdateSliceOp, GatherOp, ScatterOp
from .elementwise import combined
from .moves import along, concat, cut, pad, reshape, transpose
from .reductions import widened
from .values import Value, type_of
from .writer import OnnxWriter


def _clamped(x: Value, last: int | Sequence[int]) -> Value:
    """Places as i64, at least 0 and at most `last`: one number, or one for each place along the last dimension."""
    w, most = x.writer, np.asarray(last, np.int64)
    if x.dtype == "ui64":  # what i64 does not have is far behind the end
        x = combined("Min", x, w.constant(most.astype(numpy_dtype("ui64")), "ui64"))
    x = x.cast("i64")
    if most.ndim == 0:
        return w.node("Clip", [x, w.number(0, "i64"), w.number(int(most), "i64")], x.shape)
    return combined("Max", combined("Min", x, w.constant(most, "i64")), w.number(0, "i64"))


def dynamic_slice(op: DynamicSliceOp, w: OnnxWriter) -> Value:
    x = w.full(op.x)
    for d, (start, n) in enumerate(zip(op.starts, to_ints(op.sizes), strict=True)):
        extent = x.shape[d]
        if n == extent:
            continue
        first = reshape(_clamped(w.full(start), extent - n), [1])
        places = first if n == 1 else first + w.iota(n)
        x = w.node("Gather", [x, places], [*x.shape[:d], n, *x.shape[d + 1 :]], axis=d)
    return x


def dynamic_update_slice(op: DynamicUpdateSliceOp, w: OnnxWriter) -> Value:
    """The places of the dimensions down to the last one that is not written as a whole, for a ScatterND."""
    x, update = w.full(op.x), w.full(op.update)
    steps = to_ints(op.strides) or (1,) * len(x.shape)
    parts = [d for d, n in enumerate(update.shape) if n != x.shape[d]]
    if not parts or not size(update.shape):
        return update if size(update.shape) else x
    rank = parts[-1] + 1
    grid, columns = update.shape[:rank], []
    for d in range(rank):
        places = w.iota(grid[d])
        if d in parts:
            span = (grid[d] - 1) * steps[d] + 1
            start = _clamped(w.full(op.starts[d]), x.shape[d] - span)
            places = (places if steps[d] == 1 else places * steps[d]) + start
        columns.append(w.expand(reshape(places, [grid[d] if i == d else 1 for i in range(rank + 1)]), [*grid, 1]))
    return w.node("ScatterND", [x, concat(columns, rank), update], x.shape)


def scatter(op: ScatterOp, w: OnnxWriter) -> Value:
    """Rows with an index outside go to one more row, which is cut off."""
    x, index, updates = (w.full(v) for v in op.operands)
    kind, dtype, rows = text(op.kind), x.dtype, x.shape[0]
    if not size(updates.shape):
        return x
    x, updates = widened(x, kind), widened(updates, kind)
    places = (index < 0).where(rows, combined("Min", index, w.number(rows, index.dtype))).cast("i64")
    reduction = {"set": "none", "sum": "add", "prod": "mul"}.get(kind, kind)
    if dtype == "i1":
        x, updates = x.cast("ui8"), updates.cast("ui8")
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
    room = pad(x, 0, [0, 0], [1, 0])
    places = reshape(places, [*places.shape, 1])
    made = w.node("ScatterND", [room, places, updates], room.shape, reduction=reduction)
    return along(made, 0, 0, rows).cast(dtype)


def gather(op: GatherOp, w: OnnxWriter) -> Value:
    """Slices of one dimension by Gather, else by GatherND over all dimensions that have places, with one place for each
    element of a slice along these."""
    x, index = w.full(op.x), w.full(op.indices)
    sizes, moved, gone = to_ints(op.slice_sizes), to_ints(op.start_map), {*to_ints(op.collapsed_dims)}
    batch, vector = to_ints(op.x_batch), integer(op.index_dim)
    index = _with_last(index, vector)
    limits = [x.shape[d] - sizes[d] for d in moved]
    still = [d for d in range(len(x.shape)) if d not in moved and d not in batch]
    ends = [sizes[d] if d in still else n for d, n in enumerate(x.shape)]
    x = cut(x, [0] * len(ends), ends)
    points = [("p", d) for d in range(len(index.shape) - 1)]
    if moved:
        index = _clamped(index, limits)
    if len(moved) == 1 and not batch:
        d = moved[0]
        places = reshape(index, index.shape[:-1])
        if sizes[d] > 1:
            places = index + w.iota(sizes[d])
        elif d not in gone:
            places = index
        shape = [*x.shape[:d], *places.shape, *x.shape[d + 1 :]]
        made = w.node("Gather", [x, places], shape, axis=d)
        own = [] if d in gone else [("x", d)]
        labels = [*(("x", i) for i in range(d)), *points, *own, *(("x", i) for i in range(d + 1, len(x.shape)))]
    else:
        lead = [i - (vector < i) for i in to_ints(op.indices_batch)]
        rest = [i for i in range(len(points)) if i not in lead]
        x = transpose(x, [*batch, *moved, *still])
        index = transpose(index, [*lead, *rest, len(points)])
        wide = [j for j, d in enumerate(moved) if d not in gone]
        index = _spread(index, wide, [sizes[moved[j]] for j in wide])
        kept = [n for i, n in enumerate(x.shape) if i >= len(batch) + len(moved)]
        if moved:
            made = w.node("GatherND", [x, index], [*index.shape[:-1], *kept], batch_dims=len(lead))
        else:
            made = w.expand(reshape(x, [*x.shape[: len(batch)], *(1 for _ in rest), *kept]), [*index.shape[:-1], *kept])
        labels = [*(points[i] for i in (*lead, *rest)), *(("x", moved[j]) for j in wide), *(("x", d) for d in still)]
    return _laid_out(op, made, labels, gone)


def _with_last(index: Value, vector: int) -> Value:
    """The positions with the vector of each along the last dimension."""
    rank = len(index.shape)
    if vector == rank:
        return reshape(index, [*index.shape, 1])
    return transpose(index, [*(d for d in range(rank) if d != vector), vector])


def _spread(index: Value, wide: Sequence[int], sizes: Sequence[int]) -> Value:
    """Vectors of places [..., k] as [..., sizes, k]: `wide` says which of the k goes along each of the sizes."""
    if not wide:
        return index
    k = index.shape[-1]
    index = reshape(index, [*index.shape[:-1], *(1 for _ in wide), k])
    for i, (j, n) in enumerate(zip(wide, sizes, strict=True)):
        if n > 1:
            steps = reshape(index.writer.iota(n), [n, *(1 for _ in wide[i + 1 :]), 1])
            index = index + steps * index.writer.ints([int(c == j) for c in range(k)])
    return index.writer.expand(index, [*index.shape[: -len(wide) - 1], *sizes, k])


def _laid_out(op: GatherOp, made: Value, labels: list[tuple[str, int]], gone: set[int]) -> Value:
    """The dimensions of what was gathered in the order of the result."""
    offset, slices = to_ints(op.offset_dims), op.slice_dims()
    shape, _ = type_of(op.result)
    inner, points = iter([("x", d) for d in slices]), iter(sorted(each for each in labels if each[0] == "p"))
    wanted = [next(inner) if d in offset else next(points) for d in range(len(shape))]
    left = [each for each in labels if each[0] == "x" and each[1] in gone]
    return reshape(transpose(made, [labels.index(each) for each in (*wanted, *left)]), shape)
