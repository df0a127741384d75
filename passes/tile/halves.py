"""Splits a fusion whose values do not fit on chip together.

graph-fuse only estimates a kernel's on-chip footprint; this module has the exact one. The members of the fusion, in
order, become two fusions, split where the least data crosses. Layout ops stay with the ops that read through them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects.base import ints, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import ContractOp, ConvOp, FusionOp, YieldOp
from ...dialects.graph.control import axes_of
from ...dialects.graph.interface import element_of, shape_of


def cut_in_two(fusion: FusionOp) -> list[FusionOp]:
    """Replaces `fusion` by two fusions that do the same, and gives them in order; none where it has one member."""
    members = [op for op in fusion.body.block.ops if "axes" in op.attributes]
    if len(members) < 2:
        return []
    results = fusion.yielded(0).values
    middle = range(max(len(members) // 4, 1), max(len(members) * 3 // 4, 1) + 1)
    cuts = [_Cut(results, set(members[:n]), set(members[n:])) for n in middle]
    cut = min(cuts, key=lambda c: (c.bytes_over, abs(len(c.first) - len(c.second))))
    outer: dict[SSAValue, SSAValue] = dict(zip(fusion.body.block.args, fusion.inputs, strict=True))
    first = _part(fusion, cut.given, _behind(cut.given, set())[0], outer)
    for value, result in zip(cut.given, first.results, strict=True):
        outer.setdefault(value, result)
    inner, _ = _behind(cut.late, cut.first)
    second = _part(fusion, cut.late, inner, outer)
    new = {
        **dict(zip(cut.given, first.results, strict=True)),
        **dict(zip(cut.late, second.results, strict=True)),
    }
    block = fusion.parent
    assert block is not None
    block.insert_ops_before([first, second], fusion)
    for old, value in zip(fusion.results, results, strict=True):
        new[value].name_hint = old.name_hint
        old.replace_all_uses_with(new[value])
    fusion.detach()
    fusion.erase()
    return [first, second]


class _Cut:
    """`first` and `second` members apart: the results that need the second ones come `late`; `given` are the other
    results, and the values that the second part takes from the first."""

    def __init__(self, results: Sequence[SSAValue], first: Set[Operation], second: Set[Operation]):
        self.first, self.second = first, second
        self.late = [v for v in dict.fromkeys(results) if _behind([v], set())[0] & second]
        _, sources = _behind(self.late, first)
        over = [v for v in sources if v.owner in first]
        self.bytes_over = sum(size(shape_of(v)) * itemsize(element_of(v)) for v in over)
        self.given = list(dict.fromkeys([*over, *(v for v in results if v not in self.late)]))


def _behind(values: Sequence[SSAValue], stop: Set[Operation]) -> tuple[set[Operation], list[SSAValue]]:
    """The ops that make these values, as far back as ops in `stop` and block arguments; what is taken from those."""
    ops: set[Operation] = set()
    sources: dict[SSAValue, None] = {}
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value.owner, Block) or value.owner in stop:
            sources[value] = None
        elif value.owner not in ops:
            ops.add(value.owner)
            pending += value.owner.operands
    return ops, list(sources)


def _part(
    fusion: FusionOp, outputs: Sequence[SSAValue], inner: Set[Operation], outer: Mapping[SSAValue, SSAValue]
) -> FusionOp:
    """A fusion of the ops `inner` of another one, with these outputs; `outer`: what its other values are outside."""
    order = [op for op in fusion.body.block.ops if op in inner]
    taken = list(dict.fromkeys(v for op in order for v in op.operands if v.owner not in inner))
    block = Block(arg_types=[v.type for v in taken])
    copies: dict[SSAValue, SSAValue] = dict(zip(taken, block.args, strict=True))
    for op in order:
        copy = op.clone(copies)
        block.add_op(copy)
    block.add_op(YieldOp.create(operands=[copies[v] for v in outputs]))
    members = [op for op in order if "axes" in op.attributes]
    used = {a for op in members for a in axes_of(op) or ()}
    # an axis that only the other part has is none to divide this one along
    domain = ints([n if a in used else 1 for a, n in enumerate(to_ints(fusion.domain))])
    product = any(isinstance(op, ContractOp | ConvOp) for op in members)
    kind = ("mix" if len(members) > 1 else "cube") if product else "vector"
    return FusionOp.create(
        operands=[outer[v] for v in taken],
        result_types=[v.type for v in outputs],
        properties={"kind": StringAttr(kind), "domain": domain},
        regions=[Region(block)],
        location=(members[-1] if members else fusion).location,
    )
