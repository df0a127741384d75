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
from ..launch_groups import Together

if TYPE_CHECKING:
    from .plan_memory import Life


def independent_launches(block: Block) -> Iterator[list[LaunchOp]]:
    """Neighbouring launches of a block, or of one below it, of which none uses what another one writes, two or more, as
    many as can be."""
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                yield from independent_launches(inner)
    found: list[LaunchOp] = []
    together = Together[SSAValue]()
    for op in block.ops:
        if splits_nothing(op):
            continue
        if not isinstance(op, LaunchOp):
            together.clear()
        elif together.joined_by(_tensors(op.reads()), _tensors(op.writes())):
            found.append(op)
            continue
        if len(found) > 1:
            yield found
        found = [op] if isinstance(op, LaunchOp) else []
    if len(found) > 1:
        yield found


def _tensors(values: Sequence[SSAValue]) -> set[SSAValue]:
    return set(map(whole_tensor, values))


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
