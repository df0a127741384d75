"""Scatters of many updates into tables that are far larger than what is on chip: rows for one place are brought
together by a sort, combined, and taken by the table.

Before:  %r = graph.scatter %x, %index, %updates {kind = "sum"} : [50257, 768] of [8192, 768]
After:   %i, %p = the numbers in order, and whose they are ; %u = graph.gather %updates, %p
         %z = graph.scatter 0, %local, %u {groups = 64} : each run of equal numbers of a chunk added up to one row
         %s = graph.scatter none, %i, %place {kind = "set"} : for each row of the table which row of %z it is
         %r = graph.gather %z, %s (combined with %x)

A kernel that keeps a part of the table on chip reads all updates for each part. Here every update is read twice and
every row of the table is written once. Updates of one place stay in order within a chunk; the rows of a run that goes
on over several chunks are combined afterwards, in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from xdsl.dialects.builtin import StringAttr, f32, i1, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer_attr, ints, text
from ...dialects.dtypes import dtype_name, itemsize, size, tensor
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.graph import ELEMENTWISE, ConcatOp, CumulateOp, GatherOp, IotaOp, ScatterOp, SortOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.sorting import key_cycles
from ...dialects.open_sizes import any_open
from ...machine import Machine
from ..forms.access import splat_of
from ..forms.tensor_builder import RewriteBuilder
from ..lower.indexed.gather import LARGEST_OFFSET
from ..lower.indexed.scatter import scatter_cycles
from ..lower.indexed.sort import fitting_slots
from ..patterns import GraphPattern

CHUNK = 128
"""Sorted updates that one batch of a scatter combines."""

NEUTRAL_ROW = 0
"""The row of each chunk's table, and so of all tables, into which nothing is put."""

KERNELS = 16
"""About so many kernels take the place of one, most of them short."""

EXACT = 1 << 24
"""Whole numbers below are exact in f32, which is sorted in half of the time of i32."""


class SortScatter(GraphPattern):
    """A scatter whose table is on chip part by part, each of which reads all updates, sorts these instead.

    It combines the rows of each place, and the table takes the row that is for it.
    """

    name = "sort-scatter"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ScatterOp, rewriter: PatternRewriter, /) -> None:
        (rows, columns), (count,) = shape_of(op.x), shape_of(op.index)
        if any_open((rows, columns, count)) or op.runs() > 1 or min(rows, columns) < 1 or count <= CHUNK:
            return
        if max(rows, 2 * count + 4 * CHUNK) * columns > LARGEST_OFFSET:
            return
        kind, element = text(op.kind), element_of(op.x)
        known = splat_of(op.x)
        neutral = (known or 0) if kind == "set" else identity(kind, dtype_name(element))
        if not takes_less(op, known == neutral, self.machine):
            return
        build = _ScatterBuilder(rewriter, self.machine, kind, neutral)
        numbers, order = build.sorted(op.index, rows)
        tables, places = build.combined(numbers, op.updates, order, rows)
        table = build.joined(tables)
        none = build.constant(NEUTRAL_ROW, [rows, 1], i32)
        places = build.reshape(places, [size(shape_of(places)), 1])
        chosen = build.scatter(none, numbers, places, "max")  # all places of a number are one
        chosen = build.reshape(chosen, [rows])
        result = build.rows_of(table, chosen)
        if known != neutral and kind == "set":
            there = build.compared("ne", chosen, build.constant(NEUTRAL_ROW, [rows], i32))
            there = build.broadcast(there, [rows, columns], [0])
            result = build.add(ELEMENTWISE["select"], [there, result, op.x], op.x.type)
        elif known != neutral:
            result = build.elementwise(REDUCTION_FUNCTION[kind], op.x, result)
        rewriter.replace(op, (), [result])


