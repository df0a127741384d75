"""Joins a contraction with the vector fusion behind it, for sums that are split: the kernel that adds up the parts can
do the work of the other, as a norm behind a layer.

A joined fusion is never one kernel. Its ops have no `axes`: split.py fuses them anew once the parts are apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects.base import text
from ...dialects.graph import ConcatOp, FusionOp, YieldOp
from ...dialects.graph.control import AXES
from .split import product_of


def is_joined(fusion: FusionOp) -> bool:
    """Whether a fusion is a contraction with what was behind it, and only good for split sums."""
    product = product_of(fusion)
    return product is not None and AXES not in product.attributes


def tail_of(fusion: FusionOp, position: Mapping[Operation, int]) -> FusionOp | None:
    """The first vector fusion without a schedule that uses a result of a fusion, and nothing that comes later; None
    where there is none. `position`: that of each op of the block."""
    place = position[fusion]
    users = {use.operation for result in fusion.results for use in result.uses}
    after = [op for op in users if isinstance(op, FusionOp) and op.parent is fusion.parent]
    for op in sorted(after, key=lambda op: position.get(op, place)):
        stacks = any(isinstance(inner, ConcatOp) for inner in op.body.block.ops)
        if text(op.kind) == "vector" and op.schedule is None and op in position and not stacks:
            others = (v.owner for v in op.inputs if v.owner is not fusion)
            if all(isinstance(o, Block) or position.get(o, -1) < place for o in others):
                return op
    return None


def _shared(fusion: FusionOp, tail: FusionOp) -> list[SSAValue]:
    """The results of a fusion that others than `tail` use."""
    return [r for r in fusion.results if any(use.operation is not tail for use in r.uses)]


def join(fusion: FusionOp, tail: FusionOp) -> FusionOp:
    """A fusion that does what two do, in no block yet. Its results are those of `fusion` that others use, and those of
    `tail`."""
    outer = list(dict.fromkeys([*fusion.inputs, *(v for v in tail.inputs if v.owner is not fusion)]))
    block = Block(arg_types=[v.type for v in outer])
    known: dict[SSAValue, SSAValue] = dict(zip(outer, block.args, strict=True))
    for one in (fusion, tail):
        inside: dict[SSAValue, SSAValue] = {
            a: known[v] for a, v in zip(one.body.block.args, one.inputs, strict=True)
        }
        for op in one.body.block.ops:
            if isinstance(op, YieldOp):
                known.update((r, inside[v]) for r, v in zip(one.results, op.operands, strict=True))
                continue
            copied = type(op).create(
                operands=[inside[v] for v in op.operands],
                result_types=op.result_types,
                properties=op.properties,
                attributes={name: value for name, value in op.attributes.items() if name != AXES},
                location=op.location,
            )
            block.add_op(copied)
            inside.update(zip(op.results, copied.results, strict=True))
    results = [*_shared(fusion, tail), *tail.results]
    block.add_op(YieldOp.create(operands=[known[r] for r in results]))
    return FusionOp.create(
        operands=outer,
        result_types=[r.type for r in results],
        properties={"kind": StringAttr("mix"), "domain": fusion.domain},
        regions=[Region(block)],
        location=fusion.location,
    )


def put_in_place(joined: FusionOp, fusion: FusionOp, tail: FusionOp) -> None:
    """Puts what `join` made of two fusions in their place."""
    block = fusion.parent
    assert block is not None
    old = [*_shared(fusion, tail), *tail.results]
    block.insert_op_before(joined, fusion)
    for value, new in zip(old, joined.results, strict=True):
        new.name_hint = value.name_hint
        value.replace_all_uses_with(new)
    for op in (tail, fusion):
        op.detach()
        op.erase()
