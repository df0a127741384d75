"""Which part of each on-chip buffer holds data of a tensor: the cost of an instruction counts that part.

A tile has a static shape and may reach outside its tensor. What lies outside is filled on load and masked on
store, and a chip's program would not compute it. The part inside is known from the load that filled the buffer,
and is carried along by the instructions that compute from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import SSAValue

from ...dialects import npu as ops
from ...dialects.affine import Expr, Range
from ...dialects.base import to_ints
from ...dialects.npu import NpuOp, buffer, whole_buffer
from ...dialects.npu.interface import vector_elements
from ...dialects.shapes import transposes
from .affine import TransferRow

Extents = tuple[TransferRow | None, ...]
"""For each dimension of a buffer: the row of a tensor that it holds, or None where it holds no more and no less
than its size."""


class Validity:
    """The extents of the buffers of one section, instruction by instruction in program order."""

    def __init__(self) -> None:
        self._held: dict[SSAValue, Extents] = {}
        self.scope: frozenset[int] = frozenset()
        """The index variables that have a value at the instruction that is followed."""

    def of(self, value: SSAValue) -> Extents:
        """What a buffer (or slot of one) holds, as far as variables in scope say: after the loop that filled it the
        whole buffer counts."""
        held = self._held.get(whole_buffer(value), (None,) * len(buffer(value).shape))
        return tuple(None if row is None or not self._known(row) else row for row in held)

    def _known(self, row: TransferRow) -> bool:
        return all(variable in self.scope for variable, _ in row.offset.terms)

    def follow(
        self, op: NpuOp, rows: Sequence[TransferRow | None], indices: Sequence[Expr[int]], ranges: Sequence[Range]
    ) -> Extents:
        """Notes what an instruction leaves in its destination; gives the extents that its cost counts: (m, k, n) of
        a product, else one for each dimension of what it works on.

        `rows` are those of a transfer's box.
        """
        if isinstance(op, ops.LoadOp):
            filled = op.properties.get("fill") is not None
            shape = buffer(op.tile()).shape
            self._note(op.tile(), () if filled else _match(op.box_sizes, rows, shape))
            return ()
        if isinstance(op, ops.LoadL0Op):
            found = self._l0(op, indices, ranges)
            self._note(op.dest, found)
            return found
        if isinstance(op, ops.MmadOp):
            (m, k), (_, n) = self.of(op.a), self.of(op.b)
            self._note(op.acc, (m, n))
            return (m, k, n)
        if isinstance(op, ops.FixpipeL1Op):
            found = self.of(op.source)
            self._note(op.dest, found)
            return found
        if isinstance(op, ops.VectorOp):
            return self._vector(op)
        for value in op.destinations():
            self._held.pop(whole_buffer(value), None)
        return ()

    def _note(self, value: SSAValue, extents: Extents) -> None:
        if any(row is not None for row in extents):
            self._held[whole_buffer(value)] = extents
        else:
            self._held.pop(whole_buffer(value), None)

    def _l0(self, op: ops.LoadL0Op, indices: Sequence[Expr[int]], ranges: Sequence[Range]) -> Extents:
        shape, held = buffer(op.dest).shape, self.of(op.source)
        if op.window is not None or all(row is None for row in held):
            return (None, None)
        sizes = to_ints(op.sizes)
        steps = to_ints(op.steps) if isinstance(op.steps, DenseArrayBase) else (1,) * len(sizes)
        rows: list[TransferRow | None] = []
        for row, size, step, inside in zip(held, sizes, steps, op.linear_over(indices), strict=True):
            if row is None:
                rows.append(None)
                continue
            part = TransferRow(row.offset + inside * row.step, size, row.step * step, row.extent)
            rows.append(None if part.never_clips(ranges) else part)
        if transposes(op):
            sizes, rows = sizes[::-1], rows[::-1]
        return _match(sizes, rows, shape)

    def _vector(self, op: ops.VectorOp) -> Extents:
        """Elementwise along every dimension that the destination shares with a source."""
        (dest, *_) = op.destinations()
        shape = buffer(dest).shape
        widest = max(op.main_operands(), key=lambda v: vector_elements(buffer(v)))
        counted = self.of(widest)
        found: list[TransferRow | None] = [None] * len(shape)
        if not isinstance(op, ops.VTransposeOp | ops.VExtractOp):
            for source in op.sources():
                if len(buffer(source).shape) != len(shape):
                    continue
                for d, row in enumerate(self.of(source)):
                    if row is not None and buffer(source).shape[d] == shape[d]:
                        found[d] = row if found[d] in (None, row) else None
        self._note(dest, tuple(found))
        return tuple(found) if widest in op.destinations() else counted


def _match(sizes: Sequence[int], rows: Sequence[TransferRow | None], shape: Sequence[int]) -> Extents:
    """The rows of a box as those of a buffer of the same extents, but for extents of 1."""
    wide = [(n, row) for n, row in zip(sizes, rows, strict=True) if n != 1]
    if [n for n, _ in wide] != [n for n in shape if n != 1]:
        return (None,) * len(shape)
    left = iter(wide)
    return tuple(None if n == 1 else next(left)[1] for n in shape)
