"""What the cube and its fixpipe do to sums in the place of an epilogue.

The epilogues that they can express are chains: a bias, relu, a scaling to f32 numbers, relu, and a conversion, where an
integer is rounded to even, moved by its zero point and saturated before. Their values are those of the vector cores bit
for bit: relu and a scaling by a positive number may change places, as may relu and a rounding. A bias is where the sums
begin. Sums of floats are rounded otherwise then, so it is one of integers, or of floats whose sums are scaled, as those
of 8-bit floats are: their products have errors that are many times larger. 8-bit floats saturate on their way out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, UnitAttr, f32
from xdsl.ir import Operation, SSAValue

from ....dialects.base import integer_attr
from ....dialects.dtypes import dtype_name, is_float, itemsize, limits
from ....dialects.graph import ELEMENTWISE, FusionOp
from ....dialects.graph.interface import element_of
from ....dialects.npu.legality import refuse_drain
from ....machine import Machine
from ...forms.access import splat_of
from ...forms.back_to_back import is_relu
from ...forms.nests import Product, ProductNest, nest_of
from ..axes import behind_layout
from .columns import Columns, columns_of, known_factors, pack_factors
from .contraction_axes import accumulated_in, product_in
from .cube_schedule import COLUMNS


@dataclass(frozen=True)
class Drain:
    """Sums, begun as the `bias` of their column, negative ones as 0 with `relu`, times `factor` or that of their column
    in `scales`, and, where integers are stored, rounded to even, plus `zero`, saturated."""

    relu: bool = False
    factor: float | Columns | None = None
    zero: int = 0
    bias: Columns | None = None

    @property
    def number(self) -> float | None:
        """The factor of all sums, where it is one."""
        return None if isinstance(self.factor, Columns) else self.factor

    @property
    def scales(self) -> Columns | None:
        """The factors of the columns, where each has one."""
        return self.factor if isinstance(self.factor, Columns) else None

    @property
    def rows(self) -> dict[str, Columns]:
        """What there is for each column, by the memory space that has it."""
        return {space: row for space, row in (("bt", self.bias), ("fb", self.scales)) if row is not None}

    def refused_by(self, machine: Machine, multiplied: str, dtype: str) -> str | None:
        """Why a machine does not do so to the sums of products of a type that are stored as another; None where it
        does."""
        total = machine.accumulator(multiplied)
        if self.bias is not None and not machine.begins_as_bias(multiplied):
            return f"begins products of {multiplied} as a bias, which {machine.name} does not"
        factor = None if self.number is None else FloatAttr(self.number, f32)
        zero = integer_attr(self.zero) if self.zero else None
        relu = UnitAttr() if self.relu else None
        return refuse_drain(machine, total, dtype, factor, zero, relu, self.scales is not None)


def has_room(drain: Drain, columns: int, machine: Machine) -> bool:
    """Whether a machine has room, and the ways, for what there is for each of so many columns of a tile."""
    widths = {"bt": 4, "fb": 8}
    return all(
        space in machine.spaces
        and ("l1", space) in machine.moves
        and columns * widths[space] <= machine.spaces[space].bytes
        for space in drain.rows
    )


def drain_of(fusion: FusionOp, machine: Machine) -> Drain | None:
    """What the cube and its fixpipe do in the place of all that stands behind the product of a fusion; None where they
    cannot, or where nothing stands there."""
    return _drain_of(fusion, machine, packed=True)


@dataclass(frozen=True)
class PartialDrain:
    """What is done to sums on their way out of the cube before vector cores go on: `value` is what these are given, and
    `ops` are those that they have no part in."""

    drain: Drain
    value: SSAValue
    ops: frozenset[Operation]


def partial_drain_of(fusion: FusionOp, machine: Machine) -> PartialDrain | None:
    """What the cube and its fixpipe do before an epilogue: a bias, relu and a scaling of integers to f16, which halves
    what the vector cores load. None where they cannot, or where nothing is left for the vector cores."""
    yielded, anchor = fusion.body.block.last_op, product_in(fusion)
    if anchor is None or yielded is None or machine.fused or machine.scaled_drains is None:
        return None
    total = dtype_name(accumulated_in(anchor))
    chain = _Chain(fusion, anchor, total, machine, packed=True)
    drain = chain.to_half()
    if drain is None or any(behind_layout(v) is chain.end for v in yielded.operands):
        return None
    multiplied = dtype_name(element_of(anchor.lhs))
    if not has_room(drain, COLUMNS[-1], machine) or drain.refused_by(machine, multiplied, "f16") is not None:
        return None
    done: set[Operation] = set()
    value: SSAValue = anchor.result
    while value is not chain.end:
        user = value.get_user_of_unique_use()
        assert user is not None
        done.add(user)
        value = user.results[0]
    for op in reversed(list(fusion.body.block.ops)):  # what makes words into numbers is done with them
        if op is not anchor and op.results and all(u.operation in done for r in op.results for u in r.uses):
            done.add(op)
    return PartialDrain(drain, chain.end, frozenset(done))


def pack_for_drain(fusion: FusionOp, machine: Machine) -> None:
    """Brings the factors of columns into the fixpipe's form, where a drain can do all that stands behind the product of
    a fusion then."""
    drain = _drain_of(fusion, machine, packed=False)
    if drain is not None and drain.scales is not None:
        numbers = known_factors(drain.scales, fusion, machine)
        assert numbers is not None
        pack_factors(fusion, drain.scales, numbers)


def _drain_of(fusion: FusionOp, machine: Machine, packed: bool) -> Drain | None:
    """`drain_of`, with factors of columns that are words, or still numbers where they are not `packed`."""
    yielded, anchor = fusion.body.block.last_op, product_in(fusion)
    assert yielded is not None
    if anchor is None or machine.fused or machine.scaled_drains is None or len(yielded.operands) != 1:
        return None
    result = behind_layout(yielded.operands[0])
    if result is anchor.result:
        return None
    total = dtype_name(accumulated_in(anchor))
    chain = _Chain(fusion, anchor, total, machine, packed)
    drain = chain.drain()
    dtype = dtype_name(element_of(chain.end))
    if drain is None or chain.end is not result or not has_room(drain, COLUMNS[-1], machine):
        return None
    multiplied = dtype_name(element_of(anchor.lhs))
    return None if drain.refused_by(machine, multiplied, dtype) is not None else drain


class _Chain:
    """Follows the chain of elementwise ops from a product on, as far as the fixpipe can do what they do. `end` is the
    last value that was reached."""

    def __init__(self, fusion: FusionOp, anchor: Product, total: str, machine: Machine, packed: bool):
        self.fusion, self.anchor, self.machine = fusion, anchor, machine
        self.end: SSAValue = anchor.result
        self.total = total
        self.element = "ui64" if packed else "f32"
        self.known_nest: ProductNest | None = None

    @property
    def nest(self) -> ProductNest:
        """The loops of the product."""
        if self.known_nest is None:
            self.known_nest = nest_of(self.anchor)
        return self.known_nest

    def drain(self) -> Drain | None:
        """What the ops from the sums to the end of the chain do together; None where they are no such chain."""
        exact = self._type() == self.total
        bias = self._columns("add", self.total) if exact else None
        relu = self._relu()
        scaled = self._factor(relu) if exact else None
        if scaled is not None:
            return self._scaled(*scaled, bias)
        if bias is not None and self.total == "f32":
            return None
        if exact and self.total == "f32":
            self._next("convert")
        return Drain(self._relu() or relu, bias=bias)

    def to_half(self) -> Drain | None:
        """What the ops from the sums to numbers in f16 do together; None where they are no such chain."""
        if self._type() != self.total:
            return None
        bias, relu = self._columns("add", self.total), self._relu()
        scaled = self._factor(relu)
        if scaled is None or self._next("convert") is None or self._type() != "f16":
            return None
        factor, relu = scaled
        return Drain(relu, factor, bias=bias)

    def _factor(self, relu: bool) -> tuple[float | Columns, bool] | None:
        """Goes on behind a scaling of accumulators as f32 numbers, by 1 where they are only converted: the factors, and
        whether negative ones were 0 before. None where there is neither."""
        start = self.end
        if self.total == "f32" or (self._next("convert") is not None and self._type() == "f32"):
            relu = self._relu() or relu
            if (scaled := self._next("mul")) is not None and (factor := _number(scaled)) is not None:
                return factor, relu
            columns = self._columns("mul", self.element)
            if columns is not None and (
                columns.masked or known_factors(columns, self.fusion, self.machine) is not None
            ):
                return columns, relu
            if columns is None and (self.total != "f32" or self._peek("round_even") is not None):
                return 1.0, relu
        self.end = start
        return None

    def _columns(self, function: str, element: str) -> Columns | None:
        """Goes on behind an op of two, if it computes a function of the end and of a number of this type for each
        column."""
        op = self._peek(function)
        other = None if op is None else next((v for v in op.operands if v is not self.end), None)
        if op is None or other is None or splat_of(other) is not None:
            return None
        found = columns_of(other, op, self.fusion, self.nest)
        if found is None or dtype_name(found.element) != element:
            return None
        self.end = op.results[0]
        return found

    def _scaled(self, factor: float | Columns, relu: bool, bias: Columns | None) -> Drain | None:
        """From behind the scaling on. Negative numbers may become 0 there as well as before it where the factor is
        positive, as those of columns are."""
        positive = isinstance(factor, Columns) or factor > 0
        relu = self._relu(positive) or relu
        if self._next("round_even") is None:
            relu = self._relu(positive) or relu
            if self._saturated(relu and positive):
                return Drain(relu, factor, bias=bias)
            self._next("convert")
            return (
                None if _saturates(self._type()) else Drain(self._relu(positive) or relu, factor, bias=bias)
            )
        relu = self._relu(positive) or relu
        moved = self._next("add")
        zero = 0 if moved is None else _number(moved)
        if zero is None or not float(zero).is_integer():
            return None
        zero = int(zero)
        low, high = self._clamped(zero if relu and positive else -math.inf)
        if self._next("convert") is None or (dtype := self._type()) not in ("i8", "ui8"):
            return None
        least, most = limits(dtype)
        clipped = positive and low == zero != least
        if high != most or not (low == least or clipped):
            return None
        return Drain(relu or clipped, factor, zero, bias)

    def _saturated(self, positive: bool) -> bool:
        """Goes on behind a conversion to 8-bit floats of numbers clamped to what these hold; whether there is one."""
        start = self.end
        low, high = self._clamped(0 if positive else -math.inf)
        if self._next("convert") is not None and _saturates(dtype := self._type()):
            least, most = limits(dtype)
            if high == most and low in (least, 0 if positive else least):
                return True
        self.end = start
        return False

    def _clamped(self, low: float) -> tuple[float, float]:
        """The ends between which the next ops leave numbers that are at least `low`."""
        high = math.inf
        while True:
            if (op := self._peek("clamp")) is not None and op.operands[1] is self.end:
                ends = splat_of(op.operands[0]), splat_of(op.operands[2])
                if None in ends:
                    return low, high
                self.end = op.results[0]
            elif (op := self._next("max")) is not None:
                ends = _number(op), math.inf
            elif (op := self._next("min")) is not None:
                ends = -math.inf, _number(op)
            else:
                return low, high
            assert ends[0] is not None and ends[1] is not None
            low, high = (min(max(end, ends[0]), ends[1]) for end in (low, high))

    def _type(self) -> str:
        return dtype_name(element_of(self.end))

    def _relu(self, allowed: bool = True) -> bool:
        """Goes on behind all that makes negative numbers 0, if that is allowed; whether there is any."""
        found = False
        while allowed and (op := self._peek("max")) is not None and is_relu(op):
            self.end, found = op.results[0], True
        return found

    def _next(self, function: str) -> Operation | None:
        """Goes on behind the op, if it computes a function of the end alone, and of one number where it is of two."""
        op = self._peek(function)
        if op is None or (len(op.operands) > 1 and _number(op) is None):
            return None
        self.end = op.results[0]
        return op

    def _peek(self, function: str) -> Operation | None:
        """The op that computes a function of the end, where nothing else uses it."""
        user = self.end.get_user_of_unique_use()
        return user if isinstance(user, ELEMENTWISE[function]) else None


def _saturates(dtype: str) -> bool:
    """Whether sums leave the cube as the nearest number of a float type, never as infinity or NaN."""
    return is_float(dtype) and itemsize(dtype) == 1


def _number(op: Operation) -> float | None:
    """The operand of an op of two that is one known number."""
    return next((n for v in op.operands if (n := splat_of(v)) is not None), None)
