"""Maps axes through layout ops, from the operand to the result and back."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import Enum

from xdsl.ir import Operation, SSAValue

from ...dialects.base import to_ints
from ...dialects.graph import BroadcastOp, ReshapeOp, TransposeOp
from ...dialects.graph.interface import shape_of
from .access import is_layout, reshape_groups

Axes = tuple[int | None, ...]


class Broadcast(Enum):
    """In place of the axis of a dimension that a broadcast adds: any axis of that extent may take it."""

    ADDED = "added"


FoundAxes = list[int | Broadcast | None]
"""Axes as layout ops leave them; None for a dimension of size 1."""


def forward_axes(op: Operation, axes: Sequence[int | Broadcast | None]) -> FoundAxes | None:
    """Axes of a layout op's result from those of its operand; Broadcast.ADDED for one that a broadcast adds.

    None where the op does more than add, drop or permute dimensions.
    """
    if isinstance(op, TransposeOp):
        return [axes[p] for p in to_ints(op.perm)]
    if isinstance(op, BroadcastOp):
        source, target, dims = shape_of(op.x), shape_of(op.result), to_ints(op.dims)
        out: FoundAxes = [Broadcast.ADDED if s != 1 else None for s in target]
        for i, d in enumerate(dims):
            if source[i] == target[d]:
                out[d] = axes[i]
        return out
    if isinstance(op, ReshapeOp):
        source, target = shape_of(op.x), shape_of(op.result)
        out = [None] * len(target)
        for left, right in reshape_groups(source, target):
            wide_in = [d for d in left if source[d] != 1]
            wide_out = [d for d in right if target[d] != 1]
            if [source[d] for d in wide_in] != [target[d] for d in wide_out]:
                return None
            for i, o in zip(wide_in, wide_out, strict=True):
                out[o] = axes[i]
        return out
    return None


def axes_behind(chain: Sequence[Operation], start: Axes) -> FoundAxes | None:
    """Axes of the first result of a chain of layout ops, last op first, from those of what it starts from;
    Broadcast.ADDED for one that a broadcast adds. None where they do not say."""
    axes: FoundAxes = list(start)
    for op in reversed(chain):
        step = forward_axes(op, axes)
        if step is None:
            return None
        axes = step
    return axes


def backward_axes(chain: Sequence[Operation], axes: Axes) -> Axes | None:
    """Axes of what a chain of layout ops starts from, from those of its result; None where they do not say."""
    for op in chain:
        if isinstance(op, BroadcastOp):
            source, target = shape_of(op.x), shape_of(op.result)
            axes = tuple(
                None if source[i] == 1 and target[d] != 1 else axes[d] for i, d in enumerate(to_ints(op.dims))
            )
        elif isinstance(op, ReshapeOp):
            source, target = shape_of(op.x), shape_of(op.result)
            wide_in = [d for d, s in enumerate(source) if s != 1]
            wide_out = [d for d, s in enumerate(target) if s != 1]
            if [source[d] for d in wide_in] != [target[d] for d in wide_out]:
                return None
            out: list[int | None] = [None] * len(source)
            for i, o in zip(wide_in, wide_out, strict=True):
                out[i] = axes[o]
            axes = tuple(out)
        elif isinstance(op, TransposeOp):
            perm = to_ints(op.perm)
            axes = tuple(axes[perm.index(d)] for d in range(len(perm)))
        else:
            return None
    return axes


def behind(value: SSAValue, stop: Container[SSAValue] = ()) -> tuple[list[Operation], SSAValue]:
    """(layout ops, last one first; what they start from) of a value: back to one in `stop`, or to one that no layout
    op gives."""
    chain: list[Operation] = []
    while is_layout(op := value.owner) and value not in stop:
        chain.append(op)
        value = op.operands[0]
    return chain, value


def base_of(value: SSAValue) -> SSAValue:
    """The value behind layout ops."""
    return behind(value)[1]
