"""Reductions and repetitions along dimensions that HIVM does not take at once, in several steps."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from ....dialects.base import ints, text, to_ints
from ....dialects.dtypes import size
from ....dialects.hivm.counterparts import REDUCED
from ....dialects.npu import VBroadcastOp, VectorOp, VReduceOp, buffer
from ....dialects.npu.constants import constant_in
from ....dialects.npu.scratch import reduced_form
from ....dialects.npu.structure import SectionOp
from .lanes import Lanes, SectionBuffers


def split_shapes(section: SectionOp, buffers: SectionBuffers) -> None:
    """Rewrites the reductions and repetitions of a section."""
    for op in [op for op in section.body.walk() if isinstance(op, VectorOp)]:
        replaced = False
        if isinstance(op, VBroadcastOp):
            replaced = _repeated(op, buffers)
        elif isinstance(op, VReduceOp):
            replaced = _reduced(op, buffers)
        if replaced:
            op.detach()
            op.erase()


def _runs(dims: list[int], shape: tuple[int, ...]) -> list[list[int]]:
    """Dimensions in groups of neighbours, those of one element between them left out."""
    found: list[list[int]] = []
    for d in dims:
        if found and all(shape[k] == 1 for k in range(found[-1][-1] + 1, d)):
            found[-1].append(d)
        else:
            found.append([d])
    return found


def _repeated(op: VBroadcastOp, buffers: SectionBuffers) -> bool:
    """A repetition: innermost dimensions first, then groups of neighbours."""
    source, dest = buffer(op.source), buffer(op.dest)
    if size(source.shape) == 1 and constant_in(op.source) is not None:
        return False
    if dest.dtype() == "i1":
        b = Lanes(buffers, op, op.dest)
        wide = b.full(b.convert(op.source, "f16"))
        inner = wide.owner
        b("ne", wide, b.number(0.0, "f16"), into=op.dest)
        if isinstance(inner, VectorOp):
            return True
        fresh = op.prev_op.prev_op if op.prev_op is not None else None
        if isinstance(fresh, VBroadcastOp) and _repeated(fresh, buffers):
            fresh.detach()
            fresh.erase()
        return True
    found = [d for d, (a, b) in enumerate(zip(source.shape, dest.shape, strict=True)) if a != b]
    groups = _runs(found, dest.shape)
    last = len(dest.shape) - 1
    if (
        found and found[-1] == last and len(groups[-1]) > 1
    ):  # rows are padded: the innermost dimension by itself
        groups = [*groups[:-1], groups[-1][:-1], groups[-1][-1:]]
    if len(groups) < 2:
        return False
    value: SSAValue = op.source
    shape = list(source.shape)
    for group in reversed(groups):
        for d in group:
            shape[d] = dest.shape[d]
        into = op.dest if group is groups[0] else buffers.new(shape, dest.dtype(), op)
        assert op.parent is not None
        op.parent.insert_op_before(VBroadcastOp.create(operands=[value, into], location=op.location), op)
        value = into
    return True


def _reduced(op: VReduceOp, buffers: SectionBuffers) -> bool:
    """A reduction in a type that HIVM reduces, of one group of dimensions after the other."""
    source, dest = buffer(op.source), buffer(op.dest)
    if source.dtype() == "i1" and text(op.kind) in ("and", "or", "max", "min"):
        return _reduced_truths(op, buffers)
    if source.dtype() not in REDUCED or reduced_form(op) is not None or op.counted is not None:
        return False
    dims = [d for d in to_ints(op.dims) if source.shape[d] != 1]
    groups = _runs(sorted(dims), source.shape)
    last = len(source.shape) - 1
    if groups[-1][-1] == last and len(groups[-1]) > 1:
        groups = [*groups[:-1], groups[-1][:-1], groups[-1][-1:]]
    value: SSAValue = op.source
    shape = list(source.shape)
    for group in groups:
        for d in group:
            shape[d] = 1
        into = op.dest if group is groups[-1] else buffers.new(shape, dest.dtype(), op)
        made = VReduceOp.create(
            operands=[value, into], properties={"kind": op.kind, "dims": ints(group)}, location=op.location
        )
        assert op.parent is not None
        op.parent.insert_op_before(made, op)
        value = into
    return True


def _reduced_truths(op: VReduceOp, buffers: SectionBuffers) -> bool:
    """All or any of some truths: the least or the largest of them as f16."""
    dest = buffer(op.dest)
    b = Lanes(buffers, op, op.dest)
    wide = b.convert(op.source, "f16")
    narrow = buffers.new(dest.shape, "f16", op)
    properties = dict(op.properties) | {
        "kind": StringAttr("max" if text(op.kind) in ("or", "max") else "min")
    }
    made = VReduceOp.create(operands=[wide, narrow], properties=properties, location=op.location)
    b.add_op(made)
    b("ne", narrow, b.number(0.0, "f16"), into=op.dest)
    if _reduced(made, buffers):
        made.detach()
        made.erase()
    return True
