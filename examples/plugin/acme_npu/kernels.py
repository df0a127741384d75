"""Kernels of the prefix-xor unit: rows are loaded to ub, copied to px, computed, and stored."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from xdsl.ir import Operation

from tilewright.dialects.base import Expr, describe
from tilewright.dialects.dtypes import size
from tilewright.dialects.graph.interface import element_of, shape_of
from tilewright.dialects.npu.types import padded_bytes, row_strides
from tilewright.dialects.tile import TileType
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.tile.builder import KernelBuilder, divide_grid, gm_of

from .ops import PrefixXorOp, TileCopyPxOp, TilePrefixXorOp

SLOTS = 2
"""Rows are loaded while others are computed."""


def prefix_xor_kernel(op: PrefixXorOp, fusion: Any, machine: Machine, name: str) -> Operation:
    """The kernel of a fusion with one op. Raises PassError where a row does not fit."""
    if "px" not in machine.spaces:
        raise PassError(f"{describe(op)} needs px, which {machine.name} does not have: run acme-expand before")
    *outer, n = shape_of(op.x)
    rows, element = size(outer), element_of(op.x)
    room = min(machine.spaces["px"].bytes // SLOTS, machine.spaces["ub"].bytes // (2 * SLOTS))
    fitting = room // padded_bytes([1, n], element)
    if not fitting:
        raise PassError(f"{describe(op)}: a row of {n} does not fit px of {machine.name}")
    many = min(fitting, -(-rows // machine.vector_cores))
    ((cores, trips),) = divide_grid([-(-rows // many)], machine.vector_cores)
    b = KernelBuilder(
        machine,
        "vector",
        [cores] if cores > 1 else [],
        [gm_of(a) for a in fusion.body.block.args],
        [gm_of(op.result)],
        slots={"ub": SLOTS},
    )
    b.location = fusion.location
    box = [many, n]
    in_ub, in_px = (TileType.of(box, element, space) for space in ("ub", "px"))
    with b.section("fused" if machine.fused else "vector"), ExitStack() as stack:
        at = Expr.of(b.coordinates[0]) * trips if cores > 1 else Expr()
        at = (at + stack.enter_context(b.loop(trips))) * many
        source, dest = (b.view(t, [rows, n], row_strides([rows, n])) for t in (b.gm(0), b.output(0)))
        x = b.load(source, [at, Expr()], box, in_ub)
        staged = b.add(TileCopyPxOp, [x], [in_px]).results[0]
        b.store(b.add(TilePrefixXorOp, [staged], [in_ub]).results[0], dest, [at, Expr()], box)
    return b.finish(name)
