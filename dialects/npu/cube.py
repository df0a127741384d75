"""Instructions around the cube: l1 to l0a and l0b, the product, and the accumulator's way to ub on a fused core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, var_operand_def

from ...machine import Machine
from ..base import to_ints
from ..dtypes import dtype_name, numbers_in, size
from ..shapes import check_box, check_extract, check_handed_on, check_product, check_row_move, transposes
from .buffers import SlotOp
from .interface import Cost, NpuOp, SourceBox, buffer, parts, products_in
from .legality import (
    refuse_drain,
    refuse_parted,
    refuse_path,
    refuse_product,
    refuse_unit_flag,
)
from .types import BufferType, Pipe


@irdl_op_definition
class LoadL0Op(NpuOp):
    """l1 -> l0a or l0b: the box of `sizes` at `at [...]`, as a matrix.

    With `window`, the box is repeated for each position of a window over the source (image to column): row = box
    position, column = (window position, innermost position). `transpose` swaps rows and columns.
    """

    name = "npu.load_l0"
    PIPE: ClassVar[Pipe] = Pipe.MTE1
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)
    window = opt_prop_def(DenseArrayBase)
    window_steps = opt_prop_def(DenseArrayBase)
    transpose = opt_prop_def(IntegerAttr)

    def verify_(self) -> None:
        super().verify_()
        if buffer(self.source).space != "l1" or buffer(self.dest).space not in ("l0a", "l0b"):
            raise self.error(
                f"moves l1 to l0a or l0b, not {buffer(self.source).space} to {buffer(self.dest).space}"
            )
        source, dest, sizes = buffer(self.source), buffer(self.dest), to_ints(self.sizes)
        moved = size(sizes) * size(to_ints(self.window))
        if moved != size(dest.shape):
            raise self.error(f"moves {moved} elements into {self.dest.type}")
        rows, columns = dest.shape[::-1] if transposes(self) else dest.shape
        if not any(size(sizes[:k]) == rows for k in range(len(sizes) + 1)):
            raise self.error(f"makes a matrix of {rows} x {columns} of a box of {list(sizes)}, which has no such rows")
        if source.element != dest.element:
            raise self.error(f"moves {source} to {dest}, and converts nothing")
        check_box(self, source.shape, sizes, len(self.linear()))

    def source_box(self) -> SourceBox:
        return SourceBox.of(self)

    def matrices(self) -> Sequence[tuple[SSAValue, int]]:
        return [(self.source, self._column_dims()), (self.dest, 1)]

    def _column_dims(self) -> int:
        """How many of the source's last dimensions are columns of its matrix: the channels of an image, whose positions
        are rows, else those behind the rows that the box has. A dimension between them of which the box has one
        position is of the summed ones, along which steps go."""
        sizes = to_ints(self.sizes)
        if self.window is not None:
            return 1
        transposed = transposes(self)
        rows = buffer(self.dest).shape[transposed]
        splits = [n for n in range(len(sizes) + 1) if size(sizes[:n]) == rows]
        summed_rows = transposed == (buffer(self.dest).space == "l0a")
        return len(sizes) - (max(splits) if summed_rows else min(splits))

    def refused_by(self, machine: Machine) -> str | None:
        dest = buffer(self.dest)
        left = dest.space == "l0a"
        return refuse_path(machine, "l1", dest.space, self.PIPE) or refuse_parted(
            dest.dtype(), dest.shape[left], transposes(self) == left
        )

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.cost_of_part(machine, indices, (None, None))

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        dest = buffer(self.dest)
        rows, cols = parts(dest.shape, valid)
        move = machine.moves[("l1", dest.space)]
        fractals = fractal_bytes(dest, rows, cols, machine)
        slot = self.source.owner
        overlapped = isinstance(slot, SlotOp) and buffer(slot.source).slots > 1
        cycles = move.cycles(fractals, overlapped=overlapped) if fractals else 1
        return Cost(cycles, elements=rows * cols)


@irdl_op_definition
class LoadRowOp(NpuOp):
    """l1 -> bt or fb: the box of `sizes` at `at [...]`, as a row of numbers for the columns of a product."""

    name = "npu.load_row"
    PIPE: ClassVar[Pipe] = Pipe.MTE1
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)

    def verify_(self) -> None:
        super().verify_()
        source, dest = buffer(self.source), buffer(self.dest)
        check_row_move(self, source, dest, to_ints(self.sizes), len(self.linear()))
        if source.element != dest.element:
            raise self.error(f"moves {source} to {dest}, and converts nothing")

    def source_box(self) -> SourceBox:
        return SourceBox.of(self)

    def refused_by(self, machine: Machine) -> str | None:
        return refuse_path(machine, "l1", buffer(self.dest).space, self.PIPE)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        dest = buffer(self.dest)
        return Cost(machine.moves["l1", dest.space].cycles(dest.slot_bytes), elements=size(dest.shape))


def fractal_bytes(matrix: BufferType, rows: int, cols: int, machine: Machine) -> int:
    """Bytes of rows and columns of a matrix rounded up to whole fractals (16 x 32 bytes)."""
    name = dtype_name(matrix.element)
    k0 = machine.cube_k0.get(name, 16) // numbers_in(name)
    if matrix.space == "l0b":
        rows, cols = cols, rows
    return -(-rows // 16) * 16 * -(-cols // k0) * 32


@irdl_op_definition
class MmadOp(NpuOp):
    """acc (l0c) += a (l0a) x b (l0b); where the step `at [...]` is 0 the accumulator starts from zero, or each row of
    it from a `bias` in bt. With an `index` in l0b, b has the values that are kept of a 2:4 sparse matrix, and it has
    their positions (dialects/graph/sparsity.py). Both are further operands, in this order: index, bias.

    With `unit_flag` the last product before a drain that has one hands each fractal of the sums to it as soon as it is
    made, and the first one behind that drain begins each fractal as soon as it has left."""

    name = "npu.mmad"
    PIPE: ClassVar[Pipe] = Pipe.M
    ADDRESSED: ClassVar[bool] = True
    a = operand_def(BufferType)
    b = operand_def(BufferType)
    acc = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    unit_flag = opt_prop_def(UnitAttr)

    @property
    def bias(self) -> SSAValue | None:
        """What each row of the accumulator starts from; None for zero."""
        return next((v for v in self.main_operands()[3:] if buffer(v).space == "bt"), None)

    @property
    def index(self) -> SSAValue | None:
        """The positions of the values of b; None where b is dense."""
        return next((v for v in self.main_operands()[3:] if buffer(v).space == "l0b"), None)

    def sources(self) -> Sequence[SSAValue]:
        return [self.a, self.b, *self.main_operands()[3:]]

    def destinations(self) -> Sequence[SSAValue]:
        return [self.acc]

    def reads(self) -> Sequence[SSAValue]:
        return self.main_operands()

    def matrices(self) -> Sequence[tuple[SSAValue, int]]:
        return [(v, 1) for v in self.main_operands() if buffer(v).space != "bt"]

    def in_place(self) -> bool:
        return True

    def starts_fresh(self) -> tuple[int, SSAValue]:
        return 0, self.acc

    def is_unordered(self, machine: Machine) -> bool:
        """Sums of few fractals are still on their way when the next product begins with the first of them."""
        rows, columns = buffer(self.acc).shape
        return -(-rows // 16) * -(-columns // 16) < machine.unordered_sums

    def flagged_sums(self) -> SSAValue | None:
        return self.acc if self.unit_flag is not None else None

    def verify_(self) -> None:
        super().verify_()
        given = [buffer(v) for v in self.main_operands()]
        check_product(self, len(self.linear()), given[:3], given[3:])

    def arithmetic(self) -> str:
        return products_in(dtype_name(buffer(self.a).element), dtype_name(buffer(self.acc).element))

    def refused_by(self, machine: Machine) -> str | None:
        a, b, acc = (dtype_name(buffer(v).element) for v in (self.a, self.b, self.acc))
        return refuse_product(
            machine, a, b, acc, self.bias is not None, self.index is not None
        ) or refuse_unit_flag(machine, self.unit_flag)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.cost_of_part(machine, indices, (None, None, None))

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        m, k, n = parts((*buffer(self.a).shape, buffer(self.b).shape[1]), valid)
        if not m * k * n:
            return Cost(1)
        name = dtype_name(buffer(self.a).element)
        rate = machine.cube[name]
        fewer = 1 if self.index is None else machine.cube_sparse[name]
        k0, k = machine.cube_k0[name], -(-k * numbers_in(name) // fewer)
        padded = -(-m // 16) * 16 * (-(-n // 16) * 16) * (-(-k // k0) * k0)
        return Cost(machine.cube_fixed_cycles + -(-padded // rate.macs), macs=m * n * k)


@irdl_op_definition
class FixpipeL1Op(NpuOp):
    """l0c -> l1 through the fixpipe, converting the accumulator to the buffer's element type: an operand of the next
    product. `relu` and `unit_flag` are those of `npu.fixpipe`."""

    name = "npu.fixpipe_l1"
    PIPE: ClassVar[Pipe] = Pipe.FIX
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    relu = opt_prop_def(UnitAttr)
    unit_flag = opt_prop_def(UnitAttr)

    def verify_(self) -> None:
        super().verify_()
        check_handed_on(self, buffer(self.source), buffer(self.dest))

    def flagged_sums(self) -> SSAValue | None:
        return self.source if self.unit_flag is not None else None

    def matrices(self) -> Sequence[tuple[SSAValue, int]]:
        return [(self.source, 1), (self.dest, 1)]

    def refused_by(self, machine: Machine) -> str | None:
        total, dtype = buffer(self.source).dtype(), buffer(self.dest).dtype()
        return (
            refuse_path(machine, "l0c", "l1", self.PIPE)
            or refuse_unit_flag(machine, self.unit_flag)
            or refuse_drain(machine, total, dtype, relu=self.relu)
        )

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.cost_of_part(machine, indices, (None, None))

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        dest = buffer(self.dest)
        rows, cols = parts(dest.shape, valid)
        moved = fractal_bytes(dest, rows, cols, machine)
        return Cost(machine.moves["l0c", "l1"].cycles(moved) if moved else 1, elements=rows * cols)


@irdl_op_definition
class CopyL0cOp(NpuOp):
    """l0c -> ub on a fused core, converting the accumulator to the buffer's element type."""

    name = "npu.copy_l0c"
    PIPE: ClassVar[Pipe] = Pipe.V
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)

    def verify_(self) -> None:
        super().verify_()
        source, out = buffer(self.source), buffer(self.dest)
        if (source.space, out.space) != ("l0c", "ub"):
            raise self.error(f"copies l0c to ub, not {source.space} to {out.space}")
        check_extract(self, source.shape, to_ints(self.sizes), len(self.linear()), out.shape, out)

    def source_box(self) -> SourceBox:
        return SourceBox.of(self)

    def matrices(self) -> Sequence[tuple[SSAValue, int]]:
        return [(self.source, 1)]

    def refused_by(self, machine: Machine) -> str | None:
        total, drained = dtype_name(buffer(self.source).element), dtype_name(buffer(self.dest).element)
        return refuse_path(machine, "l0c", "ub", self.PIPE) or refuse_drain(machine, total, drained)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        move = machine.moves[("l0c", "ub")]
        dest = buffer(self.dest)
        return Cost(move.cycles(dest.slot_bytes), elements=size(dest.shape))
