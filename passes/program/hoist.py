"""graph-hoist: moves loop-invariant ops out of loops.

Before:  graph.while %i, %x, %w { ^bb0(%j, %a, %v): %e = graph.exp %v ; %b = graph.contract %a, %e ; yield %k, %b, %v }
After:   %e = graph.exp %w ; graph.while %i, %x { ^bb0(%j, %a): %b = graph.contract %a, %e ; yield %k, %b }

A value that no iteration changes is no longer carried. Invariant ops move in front of the loop, unless that costs more
than it saves: layout ops and constants are folded into the loads of their users, and results that a kernel generates or
broadcasts on chip would have to be stored and loaded instead.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.traits import is_side_effect_free

from ...dialects.base import integer
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import ConstantOp, ElementwiseOp, FusionOp, GraphOp, IotaOp, WhileOp
from ...dialects.graph.interface import element_of, shape_of
from ..base import LevelPass
from ..forms.access import is_layout


@dataclass(frozen=True)
class GraphHoistPass(LevelPass):
    """Moves loop-invariant ops in front of their loops, inner loops first."""

    name = "graph-hoist"

    def run(self, module: ModuleOp) -> None:
        for func in module.ops:
            if isinstance(func, FuncOp) and func.body.blocks:
                hoist_block(func.body.block)


def hoist_block(block: Block) -> None:
    """Hoists out of all loops in a block, into the block or the loop around them."""
    for op in list(block.ops):
        if not op.regions or isinstance(op, FusionOp):
            continue
        if isinstance(op, WhileOp):
            op = drop_unchanged(op)
        for region in op.regions:
            hoist_block(region.block)
        if isinstance(op, WhileOp):
            for region in op.regions:
                hoist_region(op, region)


def drop_unchanged(op: WhileOp) -> WhileOp:
    """The loop without the carried values that its body yields as it got them; their uses see the initial ones."""
    ends = op.yielded(1).values
    kept = [i for i, end in enumerate(ends) if end is not op.body.block.args[i]]
    if len(kept) == len(ends):
        return op
    gone = sorted({*range(len(ends))} - {*kept}, reverse=True)
    for i in gone:
        op.results[i].replace_all_uses_with(op.inits[i])
        for region in op.regions:
            region.block.args[i].replace_all_uses_with(op.inits[i])
    inits, end = list(op.inits), op.yielded(1)
    end.operands = [end.operands[i] for i in kept]
    for region in op.regions:
        for i in gone:
            region.block.erase_arg(region.block.args[i])
    properties = dict(op.properties)
    if op.counter is not None:
        properties["counter"] = type(op.counter)(kept.index(integer(op.counter)), op.counter.type)
    new = WhileOp.create(
        operands=[inits[i] for i in kept],
        result_types=[op.results[i].type for i in kept],
        properties=properties,
        regions=[op.detach_region(region) for region in list(op.regions)],
        location=op.location,
    )
    block = op.parent
    assert block is not None
    block.insert_op_before(new, op)
    for i, result in zip(kept, new.results, strict=True):
        result.name_hint = op.results[i].name_hint
        op.results[i].replace_all_uses_with(result)
    op.detach()
    op.erase()
    return new


def hoist_region(loop: WhileOp, region: Region) -> None:
    """Moves the invariant ops of one region that are worth it, and what they are made of, in front of the loop."""
    invariant: dict[Operation, None] = {}
    for op in region.block.ops:
        if op.results and (isinstance(op, CallOp) or (isinstance(op, GraphOp) and is_side_effect_free(op))):
            inside = (owner for v in outer_operands(op) if region.is_ancestor(owner := v.owner))
            if all(owner in invariant for owner in inside):
                invariant[op] = None
    moved: set[Operation] = set()
    for op in invariant:
        if pays(op, invariant):
            moved |= makers(op, invariant)
    block = loop.parent
    assert block is not None
    for op in invariant:
        if op in moved:
            op.detach()
            block.insert_op_before(op, loop)


def needed_by(op: Operation) -> set[Operation]:
    """What an op depends on, and the op itself."""
    needed, stack = set[Operation](), [op]
    while stack:
        op = stack.pop()
        if op not in needed:
            needed.add(op)
            stack += [v.owner for v in outer_operands(op) if isinstance(v.owner, Operation)]
    return needed


def outer_operands(op: Operation) -> list[SSAValue]:
    """Values from outside that an op, or an op inside it, uses."""
    return [v for inner in op.walk() for v in inner.operands if inner is op or not op.is_ancestor(v.owner)]


def makers(op: Operation, invariant: Container[Operation]) -> set[Operation]:
    """An op and the invariant ops that it is made of."""
    found: set[Operation] = set()
    pending = [op]
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending += [
                v.owner for v in outer_operands(op) if isinstance(v.owner, Operation) and v.owner in invariant
            ]
    return found


def pays(op: Operation, invariant: Container[Operation]) -> bool:
    """Whether an op is better computed once and stored: layout ops never are. Elementwise ops are computed on the way
    by whoever loads what they read; they are worth a tensor of their own that is not larger than this."""
    if is_layout(op) or isinstance(op, ConstantOp | IotaOp):
        return False
    if not isinstance(op, ElementwiseOp):
        return True
    ops = makers(op, invariant)
    read = {
        v
        for inner in ops
        for v in outer_operands(inner)
        if v.owner not in ops and not isinstance(v.owner, ConstantOp)
    }
    return value_bytes(op.results[0]) <= sum(map(value_bytes, read))


def value_bytes(value: SSAValue) -> int:
    return size(shape_of(value)) * itemsize(element_of(value))
