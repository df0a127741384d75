"""Instructions between device memory and the memories of a core, and what their bytes cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, IntegerType, StringAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, var_operand_def

from ...machine import Machine
from ...machine.parts import ACCUMULATIONS
from ..base import INDEX, text, to_ints
from ..dtypes import dtype_name, itemsize, size
from ..open_sizes import any_open
from ..shapes import check_scaled
from .buffers import check_indirect, check_scalar
from .interface import FREE, Cost, NpuOp, buffer, gm, gm_traffic
from .legality import refuse_accumulation, refuse_drain, refuse_path, refuse_unit_flag
from .types import BufferType, GmType, Pipe


class TransferOp(NpuOp):
    """Moves a box of a device tensor, `sizes` elements from `at [...]` with `steps` between them."""

    ADDRESSED: ClassVar[bool] = True
    DEVICE_OPERAND: ClassVar[int]
    CONVERTS: ClassVar[bool] = False
    """Whether elements change their type on the way."""

    def refused_by(self, machine: Machine) -> str | None:
        space = buffer(self.tile()).space
        path = (space, "gm") if self.DEVICE_OPERAND else ("gm", space)
        return refuse_path(machine, *path, self.PIPE)

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
        if not len(self.box_sizes) == len(self.box_steps) == len(self.linear()) == rank:
            raise self.error(f"needs an offset, a size and a step for each of {rank} dimensions")
        if size(self.box_sizes) != size(buffer(self.tile()).shape):
            raise self.error(f"moves {size(self.box_sizes)} elements to or from {self.tile().type}")
        if not self.CONVERTS and self.view.element != buffer(self.tile()).element:
            raise self.error(f"moves {self.view.element} to or from {self.tile().type}, and converts nothing")

    def alignment(self) -> int:
        """Bytes that divide the start of the box, wherever it is."""
        width = itemsize(self.view.element)
        found = self.view.offset * width
        for offset, stride in zip(self.linear(), self.view.strides, strict=True):
            moves = (offset.constant, *(c for _, c in offset.terms))
            found = math.gcd(found, *(n * stride * width for n in moves))
        return found

    def move_cost(self, machine: Machine, indices: Sequence[int], write: bool) -> Cost:
        env = dict(zip(self.index_operands(), indices, strict=True))
        offsets = [offset.evaluate(env) for offset in self.linear()]
        moved = gm_traffic(self.view, offsets, self.box_sizes, self.box_steps, machine, self.alignment())
        space = buffer(self.tile()).space
        move = machine.moves[(space, "gm") if write else ("gm", space)]
        cycles = move.cycles(moved.bytes, moved.runs) if moved.bytes else 1
        return Cost(
            cycles,
            moved.bytes,
            moved.bus,
            move.missed_cycles(moved.bus, cycles),
            move.bypassed_cycles(moved.bus, moved.runs, cycles),
            move.shared_bytes_per_cycle,
            move.hbm_share,
            move.turn(moved.bytes, moved.bus, moved.runs),
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
    """gm -> ub or l1, row-major; elements outside the tensor become `fill`."""

    name = "npu.load_nd"
    TARGET_SPACES: ClassVar[tuple[str, ...]] = ("ub", "l1")
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

    def matrices(self) -> Sequence[tuple[SSAValue, int]]:
        return [(self.dest, 1)]


@irdl_op_definition
class FillL1Op(NpuOp):
    """Fills a buffer of l1 with `value`, on the pipe that loads it."""

    name = "npu.fill_l1"
    PIPE: ClassVar[Pipe] = Pipe.MTE2
    dest = operand_def(BufferType)
    value = prop_def(FloatAttr | IntegerAttr)

    def verify_(self) -> None:
        if buffer(self.dest).space != "l1":
            raise self.error(f"fills l1, not {buffer(self.dest).space}")

    def refused_by(self, machine: Machine) -> str | None:
        return refuse_path(machine, "gm", "l1", self.PIPE)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        moved = buffer(self.dest).slot_bytes
        return Cost(machine.moves["gm", "l1"].cycles(moved))


class StoreOp(TransferOp):
    """Moves a box to a device tensor. With `accumulate` each element becomes the sum, or the larger or the smaller one,
    of what is there and what is stored, in the tensor's element type, as one step: no other store of that kind is lost.

    The cost is that of a store: memory combines behind the core, which the vendor's libraries switch on for the
    transfer (cannmirror/asc-devkit, SetAtomicAdd). No published row has such a transfer beside a plain one. That
    several at one address take turns (`atomic_us` of a machine) is not in here."""

    DEVICE_OPERAND: ClassVar[int] = 1
    accumulate = opt_prop_def(StringAttr)

    def accumulates(self) -> str:
        return "" if self.accumulate is None else text(self.accumulate)

    def destinations(self) -> Sequence[SSAValue]:
        return [self.main_operands()[self.DEVICE_OPERAND]]

    def reads(self) -> Sequence[SSAValue]:
        return [*self.sources(), *self.destinations()] if self.accumulates() else self.sources()

    def verify_(self) -> None:
        super().verify_()
        kind = self.accumulates()
        if self.accumulate is not None and kind not in ACCUMULATIONS:
            raise self.error(f"accumulates by {kind!r}, which is not one of {', '.join(ACCUMULATIONS)}")
        if kind and not self._is_apart():
            raise self.error("accumulates to one element more than once")

    def _is_apart(self) -> bool:
        """Whether no two elements of the box are one of the tensor; True where sizes are open."""
        if any_open((*self.view.strides, *self.box_sizes, *self.box_steps)):
            return True
        reach = 1
        dims = zip(self.view.strides, self.box_steps, self.box_sizes, strict=True)
        for distance, count in sorted((abs(stride * step), n) for stride, step, n in dims if n > 1):
            if distance < reach:
                return False
            reach += distance * (count - 1)
        return True

    def refused_by(self, machine: Machine) -> str | None:
        kind = self.accumulates()
        wrong = refuse_accumulation(machine, kind, dtype_name(self.view.element)) if kind else None
        return super().refused_by(machine) or wrong

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.move_cost(machine, indices, write=True)


@irdl_op_definition
class StoreNdOp(StoreOp):
    """ub -> gm; elements outside the tensor are not written. With `accumulate` it is added to what is there, or the
    larger or smaller one stays."""

    name = "npu.store_nd"
    PIPE: ClassVar[Pipe] = Pipe.MTE3
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


@irdl_op_definition
class FixpipeOp(StoreOp):
    """l0c -> gm through the fixpipe, converting the accumulator to the tensor's element type.

    With `relu`, negative accumulators become 0. With `factor` they are multiplied by that in f32 then; integers are
    rounded to even, `zero` is added, and they saturate. With `scales` in fb, a third operand, each column is multiplied
    by a number of its own instead: the low 32 bits of its word, as an f32. With `unit_flag` it drains each fractal as
    soon as a product with one has made it, and waits for nothing else of it. With `accumulate` what it would store is
    added to what is there, or the larger or smaller one stays.
    """

    name = "npu.fixpipe"
    CONVERTS: ClassVar[bool] = True
    PIPE: ClassVar[Pipe] = Pipe.FIX
    source = operand_def(BufferType)
    dest = operand_def(GmType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)
    factor = opt_prop_def(FloatAttr)
    zero = opt_prop_def(IntegerAttr)
    relu = opt_prop_def(UnitAttr)
    unit_flag = opt_prop_def(UnitAttr)

    @property
    def scales(self) -> SSAValue | None:
        """The words of the columns, where they are scaled by numbers of their own."""
        return next(iter(self.main_operands()[2:]), None)

    def sources(self) -> Sequence[SSAValue]:
        return [self.source, *self.main_operands()[2:]]

    def flagged_sums(self) -> SSAValue | None:
        return self.source if self.unit_flag is not None else None

    def matrices(self) -> Sequence[tuple[SSAValue, int]]:
        return [(self.source, 1)]

    def verify_(self) -> None:
        super().verify_()
        if buffer(self.source).space != "l0c":
            raise self.error(f"drains l0c, not {buffer(self.source).space}")
        scales = [buffer(v) for v in self.main_operands()[2:]]
        check_scaled(self, self.factor, self.zero, buffer(self.source).shape, scales)

    def refused_by(self, machine: Machine) -> str | None:
        total, stored = dtype_name(buffer(self.source).element), dtype_name(gm(self.dest).element)
        asked = self.factor, self.zero, self.relu, self.scales is not None
        return (
            super().refused_by(machine)
            or refuse_unit_flag(machine, self.unit_flag)
            or refuse_drain(machine, total, stored, *asked)
        )


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
        super().verify_()
        check_indirect(self, gm(self.source), buffer(self.index).element, to_ints(self.sizes))
        for v in (self.index, self.dest):
            if buffer(v).space != "ub":
                raise self.error(f"works on ub, not {buffer(v).space}")
        count = size(buffer(self.index).shape) * size(to_ints(self.sizes))
        if count != size(buffer(self.dest).shape):
            raise self.error(f"gives {count} elements, but the destination is {self.dest.type}")

    def refused_by(self, machine: Machine) -> str | None:
        return refuse_path(machine, "gm", "ub", self.PIPE)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        view, sizes = gm(self.source), to_ints(self.sizes)
        n = size(buffer(self.index).shape)
        each = gm_traffic(view, [0] * len(sizes), sizes, [1] * len(sizes), machine, itemsize(view.element))
        move = machine.moves[("gm", "ub")]
        cycles = n * move.cycles(each.bytes, each.runs)
        missed = cycles + n * each.bus * move.miss_cycles
        return Cost(cycles, n * each.bytes, n * each.bus, missed, missed, hbm_share=move.hbm_share)


@irdl_op_definition
class LoadNumberOp(LoadOp):
    """One element of a device tensor -> ub, by the scalar unit, which waits for it."""

    name = "npu.load_number"
    PIPE: ClassVar[Pipe] = Pipe.S
    TARGET_SPACES: ClassVar[tuple[str, ...]] = ("ub",)
    source = operand_def(GmType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)

    def verify_(self) -> None:
        super().verify_()
        if size(self.box_sizes) != 1:
            raise self.error(f"loads one element, not {size(self.box_sizes)}")

    def refused_by(self, machine: Machine) -> str | None:
        return None if "ub" in machine.spaces else refuse_path(machine, "gm", "ub", self.PIPE)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return scalar_load(machine)


class IndexOp(NpuOp):
    """Gives one integer, clamped to [low, high], as an index of the scalar unit."""

    PIPE: ClassVar[Pipe] = Pipe.S
    N_OUTPUTS: ClassVar[int] = 0
    low = prop_def(IntegerAttr)
    high = prop_def(IntegerAttr)
    result = result_def(INDEX)


@irdl_op_definition
class NumberIndexOp(IndexOp):
    """One integer of ub, clamped to [low, high], as an index of the scalar unit."""

    name = "npu.number_index"
    source = operand_def(BufferType)

    def verify_(self) -> None:
        super().verify_()
        found = buffer(self.source)
        if found.space != "ub" or size(found.shape) != 1 or not isinstance(found.element, IntegerType):
            raise self.error(f"takes one integer of ub, not {self.source.type}")

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return FREE


@irdl_op_definition
class LoadScalarOp(IndexOp):
    """One integer of a device tensor, clamped to [low, high], as an index of the scalar unit."""

    name = "npu.load_scalar"
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(GmType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)

    def index_operands(self) -> Sequence[SSAValue]:
        return self.operands[1:]

    def verify_(self) -> None:
        super().verify_()
        check_scalar(self, gm(self.source), len(self.linear()))

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return scalar_load(machine)


def scalar_load(machine: Machine) -> Cost:
    """What the scalar unit waits for one element of device memory."""
    return Cost(machine.moves[("gm", "ub")].fixed_cycles, machine.burst_bytes, machine.burst_bytes)
