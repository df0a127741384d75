"""What is computed of tensors, element by element, right before an op takes all of it in another shape.

A reduction that is cut among cores reads its operand in parts. Where elementwise ops make that operand, these are ops
on the parts of what they read, so that one kernel has both and nothing between them is stored.

Before:  %y = graph.mul %x, %x : [4096, 1024] ; parts of %y : [32, 128, 1024]
After:   %p = parts of %x ; %z = graph.mul %p, %p : [32, 128, 1024]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from ...dialects.base import to_ints
from ...dialects.dtypes import itemsize, tensor
from ...dialects.graph import BroadcastOp, ContractOp, ConvOp, ElementwiseOp, ReshapeOp
from ...dialects.graph.interface import element_of, shape_of
from ..forms.access import is_layout, rearranges, splat_of
from ..forms.tensor_builder import RewriteBuilder


@dataclass(frozen=True)
class ElementwisePrologue:
    """The elementwise `ops` that make `value`, and the reshapes among them; none where another op makes it."""

    value: SSAValue
    ops: frozenset[Operation]

    def leaves(self) -> Iterator[SSAValue]:
        """What these ops read, or the value where there are none."""
        if not self.ops:
            yield self.value
        for op in self.ops:
            yield from (v for v in op.operands if v.owner not in self.ops)

    def rebuilt(
        self, build: RewriteBuilder, leaf: Callable[[SSAValue], SSAValue], shape: Sequence[int]
    ) -> SSAValue:
        """The value in another shape, made of what `leaf` gives of all that the ops read, brought into the shape of
        the value before."""
        made: dict[SSAValue, SSAValue] = {}
        pending = [self.value]
        while pending:  # a stack and no recursion: chains may be long
            value = pending[-1]
            op = value.owner
            if value in made:
                pending.pop()
            elif op not in self.ops or not isinstance(op, Operation):
                number, given = splat_of(value), list(shape_of(self.value))
                if number is not None:
                    made[value] = build.constant(number, shape, element_of(value))
                else:
                    made[value] = leaf(
                        value if list(shape_of(value)) == given else build.reshape(value, given)
                    )
            elif missing := [v for v in op.operands if v not in made]:
                pending += reversed(missing)
            elif isinstance(op, ReshapeOp):
                made[value] = made[op.x]
            else:
                result = tensor(shape, element_of(value))
                copy = build.insert(
                    type(op).create(
                        operands=[made[v] for v in op.operands],
                        result_types=[result],
                        properties=op.properties,
                        location=op.location,
                    )
                )
                made[value] = copy.results[0]
        return made[self.value]


def prologue_of(value: SSAValue, user: Operation) -> ElementwisePrologue:
    """The elementwise ops that make a value for `user` and other ops of its class alone. None where they are all that
    reads a product: then they are its epilogue, which stores no more than the product would."""
    found: set[Operation] = set()
    pending = [value]
    while pending:  # an op is looked at again for each of its users
        op = pending.pop().owner
        if not isinstance(op, ElementwiseOp | ReshapeOp) or op in found or op.parent is not user.parent:
            continue
        users = (use.operation for result in op.results for use in result.uses)
        light = isinstance(op, ReshapeOp) or _light(op)
        if light or all(u in found or type(u) is type(user) for u in users):
            found.add(op)
            pending += op.operands
    made = ElementwisePrologue(value, frozenset(found))
    refused = any(_alone(leaf, made.ops) or _reshaped(leaf, value) for leaf in made.leaves())
    return ElementwisePrologue(value, frozenset()) if refused else made


def _reshaped(leaf: SSAValue, value: SSAValue) -> bool:
    """Whether a leaf of a value is in another shape, into which only a copy would bring it."""
    return list(shape_of(leaf)) != list(shape_of(value)) and is_layout(leaf.owner) and splat_of(leaf) is None


def _light(op: ElementwiseOp) -> bool:
    """Whether loading the operand of an op and computing it anew takes no more memory traffic than loading its result:
    it is of one tensor, of no wider numbers."""
    tensors = {v for v in op.operands if splat_of(v) is None}
    return len(tensors) == 1 and all(
        itemsize(element_of(v)) <= itemsize(element_of(op.results[0])) for v in tensors
    )


def _alone(value: SSAValue, ops: frozenset[Operation]) -> bool:
    """Whether a value is a product, seen through layout ops, that `ops` alone read."""
    while value.owner not in ops and all(u.operation in ops or is_layout(u.operation) for u in value.uses):
        if isinstance(value.owner, ContractOp | ConvOp):
            return True
        if not rearranges(value.owner):
            return False
        value = value.owner.operands[0]
    return False


def cuts_across(value: SSAValue, dims: Sequence[int]) -> bool:
    """Whether dimensions of a value become one without a copy of it: it is a tensor of its own, one number, or alike
    along all of them."""
    op = value.owner
    if isinstance(op, BroadcastOp):
        return not set(to_ints(op.dims)) & set(dims)
    return not is_layout(op)
