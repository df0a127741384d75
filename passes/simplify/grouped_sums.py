"""Takes a product apart that sums over several axes: one for each place along all but the longest, and their sum.

    [b, h, k, d] = sum over g and q of w[b, g, h, q, k] x[b, g, h, q, d]

    each [b, h, g, k, d] = sum over q ; the result = sum of each over g

The gradients of keys and values that several heads share are such products.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import f32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialects.base import ints, to_ints
from ...dialects.dtypes import is_float, itemsize, tensor
from ...dialects.graph import ContractOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import choosing
from ..forms.tensor_builder import BlockBuilder


@dataclass
class GroupedSum:
    """A product, and the one of all groups that takes its place, with the ops that add up what this gives."""

    op: ContractOp
    product: ContractOp
    added: list[Operation]
    total: SSAValue

    @classmethod
    def of(cls, op: ContractOp, side: int) -> GroupedSum | None:
        """Puts them before the product, which stays in use; None where it sums over one axis of the operand `side`."""
        shape = shape_of(op.operands[side])
        contracted = to_ints(op.lhs_contract), to_ints(op.rhs_contract)
        with choosing():
            wide = [i for i, d in enumerate(contracted[side]) if shape[d] != 1]
            wide.sort(key=lambda i: shape[contracted[side][i]])
        groups, block = wide[:-1], op.parent
        if not groups or block is None:
            return None
        build = BlockBuilder(Block(), op.location)
        dims = {
            f"{name}_{what}": ints(numbers)
            for name, own, batch in zip(
                ("lhs", "rhs"), contracted, (to_ints(op.lhs_batch), to_ints(op.rhs_batch)), strict=True
            )
            for what, numbers in (
                ("batch", [*batch, *(own[i] for i in groups)]),
                ("contract", [d for i, d in enumerate(own) if i not in groups]),
            )
        }
        result, batches = shape_of(op.result), len(to_ints(op.lhs_batch))
        each = [*result[:batches], *(shape[contracted[side][i]] for i in groups), *result[batches:]]
        element = element_of(op.result)
        kind = f32 if is_float(element) and itemsize(element) < itemsize(f32) else element
        made = build.add(ContractOp, op.operands, tensor(each, kind), **{**op.properties, **dims})
        total = build.reduce(made, "sum", range(batches, batches + len(groups)))
        total = build.convert(total, element)
        added = list(build.block.ops)
        Rewriter.inline_block(build.block, InsertPoint.before(op))
        product = made.owner
        assert isinstance(product, ContractOp)
        return cls(op, product, added, total)

    def write(self) -> None:
        """Puts the sum in the place of the product."""
        self.total.name_hint = self.op.result.name_hint
        self.op.result.replace_all_uses_with(self.total)
        self.op.detach()
        self.op.erase()

    def drop(self) -> None:
        """Takes all of it away."""
        for op in reversed(self.added):
            op.detach()
            op.erase()
