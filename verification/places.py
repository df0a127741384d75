"""Which tile of a kernel an element of an output is stored by."""

from __future__ import annotations

import itertools
import math
from typing import Any

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from ..backends.functions.loops import bounds
from ..dialects import npu, tile
from ..dialects.base import integer, to_ints
from ..dialects.npu import GmType
from ..dialects.npu.structure import KernelOp, SectionOp
from .results import Tile

MOST_POINTS = 4_000_000
"""Loop iterations that are looked through for one element."""

STORES = (tile.StoreOp, npu.StoreNdOp, npu.FixpipeOp)


def tile_of(kernel: KernelOp | tile.KernelOp, output: int, flat: int) -> Tile | None:
    """The box of the last store that writes element `flat` (row-major) of output number `output`; None where no
    store does, or where its place depends on data."""
    args = kernel.body.block.args
    first = len(args) - integer(kernel.outputs) - integer(kernel.workspaces)
    target = args[first + output]
    found = None
    for op in kernel.body.walk():
        if isinstance(op, STORES):
            dest = op.dest
            while isinstance(dest.owner, tile.ViewOp | npu.ViewOp):
                dest = dest.owner.source
            if dest is target:
                found = _box(kernel, op, flat) or found
    return found


def _position(view: GmType, flat: int) -> tuple[int, ...] | None:
    """The coordinates of element `flat` of the dense tensor in a view; None where the view leaves it out."""
    rest, out = flat - view.offset, [0] * len(view.shape)
    order = sorted(range(len(view.shape)), key=lambda d: -abs(view.strides[d]))
    for d in order:
        stride = view.strides[d]
        if view.shape[d] == 1 or stride == 0:
            continue
        if stride < 0:
            return None
        out[d], rest = divmod(rest, stride)
        if out[d] >= view.shape[d]:
            return None
    return tuple(out) if rest == 0 else None


def _box(kernel: Operation, store: Any, flat: int) -> Tile | None:
    view = store.dest.type
    assert isinstance(view, GmType)
    at = _position(view, flat)
    if at is None:
        return None
    sizes = to_ints(store.properties["sizes"])
    steps = to_ints(store.properties.get("steps")) or (1,) * len(sizes)
    ranges = _ranges(kernel, store)
    indices = list(dict.fromkeys(store.index_operands()))
    if any(v not in ranges for v in indices):
        return None
    if math.prod(len(ranges[v]) for v in indices) > MOST_POINTS:
        return None
    starts = store.linear()
    for point in itertools.product(*(ranges[v] for v in indices)):
        here = dict(zip(indices, point, strict=True))
        offsets = tuple(start.evaluate(here) for start in starts)
        if all(
            0 <= c - o < n * s and (c - o) % s == 0
            for c, o, n, s in zip(at, offsets, sizes, steps, strict=True)
        ):
            return _tile(kernel, store, here, ranges, offsets, sizes)
    return None


def _tile(
    kernel: Any,
    store: Operation,
    here: dict[SSAValue, int],
    ranges: dict[SSAValue, range],
    offsets: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Tile:
    def value(v: SSAValue) -> int:
        return here.get(v, ranges[v][0])

    grid = kernel.body.block.args[: len(to_ints(kernel.grid))]
    unit, loops = 0, []
    for op in _around(store):
        if isinstance(op, scf.ForOp):
            loops.append(value(op.body.block.args[0]))
        elif isinstance(op, SectionOp | tile.SectionOp):
            unit = value(op.body.block.args[0])
    return Tile(tuple(map(value, grid)), unit, tuple(reversed(loops)), offsets, sizes)


def _around(op: Operation) -> list[Operation]:
    """The ops that an op stands in, innermost first."""
    out, parent = [], op.parent_op()
    while parent is not None:
        out.append(parent)
        parent = parent.parent_op()
    return out


def _ranges(kernel: Any, store: Operation) -> dict[SSAValue, range]:
    """The values of grid coordinates, unit and loop indices around a store."""
    found: dict[SSAValue, range] = {}
    block: Block = kernel.body.block
    for v, n in zip(block.args, to_ints(kernel.grid), strict=False):
        found[v] = range(n)
    for op in _around(store):
        if isinstance(op, scf.ForOp):
            first, step, trips = bounds(op)
            found[op.body.block.args[0]] = range(first, first + step * trips, step)
        elif isinstance(op, SectionOp | tile.SectionOp):
            found[op.body.block.args[0]] = range(integer(op.units))
    return found
