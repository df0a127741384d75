"""Instructions of a core: one class per machine instruction, on the pipe it is issued to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from ...machine import Machine
from ..base import INDEX, FormattedOp, integer, text, to_ints
from ..dtypes import dtype_name, itemsize, size
from ..elementwise import FUNCTIONS, REDUCTION_FUNCTION, Function, formula
from ..shapes import (
    check_arg_reduce,
    check_bits,
    check_box,
    check_broadcast,
    check_extract,
    check_iota,
    check_lanes,
    check_mask,
    check_matmul,
    check_reduce,
    check_transpose,
)
from .interface import FREE, Cost, NpuOp, SourceBox, buffer, gm, gm_traffic, vector_dtype, vector_elements
from .types import BufferType, GmType, Pipe


@irdl_op_definition
class AllocOp(FormattedOp):
    """Reserves a buffer in its space; `address` (bytes from the start of the space) comes with npu-allocate."""

    name = "npu.alloc"
    address = opt_prop_def(IntegerAttr)
    result = result_def()

    def verify_(self) -> None:
        if not isinstance(self.result.type, BufferType):
            raise self.error(f"gives a !npu.buffer, not {self.result.type}")


@irdl_op_definition
class SlotOp(FormattedOp):
    """The slot of a multi-buffer that the counter `at [...]` selects, modulo the number of slots."""

    name = "npu.slot"
    ADDRESSED: ClassVar[bool] = True
    source = operand_def()
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def verify_(self) -> None:
        src, out = self.source.type, self.result.type
        if not isinstance(src, BufferType) or not isinstance(out, BufferType):
            raise self.error("needs buffers")
        if out != BufferType.of(src.shape, src.element, src.space):
            raise self.error(f"gives one slot of {src}, not {out}")


@irdl_op_definition
class ViewOp(FormattedOp):
    """A strided view of a whole device tensor; moves nothing."""

    name = "npu.view"
    source = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def verify_(self) -> None:
        src, out = self.source.type, self.result.type
        if not isinstance(src, GmType) or not isinstance(out, GmType):
            raise self.error("needs device tensors")
        check_view(self, src, out)


def check_view(op: FormattedOp, src: GmType, out: GmType) -> None:
    """A view must stay inside its dense source. Raises VerifyException."""
    if not src.dense:
        raise op.error(f"needs a dense source, got {src}")
    if src.element != out.element:
        raise op.error(f"cannot change the element type from {src.element} to {out.element}")
    if 0 in out.shape:
        return
    reach = [(n - 1) * s for n, s in zip(out.shape, out.strides, strict=True)]
    low = out.offset + sum(r for r in reach if r < 0)
    high = out.offset + sum(r for r in reach if r > 0)
    if low < 0 or high >= size(src.shape):
        raise op.error(f"reaches elements {low}..{high} of a source of {size(src.shape)}")


class TransferOp(NpuOp):
    """Moves a box of a device tensor, `sizes` elements from `at [...]` with `steps` between them."""

    ADDRESSED: ClassVar[bool] = True
    DEVICE_OPERAND: ClassVar[int]

    @property
    def view(self) -> GmType:
        return gm(self.main_operands()[self.DEVICE_OPERAND])

    @property
    def box_sizes(self) -> tuple[int, ...]:
        attr = self.properties["sizes"]
        assert isinstance(attr, DenseArrayBase)
        return to_ints(attr)

    @property
    def box_steps(self) -> tuple[int, ...]:
        attr = self.properties.get("steps")
        assert attr is None or isinstance(attr, DenseArrayBase)
        return to_ints(attr) if attr is not None else (1,) * len(self.box_sizes)

    def tile(self) -> SSAValue:
        return self.main_operands()[1 - self.DEVICE_OPERAND]

    def verify_(self) -> None:
        super().verify_()
        rank = len(self.view.shape)
        if not len(self.box_sizes) == len(self.box_steps) == len(self.linear().rows) == rank:
            raise self.error(f"needs an offset, a size and a step for each of {rank} dimensions")
        if size(self.box_sizes) != size(buffer(self.tile()).shape):
            raise self.error(f"moves {size(self.box_sizes)} elements to or from {self.tile().type}")

    def alignment(self) -> int:
        """Bytes that divide the start of the box, wherever it is."""
        width = itemsize(self.view.element)
        found = self.view.offset * width
        for row, stride in zip(self.linear().rows, self.view.strides, strict=True):
            found = math.gcd(found, *(c * stride * width for c in row))
        return found

    def move_cost(self, machine: Machine, indices: Sequence[int], write: bool) -> Cost:
        offsets = self.linear().evaluate(indices)
        moved = gm_traffic(self.view, offsets, self.box_sizes, self.box_steps, machine, self.alignment())
        space = buffer(self.tile()).space
        move = machine.moves[(space, "gm") if write else ("gm", space)]
        cycles = move.cycles(moved.bytes, moved.runs) if moved.bytes else 1
        return Cost(
            cycles,
            moved.bytes,
            moved.wanted,
            moved.bus,
            move.miss_cycles,
            move.shared_bytes_per_cycle,
            write=write,
        )


class LoadOp(TransferOp):
    PIPE: ClassVar[Pipe] = Pipe.MTE2
    DEVICE_OPERAND: ClassVar[int] = 0
    TARGET_SPACES: ClassVar[tuple[str, ...]]

    def verify_(self) -> None:
        super().verify_()
        if buffer(self.tile()).space not in self.TARGET_SPACES:
            raise self.error(f"fills {' or '.join(self.TARGET_SPACES)}, not {buffer(self.tile()).space}")

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.move_cost(machine, indices, write=False)


@irdl_op_definition
class LoadNdOp(LoadOp):
    """gm -> ub, row-major; elements outside the tensor become `fill`."""

    name = "npu.load_nd"
    TARGET_SPACES: ClassVar[tuple[str, ...]] = ("ub",)
    source = operand_def(GmType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)
    fill = opt_prop_def(FloatAttr | IntegerAttr)


@irdl_op_definition
class LoadNd2NzOp(LoadOp):
    """gm -> l1, rearranged into fractals on the way; elements outside the tensor become `fill`."""

    name = "npu.load_nd2nz"
    TARGET_SPACES: ClassVar[tuple[str, ...]] = ("l1",)
    source = operand_def(GmType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)
    fill = opt_prop_def(FloatAttr | IntegerAttr)


@irdl_op_definition
class StoreNdOp(TransferOp):
    """ub -> gm; elements outside the tensor are not written."""

    name = "npu.store_nd"
    PIPE: ClassVar[Pipe] = Pipe.MTE3
    DEVICE_OPERAND: ClassVar[int] = 1
    source = operand_def(BufferType)
    dest = operand_def(GmType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)

    def verify_(self) -> None:
        super().verify_()
        if buffer(self.source).space != "ub":
            raise self.error(f"drains ub, not {buffer(self.source).space}")

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.move_cost(machine, indices, write=True)


@irdl_op_definition
class FixpipeOp(TransferOp):
    """l0c -> gm through the fixpipe, converting the accumulator to the tensor's element type."""

    name = "npu.fixpipe"
    PIPE: ClassVar[Pipe] = Pipe.FIX
    DEVICE_OPERAND: ClassVar[int] = 1
    source = operand_def(BufferType)
    dest = operand_def(GmType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)

    def verify_(self) -> None:
        super().verify_()
        if buffer(self.source).space != "l0c":
            raise self.error(f"drains l0c, not {buffer(self.source).space}")

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.move_cost(machine, indices, write=True)


