"""Kernels for sort: whole rows in the unified buffer, some rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from xdsl.dialects.builtin import IntegerType, Signedness
from xdsl.ir import Attribute, OpResult, SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, describe
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import FusionOp, SortOp, YieldOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import padded_bytes
from ...dialects.tile import TileType
from ...machine import Machine
from ..errors import PassError
from ..pins import Pins, schedule_for
from .builder import KernelBuilder, divide_grid, gm_of
from .schedule import UB_FRACTION, choose_tile

WORD = IntegerType(32, Signedness.UNSIGNED)


def fitting_slots(rows: int, n: int, keep: int, elements: Sequence[Attribute], machine: Machine) -> int:
    """How many slots (2, 1, or 0: it does not fit) each buffer may have to sort so many rows at once: operands,
    results, and two lists of (key, place)."""
    held = sum(padded_bytes([rows, n], e) + padded_bytes([rows, keep], e) for e in elements)
    work = padded_bytes([rows, 4 * n], WORD)
    room = machine.spaces["ub"].bytes * UB_FRACTION
    return next((slots for slots in (2, 1) if slots * held + work <= room), 0)


def lower_sort(fusion: FusionOp, machine: Machine, name: str, pins: Pins = None) -> ops.KernelOp:
    """A kernel over the rows. Raises PassError where a row does not fit."""
    schedule_for(pins, name, frozenset())
    op = next(o for o in fusion.body.block.ops if isinstance(o, SortOp))
    elements = [element_of(x) for x in op.xs]
    *outer, n = shape_of(op.xs[0])
    keep, rows = op.kept(), size(outer)
    slots = min(fitting_slots(1, n, keep, elements, machine), 2)

    def fits(tile: Sequence[int]) -> bool:
        return fitting_slots(tile[0], n, keep, elements, machine) >= slots > 0

    tile = choose_tile([rows, n], frozenset({1}), fits, max(map(itemsize, elements)), machine.vector_cores)
    if tile is None:
        raise PassError(f"{describe(op)}: a row of {n} does not fit ub of {machine.name}")
    ((cores, trips),) = divide_grid([-(-rows // tile[0])], machine.vector_cores)
    args, last = list(fusion.body.block.args), fusion.body.block.last_op
    assert isinstance(last, YieldOp)
    yielded = list(last.values)
    b = KernelBuilder(
        machine,
        "vector",
        [cores] if cores > 1 else [],
        [gm_of(a) for a in args],
        [gm_of(v) for v in yielded],
        slots={"ub": slots},
    )
    b.location = fusion.location
    place: dict[SSAValue, int] = {a: i for i, a in enumerate(args)}
    with b.section("fused" if machine.fused else "vector"), ExitStack() as stack:
        at = Expr.of(b.coordinates[0]) * trips if cores > 1 else Expr()
        if trips > 1:
            at = at + stack.enter_context(b.loop(trips))
        position, several = [at * tile[0], Expr()], tile[0]
        loaded = [
            b.load(
                b.view(b.gm(place[x]), [rows, n], [n, 1]),
                position,
                [several, n],
                TileType.of([several, n], e, "ub"),
            )
            for x, e in zip(op.xs, elements, strict=True)
        ]
        made = b.add(
            ops.SortOp,
            loaded,
            [
                *(TileType.of([several, keep], e, "ub") for e in elements),
                TileType.of([several, 4 * n], WORD, "ub"),
            ],
            keys=op.keys,
            descending=op.descending,
            total=op.total,
        ).results
        for i, value in enumerate(yielded):
            assert isinstance(value, OpResult)
            part = made[value.index]
            b.store(part, b.view(b.output(i), [rows, keep], [keep, 1]), position, [several, keep])
    return b.finish(name)
