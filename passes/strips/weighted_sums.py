"""Finds the sum over the keys of the weights of attention times their gradient, and writes it as one over the columns
of the result.

    sum_k p_k (d . v_k) = d . sum_k p_k v_k = d . o        (Dao et al., FlashAttention, 2022)

Before:  g = d v^T ;  r = sum over keys of p g c        with p = e / l, or e itself, and c of rows
After:   r = sum over columns of d o, times c, and times l where it is of e

Where o = sum_k p_k m_k v_k with a mask or factors m, as dropout has them, the same ones are in the sum: r = sum of
p m g c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from xdsl.dialects.builtin import f32
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialects.base import text, to_ints
from ...dialects.dtypes import is_float, itemsize, size, tensor
from ...dialects.graph import ELEMENTWISE, ContractOp, ReduceOp
from ...dialects.graph.interface import element_of, shape_of
from ...support.hints import without
from ..forms.access import splat_of
from ..forms.attention import Attention
from ..forms.chained import made_by
from ..forms.layout_axes import Axes, Broadcast, axes_behind, backward_axes, behind
from ..forms.tensor_builder import BlockBuilder
from ..program.hoist import needed_by

Given = tuple[SSAValue, Axes, bool]
"""A value with its axes; whether it is a condition that is inverted."""

Wide = tuple[Given, bool]
"""What has a number for each score, and whether it divides."""


@dataclass
class WeightedSum:
    """The sum over the keys of weights times their gradient, d v^T, times factors of rows, in the terms of a result.
    gradient: d, with its axes; left_out: the name of d v^T; factors: values of rows, with their axes and whether they
    divide."""

    op: ReduceOp
    axes: Axes
    forward: Attention
    gradient: tuple[SSAValue, Axes]
    factors: list[tuple[SSAValue, Axes, bool]]
    negative: bool
    divided: bool
    left_out: str | None = None

    def unless(self, value: SSAValue, axes: Axes, divides: bool) -> None:
        """Takes a factor, or drops the one that it undoes."""
        number = splat_of(value)
        for i, (known, own, other) in enumerate(self.factors):
            same = (known is value and own == axes) or (number is not None and splat_of(known) == number)
            if same and other != divides:
                del self.factors[i]
                return
        self.factors.append((value, axes, divides))

    def write(self) -> None:
        """Puts it in the place of the op."""
        block, result = self.op.parent, self.op.result
        assert block is not None
        _widen(self.forward)
        needed = needed_by(self.forward.product)
        at = self.op.next_op
        while at is not None:
            following = at.next_op
            if at in needed:
                at.detach()
                block.insert_op_before(at, self.op)
            at = following
        build = BlockBuilder(Block(), self.op.location)
        element = element_of(result)
        kind = f32 if is_float(element) and itemsize(element) < itemsize(f32) else element
        made, axes = self.forward.product.result, self.forward.axes[self.forward.product.result]
        d, own = self.gradient
        both = [build.convert(v, kind) for v in (made, aligned(build, d, own, axes, shape_of(made)))]
        feature = len(shape_of(self.forward.scores.result))
        total = build.reduce(build.elementwise("mul", *both), "sum", [axes.index(feature)])
        rest = tuple(a for a in axes if a != feature)
        total = aligned(build, total, rest, self.axes, shape_of(result))
        for value, known, divides in self.factors:
            factor = build.convert(aligned(build, value, known, self.axes, shape_of(result)), kind)
            total = build.elementwise("div" if divides else "mul", total, factor)
        if self.divided:
            sums = self.forward.total
            known = tuple(a for a in self.forward.axes[sums.result])
            factor = aligned(build, sums.result, known, self.axes, shape_of(result))
            total = build.elementwise("mul", total, build.convert(factor, kind))
        total = build.convert(build.elementwise("neg", total) if self.negative else total, element)
        Rewriter.inline_block(build.block, InsertPoint.before(self.op))
        total.name_hint = without(result.name_hint, self.left_out)
        result.replace_all_uses_with(total)


def _widen(forward: Attention) -> None:
    """Lets attention give its result in f32, of which a narrow one is rounded: a sum of what is rounded would be
    further off than that of the weights."""
    product = forward.product
    result, axes = product.result, forward.axes[product.result]
    if itemsize(element_of(result)) >= itemsize(f32):
        return
    build = BlockBuilder(Block(), product.location)
    wide = build.add(ContractOp, product.operands, tensor(shape_of(result), f32), **product.properties)
    narrow = build.convert(wide, element_of(result))
    narrow.name_hint = result.name_hint
    assert isinstance(wide.owner, ContractOp)
    forward.product, forward.axes[wide] = wide.owner, axes
    Rewriter.inline_block(build.block, InsertPoint.before(product))
    result.replace_all_uses_with(narrow)
    product.detach()
    product.erase()


def aligned(
    build: BlockBuilder, value: SSAValue, axes: Axes, wanted: Axes, shape: tuple[int, ...]
) -> SSAValue:
    """A value with its axes where others have them, in their shape."""
    source = shape_of(value)
    kept = [d for d, a in enumerate(axes) if a is not None]
    order = sorted(range(len(kept)), key=lambda i: wanted.index(axes[kept[i]]))
    if len(kept) != len(source):
        value = build.reshape(value, [source[d] for d in kept])
    transposed = build.transpose(value, order)
    places = [wanted.index(axes[kept[i]]) for i in order]
    return build.broadcast(transposed, shape, places)


def weighted_sum(
    op: ReduceOp, forward: Attention, axes: dict[SSAValue, Axes], made: Container[Block | Operation]
) -> WeightedSum | None:
    """What a reduction is as the sum of weights of attention times their gradient, and of factors of rows; None where
    it is none. axes: those of all that has an element for each score; made: what computes such of scores."""
    chain, base = behind(op.x, axes)
    wide = axes_behind(chain, axes[base]) if base in axes else None
    if wide is None or text(op.kind) != "sum" or op in needed_by(forward.product):
        return None
    if [wide[d] for d in to_ints(op.dims) if wide[d] is not None] != [forward.keys]:
        return None
    rest = tuple(a for d, a in enumerate(wide) if d not in to_ints(op.dims) and not isinstance(a, Broadcast))
    scores, weights = _Scores(forward, axes, made), (forward.exponential, forward.quotient)
    linear = scores.factors_of(
        forward.product.operands[forward.weights], lambda leaf: leaf is forward.quotient
    )
    summed = scores.factors_of(
        op.x, lambda leaf: leaf in weights or (isinstance(leaf, ContractOp) and leaf.result in axes)
    )
    if linear is None or summed is None or linear.leaves != [forward.quotient] or summed.wide != linear.wide:
        return None
    products = [leaf for leaf in summed.leaves if isinstance(leaf, ContractOp)]
    if len(summed.leaves) != 2 or len(products) != 1:
        return None
    (product,) = products
    gradient = gradient_of(product, forward, axes[product.result])
    if gradient is None:
        return None
    found = WeightedSum(
        op,
        rest,
        forward,
        gradient,
        summed.factors,
        negative=summed.negative != linear.negative,
        divided=forward.exponential in summed.leaves,
        left_out=product.result.name_hint,
    )
    for value, known, divides in linear.factors:
        found.unless(value, known, not divides)
    return found


@dataclass
class _Factors:
    """A value as a product. leaves: the ops that it is made of; factors: values of rows, with their axes and whether
    they divide; wide: those that have a number for each score, and what selects scores, 0 for others."""

    leaves: list[Operation] = field(default_factory=list)
    factors: list[tuple[SSAValue, Axes, bool]] = field(default_factory=list)
    wide: Counter[Wide] = field(default_factory=Counter)
    negative: bool = False


@dataclass(frozen=True)
class _Scores:
    """What has an element for each score of attention. axes: those of all of it; made: what computes such of scores."""

    forward: Attention
    axes: dict[SSAValue, Axes]
    made: Container[Block | Operation]

    def factors_of(self, value: SSAValue, is_leaf: Callable[[Operation], bool]) -> _Factors | None:
        """A value as a product of ops that are leaves, and of what is not made of scores; None where it is none."""
        found, stack = _Factors(), [(value, False)]
        while stack:
            value, divides = stack.pop()
            maker = made_by(value)
            if maker is not None and is_leaf(maker) and not divides:
                found.leaves.append(maker)
            elif (factor := self._of_rows(value)) is not None:
                found.factors.append((*factor, divides))
            elif (given := self._given(value)) is not None:
                found.wide[given, divides] += 1
            elif isinstance(maker, (ELEMENTWISE["mul"], ELEMENTWISE["div"])):
                left, right = maker.operands
                stack += [(left, divides), (right, divides != isinstance(maker, ELEMENTWISE["div"]))]
            elif isinstance(maker, ELEMENTWISE["neg"]):
                found.negative = not found.negative
                stack.append((maker.operands[0], divides))
            elif isinstance(maker, ELEMENTWISE["select"]) and (kept := self._kept(maker)) and not divides:
                found.wide[kept[0], False] += 1
                stack.append((kept[1], divides))
            else:
                return None
        return found

    def _kept(self, select: Operation) -> tuple[Given, SSAValue] | None:
        """Which scores a select keeps, and of what; None where others are not 0."""
        condition, *values = select.operands
        given = self._given(condition)
        for number, value in enumerate(values):
            if given is not None and splat_of(values[1 - number]) == 0:
                return (*given[:2], number == 1), value
        return None

    def _behind(self, value: SSAValue) -> tuple[SSAValue, Axes] | None:
        """What is behind the layout of a value that a member takes, with its axes; None where they do not say."""
        chain, base = behind(value)
        own = next(
            (self.axes[r] for use in value.uses for r in use.operation.results if r in self.axes), None
        )
        found = None if own is None else backward_axes(chain, own)
        return None if found is None else (base, found)

    def _given(self, value: SSAValue) -> Given | None:
        """What a value is that is not made of scores; None where it is."""
        found = self._behind(value)
        return None if found is None or found[0].owner in self.made else (*found, False)

    def _of_rows(self, value: SSAValue) -> tuple[SSAValue, Axes] | None:
        """What is behind a value that has one number for each row, with its axes; None where it has others."""
        found = self._behind(value)
        if found is None or found[0] in self.axes or self.forward.keys in found[1]:
            return None
        base, axes = found
        along = [n for n, a in zip(shape_of(base), axes, strict=True) if a is not None]
        return found if size(shape_of(base)) == size(along) else None


def gradient_of(op: ContractOp, forward: Attention, axes: Axes) -> tuple[SSAValue, Axes] | None:
    """d with its axes, where a product with these axes is d v^T, of d and the values of attention; None where it is of
    something else."""
    feature = len(shape_of(forward.scores.result))
    for side, value in enumerate(op.operands):
        if _unconverted(value) is not _unconverted(forward.values):
            continue
        d, batch, (left, right) = op.operands[1 - side], len(to_ints(op.lhs_batch)), op.free_dims()
        contracted, batches = (op.lhs_contract, op.rhs_contract), (op.lhs_batch, op.rhs_batch)
        summed = to_ints(contracted[side])
        own = forward.product.free_dims()[1 - forward.weights]
        if [n for n in summed if shape_of(value)[n] != 1] != [n for n in own if shape_of(value)[n] != 1]:
            return None
        found: list[int | None] = [None] * len(shape_of(d))
        for place, dim in enumerate(to_ints(batches[1 - side])):
            found[dim] = axes[place]
        first = batch if side == 1 else batch + len(left)
        for place, dim in enumerate((left, right)[1 - side]):
            found[dim] = axes[first + place]
        for dim in to_ints(contracted[1 - side]):
            found[dim] = feature if shape_of(d)[dim] != 1 else None
        return d, tuple(found)
    return None


def _unconverted(value: SSAValue) -> SSAValue:
    while isinstance(value, OpResult) and isinstance(value.op, ELEMENTWISE["convert"]):
        value = value.op.operands[0]
    return value
