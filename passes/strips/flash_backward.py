"""The backward pass of flash attention: each of several products that take what is made of the same scores becomes
chained products, with scores of its own. Such are the gradient of attention, and attention itself beside it.

Before:  s = q k^T ;  p = softmax(s) ;  o = p v
         g = d v^T ;  c = p (g - sum(p g)) ;  dq = c k ;  dk = c^T q ;  dv = p^T d
After:   o, m, l = attention(q, k, v), with the maxima and sums of its rows ;  r = sum(d o)
         dq = (e / l (d v^T - r)) k, with e = exp(q k^T - m) ;  dk and dv likewise

Nothing with an element for each pair of a row and a key is stored: scores are computed anew for each product, and what
else these need has one number for each row. The sum over keys of weights times their gradient is one over the columns
of the result, which there are: sum_k p_k (d . v_k) = d . sum_k p_k v_k = d . o (Dao et al., FlashAttention, 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from xdsl.dialects.builtin import UnitAttr, f32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialects.base import describe, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size
from ...dialects.graph import ELEMENTWISE, ContractOp, ElementwiseOp, FusionOp, ReduceOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import certain, choosing
from ...machine import Machine
from ..forms import chained
from ..forms.access import splat_of
from ..forms.attention import Attention, attention_at
from ..forms.chained import (
    OWN_SCORES,
    PLAIN_LAYOUT,
    Chained,
    chained_at,
    products_behind,
    spread_axes,
    unsuited,
)
from ..forms.layout_axes import Axes, behind
from ..forms.tensor_builder import BlockBuilder
from ..program.hoist import needed_by, outer_operands
from ..reasons import Reason
from ..rewriting import erase_dead
from ..simplify.grouped_sums import GroupedSum
from .strip_groups import LEAST_GROWTH
from .weighted_sums import WeightedSum, weighted_sum

MOST_PRODUCTS = 4
"""Products that are given scores of their own: those of attention and of its gradient."""


@dataclass
class SharedScores:
    """Products that take what is made of the same scores. first: the first products; wide: the ops that have an element
    for each score; last: the products that take these; sums: the reductions of them."""

    first: list[ContractOp]
    wide: set[Operation] = field(default_factory=set)
    last: list[ContractOp] = field(default_factory=list)
    sums: list[ReduceOp] = field(default_factory=list)

    def grow(self) -> Operation | None:
        """Finds all that depends on the scores; the first op that is of none of these kinds, if there is one."""
        whole, done = size(shape_of(self.first[0].result)), 0
        pending: list[Operation] = [*self.first]
        while pending or done < len(self.last):
            while pending:
                op = pending.pop()
                for user in [use.operation for r in op.results for use in r.uses]:
                    if isinstance(user, ContractOp):
                        self.last += [user] if user not in self.last else []
                    elif isinstance(user, ReduceOp):
                        self.sums += [user] if user not in self.sums else []
                    elif user.parent is not op.parent or not self._is_wide(user, whole):
                        return user
                    elif user not in self.wide:
                        self.wide.add(user)
                        pending.append(user)
            for last in self.last[done:]:
                for value in last.operands:
                    if certain(size(shape_of(value)), "==", whole):
                        found = [op for op in products_behind(value) if op not in self.first]
                        self.first += found
                        pending += found
            done = len(self.last)
            if done > MOST_PRODUCTS:
                return self.last[-1]
        return None

    @staticmethod
    def _is_wide(op: Operation, count: int) -> bool:
        """Whether an op makes one element of each of so many."""
        return isinstance(op, (ElementwiseOp, *PLAIN_LAYOUT)) and certain(size(shape_of(op.results[0])), "==", count)


def apply_flash_backward(block: Block, machine: Machine, reasons: list[Reason] | None) -> None:
    """Gives the products of a block, and of those in its regions, that share many scores such of their own, where that
    makes each of them one kernel. `reasons` gets why not."""
    if machine.fused:
        return
    for op in block.ops:
        if not isinstance(op, FusionOp):
            for region in op.regions:
                for inner in region.blocks:
                    apply_flash_backward(inner, machine, reasons)
    seen: set[Operation] = set()
    for seed in [op for op in block.ops if isinstance(op, ContractOp)]:
        if seed in seen or seed.parent is not block:
            continue
        between = size(shape_of(seed.result)) * itemsize(f32)
        with choosing():
            small = between <= chained.LEAST_BYTES
        if small and reasons is None:
            continue
        shared = SharedScores([seed])
        stray = shared.grow()
        seen.update(shared.first)
        if len(shared.last) < 2:
            continue
        found = _Rewrite(shared, machine)
        why = found.misfit() if stray is None else f"{describe(stray)} needs its scores or weights, too"
        why = why or found.better_stored(between)
        if why is None:
            found.apply()
            continue
        found.drop()
        if reasons is not None and any(attention_of(op, machine) for op in shared.last):
            reasons.append(Reason("not chained", (shared.last[-1],), why))


def attention_of(product: ContractOp, machine: Machine) -> Attention | None:
    """The attention that ends in a product, whatever else needs its weights; None where another product is behind what
    it takes, as in the gradient of the scores, which is of the weights, too."""
    found = attention_at(product, machine, shared=True)
    if not isinstance(found, Attention):
        return None
    return found if products_behind(product.operands[found.weights]) == [found.scores] else None


def in_flash_backward(block: Block) -> set[Operation]:
    """The first products of a block that have been given to a kernel of chained products."""
    marked = [op for op in block.ops if isinstance(op, ContractOp) and OWN_SCORES in op.attributes]
    return {first for op in marked for v in op.operands for first in products_behind(v)}


class _Rewrite:
    """Finds whether products that share scores are kernels with scores of their own, and makes them such."""

    def __init__(self, shared: SharedScores, machine: Machine) -> None:
        self.shared, self.machine = shared, machine
        self.chained: list[Chained] = []
        self.forward: Attention | None = None
        self.sums: list[WeightedSum] = []
        """The sums of weights times their gradient."""
        self.copied: dict[SSAValue, SSAValue] = {}
        """What others take in the place of what the softmax makes of its maxima and sums."""
        self.inverse: SSAValue | None = None
        self.parted: list[GroupedSum] = []
        """Products over groups of heads and keys, each of which is one for each group."""

    def misfit(self) -> str | None:
        """Why they stay as they are; None where they do not."""
        for last in self.shared.last:
            op = self._by_group(last)
            found = attention_of(op, self.machine) or chained_at(op, self.machine, shared=True)
            if found is None or found.is_decode:
                return f"{describe(last)} and what its scores become are no kernel"
            self.chained.append(found)
        attention = [at for at in self.chained if isinstance(at, Attention)]
        if len(attention) > 1:
            return "there are two softmaxes of the same scores"
        self.forward = next(iter(attention), None)
        left = [op for op in self.shared.sums if self.forward is None or op not in self.forward.reductions]
        for op in left:
            found = None
            if self.forward is not None:
                made = {*self.shared.first, *self.shared.wide}
                found = weighted_sum(op, self.forward, self._wide_axes(self.forward), made)
            if found is None:
                return f"{describe(op)} is a sum of what its scores become, which is none of its result"
            self.sums.append(found)
        return None

    def _by_group(self, op: ContractOp) -> ContractOp:
        """A product that sums over several axes of scores, as one for each place along all but the longest of them;
        others as they are."""
        whole = size(shape_of(self.shared.first[0].result))
        for side, value in enumerate(op.operands):
            if certain(size(shape_of(value)), "==", whole) and products_behind(value):
                found = GroupedSum.of(op, side)
                self.parted += [found] if found is not None else []
                return op if found is None else found.product
        return op

    def drop(self) -> None:
        """Leaves all as it was."""
        for each in self.parted:
            each.drop()

    @choosing()
    def better_stored(self, between: int) -> str | None:
        """Why scores of so many bytes are better stored; None where they are not."""
        if between <= chained.LEAST_BYTES:
            return f"the {between} bytes of its scores stay in L2, as any up to {chained.LEAST_BYTES} do"
        for at in self.chained:
            if at is not self.forward and (why := unsuited(at, self.machine)) is not None:
                return why
        inputs = max(size(shape_of(v)) for op in self.shared.first for v in op.operands)
        if between < LEAST_GROWTH * inputs * itemsize(f32):
            return "its scores are few beside what they are made of"
        cycles = max(self._cycles(op) for at in self.chained for op in at.first)
        if between < chained.LEAST_BYTES * cycles / chained.CYCLES:
            return f"16 x 16 of its scores take {cycles:.0f} cycles to be made anew, which is more than to load them"
        keys = min(shape_of(at.scores.result)[at.keys] for at in self.chained)
        if keys < chained.LEAST_LENGTH:
            return f"it has {keys} rows or keys, and scores are computed anew for {chained.LEAST_LENGTH} and more"
        return None

    def _cycles(self, op: ContractOp) -> float:
        """Cycles in which a cube sums up 16 x 16 elements of a product."""
        rate = self.machine.cube[dtype_name(element_of(op.lhs))]
        return 256 / (rate.m * rate.n) * size([shape_of(op.lhs)[d] for d in to_ints(op.lhs_contract)]) / rate.k

    def _wide_axes(self, forward: Attention) -> dict[SSAValue, Axes]:
        """The axes of all that has an element for each score."""
        start = forward.scores.result
        known: dict[SSAValue, Axes] = {start: forward.axes[start]}
        spread_axes(known, [op for op in self.shared.wide if isinstance(op, ElementwiseOp)])
        return known

    def apply(self) -> None:
        """Writes it."""
        block = self.shared.first[0].parent
        assert block is not None
        for each in self.sums:
            each.write()
        for parted in self.parted:
            parted.write()
        kept = self.forward or self.chained[0]
        if self.forward is not None:
            self._apart(self.forward)
        for at in self.chained:
            at.product.attributes[OWN_SCORES] = UnitAttr()
            if at is not kept:
                self._copy(at)
        erase_dead(block)
        if self.forward is not None:
            _put_behind(self.forward)

    def _apart(self, forward: Attention) -> None:
        """Makes what the softmax makes of its maxima and sums, as their conversions, once more for all others."""
        inside = needed_by(forward.product)
        late: set[SSAValue] = {op.results[0] for op in forward.reductions}
        for op in list(forward.product.parent.ops if forward.product.parent else ()):
            result = next(iter(op.results), None)
            if op not in inside or op in self.shared.wide or result is None or not any(v in late for v in op.operands):
                continue
            late.add(result)
            if self._is_peak(op):
                self.copied[result] = forward.peak.result
            else:
                build = BlockBuilder(Block(), op.location)
                operands = [self.copied.get(v, v) for v in op.operands]
                self.copied[result] = build.add(type(op), operands, result.type, **op.properties)
                Rewriter.inline_block(build.block, InsertPoint.after(op))
            result.replace_uses_with_if(self.copied[result], lambda use: use.operation not in inside)

    def _copy(self, at: Chained) -> None:
        """Makes what a product takes for it alone."""
        build, weights = BlockBuilder(Block(), at.product.location), at.product.operands[at.weights]
        made = dict(self.copied)
        needed, stack = set[Operation](), [weights]
        while stack:
            value = stack.pop()
            op = value.owner
            if value not in made and isinstance(op, Operation) and op not in needed and self._remade(op):
                needed.add(op)
                stack += op.operands if op not in self.shared.first else ()
        block = at.product.parent
        assert block is not None
        for op in [op for op in block.ops if op in needed]:
            build.location = op.location
            operands = [made.get(v, v) for v in op.operands]
            factor = self._factor(build, op)
            if factor is not None:
                copied = build.elementwise("mul", operands[0], factor)
            else:
                copied = build.add(type(op), operands, op.results[0].type, **op.properties)
            copied.name_hint = op.results[0].name_hint
            made[op.results[0]] = copied
        Rewriter.inline_block(build.block, InsertPoint.before(at.product))
        at.product.operands[at.weights] = made[weights]

    def _factor(self, build: BlockBuilder, op: Operation) -> SSAValue | None:
        """What an op that divides multiplies by instead, which takes a quarter of the time: the inverse of the sums of
        rows, of which there is one for each, or that of a power of two, which is exact. None for another op."""
        if not isinstance(op, ELEMENTWISE["div"]) or dtype_name(element_of(op.results[0])) != "f32":
            return None
        number = splat_of(op.operands[1])
        if number is not None:
            exact = 2.0**-100 < abs(number) < 2.0**100 and abs(math.frexp(number)[0]) == 0.5
            return build.constant(1 / number, shape_of(op.results[0]), f32) if exact else None
        chain, base = behind(op.operands[1])
        if self.forward is None or base is not self.forward.total.result:
            return None
        value = self._inverse()
        for layout in reversed(chain):
            value = build.add(type(layout), [value], layout.results[0].type, **layout.properties)
        return value

    def _inverse(self) -> SSAValue:
        """The inverses of the sums of rows."""
        assert self.forward is not None
        total = self.forward.total
        if self.inverse is None:
            build = BlockBuilder(Block(), total.location)
            self.inverse = build.elementwise("div", build.constant(1, shape_of(total.result), f32), total.result)
            Rewriter.inline_block(build.block, InsertPoint.after(total))
        return self.inverse

    def _remade(self, op: Operation) -> bool:
        """Whether an op is one of those that are computed anew: all that has an element for each score."""
        return op in self.shared.wide or op in self.shared.first or isinstance(op, PLAIN_LAYOUT)

    def _is_peak(self, op: Operation) -> bool:
        """Whether an op gives the maxima of rows as they are."""
        if self.forward is None or not isinstance(op, ELEMENTWISE["max"]):
            return False
        lowest = [v for v in op.operands if splat_of(v) == float("-inf")]
        others = [v for v in op.operands if v not in lowest]
        return len(others) == 1 and others[0] is self.forward.peak.result


def _put_behind(forward: Attention) -> None:
    """Puts what needs the maxima and sums of attention, and not its result, behind it: it stores them with that."""
    block, needed = forward.product.parent, needed_by(forward.product)
    assert block is not None
    late: set[SSAValue] = {op.results[0] for op in forward.reductions}
    at: Operation = forward.product
    op: Operation | None = forward.peak
    while op is not None and op is not forward.product:
        following = op.next_op
        if op not in needed and any(v in late for v in outer_operands(op)):
            late.update(op.results)
            op.detach()
            block.insert_op_after(op, at)
            at = op
        op = following
