"""Kernels that copy boxes: dynamic slices, updates in place, parts of a concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from xdsl.ir import Attribute

from ...dialects import tile as ops
from ...dialects.base import Expr, integer_attr, pack
from ...dialects.dtypes import itemsize, size
from ...dialects.npu.types import GmType, padded_bytes, row_strides
from ...dialects.tile import TileType
from ...machine import Machine
from ..errors import PassError
from .builder import KernelBuilder, dense, divide_grid
from .cores import copy_cycles, pieces_of, worth_waking
from .schedule import UB_FRACTION, cut_tile, largest_tile, merge_axes

Start = int | tuple[int, int, int]
"""A constant first index, or (kernel input holding it, lowest, highest allowed value)."""


def lower_copy(
    machine: Machine,
    name: str,
    box: Sequence[int],
    source: Sequence[int],
    dest: Sequence[int],
    element: Attribute,
    scalars: Sequence[Attribute],
    source_starts: Sequence[Start],
    dest_starts: Sequence[Start],
    dest_steps: Sequence[int],
    location: Any,
) -> ops.KernelOp:
    """A kernel that copies a box of `source` (input 0) to a box of `dest` (the output). Starts refer to rank-0
    inputs of the element types `scalars`."""
    plain = [
        d for d in range(len(box)) if source_starts[d] == 0 and dest_starts[d] == 0 and dest_steps[d] == 1
    ]
    whole = {d for d in plain if box[d] == source[d] == dest[d]}
    strides = [dict(enumerate(row_strides(shape))) for shape in (source, dest)]
    groups = _groups(box, whole, strides)
    extents = [size([box[d] for d in g]) for g in groups]
    slots = 2

    def fits(tile: Sequence[int]) -> bool:
        return padded_bytes(tile, element) * slots <= machine.spaces["ub"].bytes * UB_FRACTION

    largest = largest_tile(extents, frozenset(), fits)
    if largest is None:
        raise PassError(f"kernel {name}: one element does not fit ub of {machine.name}")
    read, write = (GmType.of(extents, element, [s[g[-1]] if g else 1 for g in groups]) for s in strides)
    copies = copy_cycles("load", read, largest, machine) + copy_cycles("store", write, largest, machine)
    most = worth_waking(copies, machine)
    tile = cut_tile(largest, extents, frozenset(), itemsize(element), most, pieces_of(copies, machine))
    # A box at a start known only at run time has no view whose edge could mask the last tile: tiles must divide it, and
    # cores the tiles.
    moving = [
        any(not isinstance(s[g[-1]], int) for s in (source_starts, dest_starts)) if g else False for g in groups
    ]

    def divided(limit: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
        cut = tuple(_divisor(n, t) if m else t for n, t, m in zip(extents, limit, moving, strict=True))
        return cut, divide_grid([-(-n // t) for n, t in zip(extents, cut, strict=True)], most, moving)

    def busiest(found: tuple[tuple[int, ...], list[tuple[int, int]]]) -> tuple[int, int]:
        trips = size([n for _, n in found[1]])
        return trips * size(found[0]), trips

    # what no cores divide is copied in as few pieces as fit
    tile, split = min((divided(t) for t in (tile, largest)), key=busiest)
    on_grid = [i for i, (cores, _) in enumerate(split) if cores > 1]
    builder = KernelBuilder(
        machine,
        "vector",
        [split[i][0] for i in on_grid],
        [dense(source, element), *(dense((), s) for s in scalars)],
        [dense(dest, element)],
        slots={"ub": slots},
    )
    builder.location = location
    with builder.section("fused" if machine.fused else "vector"), ExitStack() as stack:
        known: dict[Start, Expr] = {}

        def start(at: Start) -> Expr:
            if isinstance(at, int):
                return Expr(at)
            if at not in known:
                which, low, high = at
                found = builder.add(
                    ops.ScalarOp,
                    [builder.gm(which)],
                    [builder.coordinates[0].type],
                    offsets=pack([])[1],
                    low=integer_attr(low),
                    high=integer_attr(high),
                )
                known[at] = Expr.of(found.results[0])
            return known[at]

        position = []
        for i, (_, trips) in enumerate(split):
            at = Expr.of(builder.coordinates[on_grid.index(i)]) * trips if i in on_grid else Expr()
            if trips > 1:
                at = at + stack.enter_context(builder.loop(trips))
            position.append(at * tile[i])
        tensors = (
            (builder.gm(0), source, source_starts, [1] * len(box)),
            (builder.output(0), dest, dest_starts, dest_steps),
        )
        views, offsets = [], []
        for tensor, shape, starts, steps in tensors:
            strides_of = row_strides(shape)
            sizes, jumps, at, skipped = [], [], [], 0
            for g, extent, p in zip(groups, extents, position, strict=True):
                last = g[-1] if g else 0
                first, step = (starts[last], steps[last]) if g else (0, 1)
                stride = strides_of[last] if g else 1
                jumps.append(stride)
                if isinstance(
                    first, int
                ):  # The view ends with the box, so that its edge masks the last tile.
                    skipped += first * stride
                    sizes.append((extent - 1) * step + 1)
                    at.append(p * step)
                else:
                    sizes.append(shape[last])
                    at.append(p * step + start(first))
            views.append(builder.view(tensor, sizes, jumps, skipped))
            offsets.append(at)
        data = builder.load(views[0], offsets[0], tile, TileType.of(tile, element, "ub"))
        steps = [dest_steps[g[-1]] if g else 1 for g in groups]
        builder.store(data, views[1], offsets[1], tile, steps)
    return builder.finish(name)


def _divisor(extent: int, limit: int) -> int:
    return next(d for d in range(min(limit, extent), 0, -1) if extent % d == 0)


def _groups(box: Sequence[int], whole: set[int], strides: Sequence[dict[int, int]]) -> list[list[int]]:
    everything = frozenset(range(len(box)))
    merged = merge_axes(box, strides, [everything], set(everything) - whole)
    kept = {d for g in merged for d in g}
    alone = [[d] for d in range(len(box)) if d not in kept and d not in whole]
    return sorted([*merged, *alone], key=lambda g: g[0]) or [[]]
