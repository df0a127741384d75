"""The split of an oversized fusion into several.

graph-fuse only estimates a kernel's on-chip footprint. Where values do not fit on chip together, the members of a
fusion, in order, become two fusions, split where the least data crosses. Layout ops stay with the ops that read through
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects.base import ints, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import ContractOp, ConvOp, FusionOp, YieldOp
from ...dialects.graph.control import axes_of
from ...dialects.graph.interface import element_of, shape_of


def split_in_two(fusion: FusionOp) -> list[FusionOp]:
    """Replaces `fusion` by two fusions that do the same, and gives them in order; none where it has one member."""
    members = members_of(fusion)
    if len(members) < 2:
        return []
    results = fusion.yielded(0).values
    middle = range(max(len(members) // 4, 1), max(len(members) * 3 // 4, 1) + 1)
    cuts = [_Cut(results, set(members[:n]), set(members[n:])) for n in middle]
    cut = min(cuts, key=lambda c: (c.bytes_over, abs(len(c.first) - len(c.second))))
    parts = FusionParts(fusion, [cut.first, cut.second])
    parts.replace()
    return parts.fusions


def members_of(fusion: FusionOp) -> list[Operation]:
    """The ops of a fusion that compute, in order; the others describe how values are read."""
    return [op for op in fusion.body.block.ops if "axes" in op.attributes]


class FusionParts:
    """Fusions that do together what another one does, in order; they are in no block before `replace`.

    members: the members of each, of which none reads what a later one makes. A part gives results of the fusion, and
    what later parts read.
    """

    def __init__(self, fusion: FusionOp, members: Sequence[Set[Operation]]):
        self.fusion, self.values = fusion, list(fusion.yielded(0).values)
        owners = {op: i for i, ops in enumerate(members) for op in ops}
        makers: dict[Block | Operation, int] = {}
        for op in (
            fusion.body.block.ops
        ):  # what only describes how values are read is in the last part that it needs
            makers[op] = (
                owners[op] if op in owners else max((makers.get(v.owner, 0) for v in op.operands), default=0)
            )
        given: list[dict[SSAValue, None]] = [{} for _ in members]
        for value in self.values:
            given[makers.get(value.owner, 0)][value] = None
        inner: list[set[Operation]] = []
        for i in reversed(range(len(members))):
            ops, sources = _behind(list(given[i]), lambda op, i=i: owners.get(op, i) != i)
            inner.append(ops)
            for value in sources:
                if isinstance(value.owner, Operation):
                    given[owners[value.owner]][value] = None
        outer: dict[SSAValue, SSAValue] = dict(zip(fusion.body.block.args, fusion.inputs, strict=True))
        self.fusions: list[FusionOp] = []
        for outputs, ops in zip(given, reversed(inner), strict=True):
            part = _part(fusion, list(outputs), ops, outer)
            outer.update(zip(outputs, part.results, strict=True))
            self.fusions.append(part)
        self.outer = outer

    def replace(self) -> None:
        """Puts the parts in the place of the fusion."""
        block = self.fusion.parent
        assert block is not None
        block.insert_ops_before(self.fusions, self.fusion)
        for old, value in zip(self.fusion.results, self.values, strict=True):
            self.outer[value].name_hint = old.name_hint
            old.replace_all_uses_with(self.outer[value])
        self.fusion.detach()
        self.fusion.erase()

    def drop(self) -> None:
        """Forgets the parts."""
        for part in reversed(self.fusions):
            part.erase()


class _Cut:
    """`first` and `second` members apart: how many bytes the second ones take from the first."""

    def __init__(self, results: Sequence[SSAValue], first: Set[Operation], second: Set[Operation]):
        self.first, self.second = first, second
        late = [v for v in dict.fromkeys(results) if _behind([v], lambda op: False)[0] & second]
        over = [v for v in _behind(late, first.__contains__)[1] if v.owner in first]
        self.bytes_over = sum(size(shape_of(v)) * itemsize(element_of(v)) for v in over)


def _behind(
    values: Sequence[SSAValue], stop: Callable[[Operation], bool]
) -> tuple[set[Operation], list[SSAValue]]:
    """The ops that make these values, as far back as ops where it stops and block arguments; what is taken from
    those."""
    ops: set[Operation] = set()
    sources: dict[SSAValue, None] = {}
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value.owner, Block) or stop(value.owner):
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
