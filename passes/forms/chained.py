"""Two products, of which the second one takes what elementwise ops make of the first one's result: one kernel computes
both, and what is between them, tile by tile.

    scores = contract(q, k);  weights = f(scores, ...);  result = contract(weights, v)

There may be two first products with the same rows and keys, whose results f takes both: those of a gated perceptron, or
of the gradient of attention.

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
from ...dialects.open_sizes import any_open, certain, choosing
from ...machine import Machine
from ...support.amounts import STRIP
from .access import splat_of
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

MOST_FIRST = 2
"""First products of one kernel: each of them has a tile of scores on the vector cores."""

LEAST_LENGTH = 512
"""Least rows and keys of products that get scores of their own: with fewer, the cube core and its vector cores wait for
each other in the few pieces that there are."""

CYCLES = 16
"""Cycles in which a cube sums up 16 x 16 scores: where it takes more to compute them anew, there must be as many times
more bytes of them."""

OWN_SCORES = "own_scores"
"""Marks a product for which what it takes is computed anew, so that both are one kernel (flash_backward.py)."""

LEAST_TILE = 128
"""Rows that each core of one half of them has at least."""


@dataclass(kw_only=True)
class Chained:
    """Chained products in a block. Axes are the dimensions of the scores, in order, and behind them that of the result
    that v has alone.

    scores, product: the two products; other: further first ones, whose results f takes, too. x: what is made of scores,
    before the softmax if there is one. weights: the number of the operand of `product` that depends on them. members:
    all ops but layout ops, in order; statistics: results of reductions that something else needs; generated: those of
    the members that are made of positions and numbers alone. axes: of each value of a member. keys: the axis that
    `product` sums over; groups: axes that what has the keys has beside them, and rows do not: each has its own product.
    is_decode: whether there are fewer rows than a cube takes at once: a step of decoding.
    """

    scores: ContractOp
    x: SSAValue
    weights: int
    product: ContractOp
    other: list[ContractOp] = field(default_factory=list)
    statistics: list[SSAValue] = field(default_factory=list)
    members: list[Operation] = field(default_factory=list)
    generated: list[Operation] = field(default_factory=list)
    axes: dict[SSAValue, Axes] = field(default_factory=dict)
    keys: int = -1
    groups: list[int] = field(default_factory=list)
    is_decode: bool = False

    @property
    def domain(self) -> tuple[int, ...]:
        """The extents of its axes."""
        (own,) = (d for d in self.product.free_dims()[1 - self.weights] if shape_of(self.values)[d] != 1)
        return (*shape_of(self.scores.result), shape_of(self.values)[own])

    @property
    def first(self) -> tuple[ContractOp, ...]:
        """The first products."""
        return (self.scores, *self.other)

    @property
    def values(self) -> SSAValue:
        """What the weights are of: v."""
        return self.product.operands[1 - self.weights]

    @property
    def reductions(self) -> tuple[Operation, ...]:
        """The ops between the products that reduce the keys' axis."""
        return ()


def chained_at(product: ContractOp, machine: Machine, shared: bool = False) -> Chained | None:
    """The chained products without a softmax that end in a product, where a kernel of a machine can compute them.
    shared: something else may need what is between them."""
    for side in (0, 1):
        _, x = behind(product.operands[side])
        first = products_behind(x)
        if 0 < len(first) <= MOST_FIRST and isinstance(x.owner, ElementwiseOp | ContractOp):
            found = Chained(scores=first[0], other=first[1:], x=x, weights=side, product=product)
            if unfit(found, machine) is None and Members(found, shared).misfit() is None and not found.is_decode:
                return found
    return None


@choosing()
def better_apart(at: Chained, machine: Machine) -> str | None:
    """Why chained products without a softmax are better off in two kernels; None where there is much between them, few
    elements are summed up for a score, and there are tiles of rows for half of the cores."""
    why = unsuited(at, machine)
    if why is None and stays_in_l2(at):
        return f"the {_between(at)} bytes between the products stay in L2, as any up to {LEAST_BYTES} do"
    return why


def _between(at: Chained) -> int:
    """Bytes of what is between chained products."""
    return size(shape_of(at.scores.result)) * itemsize(element_of(at.product.operands[at.weights]))


@choosing()
def stays_in_l2(at: Chained) -> bool:
    """Whether what is between chained products stays in L2 from one kernel to the next."""
    return _between(at) <= LEAST_BYTES


@choosing()
def unsuited(at: Chained, machine: Machine) -> str | None:
    """Why the products of a chain take longer in one kernel, whatever is between them; None where they do not."""
    extents = shape_of(at.scores.result)
    each = [size([shape_of(op.lhs)[d] for d in to_ints(op.lhs_contract)]) for op in at.first]
    shared = max(each)
    if max(shared, at.domain[-1]) > MOST_SUMMED:
        return (
            f"it sums up {shared} elements for a number between the products, and has {at.domain[-1]} columns: "
            f"with more than {MOST_SUMMED} the products take longer than what is between them"
        )
    rows = size([n for a, n in enumerate(extents) if a != at.keys])
    if rows < LEAST_TILE * machine.cube_cores // 2:
        return f"its {rows} rows are no tiles of {LEAST_TILE} for half of the {machine.cube_cores} cores"
    return None


