"""What every instruction of the npu level answers: its pipe, what it reads and writes, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue

from ...machine import Machine
from ..base import FormattedOp, Linear, to_ints
from ..dtypes import dtype_name, itemsize, size
from .types import BufferType, GmType, Pipe


@dataclass(frozen=True)
class Cost:
    """What one instruction asks of its pipe.

    cycles: busy time with the machine to itself; gm_bytes: bytes that cross the device memory system (whole
    bursts), read or written; wanted_bytes: the useful part of them; macs: multiply-accumulates; elements: vector
    lanes worked; write: True where gm_bytes go out.
    """

    cycles: int = 0
    gm_bytes: int = 0
    wanted_bytes: int = 0
    macs: int = 0
    elements: int = 0
    write: bool = False


FREE = Cost()


class NpuOp(FormattedOp):
    """One machine instruction. Operands come in the order sources, destinations, indices."""

    PIPE: ClassVar[Pipe]
    N_OUTPUTS: ClassVar[int] = 1

    def sources(self) -> Sequence[SSAValue]:
        main = self.main_operands()
        return main[: len(main) - self.N_OUTPUTS]

    def destinations(self) -> Sequence[SSAValue]:
        main = self.main_operands()
        return main[len(main) - self.N_OUTPUTS :]

    def reads(self) -> Sequence[SSAValue]:
        """Buffers and device tensors whose contents the instruction uses."""
        return self.sources()

    def writes(self) -> Sequence[SSAValue]:
        return self.destinations()

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        """Cost on `machine` where the `at [...]` indices have these values. Raises KeyError for a move or rate
        the machine does not have."""
        raise NotImplementedError

    def linear(self) -> Linear:
        attr = self.properties["offsets"]
        assert isinstance(attr, DenseArrayBase)
        return Linear.decode(attr, len(self.index_operands()))

    def verify_(self) -> None:
        if self.ADDRESSED and "offsets" in self.properties:
            attr = self.properties["offsets"]
            assert isinstance(attr, DenseArrayBase)
            width = len(self.index_operands()) + 1
            if len(to_ints(attr)) % width:
                raise self.error(f"needs rows of {width} numbers in offsets")


def buffer(value: SSAValue) -> BufferType:
    """The buffer type of a value. Raises TypeError for anything else."""
    if not isinstance(value.type, BufferType):
        raise TypeError(f"expected !npu.buffer, got {value.type}")
    return value.type


def gm(value: SSAValue) -> GmType:
    """The device tensor type of a value. Raises TypeError for anything else."""
    if not isinstance(value.type, GmType):
        raise TypeError(f"expected !npu.gm, got {value.type}")
    return value.type


def valid_extent(offset: int, count: int, step: int, extent: int) -> int:
    """How many of `offset + i * step`, i < count, lie inside [0, extent)."""
    if step == 0 or count == 0:
        return count if 0 <= offset < extent else 0
    if step < 0:
        offset, step = offset + (count - 1) * step, -step
    first = 0 if offset >= 0 else -(offset // step)
    last = min(count, -(-(extent - offset) // step))
    return max(0, last - first)


def gm_traffic(
    view: GmType, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int], burst: int
) -> tuple[int, int]:
    """(bytes in whole bursts, useful bytes) of a box transfer: each contiguous run moves whole bursts."""
    width = itemsize(view.element)
    valid = [valid_extent(o, c, s, d) for o, c, s, d in zip(offsets, sizes, steps, view.shape, strict=True)]
    useful = size(valid) * width
    if not useful:
        return 0, 0
    run, expected = 1, 1
    for count, step, stride in sorted(
        zip(valid, steps, view.strides, strict=True), key=lambda t: abs(t[1] * t[2]) if t[0] > 1 else 0
    ):
        if count == 1 or stride == 0:
            continue
        if step * stride != expected:
            break
        run *= count
        expected = run
    distinct = size([v for v, s in zip(valid, view.strides, strict=True) if s != 0])
    runs = distinct // run
    return runs * -(-run * width // burst) * burst, useful


def vector_elements(target: BufferType) -> int:
    """Lanes a vector instruction works to fill `target`, rows padded to blocks."""
    return target.slot_bytes // itemsize(target.element)


def fill_value(attr: Attribute | None) -> float | int:
    """The number in a `fill` or `value` property, 0 where absent."""
    if attr is None:
        return 0.0
    assert isinstance(attr, FloatAttr | IntegerAttr)
    return attr.value.data


def vector_dtype(*values: SSAValue) -> str:
    """The element type that sets a vector instruction's rate: the widest one it touches."""
    names = [dtype_name(buffer(v).element) for v in values]
    return max(names, key=itemsize)
