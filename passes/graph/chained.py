"""Two products, of which the second one takes what elementwise ops make of the first one's result: one kernel computes
both, and what is between them, tile by tile.

    scores = contract(q, k);  weights = f(scores, ...);  result = contract(weights, v)

Nothing but the result is needed elsewhere, and v has the axis that is summed over, called keys, and one more. What f
takes besides scores comes from outside (a bias, a mask), or is made of positions and numbers alone: then it is computed
anew in the kernel. Attention is the case where f has a softmax (attention.py). Others are worth a kernel where they are
like it, with few elements summed up for each of many scores: products of queries and keys with another function than
the softmax, or the two layers of a narrow perceptron for many points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from ...dialects.base import describe, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size
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
from ...support.amounts import STRIP
from ..access import splat_of
from .layout_axes import Axes, Broadcast, axes_behind, backward_axes, behind

PLAIN_LAYOUT = (BroadcastOp, ReshapeOp, TransposeOp)
FLOATS = ("f16", "bf16", "f32")
LEAST_KEYS, LEAST_ROWS = 16, 16
"""Fewer keys than a fractal of the cube has are no work for a kernel. Fewer rows are none for one that hands tiles from
core to core, but for the vector cores alone."""

MOST_GENERATED = 16
"""Ops of positions and numbers that are computed anew for each tile; what takes more of them is an input."""

MOST_SUMMED = 256
"""Most elements that are summed up for a score, and most columns of a result, of chained products without a softmax:
with more, each of the products works longer than its result takes to be stored and loaded."""

LEAST_BYTES = STRIP
"""Least bytes of what is between these: less of it stays in L2 between two kernels, and its way from core to core costs
more than that. More would be made in strips (graph-strips)."""

LEAST_TILE = 128
"""Rows that each core of one half of them has at least."""


@dataclass(kw_only=True)
class Chained:
    """Chained products in a block. Axes are the dimensions of the scores, in order, and behind them that of the result
    that v has alone.

    scores, product: the two products. x: what is made of scores, before the softmax if there is one. weights: the
    number of the operand of `product` that depends on them. members: all ops but layout ops, in order; generated: those
    of them that are made of positions and numbers alone. axes: of each value of a member. keys: the axis that `product`
    sums over. few: whether there are fewer rows than a cube takes at once: a step of decoding.
    """

    scores: ContractOp
    x: SSAValue
    weights: int
    product: ContractOp
    members: list[Operation] = field(default_factory=list)
    generated: list[Operation] = field(default_factory=list)
    axes: dict[SSAValue, Axes] = field(default_factory=dict)
    keys: int = -1
    few: bool = False

    @property
    def domain(self) -> tuple[int, ...]:
        """The extents of its axes."""
        (own,) = (d for d in self.product.free_dims()[1 - self.weights] if shape_of(self.values)[d] != 1)
        return (*shape_of(self.scores.result), shape_of(self.values)[own])

    @property
    def values(self) -> SSAValue:
        """What the weights are of: v."""
        return self.product.operands[1 - self.weights]

    @property
    def reductions(self) -> tuple[Operation, ...]:
        """The ops between the products that reduce the keys' axis."""
        return ()


def chained_at(product: ContractOp, machine: Machine) -> Chained | None:
    """The chained products without a softmax that end in a product, where a kernel of a machine can compute them."""
    for side in (0, 1):
        _, x = behind(product.operands[side])
        scores = scores_behind(x)
        if scores is not None and isinstance(x.owner, ElementwiseOp | ContractOp):
            found = Chained(scores=scores, x=x, weights=side, product=product)
            if unfit(found, machine) is None and Members(found).misfit() is None and not found.few:
                return found
    return None


