"""A fusion of some of the ops of another one, to be looked at: it reads the same tensors, and what others make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects.base import ints
from ...dialects.graph import FusionOp, YieldOp
from ...dialects.graph.control import AXES, axes_of


class CopiedFusion:
    """A fusion in the making out of ops of another one. It has the same block arguments, and one for each value that is
    `made` elsewhere. renumbered: what axes are called in it."""

    def __init__(self, fusion: FusionOp, made: Sequence[SSAValue], renumbered: Mapping[int, int]) -> None:
        self.whole, self.renumbered = fusion, renumbered
        given = [*fusion.body.block.args, *made]
        self.block = Block(arg_types=[v.type for v in given])
        self.inside: dict[SSAValue, SSAValue] = dict(zip(given, self.block.args, strict=True))

    def value(self, value: SSAValue) -> SSAValue:
        """The copy of a value, with all that it is made of."""
        needed: set[Operation] = set()
        stack = [value]
        while stack:
            found = stack.pop()
            op = found.owner
            if found not in self.inside and isinstance(op, Operation) and op not in needed:
                needed.add(op)
                stack += op.operands
        for op in self.whole.body.block.ops if needed else ():
            if op in needed:
                self._copy(op)
        return self.inside[value]

    def _copy(self, op: Operation) -> None:
        attributes, axes = dict(op.attributes), axes_of(op)
        if axes is not None and self.renumbered:
            attributes[AXES] = ints([self.renumbered.get(a, -1) for a in axes])
        new = type(op).create(
            operands=[self.inside[v] for v in op.operands],
            result_types=[r.type for r in op.results],
            properties=op.properties,
            attributes=attributes,
            location=op.location,
        )
        self.block.add_op(new)
        self.inside.update(zip(op.results, new.results, strict=True))

    def fusion(self, kind: str, domain: Sequence[int], result: SSAValue) -> FusionOp:
        self.block.add_op(YieldOp.create(operands=[result]))
        return FusionOp.create(
            operands=[],
            result_types=[result.type],
            properties={"kind": StringAttr(kind), "domain": ints(domain)},
            regions=[Region(self.block)],
            location=self.whole.location,
        )
