"""Kernels for scatter: a part of the target stays in the unified buffer while all updates are read.

Every element belongs to one core, so nothing is stored twice and the order of the updates is kept. Parts are long along
the rows, since each further part along them reads all updates again. In a batch of scatters a part consists of whole
batches and reads only their updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, describe, pack
from ...dialects.dtypes import itemsize
from ...dialects.graph import FusionOp, ScatterOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.tile import TileType
from ...machine import Machine
from ..errors import PassError
from ..pins import Pins, schedule_for
from .builder import KernelBuilder, divide_grid, gm_of
from .schedule import UB_FRACTION

LONGEST_PART = 1024
"""Updates that are loaded at once, at most."""


def parts_of(
    rows: int, columns: int, updates: int, width: int, machine: Machine, groups: int = 1
) -> tuple[int, int, int, int] | None:
    """(rows, columns, updates at once, updates in all) of a tile: few passes over the updates for the busiest core,
    then few columns to a core. None where nothing fits, or no whole group."""
    room = machine.spaces["ub"].bytes * UB_FRACTION
    best: tuple[tuple[float, int], tuple[int, int, int, int]] | None = None
    block = max(1, 32 // width)
    cuts = {max(-(-columns // n), min(columns, block)) for n in range(1, machine.vector_cores + 1)}
    for wide in sorted({min(-(-c // block) * block, columns) for c in cuts}):
        line = wide * width if columns == 1 else -(-wide * width // 32) * 32
        chunk = min(updates, LONGEST_PART, max(1, int(room / 4 // (2 * (line + 4)))))
        # a part has two buffers where it is read and two where updates meet it
        high = min(rows, int(room - 2 * (chunk * (line + 4) + 64)) // (4 * line) - 64 // line)
        met = updates
        if groups > 1:
            shared = -(-groups * -(-columns // wide) // machine.vector_cores)
            whole = min(high // (rows // groups), shared)
            high, met = whole * (rows // groups), whole * (updates // groups)
            chunk = min(chunk, met)
        if high < 1:
            continue
        tiles = -(-rows // high) * -(-columns // wide)
        busiest = -(-tiles // machine.vector_cores)
        each = machine.row_instructions * machine.vector_issue_cycles + line / machine.vector.repeat_bytes
        score = (busiest * (met * each + high * line / machine.burst_bytes), wide)
        if best is None or score < best[0]:
            best = (score, (high, wide, chunk, met))
    return None if best is None else best[1]


def lower_scatter(fusion: FusionOp, machine: Machine, name: str, pins: Pins = None) -> ops.KernelOp:
    """A kernel over parts of the target. Raises PassError where none fits."""
    schedule_for(pins, name, frozenset())
    op = next(o for o in fusion.body.block.ops if isinstance(o, ScatterOp))
    (rows, columns), (count,), element = shape_of(op.x), shape_of(op.index), element_of(op.x)
    tile = parts_of(rows, columns, count, itemsize(element), machine, op.runs())
    tile = tile or parts_of(rows, columns, count, itemsize(element), machine)
    if tile is None:
        raise PassError(f"{describe(op)}: one row does not fit ub of {machine.name}")
    high, wide, chunk, met = tile
    flat = columns == 1
    split = divide_grid([-(-rows // high), -(-columns // wide)], machine.vector_cores)
    on_grid = [d for d in range(2) if split[d][0] > 1]
    args = list(fusion.body.block.args)
    b = KernelBuilder(
        machine,
        "vector",
        [split[d][0] for d in on_grid],
        [gm_of(a) for a in args],
        [gm_of(op.result)],
        slots={"ub": 2},
    )
    b.location = fusion.location
    place: dict[SSAValue, int] = {a: i for i, a in enumerate(args)}

    def shape(n: int) -> Sequence[int]:
        return [n] if flat else [n, wide]

    def view(tensor: SSAValue, n: int) -> SSAValue:
        return b.view(tensor, [n], [1]) if flat else tensor

    x, index, updates = (b.gm(place[v]) for v in (op.x, op.index, op.updates))
    target = TileType.of(shape(high), element, "ub")
    with b.section("fused" if machine.fused else "vector"), ExitStack() as stack:
        position: list[Expr] = []
        first_update = Expr()
        for d, step in enumerate((high, wide)):
            at = Expr.of(b.coordinates[on_grid.index(d)]) * split[d][1] if d in on_grid else Expr()
            if split[d][1] > 1:
                at = at + stack.enter_context(b.loop(split[d][1]))
            position.append(at * step)
            if d == 0 and met < count:
                first_update = at * met
        where = position[:1] if flat else position
        state = [b.load(view(x, rows), where, shape(high), target)]
        with b.loop(-(-met // chunk), state) as i:
            at = first_update + i * chunk
            places = b.load(index, [at], [chunk], TileType.of([chunk], i32, "ub"), fill=-1)
            from_here = [at] if flat else [at, position[1]]
            part = b.load(
                view(updates, count), from_here, shape(chunk), TileType.of(shape(chunk), element, "ub")
            )
            first, offsets = pack(position[:1])
            state[0] = b.add(
                ops.ScatterOp, [state[0], places, part, *first], [target], offsets=offsets, kind=op.kind
            ).results[0]
        b.store(state[0], view(b.output(0), rows), where, shape(high))
    return b.finish(name)
