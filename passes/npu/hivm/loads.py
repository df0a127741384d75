"""Tiles that a load may fill in part are filled before, unless nothing reads the rest of them.

In l1 a product leaves out what lies behind the tensor. Rows before it, and between others, count: they are made 0.
"""

from __future__ import annotations

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, f64, i64
from xdsl.dialects.scf import ForOp
from xdsl.ir import SSAValue

from ....dialects.affine import Range
from ....dialects.base import integer, to_ints
from ....dialects.dtypes import size
from ....dialects.npu import (
    ElementwiseVectorOp,
    FillL1Op,
    IndexOp,
    LoadNd2NzOp,
    LoadNdOp,
    NpuOp,
    StoreNdOp,
    VFillOp,
    buffer,
    buffer_users,
    whole_buffer,
)
from ....dialects.npu.interface import fill_value
from ....dialects.npu.structure import KernelOp, SectionOp
from ....dialects.npu.transfers import LoadOp


def fill_before_loads(kernel: KernelOp, section: SectionOp) -> None:
    """Puts a fill before each load of a section that may leave a part of its tile as it was, where an instruction may
    read that part for a result that is stored."""
    ranges = index_ranges(kernel, section)
    for op in [op for op in section.body.walk() if isinstance(op, LoadNdOp | LoadNd2NzOp)]:
        if isinstance(op, LoadNd2NzOp):
            needed = _leaves_holes(op, ranges)
        else:
            inside = all(_inside(op, ranges))
            needed = buffer(op.dest).space == "ub" and not inside and not _is_read_by_lanes(op)
        if not needed:
            continue
        number = fill_value(op.fill)
        whole = buffer(op.dest).dtype()[0] not in "fb"
        value = IntegerAttr(int(number), i64) if whole else FloatAttr(float(number), f64)
        kind = FillL1Op if isinstance(op, LoadNd2NzOp) else VFillOp
        fill = kind.create(operands=[op.dest], properties={"value": value}, location=op.location)
        assert op.parent is not None
        op.parent.insert_op_before(fill, op)


def index_ranges(kernel: KernelOp, section: SectionOp) -> dict[SSAValue, Range]:
    """The least and the greatest value of each index of a section; loops with open bounds are left out."""
    grid = to_ints(kernel.grid)
    found: dict[SSAValue, Range] = {
        arg: (0, n - 1) for arg, n in zip(kernel.body.block.args, grid, strict=False)
    }
    found[section.body.block.args[0]] = (0, integer(section.units) - 1)
    for op in section.body.walk():
        if isinstance(op, IndexOp):
            found[op.result] = (integer(op.low), integer(op.high))
        elif isinstance(op, ForOp) and isinstance(op.ub.owner, ConstantOp):
            bound = op.ub.owner.value
            if isinstance(bound, IntegerAttr):
                found[op.body.block.args[0]] = (0, max(bound.value.data - 1, 0))
    return found


def _inside(op: LoadOp, ranges: dict[SSAValue, Range]) -> list[bool]:
    """Whether a box is inside its tensor wherever it is, along each dimension."""
    found = []
    for offset, n, step, extent in zip(op.linear(), op.box_sizes, op.box_steps, op.view.shape, strict=True):
        known = all(v in ranges for v in offset.variables)
        low, high = offset.span(ranges) if known else (-1, 0)
        reach = (n - 1) * step
        found.append(low + min(reach, 0) >= 0 and high + max(reach, 0) < extent)
    return found


def _leaves_holes(op: LoadNd2NzOp, ranges: dict[SSAValue, Range]) -> bool:
    """Whether a box of rows may have what is outside its tensor before or between what is inside."""
    rows, inside = op.box_sizes[:-1], _inside(op, ranges)[:-1]
    several = [n for n, there in zip(rows, inside, strict=True) if n != 1 or not there]
    begins = (offset for offset, there in zip(op.linear(), inside, strict=False) if not there)
    before = any(any(v not in ranges for v in at.variables) or at.span(ranges)[0] < 0 for at in begins)
    return not all(inside) and (before or len(several) > 1)


def _is_read_by_lanes(op: LoadNdOp) -> bool:
    """Whether all that follows from a tile is computed lane by lane, and stored as a box that is clipped alike."""
    seen: set[SSAValue] = set()
    work = [whole_buffer(op.dest)]
    shape = buffer(op.dest).shape
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        for user in buffer_users(value):
            if isinstance(user, StoreNdOp):
                if (user.linear(), user.box_sizes, user.view.shape) != (
                    op.linear(),
                    op.box_sizes,
                    op.view.shape,
                ):
                    return False
            elif isinstance(user, ElementwiseVectorOp):
                if size(shape) == 1 or buffer(user.destinations()[0]).shape != shape:
                    return False
                work += [whole_buffer(v) for v in user.destinations()]
            elif isinstance(user, NpuOp) and any(whole_buffer(v) is value for v in user.reads()):
                return False
    return True