def unfit(at: Chained, machine: Machine) -> str | None:
    """Why no kernel of a machine computes chained products, whatever their shapes; None where one may."""
    if machine.fused:
        return f"{machine.name} has no path that brings weights from its vector unit back to the cube"
    kinds = {dtype_name(element_of(v)) for op in (*at.first, at.product) for v in op.operands}
    others = sorted(kind for kind in kinds if kind not in FLOATS or kind not in machine.cube)
    return f"its products are of {others[0]}, of which the kernel of attention makes none" if others else None


def made_by(value: SSAValue) -> Operation | None:
    """The op behind layout ops that move every element, and conversions."""
    while isinstance(op := value.owner, (*PLAIN_LAYOUT, ELEMENTWISE["convert"])):
        value = op.operands[0]
    return op if isinstance(op, Operation) else None


def products_behind(x: SSAValue) -> list[ContractOp]:
    """The products behind elementwise ops that have as many elements as x, in an order that the ops alone say."""
    found: list[ContractOp] = []
    seen: set[Operation] = set()
    stack = [x.owner]
    while stack:
        op = stack.pop()
        if not isinstance(op, Operation) or op in seen:
            continue
        seen.add(op)
        if isinstance(op, ContractOp):
            if certain(size(shape_of(op.result)), "==", size(shape_of(x))):
                found.append(op)
        elif isinstance(op, (ElementwiseOp, *PLAIN_LAYOUT)):
            stack += [v.owner for v in op.operands]
    return found


UNKNOWN = "the size of its heads, or whether they have 16 rows, is known only when it runs"
MIXED = "its weights and its values have other axes than those of its scores"


class Members:
    """Finds the members of chained products and their axes. shared: something else may need them."""

    def __init__(self, at: Chained, shared: bool = False) -> None:
        self.at, self.shared = at, shared
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
        if not self._place_other(ordered):
            return "its first products have other axes than each other"
        for op in ordered:
            if isinstance(op, PLAIN_LAYOUT) or op in at.first or op is at.product:
                continue
            if not self._place(op):
                return f"{describe(op)} mixes the axes of its scores, or sums over other axes than that of the keys"
        self._find_keys()
        why = self._keys_misfit() or (None if self._result() else MIXED) or self.unfit()
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
        behind_it, stack = set[Operation](), [at.product.operands[at.weights].owner]
        while stack:
            op = stack.pop()
            if isinstance(op, Operation) and op.parent is block and op not in behind_it and self._may_join(op):
                behind_it.add(op)
                stack += [v.owner for v in op.operands if op not in at.first]
        stack = [op for op in at.first if op in behind_it]
        while stack:
            op = stack.pop()
            if isinstance(op, Operation) and op not in within:
                within.add(op)
                stack += [use.operation for r in op.results for use in r.uses if use.operation in behind_it]
        within.add(at.product)
        if at.values.owner in within:
            return "its values depend on its scores"
        for op in within - {at.product}:
            why = self._needed_elsewhere(op)
            if why is not None:
                return why
        return list(ordered(within, at.product))

    def _may_join(self, op: Operation) -> bool:
        return op in self.at.first or op in self.at.reductions or isinstance(op, (ElementwiseOp, *PLAIN_LAYOUT))

    def _needed_elsewhere(self, op: Operation) -> str | None:
        """Why something else that needs what a member gives keeps it from being one; None where nothing does. What
        needs a maximum or a sum of all keys, behind the result, gets it."""
        at, made = self.at, behind(op.results[0])[1]
        users = () if self.shared else [use.operation for r in op.results for use in r.uses]
        for user in users:
            if user in self.within:
                continue
            if made.owner not in at.reductions or not follows(user, at.product):
                return f"{describe(user)} needs its scores or weights, too, which its kernel does not store"
            at.statistics += [made] if made not in at.statistics else []
        return None

    def _place_other(self, members: Sequence[Operation]) -> bool:
        """Gives the further first products their axes: those with which elementwise ops take them beside what is known.
        Whether they are products of the same rows and keys, and nothing else depends on two of them."""
        at = self.at
        known: dict[SSAValue, Axes] = {at.scores.result: at.axes[at.scores.result]}
        if at.other:
            spread_axes(known, [op for op in members if isinstance(op, ElementwiseOp)])
        for op in at.other:
            if op.result not in known or not self._alike(op, known[op.result]):
                return False
            at.axes[op.result] = known[op.result]
        return True

    def _alike(self, op: ContractOp, axes: Axes) -> bool:
        """Whether a product has the batch axes of the scores, and the free ones of each side of these on one side."""
        mine, theirs = _sides(op, axes), _sides(self.at.scores, self.at.axes[self.at.scores.result])
        return mine[0] == theirs[0] and mine[1:] in (theirs[1:], theirs[:0:-1])

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

    def _keys_misfit(self) -> str | None:
        """Why the keys are not the one free axis of one side of the scores, or there are too few of them; None where
        all is right. Notes whether it is a step of decoding."""
        at = self.at
        batch, (m, n) = len(to_ints(at.scores.lhs_batch)), at.scores.free_dims()
        sides = (range(batch, batch + len(m)), range(batch + len(m), batch + len(m) + len(n)))
        extents = shape_of(at.scores.result)
        wide = [[a for a in side if extents[a] != 1] for side in sides]
        keys, rows = (wide[0], wide[1]) if at.keys in wide[0] else (wide[1], wide[0])
        at.groups = [a for a in keys if a != at.keys and a in self._batches()]
        if keys != [a for a in keys if a == at.keys or a in at.groups] or at.keys not in keys:
            return "the softmax is over other axes of its scores than those that its keys alone have"
        if not certain(extents[at.keys], ">=", LEAST_KEYS):
            return f"it has {extents[at.keys]} keys, and the kernels of attention are for {LEAST_KEYS} and more"
        at.is_decode = not any(certain(extents[a], ">=", LEAST_ROWS) for a in rows)
        if at.is_decode and at.groups:
            return f"it has fewer than {LEAST_ROWS} rows, whose kernel is for keys that all rows share"
        if at.is_decode and at.statistics:
            return f"it has fewer than {LEAST_ROWS} rows, whose kernel stores no maxima and sums"
        shared = [shape_of(op.lhs)[d] for op in at.first for d in to_ints(op.lhs_contract)]
        if any_open(shared) or (at.is_decode and any_open((*extents, *shape_of(at.values)))):
            return UNKNOWN
        if at.is_decode and sum(n != 1 for n in shared) != 1:
            return f"it has fewer than {LEAST_ROWS} rows, whose kernel is for queries and keys that share one axis"
        return None

    def _batches(self) -> set[int | Broadcast | None]:
        """The axes that weights and values have as batches of their product."""
        at = self.at
        axes = self._axes_of(at.product.operands[at.weights])
        dims = to_ints((at.product.lhs_batch, at.product.rhs_batch)[at.weights])
        return set() if axes is None else {axes[d] for d in dims}

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
        shared = {a for a in (*range(len(to_ints(at.scores.lhs_batch))), *at.groups) if extents[a] != 1}
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
        at.members = ordered(chosen, at.product)

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


