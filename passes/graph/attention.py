"""Finds attention in plain products, maxima, exponentials and sums: g(softmax(f(q k))) v, where f is elementwise. So is
g, and it is linear: it multiplies weights by what does not depend on them, or leaves some out, as dropout does.

    scores = contract(q, k);  x = f(scores, ...);  e = exp(x - max(x));  result = contract(g(e / sum(e), ...), v)

Nothing but the result is needed elsewhere, each row of x has one axis of keys, and v has the keys' axis and one more.
What f and g take besides scores and weights comes from outside (a mask, a bias), or is made of positions and numbers
alone (a causal mask): then it is computed anew in the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import describe, text, to_ints
from ...dialects.dtypes import dtype_name, size
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ContractOp,
    ElementwiseOp,
    IotaOp,
    ReduceOp,
    ReshapeOp,
    TransposeOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open, certain
from ...machine import Machine
from ..access import splat_of
from ..reasons import Reason
from .layout_axes import Axes, Broadcast, axes_behind, backward_axes, behind

PLAIN_LAYOUT = (BroadcastOp, ReshapeOp, TransposeOp)
FLOATS = ("f16", "bf16", "f32")
LEAST_KEYS, LEAST_ROWS = 16, 16
"""Fewer keys than a fractal of the cube has are no work for a kernel. Fewer rows are none for one that hands tiles from
core to core, but for the vector cores alone."""

MOST_GENERATED = 16
"""Ops of positions and numbers that are computed anew for each tile; what takes more of them is an input."""


@dataclass
class Attention:
    """Attention in a block. Axes are the dimensions of the scores, in order, and behind them that of the result that v
    has alone.

    scores, product: its two products. x: what the softmax is of. peak, exponential, total, quotient: its maximum,
    exponential, sum and result. weights: the number of the operand of `product` that they are. members: all ops but
    layout ops, in order; generated: those of them that are made of positions and numbers alone. axes: of each value of
    a member.
    """

    scores: ContractOp
    x: SSAValue
    peak: ReduceOp
    exponential: Operation
    total: ReduceOp
    quotient: Operation
    weights: int
    product: ContractOp
    members: list[Operation] = field(default_factory=list)
    generated: list[Operation] = field(default_factory=list)
    axes: dict[SSAValue, Axes] = field(default_factory=dict)
    keys: int = -1
    few: bool = False
    """Whether it has fewer rows than a cube takes at once: a step of decoding."""

    @property
    def domain(self) -> tuple[int, ...]:
        """The extents of its axes."""
        (own,) = (d for d in self.product.free_dims()[1 - self.weights] if shape_of(self.values)[d] != 1)
        return (*shape_of(self.scores.result), shape_of(self.values)[own])

    @property
    def values(self) -> SSAValue:
        """What the weights are of: v."""
        return self.product.operands[1 - self.weights]


def attentions(block: Block, machine: Machine, reasons: list[Reason] | None = None) -> list[Attention]:
    """All attention in a block that one kernel of a machine can compute, in order. `reasons` gets why others are not
    such."""
    if machine.fused and reasons is None:
        return []
    found = []
    taken: set[Operation] = set()
    for op in block.ops:
        attention = attention_at(op, machine) if isinstance(op, ContractOp) else None
        if isinstance(attention, str) and reasons is not None:
            reasons.append(Reason("not attention", (op,), attention))
        elif isinstance(attention, Attention):
            own = set(attention.members).difference(attention.generated)
            if not taken & own:
                found.append(attention)
                taken |= own
    return found


def attention_at(product: ContractOp, machine: Machine) -> Attention | str | None:
    """The attention that ends in a product, or why it is not computed as such though a softmax of scores is an operand;
    None where none is."""
    why = None
    for side in (0, 1):
        found = _softmax(product, side)
        if found is not None:
            why = _unfit(found, machine) or _Axes(found).misfit()
            if why is None:
                return found
    return why


def _unfit(found: Attention, machine: Machine) -> str | None:
    """Why no kernel of a machine computes attention, whatever its shapes; None where one may."""
    if machine.fused:
        return f"{machine.name} has no path that brings weights from its vector unit back to the cube"
    kinds = {dtype_name(element_of(v)) for op in (found.scores, found.product) for v in op.operands}
    others = sorted(kind for kind in kinds if kind not in FLOATS or kind not in machine.cube)
    return f"its products are of {others[0]}, of which the kernel of attention makes none" if others else None


def _made_by(value: SSAValue) -> Operation | None:
    """The op behind layout ops that move every element, and conversions."""
    while isinstance(op := value.owner, (*PLAIN_LAYOUT, ELEMENTWISE["convert"])):
        value = op.operands[0]
    return op if isinstance(op, Operation) else None


def _softmax(product: ContractOp, side: int) -> Attention | None:
    """The ops by which an operand of a product is a softmax of scores."""
    quotient = _quotient_behind(product.operands[side])
    if quotient is None:
        return None
    exponential, total = (_made_by(v) for v in quotient.operands)
    if not isinstance(exponential, ELEMENTWISE["exp"]) or not isinstance(total, ReduceOp):
        return None
    if text(total.kind) != "sum" or _made_by(total.x) is not exponential:
        return None
    difference = _made_by(exponential.operands[0])
    if not isinstance(difference, ELEMENTWISE["sub"]):
        return None
    x, peak = difference.operands[0], _made_by(difference.operands[1])
    if isinstance(peak, ELEMENTWISE["max"]):
        reduced = [op for v in peak.operands if splat_of(v) is None for op in [_made_by(v)]]
        least = [splat_of(v) for v in peak.operands if splat_of(v) is not None]
        peak = reduced[0] if len(reduced) == 1 and least == [float("-inf")] else None
    if not isinstance(peak, ReduceOp) or text(peak.kind) != "max" or _made_by(peak.x) is not _made_by(x):
        return None
    scores = _scores_behind(x)
    return None if scores is None else Attention(scores, x, peak, exponential, total, quotient, side, product)


def _quotient_behind(value: SSAValue) -> Operation | None:
    """The division of an exponential by sums that a value is, but for ops that are linear in it."""
    stack, seen = [value], set[Operation]()
    while stack:
        op = _made_by(stack.pop())
        if op is None or op in seen or len(seen) == MOST_GENERATED:
            continue
        seen.add(op)
        if isinstance(op, ELEMENTWISE["div"]) and isinstance(_made_by(op.operands[0]), ELEMENTWISE["exp"]):
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


def _scores_behind(x: SSAValue) -> ContractOp | None:
    """The one product behind elementwise ops that has as many elements as x."""
    found: list[ContractOp] = []
    seen: set[Operation] = set()
    stack = [x.owner]
    while stack:
        op = stack.pop()
        if not isinstance(op, Operation) or op in seen:
            continue
        seen.add(op)
        if isinstance(op, ContractOp):
            if size(shape_of(op.result)) == size(shape_of(x)):
                found.append(op)
        elif isinstance(op, (ElementwiseOp, *PLAIN_LAYOUT)):
            stack += [v.owner for v in op.operands]
    return found[0] if len(found) == 1 else None


UNKNOWN = "the size of its heads, or whether they have 16 rows, is known only when it runs"
MIXED = "its weights and its values have other axes than those of its scores"


class _Axes:
    """Finds the members of attention and their axes."""

    def __init__(self, attention: Attention) -> None:
        self.at = attention
        self.within: set[Operation] = set()

    def misfit(self) -> str | None:
        """Finds all of it. Why it is no attention that one kernel computes; None where it is."""
        at = self.at
        ordered = self._between()
        if isinstance(ordered, str):
            return ordered
        at.axes[at.scores.result] = tuple(
            a if n != 1 else None for a, n in enumerate(shape_of(at.scores.result))
        )
        for op in ordered:
            if isinstance(op, PLAIN_LAYOUT) or op is at.scores or op is at.product:
                continue
            if not self._place(op):
                return f"{describe(op)} mixes the axes of its scores, or sums over other axes than that of the keys"
        why = self._few() or (None if self._result() else MIXED) or self._nonlinear()
        if why is not None:
            return why
        at.members = [op for op in ordered if not isinstance(op, PLAIN_LAYOUT)]
        self._generate()
        return None

    def _nonlinear(self) -> str | None:
        """Why what becomes of the quotient is not linear in it, so that of each op one operand alone depends on scores;
        None where it is. Of few rows nothing becomes of it, as their kernel divides at the end."""
        at = self.at
        op = _made_by(at.product.operands[at.weights])
        if at.few and op is not at.quotient:
            return f"it has fewer than {LEAST_ROWS} rows, whose kernel has no weights for what is behind the softmax"
        while op is not at.quotient:
            inside = [v for v in op.operands if _made_by(v) in self.within] if op is not None else []
            if op is None or len(inside) != 1 or inside[0] not in _linear_in(op):
                return "what stands behind its softmax is not linear in the weights"
            op = _made_by(inside[0])
        return None

    def _between(self) -> list[Operation] | str:
        """What depends on the scores until the result, in order; or why that is not what attention is made of alone."""
        at, block, within = self.at, self.at.product.parent, self.within
        stack: list[Operation] = [at.scores]
        while stack:
            op = stack.pop()
            if op in within:
                continue
            within.add(op)
            if op is at.product:
                continue
            known = op in (at.scores, at.peak, at.total) or isinstance(op, (ElementwiseOp, *PLAIN_LAYOUT))
            if op.parent is not block or not known or not all(r.first_use for r in op.results):
                return f"{describe(op)} needs its scores or weights, too, which the kernel of attention does not store"
            stack += [use.operation for r in op.results for use in r.uses]
        if at.product not in within or at.values.owner in within:
            return "its values depend on its scores"
        return list(_ordered(within, at.scores, at.product))

    def _axes_of(self, value: SSAValue) -> Sequence[int | Broadcast | None] | None:
        chain, base = behind(value, self.at.axes)
        return axes_behind(chain, self.at.axes[base]) if base in self.at.axes else None

    def _place(self, op: Operation) -> bool:
        """Gives the results of an op their axes."""
        shape = shape_of(op.operands[0] if isinstance(op, ReduceOp) else op.results[0])
        axes: list[int | Broadcast | None] = [None if n == 1 else Broadcast.ADDED for n in shape]
        for value in op.operands:
            found = self._axes_of(value)
            if found is None:
                if isinstance(value.owner, Operation) and value.owner in self.within:
                    return False
                continue
            for d, axis in enumerate(found):
                if axis is not Broadcast.ADDED and axes[d] is Broadcast.ADDED:
                    axes[d] = axis
                elif axis is not Broadcast.ADDED and shape[d] != 1 and axes[d] != axis:
                    return False
        named = tuple(a for a in axes if not isinstance(a, Broadcast))
        if len(named) != len(axes):
            return False
        if isinstance(op, ReduceOp):
            dims = to_ints(op.dims)
            reduced = [named[d] for d in dims if named[d] is not None]
            if len(reduced) != 1 or (self.at.keys not in (-1, reduced[0])):
                return False
            (self.at.keys,) = (a for a in reduced if a is not None)
            named = tuple(a for d, a in enumerate(named) if d not in dims)
        for result in op.results:
            self.at.axes[result] = named
        return True

    def _few(self) -> str | None:
        """Why the keys are not the one free axis of one side of the scores, or there are too few of them; None where
        all is right. Notes whether there are few rows."""
        at = self.at
        batch, (m, n) = len(to_ints(at.scores.lhs_batch)), at.scores.free_dims()
        sides = (range(batch, batch + len(m)), range(batch + len(m), batch + len(m) + len(n)))
        extents = shape_of(at.scores.result)
        wide = [[a for a in side if extents[a] != 1] for side in sides]
        keys, rows = (wide[0], wide[1]) if at.keys in wide[0] else (wide[1], wide[0])
        if keys != [at.keys]:
            return "the softmax is over other axes of its scores than those that its keys alone have"
        if not certain(extents[at.keys], ">=", LEAST_KEYS):
            return f"it has {extents[at.keys]} keys, and the kernels of attention are for {LEAST_KEYS} and more"
        at.few = not any(certain(extents[a], ">=", LEAST_ROWS) for a in rows)
        shared = [shape_of(at.scores.lhs)[d] for d in to_ints(at.scores.lhs_contract)]
        if any_open(shared) or (at.few and any_open((*extents, *shape_of(at.values)))):
            return UNKNOWN
        if at.few and sum(n != 1 for n in shared) != 1:
            return f"it has fewer than {LEAST_ROWS} rows, whose kernel is for queries and keys that share one axis"
        return None

    def _result(self) -> bool:
        """Gives the result its axes: those of the weights without the keys, and the one that v has alone."""
        at = self.at
        axes = self._axes_of(at.product.operands[at.weights])
        if axes is None or Broadcast.ADDED in axes:
            return False
        batch, contracted = (
            [to_ints(getattr(at.product, f"{side}_{what}")) for side in ("lhs", "rhs")][at.weights]
            for what in ("batch", "contract")
        )
        if [axes[d] for d in contracted if axes[d] is not None] != [at.keys]:
            return False
        extents = shape_of(at.scores.result)
        shared = {a for a in range(len(to_ints(at.scores.lhs_batch))) if extents[a] != 1}
        if {axes[d] for d in batch if axes[d] is not None} != shared:
            return False
        free = at.product.free_dims()
        own = [d for d in free[1 - at.weights] if shape_of(at.values)[d] != 1]
        if len(own) != 1:
            return False
        new = len(extents)
        sides: list[list[int | None]] = [[], []]
        sides[at.weights] = [a if isinstance(a, int) else None for d in free[at.weights] for a in [axes[d]]]
        sides[1 - at.weights] = [new if d == own[0] else None for d in free[1 - at.weights]]
        leading = [a if isinstance(a, int) else None for d in batch for a in [axes[d]]]
        at.axes[at.product.result] = (*leading, *sides[0], *sides[1])
        return True

    def _generate(self) -> None:
        """Adds the ops of which members take something that is made of positions and numbers alone."""
        at = self.at
        given: list[tuple[SSAValue, Axes]] = [
            (v, at.axes[op.results[0]])
            for op in at.members
            if isinstance(op, ElementwiseOp)
            for v in op.operands
        ]
        for value, axes in given:
            made: dict[Operation, Axes] = {}
            if self._makes(value, axes, made):
                at.generated += [op for op in made if op not in at.generated]
                at.axes.update((op.results[0], a) for op, a in made.items())
        chosen = {*at.members, *at.generated}
        at.members = _ordered(chosen, None, at.product)

    def _makes(self, value: SSAValue, axes: Axes, made: dict[Operation, Axes]) -> bool:
        """Whether a value is computed from positions and numbers by few ops; what by, with the axes of each."""
        stack = [(value, axes)]
        while stack:
            value, axes = stack.pop()
            if splat_of(value) is not None:
                continue
            chain, base = behind(value)
            op = base.owner
            if any(not isinstance(layout, PLAIN_LAYOUT) for layout in chain):
                return False
            if isinstance(op, IotaOp):
                continue
            if not isinstance(op, ElementwiseOp) or op in self.within or len(made) == MOST_GENERATED:
                return False
            own = backward_axes(chain, axes)
            known = made.get(op, self.at.axes.get(base))
            if own is None or (known is not None and known != own):
                return False
            if op not in made:
                made[op] = own
                stack += [(v, own) for v in op.operands]
        return True


def _ordered(ops: Iterable[Operation], first: Operation | None, last: Operation) -> list[Operation]:
    """Ops of one block in its order."""
    wanted = set(ops)
    found: list[Operation] = []
    op: Operation | None = last
    while op is not None and len(found) < len(wanted):
        if op in wanted:
            found.append(op)
        op = op.prev_op if op is not first else None
    return found[::-1]