def takes_less(op: ScatterOp, fills: bool, machine: Machine) -> bool:
    """Whether to sort the updates of a scatter takes clearly less time than to read all of them for each part of the
    table. fills: whether the table is the neutral element everywhere, so that it need not be read."""
    (rows, columns), (count,), element = shape_of(op.x), shape_of(op.index), element_of(op.x)
    kind, width = text(op.kind), itemsize(element)
    now = _unsorted_cycles(rows, columns, count, element, kind, machine)
    if now is None:
        return True
    places = _unsorted_cycles(rows, 1, count, i32, "max", machine)
    own, table = count * columns * width, rows * columns * width
    written, read = 3 * own + table * (1 if fills else 2), 3 * own + table * (1 if fills else 3)
    cycles = written / machine.hbm_bytes_per_cycle + read / machine.l2_bytes_per_cycle
    cycles += (places or 0.0) + sort_cycles(count, _key_type(rows, count), machine)
    barriers = KERNELS * machine.barrier_microseconds(machine.share_of(machine.vector_cores))
    sorting = machine.cycles_to_microseconds(cycles) + barriers
    moved = 2 * table / machine.hbm_bytes_per_cycle
    return CLEARLY * sorting < machine.cycles_to_microseconds(max(now, moved))


def _unsorted_cycles(
    rows: int, columns: int, count: int, element: Attribute, kind: str, machine: Machine
) -> float | None:
    """Cycles of a scatter in parts of the table, or of copies of it where split-scatter makes some."""
    plain = scatter_cycles(rows, columns, count, element, kind, machine)
    copies = min(count // rows, machine.vector_cores)
    if kind == "set" or copies < 2:
        return plain
    split = scatter_cycles(rows, columns, count, element, kind, machine, copies)
    if split is None or plain is None:
        return plain
    moved = 2 * copies * rows * columns * itemsize(element) / machine.hbm_bytes_per_cycle
    return min(plain, split + moved)


CLEARLY = 1.5
"""How many times longer a scatter has to take than what is estimated for the kernels that take its place."""


def _key_type(rows: int, count: int) -> Attribute:
    return f32 if max(rows, 2 * count) < EXACT else i32


def sort_cycles(count: int, key: Attribute, machine: Machine) -> float:
    """Cycles to sort so many pairs of a number and a place by both."""
    length, passes = count, 1
    longest = longest_row(key, machine)
    while length > longest:
        _, length = columns_of(length, longest)
        passes *= 4
    each = key_cycles(machine, [dtype_name(key)] * 2, 1, length)
    return passes * each * -(-count // length // machine.vector_cores + 1)


def longest_row(key: Attribute, machine: Machine) -> int:
    """How many pairs of a number and a place are sorted at once."""
    length = 1
    while fitting_slots(1, 2 * length, 2 * length, [key, key], machine):
        length *= 2
    return length


def columns_of(count: int, longest: int) -> tuple[int, int]:
    """Columns (how many, their length) in which Leighton's columnsort sorts so many numbers: their length is a multiple
    of twice their number and at least twice the square of one less. They are no longer than `longest`, or else than
    what is sorted by columns itself."""
    most = longest
    while True:
        widest = isqrt(most // 2) + 1
        for number in range(max(-(-count // most), 2), widest + 1):
            length = max(-(-count // number), 2 * (number - 1) ** 2)
            length = -(-length // (2 * number)) * 2 * number
            if length <= most:
                return number, length
        most *= max(widest // 2, 2)


class _ScatterBuilder(RewriteBuilder):
    """Builds what takes the place of a scatter of a kind. neutral: what rows of tables are filled with."""

    def __init__(self, rewriter: PatternRewriter, machine: Machine, kind: str, neutral: float):
        super().__init__(rewriter)
        self.machine, self.kind, self.neutral = machine, kind, neutral

    def compared(self, name: str, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.add(ELEMENTWISE[name], [a, b], tensor(shape_of(a), i1))

    def select(self, first: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.add(ELEMENTWISE["select"], [first, a, b], a.type)

    def numbers_along(self, shape: Sequence[int], d: int) -> SSAValue:
        """The places along a dimension."""
        line = self.add(IotaOp, [], tensor([shape[d]], i32), dim=integer_attr(0))
        return self.broadcast(line, shape, [d])

    def plus(self, x: SSAValue, n: int) -> SSAValue:
        return self.elementwise("add", x, self.constant(n, shape_of(x), i32))

    def joined(self, tables: Sequence[SSAValue]) -> SSAValue:
        """Tables one behind the other."""
        if len(tables) == 1:
            return tables[0]
        rows, columns = sum(shape_of(t)[0] for t in tables), shape_of(tables[0])[1]
        kind = tensor([rows, columns], element_of(tables[0]))
        return self.add(ConcatOp, tables, kind, dim=integer_attr(0))

    def scatter(
        self, x: SSAValue, index: SSAValue, updates: SSAValue, kind: str, groups: int = 1
    ) -> SSAValue:
        told = {"groups": integer_attr(groups)} if groups > 1 else {}
        return self.add(ScatterOp, [x, index, updates], x.type, kind=StringAttr(kind), **told)

    def rows_of(self, table: SSAValue, places: SSAValue) -> SSAValue:
        """The rows of a table at some places."""
        (count,), columns = shape_of(places), shape_of(table)[1]
        return self.add(
            GatherOp,
            [table, places],
            tensor([count, columns], element_of(table)),
            offset_dims=ints([1]),
            collapsed_dims=ints([0]),
            x_batch=ints([]),
            indices_batch=ints([]),
            start_map=ints([0]),
            index_dim=integer_attr(1),
            slice_sizes=ints([1, columns]),
        )

    def sorted(self, index: SSAValue, rows: int) -> tuple[SSAValue, SSAValue]:
        """The numbers of updates in order, and which update each is of. Those of no row are `rows`, and last."""
        (count,) = shape_of(index)
        shape = [count]
        inside = self.elementwise(
            "and",
            self.compared("ge", index, self.constant(0, shape, i32)),
            self.compared("lt", index, self.constant(rows, shape, i32)),
        )
        keys = self.select(inside, index, self.constant(rows, shape, i32))
        key = _key_type(rows, count)
        pair = [self.convert(v, key) for v in (keys, self.numbers_along(shape, 0))]
        ordered = self._in_order([self.reshape(v, [1, count]) for v in pair], rows)
        numbers, places = (self.convert(self.reshape(v, shape), i32) for v in ordered)
        return numbers, places

    def _in_order(self, pair: Sequence[SSAValue], last: int) -> list[SSAValue]:
        """Rows of numbers, and their places, in order. last: a number that none is behind."""
        several, length = shape_of(pair[0])
        longest = longest_row(element_of(pair[0]), self.machine)
        if length <= longest:
            made = SortOp.create(
                operands=pair,
                result_types=[v.type for v in pair],
                properties={
                    "dim": integer_attr(1),
                    "keys": ints([0, 1]),
                    "descending": ints([0, 0]),
                    "total": ints([0, 0]),
                },
            )
            return list(self.insert(made).results)
        number, high = columns_of(length, longest)
        whole = number * high

        def columns(values: Sequence[SSAValue], count: int) -> list[SSAValue]:
            parts = self._in_order([self.reshape(v, [several * count, high]) for v in values], last)
            return [self.reshape(v, [several, count * high]) for v in parts]

        def transposed(values: Sequence[SSAValue], first: int, second: int) -> list[SSAValue]:
            apart = [self.reshape(v, [several, first, second]) for v in values]
            return [self.reshape(self.transpose(v, [0, 2, 1]), [several, whole]) for v in apart]

        def padded(values: Sequence[SSAValue], low: int, high: int) -> list[SSAValue]:
            ends = zip(values, ((-1, last), (0, 0)), strict=True)
            for_low = [self.pad(v, before, [0, low], [0, 0], [0, 0]) for v, (before, _) in ends]
            ends = zip(for_low, (last, 0), strict=True)
            return [self.pad(v, behind, [0, 0], [0, high], [0, 0]) for v, behind in ends]

        half = high // 2
        values = columns(padded(pair, 0, whole - length), number)
        values = columns(transposed(values, high, number), number)
        values = columns(transposed(values, number, high), number)
        values = columns(padded(values, half, half), number + 1)
        return [self.part(v, 1, half, length) for v in values]

    def combined(
        self, numbers: SSAValue, source: SSAValue, picked: SSAValue, last: int
    ) -> tuple[list[SSAValue], SSAValue]:
        """Of rows of `source` those that are picked, whose numbers are in order: tables that, one behind the other,
        have a row for each number, and where in them that of each picked row is."""
        (count,), columns, element = shape_of(numbers), shape_of(source)[1], element_of(source)
        chunk = min(CHUNK, count)
        chunks = -(-count // chunk)
        whole, high = chunks * chunk, chunk + 1
        shape = [chunks, chunk]
        ordered = self.reshape(self.pad(numbers, last, [0], [whole - count], [0]), shape)
        rows = self.rows_of(source, self.pad(picked, 0, [0], [whole - count], [0]))
        other = self.compared("ne", self.part(ordered, 1, 1, chunk - 1), self.part(ordered, 1, 0, chunk - 1))
        other = self.pad(self.convert(other, i32), 0, [0, 1], [0, 0], [0, 0])
        run = self.add(
            CumulateOp,
            [other],
            other.type,
            kind=StringAttr("sum"),
            dim=integer_attr(1),
            reverse=integer_attr(0),
        )
        first = self.elementwise("mul", self.numbers_along(shape, 0), self.constant(high, shape, i32))
        place = self.plus(self.elementwise("add", run, first), NEUTRAL_ROW + 1)
        neutral = self.constant(self.neutral, [chunks * high, columns], element)
        table = self.scatter(neutral, self.reshape(place, [whole]), rows, self.kind, chunks)
        if chunks > 1:
            more, place = self._over_chunks(ordered, run, place, table, last)
        else:
            more = []
        return [table, *more], self.part(self.reshape(place, [whole]), 0, 0, count)

    def _over_chunks(
        self, ordered: SSAValue, run: SSAValue, place: SSAValue, table: SSAValue, last: int
    ) -> tuple[list[SSAValue], SSAValue]:
        """Combines the first and the last run of each chunk with those of its neighbours: tables with these, and where
        the row of each number is among the table of all chunks and these."""
        chunks, chunk = shape_of(ordered)
        shape, ends = [chunks, chunk], [chunks, 2]

        def at_ends(values: SSAValue) -> SSAValue:
            """What the first and the last number of each chunk have."""
            columns = [self.reshape(self.part(values, 1, at, 1), [chunks]) for at in (0, chunk - 1)]
            is_first = self.compared("eq", self.numbers_along(ends, 1), self.constant(0, ends, i32))
            return self.select(is_first, *(self.broadcast(v, ends, [0]) for v in columns))

        picked = at_ends(place)
        if self.kind in ("sum", "prod"):  # a chunk of one run has it once
            again = self.compared("eq", at_ends(run), self.constant(0, ends, i32))
            behind = self.compared("eq", self.numbers_along(ends, 1), self.constant(1, ends, i32))
            untouched = self.elementwise(
                "mul", self.numbers_along(ends, 0), self.constant(chunk + 1, ends, i32)
            )
            picked = self.select(self.elementwise("and", again, behind), untouched, picked)
        flat = [self.reshape(v, [2 * chunks]) for v in (at_ends(ordered), picked)]
        more, places = self.combined(flat[0], table, flat[1], last)
        places = self.plus(self.reshape(places, ends), chunks * (chunk + 1))
        for at in (chunk - 1, 0):
            number, instead = (
                self.broadcast(self.reshape(self.part(v, 1, end, 1), [chunks]), shape, [0])
                for v, end in ((ordered, at), (places, min(at, 1)))
            )
            place = self.select(self.compared("eq", ordered, number), instead, place)
        return more, place
