"""Instructions of the vector unit on ub; a row of the machine's table says what each costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, var_operand_def

from ...machine import Banks, Machine
from ..base import integer, text, to_ints
from ..dtypes import dtype_name, itemsize, size
from ..elementwise import FUNCTIONS, REDUCTION_FUNCTION, Function, formula
from ..shapes import (
    check_arg_reduce,
    check_bits,
    check_broadcast,
    check_counted,
    check_extract,
    check_iota,
    check_lanes,
    check_mask,
    check_reduce,
    check_rounding,
    check_transpose,
    check_unpack,
    is_column_of,
    is_row_of,
)
from .buffers import AllocOp, whole_buffer
from .interface import Cost, NpuOp, SourceBox, buffer, parts, vector_dtype, vector_elements
from .legality import refuse_instruction, refuse_rounding
from .types import ROW_BYTES, BufferType, Pipe


class VectorOp(NpuOp):
    """An instruction of the vector unit; `instruction` is its row in the machine's table."""

    PIPE: ClassVar[Pipe] = Pipe.V
    INSTRUCTION: ClassVar[str] = ""
    MOVES: ClassVar[bool] = False
    """Whether it only moves, makes or converts elements."""

    @property
    def instruction(self) -> str:
        return self.INSTRUCTION

    def moves(self) -> bool:
        """Whether this instruction `MOVES`, whatever its properties say of its class."""
        return self.MOVES

    def computes_with(self) -> Sequence[SSAValue]:
        """The sources whose element types it computes in."""
        return self.sources()

    def arithmetic(self) -> str:
        return "" if self.moves() else vector_dtype(*self.computes_with())

    def instructions(self) -> Sequence[tuple[str, str]]:
        """What the vector unit executes: rows of the machine's table, each with an element type."""
        return ((self.instruction, vector_dtype(*self.main_operands())),)

    def refused_by(self, machine: Machine) -> str | None:
        return next(filter(None, (refuse_instruction(machine, *each) for each in self.instructions())), None)

    def rated_dtype(self, machine: Machine) -> str:
        """The element type whose rate the instruction has on a machine: the widest one that it touches."""
        return vector_dtype(*self.main_operands())

    def lanes(self) -> int:
        return max(vector_elements(buffer(v)) for v in self.main_operands())

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self._cost_of_lanes(machine, self.lanes())

    def starting_cycles(self, machine: Machine) -> int:
        """Cycles of its cost that its instructions take to start, however few lanes they have."""
        unit = machine.vector
        return sum(unit.cycles(*each, 0) for each in self.instructions() if unit.supports(*each))

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        shape = max((buffer(v) for v in self.main_operands()), key=vector_elements).shape
        whole, part = size(shape), size(parts(shape, valid))
        return self._cost_of_lanes(machine, -(-self.lanes() * part // whole)) if part else Cost(1)

    def _cost_of_lanes(self, machine: Machine, lanes: int) -> Cost:
        unit, dtype = machine.vector, self.rated_dtype(machine)
        cycles = unit.cycles(self.instruction, dtype, lanes)
        if unit.banks is not None and (more := self.bank_cycles(unit.banks)):
            wide = itemsize(vector_dtype(*self.main_operands()))
            cycles += math.ceil(more * -(-lanes * wide // unit.repeat_bytes))
        return Cost(cycles, elements=lanes)

    def bank_cycles(self, banks: Banks) -> float:
        """What a repeat takes more because its operands meet in the banks of ub. None before addresses are known, nor
        for what is as short as a window, nor where a slot moves a buffer to other banks."""
        read = [place for v in dict.fromkeys(self.sources()) if (place := _place(v, banks)) is not None]
        found = 0.0
        if any(banks.same_groups(a.start, b.start) for a, b in combinations(read, 2)):
            found += banks.read_cycles
        written = [place for v in self.destinations() if (place := _place(v, banks)) is not None]
        if any(len(a) == len(b) and banks.crossed(a.start, b.start) for a in read for b in written):
            found += banks.write_cycles
        return found

    def verify_(self) -> None:
        super().verify_()
        for v in self.main_operands():
            if buffer(v).space != "ub":
                raise self.error(f"works on ub, not {buffer(v).space}")


def _place(value: SSAValue, banks: Banks) -> range | None:
    """The addresses of an operand, of its first slot; None where they say nothing about the banks of all slots."""
    kind, alloc = buffer(value), whole_buffer(value).owner
    if vector_elements(kind) * itemsize(kind.element) <= banks.window_bytes:
        return None
    if not isinstance(alloc, AllocOp) or alloc.address is None:
        return None
    first, whole = integer(alloc.address), buffer(alloc.result)
    end = first + whole.slots * whole.slot_bytes
    moves = (
        whole.slot_bytes % (2 * banks.window_bytes)
        or first // banks.span_bytes != (end - 1) // banks.span_bytes
    )
    if whole.slots > 1 and moves:
        return None
    return range(first, first + whole.slot_bytes)


class ElementwiseVectorOp(VectorOp):
    """A scalar function of each element; a source may hold one element for all lanes (the instruction's scalar
    operand), and the destination may be one of the sources. One of two sources may be a row that is repeated: its
    address does not advance from one repeat to the next (a repeat stride of 0), so a repeat has no more than a row. Or
    a column: each of its elements is repeated to a block first, whose address does not advance within a row."""

    FUNCTION: ClassVar[Function]

    @property
    def instruction(self) -> str:
        return self.FUNCTION.name

    def in_place(self) -> bool:
        return True

    def moves(self) -> bool:
        return self.FUNCTION.flops == 0

    def computes_with(self) -> Sequence[SSAValue]:
        return self.sources()[self.FUNCTION.predicate :]

    def rated_dtype(self, machine: Machine) -> str:
        """Of an instruction between any two types, of different widths, the slower one has the rate."""
        widest = super().rated_dtype(machine)
        if self.FUNCTION.result != "any":
            return widest
        rates = machine.vector.rates.get(self.instruction, {})
        names = (widest, *(dtype_name(buffer(v).element) for v in self.main_operands()))
        return min(
            (n for n in names if n == widest or itemsize(n) < itemsize(widest)), key=lambda n: rates.get(n, 0)
        )

    def row(self) -> SSAValue | None:
        """The source that is repeated for each row of the destination, if there is one."""
        shape = buffer(self.destinations()[0]).shape
        return next((v for v in self.sources() if is_row_of(buffer(v).shape, shape)), None)

    def column(self) -> SSAValue | None:
        """The source that is repeated for each column of the destination, if there is one."""
        shape = buffer(self.destinations()[0]).shape
        return next((v for v in self.sources() if is_column_of(buffer(v).shape, shape)), None)

    def _cost_of_blocks(self, machine: Machine, column: SSAValue) -> int:
        """Cycles to repeat the elements of a column to blocks."""
        kind = buffer(column)
        lanes = size(kind.shape) * ROW_BYTES // itemsize(kind.element)
        return machine.vector.cycles("broadcast", kind.dtype(), lanes)

    def _cost_of_lanes(self, machine: Machine, lanes: int) -> Cost:
        """With a row or a column, each row of the destination takes whole repeats, and what a row has beyond one repeat
        further instructions, or each row one."""
        row, column = self.row(), self.column()
        if row is None and column is None:
            return super()._cost_of_lanes(machine, lanes)
        unit, dtype = machine.vector, self.rated_dtype(machine)
        dest = buffer(self.destinations()[0])
        held = vector_elements(dest) // max(size(dest.shape[:-1]), 1)
        each = max(unit.repeat_bytes // itemsize(vector_dtype(*self.main_operands())), 1)
        rows, repeats = -(-lanes // max(held, 1)), -(-held // each)
        one = unit.cycles(self.instruction, dtype, rows * repeats * each)
        more = one - unit.cycles(self.instruction, dtype, 0)
        cycles = one + (min(rows, repeats) - 1) * (one - more)
        if unit.banks is not None:
            cycles += math.ceil(self.bank_cycles(unit.banks) * rows * repeats)
        if column is not None:
            cycles += self._cost_of_blocks(machine, column)
        return Cost(cycles, elements=lanes)

    def bank_cycles(self, banks: Banks) -> float:
        """A row, or a block of a column, stays where it is while the other source goes on: they meet in every other
        repeat."""
        repeated = self.row() is not None or self.column() is not None
        return banks.read_cycles / 2 if repeated else super().bank_cycles(banks)

    def verify_(self) -> None:
        super().verify_()
        shapes = [buffer(v).shape for v in self.sources()]
        check_lanes(self, buffer(self.destinations()[0]).shape, shapes, columns=True)
        check_bits(
            self, self.FUNCTION, buffer(self.sources()[0]).element, buffer(self.destinations()[0]).element
        )


def _elementwise(function: Function) -> type[ElementwiseVectorOp]:
    names = {1: ("x",), 2: ("lhs", "rhs"), 3: ("first", "second", "third")}[function.arity]
    body = {
        "__module__": __name__,
        "__doc__": f"`{function.name}` of each element, on the vector unit: {formula(function.name)}.",
        "name": f"npu.v{function.name}",
        **{n: operand_def(BufferType) for n in (*names, "dest")},
    }
    made = irdl_op_definition(
        type(f"V{function.name.title().replace('_', '')}Op", (ElementwiseVectorOp,), body)
    )
    made.FUNCTION = function
    return made


ELEMENTWISE: dict[str, type[ElementwiseVectorOp]] = {f.name: _elementwise(f) for f in FUNCTIONS.values()}


@irdl_op_definition
class VRoundToOp(VectorOp):
    """Converts, rounding by a rule. `even`: to the nearest integer, halves to the even one, and within the range of the
    destination's type. `odd`: to a narrower float, cut off towards 0, with a last bit of 1 where that lost something;
    what is rounded once more then becomes what it would have at once, if it has two bits less."""

    name = "npu.vround_to"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    mode = prop_def(StringAttr)
    INSTRUCTION: ClassVar[str] = "convert"

    def verify_(self) -> None:
        super().verify_()
        source, dest = buffer(self.source), buffer(self.dest)
        types = source.dtype(), dest.dtype()
        check_rounding(self, text(self.mode), (source.shape, dest.shape), types)

    def refused_by(self, machine: Machine) -> str | None:
        types = buffer(self.source).dtype(), buffer(self.dest).dtype()
        return super().refused_by(machine) or refuse_rounding(machine, text(self.mode), *types)


@irdl_op_definition
class VUnpackOp(VectorOp):
    """The numbers of pairs (i4x2) as f16, twice as many along the last dimension; of a pair the lower half first."""

    name = "npu.vunpack"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    INSTRUCTION: ClassVar[str] = "unpack"
    MOVES: ClassVar[bool] = True

    def verify_(self) -> None:
        super().verify_()
        check_unpack(self, buffer(self.source), buffer(self.dest))


@irdl_op_definition
class VBroadcastOp(VectorOp):
    """Repeats size-1 dimensions of the source to fill the destination."""

    name = "npu.vbroadcast"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    INSTRUCTION: ClassVar[str] = "broadcast"
    MOVES: ClassVar[bool] = True

    def verify_(self) -> None:
        super().verify_()
        check_broadcast(self, buffer(self.source).shape, buffer(self.dest).shape)


@irdl_op_definition
class VReduceOp(VectorOp):
    """Combines along `dims`, which keep size 1 in the destination: the first `counted` elements along each of them, or
    all."""

    name = "npu.vreduce"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    kind = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase)
    counted = opt_prop_def(DenseArrayBase)

    @property
    def instruction(self) -> str:
        """Along the innermost dimension lanes of a register are combined; along others, whole registers. Many rows
        at once are halved first, which a single one is not."""
        shape, dims = buffer(self.source).shape, to_ints(self.dims)
        inner = max((d for d, n in enumerate(shape) if n != 1), default=0)
        if inner not in dims:
            return REDUCTION_FUNCTION[text(self.kind)]
        one = "one_" if size(buffer(self.dest).shape) == 1 else ""
        return f"reduce_{one}{text(self.kind)}"

    def verify_(self) -> None:
        super().verify_()
        source, out = buffer(self.source).shape, buffer(self.dest).shape
        check_reduce(self, text(self.kind), source, to_ints(self.dims), out, self.dest.type)
        check_counted(self, source, to_ints(self.dims), self.counted)


@irdl_op_definition
class VArgReduceOp(VectorOp):
    """Extreme value along `dim`, of its first `counted` elements or of all, and its first index, both with size 1."""

    name = "npu.varg_reduce"
    N_OUTPUTS: ClassVar[int] = 2
    source = operand_def(BufferType)
    value = operand_def(BufferType)
    index = operand_def(BufferType)
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    counted = opt_prop_def(DenseArrayBase)
    INSTRUCTION: ClassVar[str] = "arg_reduce"

    def verify_(self) -> None:
        super().verify_()
        outs = [(buffer(v).shape, v.type) for v in (self.value, self.index)]
        check_arg_reduce(self, text(self.kind), buffer(self.source).shape, integer(self.dim), outs)
        check_counted(self, buffer(self.source).shape, [integer(self.dim)], self.counted)


@irdl_op_definition
class VTransposeOp(VectorOp):
    """Destination dimension i is source dimension `perm[i]`."""

    name = "npu.vtranspose"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    perm = prop_def(DenseArrayBase)
    INSTRUCTION: ClassVar[str] = "transpose"
    MOVES: ClassVar[bool] = True

    def verify_(self) -> None:
        super().verify_()
        types = self.source.type, self.dest.type
        source, out = buffer(self.source).shape, buffer(self.dest).shape
        check_transpose(self, source, to_ints(self.perm), out, types)


@irdl_op_definition
class VIotaOp(VectorOp):
    """Each element is its coordinate along `dim` times `step`, plus `at [...]`."""

    name = "npu.viota"
    ADDRESSED: ClassVar[bool] = True
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    dim = prop_def(IntegerAttr)
    step = prop_def(IntegerAttr)
    INSTRUCTION: ClassVar[str] = "iota"
    MOVES: ClassVar[bool] = True

    def verify_(self) -> None:
        super().verify_()
        starts = len(self.linear())
        check_iota(self, buffer(self.dest).shape, integer(self.dim), starts, self.dest.type)


@irdl_op_definition
class VFillOp(VectorOp):
    """Fills the destination with `value`."""

    name = "npu.vfill"
    dest = operand_def(BufferType)
    value = prop_def(FloatAttr | IntegerAttr)
    INSTRUCTION: ClassVar[str] = "fill"
    MOVES: ClassVar[bool] = True


@irdl_op_definition
class VMaskOp(VectorOp):
    """Replaces elements whose coordinate, counted from `at [...]`, is negative or reaches `bounds` by `value`."""

    name = "npu.vmask"
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    bounds = prop_def(DenseArrayBase)
    value = prop_def(FloatAttr | IntegerAttr)
    INSTRUCTION: ClassVar[str] = "select"
    MOVES: ClassVar[bool] = True

    def verify_(self) -> None:
        super().verify_()
        source, out = buffer(self.source).shape, buffer(self.dest).shape
        check_mask(self, source, out, len(self.linear()), to_ints(self.bounds))


@irdl_op_definition
class VExtractOp(VectorOp):
    """Copies the box of `sizes` with `steps` at `at [...]` of the source. Elements that are not side by side are
    gathered."""

    name = "npu.vextract"
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = prop_def(DenseArrayBase)
    MOVES: ClassVar[bool] = True

    @property
    def instruction(self) -> str:
        apart = to_ints(self.steps)[-1:] not in ((), (1,)) and to_ints(self.sizes)[-1] != 1
        return "gather" if apart else "copy"

    def verify_(self) -> None:
        super().verify_()
        source, out = buffer(self.source).shape, buffer(self.dest).shape
        starts = len(self.linear())
        check_extract(self, source, to_ints(self.sizes), starts, out, self.dest.type)

    def source_box(self) -> SourceBox:
        return SourceBox.of(self)

    def lanes(self) -> int:
        return vector_elements(buffer(self.dest))
