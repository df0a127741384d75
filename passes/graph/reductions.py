"""Splits reductions and scatters to few values: cores cannot add to each other, so each makes a partial result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer_attr, text, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size, tensor
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.graph import ELEMENTWISE, IotaOp, ReduceOp, ScatterOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import ROW_BYTES
from ...dialects.open_sizes import choosing
from ...machine import Machine
from ..access import is_layout
from ..pins import Pins, Schedule
from .long_rows import ROW_VALUES
from .patterns import GraphPattern
from .tensor_builder import RewriteBuilder

MANY_ELEMENTS = 1 << 15
"""So many elements take a core longer than a second launch."""

MANY_UPDATES = 1 << 11
"""So many updates take a core longer than the launches that combine copies, and that number the rows of those."""


class SplitReduce(GraphPattern):
    """A reduction that leaves cores idle is a part of the rows for each, then the partial results.

    Rows that are too few for one more of each part are reduced by themselves.
    """

    name = "split-reduce"

    @classmethod
    def allowed(cls, pins: Pins) -> bool:
        return not (isinstance(pins, Schedule) and pins.tile is not None)  # it says how rows are cut

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReduceOp, rewriter: PatternRewriter, /) -> None:
        shape, dims, kind = shape_of(op.x), to_ints(op.dims), text(op.kind)
        chosen = self._cut(op, shape, dims)
        if chosen is None:
            return
        run, parts = chosen
        extent = size([shape[d] for d in run])
        length = extent // parts
        at = run[0]
        before, behind = shape[:at], shape[run[-1] + 1 :]
        others = [d if d < at else d + 1 - len(run) for d in dims if d not in run]
        if parts < 2 or length * size([shape[d] for d in dims if d not in run]) < 2:
            return

        build = RewriteBuilder(rewriter)

        def rows(start: int, stop: int) -> SSAValue:
            if stop - start == extent:
                return op.x
            x = op.x if len(run) == 1 else build.reshape(op.x, [*before, extent, *behind])
            return build.part(x, at, start, stop - start)

        cut = build.reshape(rows(0, parts * length), [*before, parts, length, *behind])
        partial = build.reduce(cut, kind, sorted([at + 1, *(d if d < at else d + 1 for d in others)]))
        result = build.reduce(partial, kind, [at - sum(d < at for d in others)])
        if extent > parts * length:
            rest = build.reduce(rows(parts * length, extent), kind, sorted([at, *others]))
            combine = ELEMENTWISE[REDUCTION_FUNCTION[kind]]
            result = build.add(combine, [result, rest], tensor(shape_of(rest), element_of(rest)))
        rewriter.replace(op, (), [result])

    @choosing()
    def _cut(self, op: ReduceOp, shape: Sequence[int], dims: Sequence[int]) -> tuple[list[int], int] | None:
        """The dimensions to cut as one, and into how many parts; None where that gains nothing."""
        parts = self.machine.vector_cores // max(
            tasks(shape, dims, itemsize(element_of(op.x)), self.machine), 1
        )
        if parts < 2 or size(shape) * parts < MANY_ELEMENTS * self.machine.vector_cores:
            return None
        inner = size(shape[max(dims) + 1 :])
        if (
            inner > 1
            and size([shape[d] for d in dims]) * ROW_BYTES * ROW_VALUES <= self.machine.spaces["ub"].bytes
        ):
            return None  # whole rows fit on chip, where they can be one kernel with what makes or uses them
        run = widest_run(shape, dims, joined=not is_layout(op.x.owner))
        even = even_parts(shape[run[0]], parts)
        if even is not None:
            run = run[:1]  # the other dimensions stay as they are
        extent = int(size([shape[d] for d in run]))
        return run, int(even or even_parts(extent, parts) or min(parts, extent))


class SplitScatter(GraphPattern):
    """A scatter of many updates to few rows is one to a copy of the rows for each core, then their sum."""

    name = "split-scatter"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ScatterOp, rewriter: PatternRewriter, /) -> None:
        (rows, columns), (count,), kind = shape_of(op.x), shape_of(op.index), text(op.kind)
        most = min(
            self.machine.vector_cores, count // max(rows, 1)
        )  # copies are no more than the updates themselves
        if kind == "set" or op.runs() > 1 or count < MANY_UPDATES or most < 2:
            return
        parts, element = even_parts(count, most) or most, element_of(op.x)
        length = -(-count // parts)
        if rows * parts > np.iinfo(np.int32).max:
            return
        numbers = element_of(op.index)

        build = RewriteBuilder(rewriter)

        def tensor_of(value: int) -> SSAValue:
            return build.constant(value, [parts, length], numbers)

        def combine(name: str, *operands: SSAValue, result: Attribute = numbers) -> SSAValue:
            return build.add(ELEMENTWISE[name], operands, tensor([parts, length], result))

        short = parts * length - count
        index = build.reshape(build.pad(op.index, -1, [0], [short], [0]), [parts, length])
        # a number for each part: where it is multiplied with all updates, kernels keep copies of it as wide as these
        part = build.add(IotaOp, [], tensor([parts], numbers), dim=integer_attr(0))
        first = build.elementwise("mul", part, build.constant(rows, [parts], numbers))
        inside = combine(
            "and",
            combine("ge", index, tensor_of(0), result=i1),
            combine("lt", index, tensor_of(rows), result=i1),
            result=i1,
        )
        moved = combine("add", index, build.broadcast(first, [parts, length], [0]))
        index = build.reshape(combine("select", inside, moved, tensor_of(-1)), [parts * length])
        updates = build.pad(op.updates, 0, [0, 0], [short, 0], [0, 0])
        neutral = build.constant(identity(kind, dtype_name(element)), [parts * rows, columns], element)
        properties = {"kind": op.kind, "groups": integer_attr(parts)}
        copies = build.add(ScatterOp, [neutral, index, updates], neutral.type, **properties)
        total = build.reduce(build.reshape(copies, [parts, rows, columns]), kind, [0])
        result = build.add(ELEMENTWISE[REDUCTION_FUNCTION[kind]], [op.x, total], op.x.type)
        rewriter.replace(op, (), [result])


def tasks(shape: Sequence[int], dims: Sequence[int], width: int, machine: Machine) -> int:
    """Over how many cores the results of a reduction can be divided, `width` bytes to an element: where rows lie
    side by side, a core gains nothing by reading less of them than what memory moves at once."""
    results = size([n for d, n in enumerate(shape) if d not in dims])
    inner = size(shape[max(dims, default=-1) + 1 :])
    return results // max(inner, 1) * -(-inner * width // machine.gm_align) if inner > 1 else results


def widest_run(shape: Sequence[int], dims: Sequence[int], joined: bool) -> list[int]:
    """The dims with most elements that can be cut as one: those next to each other if `joined`, or else one."""
    runs = [[dims[0]]]
    for a, b in pairwise(dims):
        if joined and b == a + 1:
            runs[-1].append(b)
        else:
            runs.append([b])
    return max(runs, key=lambda run: size([shape[d] for d in run]))


def even_parts(extent: int, most: int) -> int | None:
    """The largest number of equal parts, if that is more than half of `most`."""
    return next((p for p in range(min(most, extent), most // 2, -1) if extent % p == 0), None)
