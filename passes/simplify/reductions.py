"""Splits reductions and scatters to few values: cores cannot add to each other, so each makes a partial result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, text, to_ints
from ...dialects.dtypes import dtype_name, is_float, itemsize, size, tensor
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.graph import ELEMENTWISE, ArgReduceOp, BroadcastOp, IotaOp, ReduceOp, ScatterOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import ROW_BYTES
from ...dialects.open_sizes import choosing
from ...machine import Machine
from ..forms.tensor_builder import RewriteBuilder
from ..fusion.long_rows import ROW_VALUES
from ..lower.indexed.scatter import parts_of
from ..lower.schedule import even_parts
from ..patterns import GraphPattern
from ..pins import Pins, Schedule
from .prologues import ElementwisePrologue, cuts_across, prologue_of

MANY_ELEMENTS = 1 << 15
"""So many elements take a core longer than a second launch."""

MANY_UPDATES = 1 << 11
"""So many updates take a core longer than the launches that combine copies, and that number the rows of those."""


@dataclass(frozen=True)
class RowCut:
    """How the reduced rows of a tensor are cut among cores: the dimensions `run`, as one, into equal `parts`, and what
    is left. prologue: what makes the tensor, which is made in parts as well."""

    prologue: ElementwisePrologue
    run: Sequence[int]
    parts: int

    @property
    def shape(self) -> Sequence[int]:
        """That of the tensor."""
        return shape_of(self.prologue.value)

    @property
    def extent(self) -> int:
        """Places along the run."""
        return size([self.shape[d] for d in self.run])

    @property
    def length(self) -> int:
        """Places of a part."""
        return self.extent // self.parts

    @property
    def left(self) -> int:
        """Places behind the last part."""
        return self.extent - self.parts * self.length

    def cut(self, build: RewriteBuilder) -> SSAValue:
        """All parts: a dimension of parts, and one of places, where the run was."""
        return self._rows(build, 0, [self.parts, self.length])

    def rest(self, build: RewriteBuilder) -> SSAValue:
        """The places that are left: one dimension where the run was."""
        return self._rows(build, self.parts * self.length, [self.left])

    def _rows(self, build: RewriteBuilder, start: int, split: Sequence[int]) -> SSAValue:
        """The places along the run from `start` on, in another shape."""
        run, shape = self.run, self.shape
        at, before, behind = run[0], shape[: run[0]], shape[run[-1] + 1 :]
        made = [*before, *split, *behind]

        def taken(value: SSAValue) -> SSAValue:
            op = value.owner
            if isinstance(op, BroadcastOp) and not set(to_ints(op.dims)) & set(run):
                shift = len(split) - len(run)
                return build.broadcast(op.x, made, [d if d < at else d + shift for d in to_ints(op.dims)])
            x = value if len(run) == 1 else build.reshape(value, [*before, self.extent, *behind])
            return build.reshape(build.part(x, at, start, size(split)), made)

        return self.prologue.rebuilt(build, taken, made)


def row_cut(op: ReduceOp | ArgReduceOp, dims: Sequence[int], machine: Machine) -> RowCut | None:
    """How to cut what a reduction combines along `dims`; None where that gains nothing."""
    found = _row_cut(op, dims, machine)
    if found is None or found.parts < 2:
        return None
    return found if found.length * size([shape_of(op.x)[d] for d in dims if d not in found.run]) > 1 else None


@choosing()
def _row_cut(op: ReduceOp | ArgReduceOp, dims: Sequence[int], machine: Machine) -> RowCut | None:
    shape = shape_of(op.x)
    parts = machine.vector_cores // max(tasks(shape, dims, itemsize(element_of(op.x)), machine), 1)
    if parts < 2 or size(shape) * parts < MANY_ELEMENTS * machine.vector_cores:
        return None
    inner, reduced = size(shape[max(dims) + 1 :]), size([shape[d] for d in dims])
    if inner > 1 and reduced * ROW_BYTES * ROW_VALUES <= machine.spaces["ub"].bytes:
        return None  # whole rows fit on chip, where they can be one kernel with what makes or uses them
    prologue = prologue_of(op.x, op)
    run = widest_run(shape, dims, joined=True)
    if not all(cuts_across(leaf, run) for leaf in prologue.leaves()):
        run = widest_run(shape, dims, joined=False)
    even = even_parts(shape[run[0]], parts)
    if even is not None:
        run = run[:1]  # the other dimensions stay as they are
    extent = int(size([shape[d] for d in run]))
    return RowCut(prologue, run, int(even or even_parts(extent, parts) or min(parts, extent)))


class SplitReduce(GraphPattern):
    """A reduction that leaves cores idle is a part of the rows for each, then the partial results.

    Rows that are too few for one more of each part are reduced by themselves. What is elementwise before it is computed
    of the parts.
    """

    name = "split-reduce"

    @classmethod
    def allowed(cls, pins: Pins) -> bool:
        return not (isinstance(pins, Schedule) and pins.tile is not None)  # it says how rows are cut

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReduceOp, rewriter: PatternRewriter, /) -> None:
        dims, kind = to_ints(op.dims), text(op.kind)
        chosen = row_cut(op, dims, self.machine)
        if chosen is None:
            return
        run, at = chosen.run, chosen.run[0]
        others = [d if d < at else d + 1 - len(run) for d in dims if d not in run]
        build = RewriteBuilder(rewriter)
        partial = build.reduce(
            chosen.cut(build), kind, sorted([at + 1, *(d if d < at else d + 1 for d in others)])
        )
        result = build.reduce(partial, kind, [at - sum(d < at for d in others)])
        if chosen.left:
            rest = build.reduce(chosen.rest(build), kind, sorted([at, *others]))
            combine = ELEMENTWISE[REDUCTION_FUNCTION[kind]]
            result = build.add(combine, [result, rest], tensor(shape_of(rest), element_of(rest)))
        rewriter.replace(op, (), [result])


class SplitArgReduce(GraphPattern):
    """A search for the extreme of few rows that leaves cores idle is one in a part of the rows for each.

    The first of the parts that have the extreme says where it is; what is left behind them has it where it is beyond.
    """

    name = "split-arg-reduce"

    @classmethod
    def allowed(cls, pins: Pins) -> bool:
        return SplitReduce.allowed(pins)

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ArgReduceOp, rewriter: PatternRewriter, /) -> None:
        at, numbers = integer(op.dim), element_of(op.index)
        chosen = row_cut(op, [at], self.machine)
        if chosen is None:
            return
        build = RewriteBuilder(rewriter)

        def search(x: SSAValue, dim: int) -> tuple[SSAValue, SSAValue]:
            shape = [n for d, n in enumerate(shape_of(x)) if d != dim]
            types = [tensor(shape, element_of(x)), tensor(shape, numbers)]
            made = build.insert(
                ArgReduceOp.create(
                    operands=[x], result_types=types, properties={"kind": op.kind, "dim": integer_attr(dim)}
                )
            )
            return made.results[0], made.results[1]

        def compared(name: str, a: SSAValue, b: SSAValue) -> SSAValue:
            return build.add(ELEMENTWISE[name], [a, b], tensor(shape_of(a), i1))

        def select(first: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
            return build.add(ELEMENTWISE["select"], [first, a, b], a.type)

        values, places = search(chosen.cut(build), at + 1)
        value, part = search(values, at)
        shape = shape_of(places)
        part_of = build.add(IotaOp, [], tensor([shape[at]], numbers), dim=integer_attr(0))
        part_of = build.broadcast(part_of, shape, [at])
        kept = [d for d in range(len(shape)) if d != at]
        first = build.elementwise("mul", part_of, build.constant(chosen.length, shape, numbers))
        chooses = compared("eq", part_of, build.broadcast(part, shape, kept))
        least = build.constant(identity("min", dtype_name(numbers)), shape, numbers)
        index = build.reduce(select(chooses, build.elementwise("add", places, first), least), "min", [at])
        if chosen.left:
            other, place = search(chosen.rest(build), at)
            before = build.constant(chosen.extent - chosen.left, shape_of(place), numbers)
            wins = compared("gt" if text(op.kind) == "max" else "lt", other, value)
            if is_float(element_of(op.x)):
                nan, known = compared("ne", other, other), compared("eq", value, value)
                wins = build.elementwise("or", wins, build.elementwise("and", nan, known))
            index = select(wins, build.elementwise("add", place, before), index)
            value = select(wins, other, value)
        rewriter.replace(op, (), [value, index])


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
        if parts_of(rows * parts, columns, parts * length, itemsize(element), self.machine, parts) is None:
            return  # not even a copy of few columns is on chip whole, so that all updates would pass by each part
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
