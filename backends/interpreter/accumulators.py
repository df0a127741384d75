"""Lays out accumulators in typed memory such that XLA passes a product and its accumulation to its library in one call.

An mmad resets its accumulator where its step is 0. If that is the first iteration of a loop, and no other, the loop
starts with zeros instead. The products of batched iterations become one product: those that share the right side are
rows of one matrix, those that share the left side are columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import MmadOp, buffer_users, whole_buffer
from ...dialects.npu.interface import buffer
from ..functions.loops import bounds
from ..functions.scope import Blank
from ..functions.values import raw_dtype
from .batching import Batch
from .liveness import Carried, runs_once
from .wide import Parts, extents


def find_sides(section: Operation, batch: Batch) -> dict[SSAValue, Parts]:
    """The accumulators whose batched products are one, and how their tiles lie in it: no index moves both sides of a
    product."""
    found: dict[SSAValue, set[Parts | None]] = {}
    for op in section.walk():
        if isinstance(op, MmadOp):
            acc = whole_buffer(op.acc)
            a, b, c = (batch.moved.get(whole_buffer(v), set()) for v in (op.a, op.b, acc))
            right = tuple(i for i, v in enumerate(batch.counts) if v in b)
            left = tuple(i for i, v in enumerate(batch.counts) if v in c and v not in b)
            both = any(v in a and v in b for v in batch.counts)
            found.setdefault(acc, set()).add(None if both else (left, right))
    return {v: p for v, all_ in found.items() if len(all_) == 1 and (p := next(iter(all_))) is not None}


def carried_shape(alloc: SSAValue, batch: Batch, sides: Mapping[SSAValue, Parts]) -> tuple[int, ...]:
    """The shape of a slot of a buffer that a loop carries: a matrix, or with the leading dimensions that the contents
    have anywhere in the loop."""
    shape = buffer(alloc).shape
    if alloc in sides:
        return extents(shape, sides[alloc], batch.sizes)
    moved = batch.moved.get(alloc, set())
    return (*(n if v in moved else 1 for v, n in batch.counts.items()), *shape)


def accumulator_blanks(section: Operation, batch: Batch) -> Iterator[Blank]:
    """The zeros that loops of a batched section may begin with: those of the accumulators."""
    sides = find_sides(section, batch)
    for alloc in {whole_buffer(op.acc): None for op in section.walk() if isinstance(op, MmadOp)}:
        yield carried_shape(alloc, batch, sides), raw_dtype(numpy_dtype(buffer(alloc).element))


def zeroed(loop: scf.ForOp, known: Collection[SSAValue], carried: Carried) -> dict[Operation, SSAValue]:
    """The products in `loop` that need no reset if the loop starts with zeros, and their accumulators; `known` indices
    are batched. `loop` is not one of them."""
    found: dict[Operation, SSAValue] = {}
    slots = {c.alloc: c.slot for c in carried.cells[loop]}
    for op in loop.walk():
        if isinstance(op, MmadOp) and op.bias is None and _first_of(op, known) is loop:
            alloc = whole_buffer(op.acc)
            if slots.get(alloc) is not None and all(
                u is op or not loop.is_ancestor(u) for u in buffer_users(alloc)
            ):
                found[op] = alloc
    return found


def _first_of(op: MmadOp, known: Collection[SSAValue]) -> scf.ForOp | None:
    """The loop in whose first iteration, and in no other, the step of a product is 0. None if there is none."""
    (step,) = op.linear()
    counters = dict(step.terms)
    start, loops = step.constant, list[scf.ForOp]()
    for loop in _around(op):
        index = loop.body.block.args[0]
        first, _, trips = bounds(loop)
        if index in known:
            continue
        start += counters.get(index, 0) * first
        if runs_once(trips):
            counters.pop(index, None)
        else:
            loops.append(loop)
    for v in list(counters):
        if isinstance(v.owner, arith.ConstantOp) and isinstance(v.owner.value, IntegerAttr):
            start += counters.pop(v) * v.owner.value.value.data
    counting = [loop for loop in loops if loop.body.block.args[0] in counters]
    grows = all(c > 0 for c in counters.values()) and len(counting) == len(counters)
    return counting[-1] if counting and grows and start == 0 and loops[: len(counting)] == counting else None


def _around(op: Operation) -> Iterator[scf.ForOp]:
    """The loops around an op, innermost first."""
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, scf.ForOp):
            yield parent
        parent = parent.parent_op()