def spread_axes(known: dict[SSAValue, Axes], ops: Sequence[ElementwiseOp]) -> None:
    """Adds the axes of all that elementwise ops take and give which has as many elements as what is known of one."""
    whole, waiting = size(shape_of(next(iter(known)))), 0
    wide = [op for op in ops if size(shape_of(op.results[0])) == whole]
    while waiting != len(known):
        waiting = len(known)
        for op in wide:
            values = (*op.operands, *op.results)
            beside = next((axes for v in values if (axes := _own_axes(v, known)) is not None), None)
            if beside is None:
                continue
            for value in values:
                chain, base = behind(value, known)
                own = backward_axes(chain, beside) if size(shape_of(base)) == whole else None
                if own is not None:
                    known.setdefault(base, own)


def _own_axes(value: SSAValue, known: dict[SSAValue, Axes]) -> Axes | None:
    """The axes of a value behind which one has them; None where there is none, or a broadcast adds some."""
    chain, base = behind(value, known)
    axes = axes_behind(chain, known[base]) if base in known else None
    if axes is None:
        return None
    named = tuple(a for a in axes if not isinstance(a, Broadcast))
    return named if len(named) == len(axes) else None


def _sides(op: ContractOp, axes: Axes) -> list[set[int | None]]:
    """The axes of a product's result that are batches, free on the left and free on the right."""
    batch, (left, _) = len(to_ints(op.lhs_batch)), op.free_dims()
    parts = axes[:batch], axes[batch : batch + len(left)], axes[batch + len(left) :]
    return [set(part) - {None} for part in parts]


def follows(op: Operation, first: Operation) -> bool:
    """Whether an op, or the one of the same block that holds it, comes behind another one."""
    assert first.parent is not None
    inside = first.parent.find_ancestor_op_in_block(op)
    return inside is not None and first.is_before_in_block(inside)


def ordered(ops: Iterable[Operation], last: Operation) -> list[Operation]:
    """Ops of one block in its order, up to the last one."""
    wanted = set(ops)
    found: list[Operation] = []
    op: Operation | None = last
    while op is not None and len(found) < len(wanted):
        if op in wanted:
            found.append(op)
        op = op.prev_op
    return found[::-1]
