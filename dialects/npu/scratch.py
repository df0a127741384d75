"""What instructions need to work in where the vendor's library runs them: `temp_buffer` of HIVM.

Bytes follow the library's own request (`hivm-alloc-extra-buffer` of ascendnpu-ir 1.2); tests compare them with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import Operation

from ..base import text, to_ints
from ..dtypes import dtype_name, itemsize, size
from .interface import buffer
from .types import ROW_BYTES, BufferType
from .vector import ElementwiseVectorOp, VBroadcastOp, VReduceOp

REPEAT_BYTES = 256
"""Bytes of a repeat of the vector unit."""

REPEATING = ("add", "sub", "mul", "div", "max", "min")
"""Functions of which the library repeats a row or a column."""

TREES = ("sum", "max", "min")
"""Reductions that halve a row of floats until one repeat is left."""


WORKS_IN = "npu.works_in"
"""Attribute of an instruction of an imported kernel: the first byte of ub that it works in, and how many. What was
there is gone behind it."""


def works_in(op: Operation) -> tuple[int, int] | None:
    """The bytes [start, end) of ub that an instruction says it works in; None where it says none."""
    attr = op.attributes.get(WORKS_IN)
    if not isinstance(attr, DenseArrayBase):
        return None
    start, count = to_ints(attr)
    return start, start + count


def scratch_bytes(op: Operation) -> int:
    """Bytes of ub that an instruction works in besides its operands; 0 where it needs none."""
    if isinstance(op, VReduceOp):
        return _of_reduction(op)
    if isinstance(op, VBroadcastOp):
        source, dest = buffer(op.source).shape, buffer(op.dest).shape
        return REPEAT_BYTES if source and source[-1] == 1 < dest[-1] else 0
    if isinstance(op, ElementwiseVectorOp):
        return _of_lanes(op)
    return 0


def _of_lanes(op: ElementwiseVectorOp) -> int:
    dest = buffer(op.destinations()[0])
    kinds = [buffer(v) for v in op.sources()]
    scalars = [size(kind.shape) == 1 < size(dest.shape) for kind in kinds]
    if op.column() is not None:
        return REPEAT_BYTES
    if op.instruction in ("sub", "div") and any(scalars):
        return ROW_BYTES
    if op.instruction == "select":
        return ROW_BYTES * (1 + sum(scalars[1:]))
    if op.instruction == "convert" and kinds[0].dtype() == "i1":
        return 3 * ROW_BYTES
    if op.instruction == "convert" and (kinds[0].dtype(), dest.dtype()[-2:]) == ("i32", "i8"):
        return 2 * size(dest.shape) * itemsize(kinds[0].element)
    if op.instruction == "xor":
        return dest.slot_bytes
    return 0


@dataclass(frozen=True)
class Reduced:
    """A reduction as the library knows it: `outer` rows, `count` elements of each, which lie `inner` apart."""

    outer: int
    count: int
    inner: int


def reduced_form(op: VReduceOp) -> Reduced | None:
    """The form of a reduction; None for dimensions that are no neighbours, or are padded apart."""
    kind = buffer(op.source)
    dims = [d for d in to_ints(op.dims) if kind.shape[d] != 1]
    if not dims:
        return Reduced(size(kind.shape), 1, 1)
    first, last = min(dims), max(dims)
    between = [d for d in range(first, last + 1) if d not in dims and kind.shape[d] != 1]
    whole = ROW_BYTES // itemsize(kind.element)
    padded = last == len(kind.shape) - 1 and kind.shape[-1] % whole != 0
    if between or (padded and len(dims) > 1):
        return None
    shape = kind.shape
    return Reduced(size(shape[:first]), size(shape[first : last + 1]), size(shape[last + 1 :]))


def _of_reduction(op: VReduceOp) -> int:
    form = reduced_form(op)
    if form is None:
        return 0
    kind: BufferType = buffer(op.source)
    name, width = dtype_name(kind.element), itemsize(kind.element)
    lanes = REPEAT_BYTES // width
    if form.inner > 1 or buffer(op.source).shape[-1:] == (1,) != kind.shape:
        return form.outer * form.count * form.inner * width
    trees = name[0] == "f" and text(op.kind) in TREES
    if not trees:
        each = 2 * form.count if form.count <= lanes else lanes + ROW_BYTES // width
        return form.outer * each * width
    if form.count <= lanes:
        return 0
    return form.outer * max(lanes, -(-form.count // 2)) * width
