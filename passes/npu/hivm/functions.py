"""Functions of elements that HIVM lacks, as formulas of those that it has."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from ....dialects.dtypes import size
from ....dialects.hivm.counterparts import CHAINS, COMPARED, SUPPORTED, cast_mode
from ....dialects.npu import AllocOp, ElementwiseVectorOp, TransferOp, buffer, buffer_users, whole_buffer
from ....dialects.npu.constants import constant_in
from ....dialects.npu.structure import SectionOp
from .formulas import ANY_TYPE, FORMULAS, WHOLE, of_bits, ordered
from .lanes import Lanes, SectionBuffers


def expand_functions(section: SectionOp, buffers: SectionBuffers) -> None:
    """Rewrites the elementwise instructions of a section, and what they become, until each is one that HIVM has."""
    work = [op for op in section.body.walk() if isinstance(op, ElementwiseVectorOp)]
    while work:
        op = work.pop()
        before, block = op.prev_op, op.parent
        assert block is not None
        if not _expanded(op, buffers):
            continue
        at = before.next_op if before is not None else block.first_op
        while at is not None and at is not op:
            if isinstance(at, ElementwiseVectorOp):
                work.append(at)
            at = at.next_op
        op.detach()
        op.erase()


def _expanded(op: ElementwiseVectorOp, buffers: SectionBuffers) -> bool:
    """Puts instructions before one that compute the same; whether there are such."""
    name, out = op.instruction, op.destinations()[0]
    b = Lanes(buffers, op, out)
    sources = list(op.sources())
    dtype = buffer(sources[-1]).dtype()
    if name == "convert":
        return _converted(b, sources[0], out)
    if any(_is_scalar(b, v) and constant_in(v) is None for v in sources):
        return _ended(b, name, [b.full(v) if constant_in(v) is None else v for v in sources], out)
    if dtype in SUPPORTED.get(name, ()):
        return _with_full_operands(b, name, sources, out)
    if dtype in ("i8", "ui8", "i16") and name in ("eq", "ne", "lt", "le", "gt", "ge", "select"):
        return _in_type(b, name, sources, out, "f16" if dtype != "i16" else "f32")
    if name in COMPARED and dtype == "i32":
        _finish(b, ordered(b, name, *sources), out)
        return True
    if dtype == "i1":
        return _of_truths(b, name, sources, out)
    if name in WHOLE and dtype[0] == "i":
        _finish(b, WHOLE[name](b, *sources), out)
        return True
    if name in ANY_TYPE and dtype in SUPPORTED["max"]:
        _finish(b, ANY_TYPE[name](b, *sources), out)
        return True
    if name in FORMULAS and dtype in ("f32", "f16", "bf16"):
        given = [b.convert(v, "f32") if dtype != "f32" else v for v in sources]
        found = FORMULAS[name](b, *given)
        if buffer(found).dtype() != buffer(out).dtype():
            b.convert(found, buffer(out).dtype(), into=out)
        else:
            _finish(b, found, out)
        return True
    if dtype in ("bf16", "f16") and "f32" in SUPPORTED.get(name, ()):
        return _in_type(b, name, sources, out, "f32")
    return False


def _is_scalar(b: Lanes, value: SSAValue) -> bool:
    return size(buffer(value).shape) == 1 < size(b.shape)


def _ended(b: Lanes, name: str, sources: Sequence[SSAValue], out: SSAValue) -> bool:
    b(name, *sources, into=out)
    return True


def _finish(b: Lanes, found: SSAValue, out: SSAValue) -> None:
    """Lets the last instruction write the result."""
    last = b.op.prev_op
    assert isinstance(last, ElementwiseVectorOp) and last.destinations()[0] is found
    last.operands[len(last.operands) - 1] = out
    alloc = found.owner
    assert isinstance(alloc, AllocOp)
    alloc.detach()
    alloc.erase()


def _with_full_operands(b: Lanes, name: str, sources: list[SSAValue], out: SSAValue) -> bool:
    """Where HIVM takes no scalar: of bits, as a condition, and as the first operand of a choice."""
    scalars = [_is_scalar(b, v) for v in sources]
    if name == "select":
        wrong = [i for i, s in enumerate(scalars) if s and (i == 0 or (i == 1 and not scalars[2]))]
    elif name in ("and", "or", "xor") or (name in ("shl", "shr_arithmetic") and scalars[0]):
        wrong = [i for i, s in enumerate(scalars) if s]
    else:
        wrong = [0] if scalars and all(scalars) else []
    if not wrong:
        return False
    return _ended(b, name, [b.full(v) if i in wrong else v for i, v in enumerate(sources)], out)


def _in_type(b: Lanes, name: str, sources: Sequence[SSAValue], out: SSAValue, dtype: str) -> bool:
    """The function in a type that has all values of the operands."""
    first = 1 if name == "select" else 0
    wide = [v if i < first else b.convert(v, dtype) for i, v in enumerate(sources)]
    result = "i1" if name in COMPARED else dtype
    if result == buffer(out).dtype():
        return _ended(b, name, wide, out)
    b.convert(b(name, *wide, dtype=result), buffer(out).dtype(), into=out)
    return True


def _of_truths(b: Lanes, name: str, sources: Sequence[SSAValue], out: SSAValue) -> bool:
    """Functions of i1: comparisons and choices."""
    if name == "select":
        found = of_bits(b, *sources)
    elif name in ("eq", "ne"):
        found = b("xor", *(b.full(v) for v in sources))
        found = b("not", found) if name == "eq" else found
    else:
        return False
    _finish(b, found, out)
    return True


def is_moved(value: SSAValue) -> bool:
    """Whether transfers touch the buffer of a value: then HIVM has truths in it as bytes."""
    return any(isinstance(user, TransferOp) for user in buffer_users(whole_buffer(value)))


def _converted(b: Lanes, source: SSAValue, out: SSAValue) -> bool:
    """A conversion as several; whether it takes any."""
    before, after = buffer(source).dtype(), buffer(out).dtype()
    if after == "i1" and not is_moved(out):
        if before not in ("f32", "f16", "i32"):
            wide = "f32" if before in ("bf16", "i16") else "f16"
            return _ended(b, "ne", [b.convert(source, wide), b.number(0, wide)], out)
        return _ended(b, "ne", [source, b.number(0, before)], out)
    if cast_mode(before, after, "convert") is not None or (before, after) not in CHAINS:
        return False
    value = source
    steps = CHAINS[before, after]
    for step in steps[:-1]:
        dtype, _, rounding = step.partition(" ")
        value = b.rounded(value, dtype, rounding) if rounding else b.convert(value, dtype)
    b.convert(value, steps[-1], into=out)
    return True
