"""Makes one fusion of several, one behind the other, and puts it in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue

from ...dialects.graph import FusionOp, YieldOp
from ..reasons import join_reasons

Attributes = Callable[[Operation], Mapping[str, Attribute]]
"""The attributes of an op's copy."""


class MergedBody:
    """What becomes the body of the fusion. known: what stands in it for the values of the fusions and around them."""

    def __init__(self, inputs: Iterable[SSAValue]) -> None:
        """inputs: what the fusions take that none of them gives."""
        self.inputs = list(dict.fromkeys(inputs))
        self.block = Block(arg_types=[v.type for v in self.inputs])
        self.known: dict[SSAValue, SSAValue] = dict(zip(self.inputs, self.block.args, strict=True))

    def add(self, part: FusionOp, attributes: Attributes) -> None:
        """Copies the ops of a fusion that reads what is known."""
        inside: dict[SSAValue, SSAValue] = {
            a: self.known[v] for a, v in zip(part.body.block.args, part.inputs, strict=True)
        }
        for op in part.body.block.ops:
            if isinstance(op, YieldOp):
                self.known.update((r, inside[v]) for r, v in zip(part.results, op.values, strict=True))
                continue
            copy = op.clone(inside)
            copy.attributes = dict(attributes(op))
            self.block.add_op(copy)

    def fusion(self, results: Sequence[SSAValue], first: FusionOp) -> FusionOp:
        """The fusion, in no block yet, which gives these results of its parts, over the domain of the first one."""
        self.block.add_op(YieldOp.create(operands=[self.known[r] for r in results]))
        return FusionOp.create(
            operands=self.inputs,
            result_types=[r.type for r in results],
            properties={"kind": StringAttr("mix"), "domain": first.domain},
            regions=[Region(self.block)],
            location=first.location,
        )


def put_in_place(
    joined: FusionOp, parts: Sequence[FusionOp], results: Sequence[OpResult], at: FusionOp | None = None
) -> None:
    """Puts a fusion in the place of those that it was made of, with these results of theirs, in its order. at: the part
    in whose place it is; the first one, unless what it takes is made behind that."""
    place = at or parts[0]
    block = place.parent
    assert block is not None
    block.insert_op_before(joined, place)
    join_reasons(joined, parts, results)
    for old, new in zip(results, joined.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    for op in reversed(parts):
        op.detach()
        op.erase()