@irdl_op_definition
class LoadIndirectOp(NpuOp):
    """gm -> ub: for each index i of the first buffer, the box of `sizes` that starts i elements into the tensor."""

    name = "npu.load_indirect"
    PIPE: ClassVar[Pipe] = Pipe.MTE2
    source = operand_def(GmType)
    index = operand_def(BufferType)
    dest = operand_def(BufferType)
    sizes = prop_def(DenseArrayBase)

    def verify_(self) -> None:
        count = size(buffer(self.index).shape) * size(to_ints(self.sizes))
        if count != size(buffer(self.dest).shape):
            raise self.error(f"gives {count} elements, but the destination is {self.dest.type}")

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        view, sizes = gm(self.source), to_ints(self.sizes)
        n = size(buffer(self.index).shape)
        each = gm_traffic(view, [0] * len(sizes), sizes, [1] * len(sizes), machine, itemsize(view.element))
        move = machine.moves[("gm", "ub")]
        cycles = n * move.cycles(each.bytes, each.runs)
        return Cost(cycles, n * each.bytes, n * each.wanted, n * each.bus, move.miss_cycles)


@irdl_op_definition
class LoadScalarOp(NpuOp):
    """One integer of a device tensor, clamped to [low, high], as an index of the scalar unit."""

    name = "npu.load_scalar"
    PIPE: ClassVar[Pipe] = Pipe.S
    ADDRESSED: ClassVar[bool] = True
    N_OUTPUTS: ClassVar[int] = 0
    source = operand_def(GmType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    low = prop_def(IntegerAttr)
    high = prop_def(IntegerAttr)
    result = result_def(INDEX)

    def index_operands(self) -> Sequence[SSAValue]:
        return self.operands[1:]

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        move = machine.moves[("gm", "ub")]
        return Cost(
            move.fixed_cycles,
            machine.burst_bytes,
            gm(self.source).bytes // max(size(gm(self.source).shape), 1),
            machine.burst_bytes,
        )


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
        moved = size(to_ints(self.sizes)) * size(to_ints(self.window))
        if moved != size(buffer(self.dest).shape):
            raise self.error(f"moves {moved} elements into {self.dest.type}")
        check_box(self, buffer(self.source).shape, to_ints(self.sizes))

    def source_box(self) -> SourceBox:
        return SourceBox.of(self)

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


def parts(shape: Sequence[int], valid: Sequence[int | None]) -> list[int]:
    """Extents with what holds data in place of the whole."""
    return [n if v is None else v for n, v in zip(shape, valid, strict=True)]


def fractal_bytes(matrix: BufferType, rows: int, cols: int, machine: Machine) -> int:
    """Bytes of rows and columns of a matrix rounded up to whole fractals (16 x 32 bytes)."""
    name = dtype_name(matrix.element)
    k0 = machine.cube_k0.get(name, 16)
    if matrix.space == "l0b":
        rows, cols = cols, rows
    return -(-rows // 16) * 16 * -(-cols // k0) * 32


@irdl_op_definition
class MmadOp(NpuOp):
    """acc (l0c) += a (l0a) x b (l0b); where the step `at [...]` is 0 the accumulator starts from zero."""

    name = "npu.mmad"
    PIPE: ClassVar[Pipe] = Pipe.M
    ADDRESSED: ClassVar[bool] = True
    a = operand_def(BufferType)
    b = operand_def(BufferType)
    acc = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)

    def reads(self) -> Sequence[SSAValue]:
        return self.main_operands()

    def in_place(self) -> bool:
        return True

    def starts_fresh(self) -> tuple[int, SSAValue]:
        return 0, self.acc

    def verify_(self) -> None:
        super().verify_()
        spaces = tuple(buffer(v).space for v in self.main_operands())
        if spaces != ("l0a", "l0b", "l0c"):
            raise self.error(f"needs operands in l0a, l0b, l0c, got {', '.join(spaces)}")
        check_matmul(self, *(buffer(v).shape for v in self.main_operands()))

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.cost_of_part(machine, indices, (None, None, None))

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        m, k, n = parts((*buffer(self.a).shape, buffer(self.b).shape[1]), valid)
        if not m * k * n:
            return Cost(1)
        name = dtype_name(buffer(self.a).element)
        rate = machine.cube[name]
        k0 = machine.cube_k0[name]
        padded = -(-m // 16) * 16 * (-(-n // 16) * 16) * (-(-k // k0) * k0)
        return Cost(machine.cube_fixed_cycles + -(-padded // rate.macs), macs=m * n * k)


class VectorOp(NpuOp):
    """An instruction of the vector unit; `instruction` is its row in the machine's table."""

    PIPE: ClassVar[Pipe] = Pipe.V
    INSTRUCTION: ClassVar[str] = ""

    @property
    def instruction(self) -> str:
        return self.INSTRUCTION

    def lanes(self) -> int:
        return max(vector_elements(buffer(v)) for v in self.main_operands())

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self._cost_of_lanes(machine, self.lanes())

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        shape = max((buffer(v) for v in self.main_operands()), key=vector_elements).shape
        whole, part = size(shape), size(parts(shape, valid))
        return self._cost_of_lanes(machine, -(-self.lanes() * part // whole)) if part else Cost(1)

    def _cost_of_lanes(self, machine: Machine, lanes: int) -> Cost:
        unit, dtype = machine.vector, vector_dtype(*self.main_operands())
        cycles = unit.cycles(self.instruction, dtype, lanes)
        if unit.bank_window_bytes and self.sources_collide(unit.bank_window_bytes):
            cycles += -(-lanes * itemsize(dtype) // unit.repeat_bytes)  # each repeat is read twice
        return Cost(cycles, elements=lanes)

    def sources_collide(self, window: int) -> bool:
        """Whether two sources lie in the same group of banks all along: their first windows have the same parity.
        False before addresses are known, and where a slot of a buffer moves it from one group to the other."""
        places: set[int] = set()
        wide = [
            v for v in self.sources() if vector_elements(buffer(v)) * itemsize(buffer(v).element) > window
        ]
        for value in dict.fromkeys(wide):
            alloc = value.owner.source.owner if isinstance(value.owner, SlotOp) else value.owner
            if not isinstance(alloc, AllocOp) or alloc.address is None:
                return False
            kind = buffer(alloc.result)
            if kind.slots > 1 and kind.slot_bytes // window % 2:
                return False
            place = integer(alloc.address) // window % 2
            if place in places:
                return True
            places.add(place)
        return False

    def verify_(self) -> None:
        super().verify_()
        for v in self.main_operands():
            if buffer(v).space != "ub":
                raise self.error(f"works on ub, not {buffer(v).space}")


class ElementwiseVectorOp(VectorOp):
    """A scalar function of each element; a source may hold one element for all lanes (the instruction's scalar
    operand), and the destination may be one of the sources."""

    FUNCTION: ClassVar[Function]

    @property
    def instruction(self) -> str:
        return self.FUNCTION.name

    def in_place(self) -> bool:
        return True

    def verify_(self) -> None:
        super().verify_()
        check_lanes(self, buffer(self.destinations()[0]).shape, [buffer(v).shape for v in self.sources()])
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
class VBroadcastOp(VectorOp):
    """Repeats size-1 dimensions of the source to fill the destination."""

    name = "npu.vbroadcast"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    INSTRUCTION: ClassVar[str] = "broadcast"

    def verify_(self) -> None:
        super().verify_()
        check_broadcast(self, buffer(self.source).shape, buffer(self.dest).shape)


@irdl_op_definition
class VReduceOp(VectorOp):
    """Combines along `dims`, which keep size 1 in the destination."""

    name = "npu.vreduce"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    kind = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase)

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


@irdl_op_definition
class VArgReduceOp(VectorOp):
    """Extreme value along `dim` and its first index, both with size 1 there."""

    name = "npu.varg_reduce"
    N_OUTPUTS: ClassVar[int] = 2
    source = operand_def(BufferType)
    value = operand_def(BufferType)
    index = operand_def(BufferType)
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    INSTRUCTION: ClassVar[str] = "arg_reduce"

    def verify_(self) -> None:
        super().verify_()
        outs = [(buffer(v).shape, v.type) for v in (self.value, self.index)]
        check_arg_reduce(self, text(self.kind), buffer(self.source).shape, integer(self.dim), outs)


@irdl_op_definition
class VTransposeOp(VectorOp):
    """Destination dimension i is source dimension `perm[i]`."""

    name = "npu.vtranspose"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    perm = prop_def(DenseArrayBase)
    INSTRUCTION: ClassVar[str] = "transpose"

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

    def verify_(self) -> None:
        super().verify_()
        check_iota(self, buffer(self.dest).shape, integer(self.dim), self.dest.type)


@irdl_op_definition
class VFillOp(VectorOp):
    """Fills the destination with `value`."""

    name = "npu.vfill"
    dest = operand_def(BufferType)
    value = prop_def(FloatAttr | IntegerAttr)
    INSTRUCTION: ClassVar[str] = "fill"


@irdl_op_definition
class VMaskOp(VectorOp):
    """Replaces elements whose coordinate, counted from `at [...]`, reaches `bounds` by `value`."""

    name = "npu.vmask"
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    bounds = prop_def(DenseArrayBase)
    value = prop_def(FloatAttr | IntegerAttr)
    INSTRUCTION: ClassVar[str] = "select"

    def verify_(self) -> None:
        super().verify_()
        source, out = buffer(self.source).shape, buffer(self.dest).shape
        check_mask(self, source, out, len(self.linear().rows), to_ints(self.bounds))


@irdl_op_definition
class VExtractOp(VectorOp):
    """Copies the box of `sizes` with `steps` at `at [...]` of the source."""

    name = "npu.vextract"
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = prop_def(DenseArrayBase)
    INSTRUCTION: ClassVar[str] = "copy"

    def verify_(self) -> None:
        super().verify_()
        source, out = buffer(self.source).shape, buffer(self.dest).shape
        check_extract(self, source, to_ints(self.sizes), out, self.dest.type)

    def source_box(self) -> SourceBox:
        return SourceBox.of(self)

    def lanes(self) -> int:
        return vector_elements(buffer(self.dest))


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
        check_extract(self, source.shape, to_ints(self.sizes), out.shape, out)

    def source_box(self) -> SourceBox:
        return SourceBox.of(self)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        move = machine.moves[("l0c", "ub")]
        dest = buffer(self.dest)
        return Cost(move.cycles(dest.slot_bytes), elements=size(dest.shape))


def check_pipes(op: NpuOp) -> None:
    """The pipes that a flag names exist. Raises VerifyException."""
    for key in ("source", "target"):
        if key in op.properties and text(op.properties[key]) not in Pipe.__members__:
            raise op.error(
                f"{key} {text(op.properties[key])!r} is not a pipe ({', '.join(Pipe.__members__)})"
            )


class SyncOp(NpuOp):
    """Orders two pipes of one core through event `event` + (counter modulo `slots`)."""

    ADDRESSED: ClassVar[bool] = True
    N_OUTPUTS: ClassVar[int] = 0

    def source_pipe(self) -> Pipe:
        return Pipe(text(self.properties["source"]))

    def target_pipe(self) -> Pipe:
        return Pipe(text(self.properties["target"]))

    def sources(self) -> Sequence[SSAValue]:
        return ()

    def destinations(self) -> Sequence[SSAValue]:
        return ()

    def verify_(self) -> None:
        super().verify_()
        check_pipes(self)
        if len(self.linear().rows) != 1:
            raise self.error(f"needs one slot number, has {len(self.linear().rows)}")
        event, slots = integer(self.properties["event"]), integer(self.properties["slots"])
        if event < 0 or slots < 1 or event + slots > 8:
            raise self.error(f"uses events {event}..{event + slots - 1}; a pipe pair has 0..7")

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return FREE


@irdl_op_definition
class SetFlagOp(SyncOp):
    """Raised by pipe `source` for pipe `target` when all it was given before is done."""

    name = "npu.set_flag"
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    source = prop_def(StringAttr)
    target = prop_def(StringAttr)
    event = prop_def(IntegerAttr)
    slots = prop_def(IntegerAttr)


@irdl_op_definition
class WaitFlagOp(SyncOp):
    """Holds pipe `target` until pipe `source` raised the flag, and consumes it."""

    name = "npu.wait_flag"
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    source = prop_def(StringAttr)
    target = prop_def(StringAttr)
    event = prop_def(IntegerAttr)
    slots = prop_def(IntegerAttr)


@irdl_op_definition
class BarrierOp(NpuOp):
    """Waits until all pipes of the core are idle."""

    name = "npu.barrier"
    PIPE: ClassVar[Pipe] = Pipe.S
    N_OUTPUTS: ClassVar[int] = 0

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return FREE


@irdl_op_definition
class SetCrossOp(NpuOp):
    """Tells the other cores of the block that pipe `source` finished what it was given (a counting flag)."""

    name = "npu.set_cross"
    N_OUTPUTS: ClassVar[int] = 0
    source = prop_def(StringAttr)
    event = prop_def(IntegerAttr)

    def verify_(self) -> None:
        super().verify_()
        check_pipes(self)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return FREE


@irdl_op_definition
class WaitCrossOp(NpuOp):
    """Holds pipe `target` until the block's other core set the event once more."""

    name = "npu.wait_cross"
    N_OUTPUTS: ClassVar[int] = 0
    target = prop_def(StringAttr)
    event = prop_def(IntegerAttr)

    def verify_(self) -> None:
        super().verify_()
        check_pipes(self)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return FREE
