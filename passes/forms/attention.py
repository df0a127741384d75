"""Finds attention in plain products, maxima, exponentials and sums: g(softmax(f(q k))) v, where f is elementwise. So is
g, and it is linear: it multiplies weights by what does not depend on them, or leaves some out, as dropout does.

    scores = contract(q, k);  x = f(scores, ...);  e = exp(x - max(x));  result = contract(g(e / sum(e), ...), v)

Nothing but the result is needed elsewhere, each row of x has one axis of keys, and v has the keys' axis and one more.
What f and g take besides scores and weights comes from outside (a mask, a bias), or is made of positions and numbers
alone (a causal mask): then it is computed anew in the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import describe, text
from ...dialects.graph import ELEMENTWISE, ContractOp, ReduceOp
from ...machine import Machine
from ..errors import attempted
from ..reasons import Reason
from .access import splat_of
from .back_to_back import stays_on_cube
from .chained import (
    LEAST_ROWS,
    MOST_GENERATED,
    OWN_SCORES,
    Chained,
    Members,
    better_apart,
    chained_at,
    made_by,
    products_behind,
    unfit,
)


@dataclass(kw_only=True)
class Attention(Chained):
    """Chained products between which there is a softmax: peak, exponential, total and quotient are its maximum,
    exponential, sum and result."""

    peak: ReduceOp
    exponential: Operation
    total: ReduceOp
    quotient: Operation

    @property
    def reductions(self) -> tuple[Operation, ...]:
        return (self.peak, self.total)


def chained_products(block: Block, machine: Machine, reasons: list[Reason] | None = None) -> list[Chained]:
    """What of a block one kernel of a machine computes that has two products: all attention, and of what else is
    chained what is worth it. `reasons` gets why the others are not such."""
    if machine.fused and reasons is None:
        return []
    answers = [
        attempted(f"finding attention at {describe(op)}", partial(in_one_kernel, op, machine), None)
        for op in block.ops
        if isinstance(op, ContractOp)
    ]
    if reasons is not None:
        reasons += [why for why in answers if isinstance(why, Reason)]
    found = [at for at in answers if isinstance(at, Chained)]
    kept: list[Chained] = []
    taken: set[Operation] = set()
    for at in sorted(found, key=lambda at: not isinstance(at, Attention)):
        own = set(at.members).difference(at.generated)
        if not taken & own:
            kept.append(at)
            taken |= own
    return kept


def in_one_kernel(product: ContractOp, machine: Machine) -> Chained | Reason | None:
    """What ends in a product and one kernel of a machine computes that has two, or why none does; None where nothing
    asks for one."""
    attention = attention_at(product, machine)
    if isinstance(attention, str):
        return Reason("not attention", (product,), attention)
    found = attention or chained_at(product, machine)
    if found is None or found is attention or OWN_SCORES in product.attributes:
        return found
    if stays_on_cube(found, machine):
        return found
    why = better_apart(found, machine)
    return found if why is None else Reason("not chained", (product,), why)


def attention_at(product: ContractOp, machine: Machine, shared: bool = False) -> Attention | str | None:
    """The attention that ends in a product, or why it is not computed as such though a softmax of scores is an operand;
    None where none is. shared: something else may need what is between the products."""
    why = None
    for side in (0, 1):
        found = _softmax(product, side)
        if found is not None:
            why = unfit(found, machine) or _AttentionMembers(found, shared).misfit()
            if why is None:
                return found
    return why


def _softmax(product: ContractOp, side: int) -> Attention | None:
    """The ops by which an operand of a product is a softmax of scores."""
    quotient = _quotient_behind(product.operands[side])
    if quotient is None:
        return None
    exponential, total = (made_by(v) for v in quotient.operands)
    if not isinstance(exponential, ELEMENTWISE["exp"]) or not isinstance(total, ReduceOp):
        return None
    if text(total.kind) != "sum" or made_by(total.x) is not exponential:
        return None
    difference = made_by(exponential.operands[0])
    if not isinstance(difference, ELEMENTWISE["sub"]):
        return None
    x, peak = difference.operands[0], made_by(difference.operands[1])
    if isinstance(peak, ELEMENTWISE["max"]):
        reduced = [op for v in peak.operands if splat_of(v) is None for op in [made_by(v)]]
        least = [splat_of(v) for v in peak.operands if splat_of(v) is not None]
        peak = reduced[0] if len(reduced) == 1 and least == [float("-inf")] else None
    if not isinstance(peak, ReduceOp) or text(peak.kind) != "max" or made_by(peak.x) is not made_by(x):
        return None
    first = products_behind(x)
    if len(first) != 1:
        return None
    return Attention(
        scores=first[0],
        x=x,
        weights=side,
        product=product,
        peak=peak,
        exponential=exponential,
        total=total,
        quotient=quotient,
    )


def _quotient_behind(value: SSAValue) -> Operation | None:
    """The division of an exponential by sums that a value is, but for ops that are linear in it."""
    stack, seen = [value], set[Operation]()
    while stack:
        op = made_by(stack.pop())
        if op is None or op in seen or len(seen) == MOST_GENERATED:
            continue
        seen.add(op)
        if isinstance(op, ELEMENTWISE["div"]) and isinstance(made_by(op.operands[0]), ELEMENTWISE["exp"]):
            return op
        stack += _linear_in(op)
    return None


def _linear_in(op: Operation) -> Sequence[SSAValue]:
    """The operands in each of which an op is linear, where the others do not depend on it."""
    if isinstance(op, ELEMENTWISE["mul"]):
        return op.operands
    if isinstance(op, (ELEMENTWISE["div"], ELEMENTWISE["neg"])):
        return op.operands[:1]
    if isinstance(op, ELEMENTWISE["select"]):
        return [v for v, other in (op.operands[1:], op.operands[:0:-1]) if splat_of(other) == 0]
    return ()


class _AttentionMembers(Members):
    """Finds the members of attention and their axes."""

    def __init__(self, attention: Attention, shared: bool) -> None:
        super().__init__(attention, shared)
        self.attention = attention

    def unfit(self) -> str | None:
        """Why what becomes of the quotient is not linear in it, so that of each op one operand alone depends on scores;
        None where it is. Of few rows nothing becomes of it, as their kernel divides at the end."""
        at = self.attention
        op = made_by(at.product.operands[at.weights])
        if at.is_decode and op is not at.quotient:
            return f"it has fewer than {LEAST_ROWS} rows, whose kernel has no weights for what is behind the softmax"
        while op is not at.quotient:
            inside = [v for v in op.operands if made_by(v) in self.within] if op is not None else []
            if op is None or len(inside) != 1 or inside[0] not in _linear_in(op):
                return "what stands behind its softmax is not linear in the weights"
            op = made_by(inside[0])
        return None