def better_apart(at: Chained, machine: Machine) -> str | None:
    """Why chained products without a softmax are better off in two kernels; None where there is much between them, few
    elements are summed up for a score, and there are tiles of rows for half of the cores."""
    extents = shape_of(at.scores.result)
    shared = size([shape_of(at.scores.lhs)[d] for d in to_ints(at.scores.lhs_contract)])
    if any_open([*at.domain, shared]):
        return "its sizes are open"
    if max(shared, at.domain[-1]) > MOST_SUMMED:
        return (
            f"it sums up {shared} elements for a number between the products, and has {at.domain[-1]} columns: "
            f"with more than {MOST_SUMMED} the products take longer than what is between them"
        )
    rows = size([n for a, n in enumerate(extents) if a != at.keys])
    if rows < LEAST_TILE * machine.cube_cores // 2:
        return f"its {rows} rows are no tiles of {LEAST_TILE} for half of the {machine.cube_cores} cores"
    between = size(extents) * itemsize(element_of(at.product.operands[at.weights]))
    if between <= LEAST_BYTES:
        return f"the {between} bytes between the products stay in L2, as any up to {LEAST_BYTES} do"
    return None


def unfit(at: Chained, machine: Machine) -> str | None:
    """Why no kernel of a machine computes chained products, whatever their shapes; None where one may."""
    if machine.fused:
        return f"{machine.name} has no path that brings weights from its vector unit back to the cube"
    kinds = {dtype_name(element_of(v)) for op in (at.scores, at.product) for v in op.operands}
    others = sorted(kind for kind in kinds if kind not in FLOATS or kind not in machine.cube)
    return f"its products are of {others[0]}, of which the kernel of attention makes none" if others else None


def made_by(value: SSAValue) -> Operation | None:
    """The op behind layout ops that move every element, and conversions."""
    while isinstance(op := value.owner, (*PLAIN_LAYOUT, ELEMENTWISE["convert"])):
        value = op.operands[0]
    return op if isinstance(op, Operation) else None


def scores_behind(x: SSAValue) -> ContractOp | None:
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
            if len(found) > 1:
                return None
        elif isinstance(op, (ElementwiseOp, *PLAIN_LAYOUT)):
            stack += [v.owner for v in op.operands]
    return found[0] if found else None


UNKNOWN = "the size of its heads, or whether they have 16 rows, is known only when it runs"
MIXED = "its weights and its values have other axes than those of its scores"


class Members:
    """Finds the members of chained products and their axes."""

    def __init__(self, at: Chained) -> None:
        self.at = at
        self.within: set[Operation] = set()

    def misfit(self) -> str | None:
        """Finds all of it. Why no kernel computes it as one; None where one does."""
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
        self._find_keys()
        why = self._few() or (None if self._result() else MIXED) or self.unfit()
        if why is not None:
            return why
        at.members = [op for op in ordered if not isinstance(op, PLAIN_LAYOUT)]
        self._generate()
        return None

    def unfit(self) -> str | None:
        """Why what is between the products is not for a kernel; None where it is."""
        return None

    def _find_keys(self) -> None:
        """The axis that the second product sums over, where no reduction says it."""
        at = self.at
        axes = self._axes_of(at.product.operands[at.weights]) if at.keys == -1 else None
        if axes is not None:
            dims = to_ints((at.product.lhs_contract, at.product.rhs_contract)[at.weights])
            summed = [axes[d] for d in dims if axes[d] is not None]
            if len(summed) == 1 and isinstance(summed[0], int):
                at.keys = summed[0]

    def _between(self) -> list[Operation] | str:
        """What depends on the scores until the result, in order; or why that is more than one kernel computes."""
        at, block, within = self.at, self.at.product.parent, self.within
        stack: list[Operation] = [at.scores]
        while stack:
            op = stack.pop()
            if op in within:
                continue
            within.add(op)
            if op is at.product:
                continue
            known = op is at.scores or op in at.reductions or isinstance(op, (ElementwiseOp, *PLAIN_LAYOUT))
            if op.parent is not block or not known or not all(r.first_use for r in op.results):
                return f"{describe(op)} needs its scores or weights, too, which the kernel of attention does not store"
            stack += [use.operation for r in op.results for use in r.uses]
        if at.product not in within or at.values.owner in within:
            return "its values depend on its scores"
        return list(ordered(within, at.scores, at.product))

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
        at.members = ordered(chosen, None, at.product)

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


def ordered(ops: Iterable[Operation], first: Operation | None, last: Operation) -> list[Operation]:
    """Ops of one block in its order."""
    wanted = set(ops)
    found: list[Operation] = []
    op: Operation | None = last
    while op is not None and len(found) < len(wanted):
        if op in wanted:
            found.append(op)
        op = op.prev_op if op is not first else None
    return found[::-1]
