"""Tensors of launches that need nothing of each other get memory of their own, so that no barrier must part them.

Two products of one input, one behind the other, each have a workspace. Both in one place would save memory and cost a
barrier between them. They have two where the program needs no more memory for that at its peak.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.npu import whole_tensor
from ...dialects.npu.structure import LaunchOp, splits_nothing

if TYPE_CHECKING:
    from .plan_memory import Life


def independent_launches(block: Block) -> Iterator[list[LaunchOp]]:
    """Neighbouring launches of a block of which none uses what another one writes, two or more, as many as can be."""
    together: list[LaunchOp] = []
    read: set[SSAValue] = set()
    written: set[SSAValue] = set()
    for op in block.ops:
        if splits_nothing(op):
            continue
        reads, writes = _tensors(op)
        free = isinstance(op, LaunchOp) and written.isdisjoint(reads | writes) and read.isdisjoint(writes)
        if not free:
            if len(together) > 1:
                yield together
            together, read, written = [], set(), set()
        if isinstance(op, LaunchOp):
            together.append(op)
            read |= reads
            written |= writes
    if len(together) > 1:
        yield together


def _tensors(op: Operation) -> tuple[set[SSAValue], set[SSAValue]]:
    if not isinstance(op, LaunchOp):
        return set(), set()
    return set(map(whole_tensor, op.reads())), set(map(whole_tensor, op.writes()))


def kept_apart(
    block: Block, order: Mapping[Operation, int], lives: Sequence[Life], most: int
) -> list[Life]:
    """The lives of tensors, longer where independent launches then meet in no bytes: what lives while one of them runs
    lives while any does. Nowhere are more than `most` bytes needed for that."""
    if not lives:
        return []
    first, last, size = (np.array(column) for column in zip(*((v.first, v.last, v.size) for v in lives), strict=True))
    for launches in independent_launches(block):
        begin, end = order[launches[0]], order[launches[-1]]
        there = (first <= end) & (last >= begin)
        if size[there].sum() <= most:
            first[there] = np.minimum(first[there], begin)
            last[there] = np.maximum(last[there], end)
    return [
        replace(life, first=int(a), last=int(b)) for life, a, b in zip(lives, first, last, strict=True)
    ]
