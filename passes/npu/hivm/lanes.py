"""Builds vector instructions in the place of one, each in a buffer of its own: npu-allocate puts these together."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Operation, SSAValue

from ....dialects.dtypes import element_type, size
from ....dialects.hivm.counterparts import COMPARED
from ....dialects.npu import ELEMENTWISE, AllocOp, BufferType, VBroadcastOp, VFillOp, VRoundToOp, buffer
from ....dialects.npu.structure import SectionOp


class SectionBuffers:
    """Makes buffers of a section, and constants that its instructions take as scalars."""

    def __init__(self, section: SectionOp) -> None:
        self.block = section.body.block
        self._constants: dict[tuple[str, int, str], SSAValue] = {}

    def new(self, shape: Sequence[int], dtype: str, like: Operation) -> SSAValue:
        """A buffer in ub that is used where `like` is."""
        kind = BufferType.of(shape, element_type(dtype), "ub")
        made = AllocOp.create(result_types=[kind], location=like.location)
        first = self.block.first_op
        assert first is not None
        self.block.insert_op_before(made, first)
        return made.result

    def constant(self, number: float, dtype: str, rank: int, like: Operation) -> SSAValue:
        """A buffer of one element that holds a number for as long as the section runs."""
        key = (repr(number), rank, dtype)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self.new((1,) * rank, dtype, like)
            whole = dtype[0] not in "fb"
            value = IntegerAttr(int(number), i64) if whole else FloatAttr(float(number), f64)
            fill = VFillOp.create(operands=[found], properties={"value": value}, location=like.location)
            last = [op for op in self.block.ops if isinstance(op, AllocOp)][-1]
            self.block.insert_op_after(fill, last)
        return found


class Lanes:
    """Instructions that take the place of `op`, of the shape of its last destination."""

    def __init__(self, buffers: SectionBuffers, op: Operation, out: SSAValue) -> None:
        self.buffers, self.op, self.out = buffers, op, out
        self.shape = buffer(out).shape

    def number(self, value: float, dtype: str = "f32") -> SSAValue:
        """A scalar operand."""
        return self.buffers.constant(value, dtype, len(self.shape), self.op)

    def add_op(self, op: Operation) -> None:
        assert self.op.parent is not None
        self.op.parent.insert_op_before(op, self.op)

    def __call__(
        self, name: str, *sources: SSAValue, dtype: str | None = None, into: SSAValue | None = None
    ) -> SSAValue:
        """A function of each element. dtype: of the result, that of the last source unless it says another."""
        if into is None:
            last = "i1" if name in COMPARED else buffer(sources[-1]).dtype()
            into = self.buffers.new(self.shape, dtype or last, self.op)
        kind = ELEMENTWISE[name]
        self.add_op(kind.create(operands=[*sources, into], location=self.op.location))
        return into

    def full(self, source: SSAValue) -> SSAValue:
        """A source that has all elements: itself, or its one element repeated."""
        kind = buffer(source)
        if kind.shape == self.shape or size(self.shape) == 1:
            return source
        dest = self.buffers.new(self.shape, kind.dtype(), self.op)
        self.add_op(VBroadcastOp.create(operands=[source, dest], location=self.op.location))
        return dest

    def convert(self, source: SSAValue, dtype: str, into: SSAValue | None = None) -> SSAValue:
        """A source in another element type."""
        if buffer(source).dtype() == dtype and into is None:
            return source
        if into is None:
            into = self.buffers.new(buffer(source).shape, dtype, self.op)
        self.add_op(ELEMENTWISE["convert"].create(operands=[source, into], location=self.op.location))
        return into

    def rounded(self, source: SSAValue, dtype: str, mode: str) -> SSAValue:
        """A source in another element type, by a rounding of `npu.vround_to`."""
        into = self.buffers.new(buffer(source).shape, dtype, self.op)
        made = VRoundToOp.create(
            operands=[source, into], properties={"mode": StringAttr(mode)}, location=self.op.location
        )
        self.add_op(made)
        return into

    def polynomial(self, x: SSAValue, coefficients: Sequence[float]) -> SSAValue:
        """A polynomial of x by Horner's rule, the highest coefficient first; two at least."""
        first, *rest = coefficients
        total = self("mul", self.number(first), x)
        for i, c in enumerate(rest):
            total = self("add", self.number(c), total)
            if i < len(rest) - 1:
                total = self("mul", total, x)
        return total


__all__ = ["Lanes", "SectionBuffers"]
