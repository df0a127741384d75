"""Products and convolutions on the vector cores: those in a type that the cube does not have, and depthwise ones, which
have nothing to contract."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, ints, to_ints
from ...dialects.dtypes import dtype_name, is_float, size, tensor
from ...dialects.graph import ELEMENTWISE, ConcatOp, ContractOp, ConvOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import certain
from ..forms.tensor_builder import RewriteBuilder, TensorBuilder
from ..patterns import GraphPattern

MOST_TAPS = 64
"""A depthwise convolution over more window positions stays one: each position is an op of its own."""


class ContractOnVector(GraphPattern):
    """A product in a type the cube lacks is multiplied and added up on the vector cores.

    Both sides are broadcast to [batch, m, n, k].
    """

    name = "contract-on-vector"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        if dtype_name(element_of(op.lhs)) in self.machine.cube or element_of(op.lhs) != element_of(op.rhs):
            return
        m, n = op.free_dims()
        lhs_k, rhs_k = to_ints(op.lhs_contract), to_ints(op.rhs_contract)
        batch = len(to_ints(op.lhs_batch))
        build = RewriteBuilder(rewriter)
        lhs = build.transpose(op.lhs, [*to_ints(op.lhs_batch), *m, *lhs_k])
        rhs = build.transpose(op.rhs, [*to_ints(op.rhs_batch), *n, *rhs_k])
        out = shape_of(op.result)
        shape = [*out, *(shape_of(op.lhs)[d] for d in lhs_k)]
        k = range(len(out), len(shape))
        element = element_of(op.lhs)
        work = element_of(op.result)
        if is_float(element) and dtype_name(work) != "f32":
            work = f32
        left = build.broadcast(build.convert(lhs, work), shape, [*range(batch + len(m)), *k])
        right = build.broadcast(
            build.convert(rhs, work), shape, [*range(batch), *range(batch + len(m), len(out)), *k]
        )
        product = build.add(ELEMENTWISE["mul"], [left, right], tensor(shape, work))
        rewriter.replace(
            op, (), [build.convert(build.reduce(product, "sum", list(k)), element_of(op.result))]
        )


class DotOnVector(GraphPattern):
    """A product of floats whose sides have no rows or columns of their own is added up on the vector cores.

    Of each block of the cube's result it would fill one place, and nothing that is loaded is used twice. What is summed
    over lies side by side.
    """

    name = "dot-on-vector"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        element, free = element_of(op.lhs), op.free_dims()
        alone = all(shape_of(x)[d] == 1 for x, dims in zip(op.operands, free, strict=True) for d in dims)
        if not alone or not is_float(element) or element != element_of(op.rhs):
            return
        sides = (
            (op.lhs, to_ints(op.lhs_batch), to_ints(op.lhs_contract)),
            (op.rhs, to_ints(op.rhs_batch), to_ints(op.rhs_contract)),
        )
        if any(max(batch, default=-1) > min(summed) for _, batch, summed in sides):
            return
        build = RewriteBuilder(rewriter)
        factors = []
        for (x, batch, summed), own in zip(sides, free, strict=True):
            transposed = build.transpose(x, [*batch, *summed, *own])
            shape = shape_of(transposed)[: len(batch) + len(summed)]
            factors.append(build.convert(build.reshape(transposed, shape), f32))
        product = build.elementwise("mul", *factors)
        total = build.reduce(product, "sum", range(len(sides[0][1]), len(shape_of(product))))
        result = build.convert(build.reshape(total, shape_of(op.result)), element_of(op.result))
        rewriter.replace(op, (), [result])


class ConvOnVector(GraphPattern):
    """A convolution in a type the cube lacks is contractions, one for each window position or place.

    For each window position, what it meets is contracted with its weights, and all are added up. Where there are fewer
    results than window positions, as in the gradient of weights, what the window meets at each place of the result is
    contracted with all weights. Along dimensions where windows do not overlap, as those of patches, the input is cut
    into windows, and all of their positions and places are in one contraction; so they are where a window's positions
    are further apart than all places, as in the gradient of such weights.
    """

    name = "conv-on-vector"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConvOp, rewriter: PatternRewriter, /) -> None:
        if dtype_name(element_of(op.lhs)) in self.machine.cube:
            return
        element = element_of(op.lhs)
        build = RewriteBuilder(rewriter)
        conv = _Windows(op, build, f32 if is_float(element) else element_of(op.result))
        found = (conv.by_place if conv.few_places else conv.by_tap)()
        layout = to_ints(op.out_layout)
        rank = len(layout)
        batch, features, *out = (shape_of(op.result)[d] for d in layout)
        by_feature = build.transpose(found, [1, 0, rank, *range(2, rank)])
        plain = build.reshape(by_feature, [batch, features, *out])
        back = [layout.index(d) for d in range(rank)]
        rewriter.replace(op, (), [build.convert(build.transpose(plain, back), element_of(op.result))])


class _Windows:
    """What the windows of a convolution meet, as the operands of contractions in the type `work`.

    The input is [batch, features, *spatial, *positions] and the weights are [features, features, *window]; there are
    positions for the dimensions `apart`, along which no element is met from two places.
    """

    def __init__(self, op: ConvOp, build: TensorBuilder, work: Attribute):
        self.op, self.build, self.work = op, build, work
        self.weights = build.transpose(op.rhs, to_ints(op.rhs_layout))
        lhs = build.transpose(op.lhs, to_ints(op.lhs_layout))
        low, high = to_ints(op.low), to_ints(op.high)
        padded = build.pad(lhs, 0, [0, 0, *low], [0, 0, *high], [0] * len(shape_of(lhs)))
        self.batch, self.features, *self.out = (shape_of(op.result)[d] for d in to_ints(op.out_layout))
        self.features_in, _, *self.window = shape_of(self.weights)
        strides, steps = to_ints(op.strides), to_ints(op.rhs_dilation)
        self.apart, self.overlap = list[int](), list[int]()
        order, positions = [0, 1], list[int]()
        for d in range(len(self.out)):
            at = 2 + d + len(self.apart)
            places, window = (self.out[d], strides[d]), (self.window[d], steps[d])
            if inside := certain(_reach(*window), "<=", strides[d]) or certain(self.out[d], "==", 1):
                padded = self._cut(padded, at, places, window)
            elif certain(_reach(*places), "<=", steps[d]):
                padded = self._cut(padded, at, window, places)
            else:
                self.overlap.append(d)
                order.append(at)
                continue
            self.apart.append(d)
            order.append(at if inside else at + 1)
            positions.append(at + 1 if inside else at)
        self.input = build.transpose(padded, [*order, *positions])
        self.overlap_dims = [2 + d for d in self.overlap]
        self.strides, self.steps = ([each[d] for d in self.overlap] for each in (strides, steps))

    def _cut(self, x: SSAValue, at: int, outer: tuple[int, int], inner: tuple[int, int]) -> SSAValue:
        """Dimension `at` as two: so many parts, a step apart, and of each so many elements, a step apart."""
        build, (count, every), (within, step) = self.build, outer, inner
        every = max(every, _reach(within, step))  # what is there once reaches as far as it has to
        shape, zeros = shape_of(x), [0] * len(shape_of(x))
        least = min(shape[at], count * every)
        if not certain(shape[at], "==", least):
            x = build.part(x, at, 0, least)
        behind = [count * every - least if i == at else 0 for i in range(len(shape))]
        x = build.pad(x, 0, zeros, behind, zeros)
        x = build.reshape(x, [*shape[:at], count, every, *shape[at + 1 :]])
        return build.part(x, at + 1, 0, within, step)

    @property
    def few_places(self) -> bool:
        """Whether there are fewer places of the result than window positions, where windows overlap."""
        return size([self.out[d] for d in self.overlap]) < size([self.window[d] for d in self.overlap])

    def _product(
        self, met: SSAValue, weights: SSAValue, kept: Sequence[int], summed: Sequence[int]
    ) -> SSAValue:
        """[groups, batch, *kept, features of a group] of [batch, features, *kept, *summed] and [features, features,
        *summed]."""
        groups, build = integer(self.op.groups), self.build
        own = self.features // groups
        return build.add(
            ContractOp,
            [
                build.reshape(met, [self.batch, groups, self.features_in, *kept, *summed]),
                build.reshape(weights, [self.features_in, groups, own, *summed]),
            ],
            tensor([groups, self.batch, *kept, own], self.work),
            lhs_batch=ints([1]),
            rhs_batch=ints([1]),
            lhs_contract=ints([2, *(3 + len(kept) + i for i in range(len(summed)))]),
            rhs_contract=ints([0, *(3 + i for i in range(len(summed)))]),
        )

    def by_tap(self) -> SSAValue:
        """[groups, batch, *out, features of a group], the sum over the window's positions."""
        build, at = self.build, self.overlap_dims
        counts = [self.out[d] for d in self.overlap]
        total: SSAValue | None = None
        for tap in np.ndindex(*(self.window[d] for d in self.overlap)):
            first = [t * step for t, step in zip(tap, self.steps, strict=True)]
            met = _every(build, self.input, at, first, counts, self.strides)
            weights = weights_of_tap(build, self.weights, at, tap)
            product = self._product(met, weights, self.out, [self.window[d] for d in self.apart])
            total = (
                product if total is None else build.add(ELEMENTWISE["add"], [total, product], product.type)
            )
        assert total is not None
        return total

    def by_place(self) -> SSAValue:
        """The same, place by place."""
        build, rank = self.build, 2 + len(self.out)
        at, apart = self.overlap_dims, [2 + d for d in self.apart]
        window, kept = [self.window[d] for d in self.overlap], [self.out[d] for d in self.apart]
        weights = build.transpose(self.weights, [0, 1, *at, *apart])
        places: list[SSAValue] = []
        for place in np.ndindex(*(self.out[d] for d in self.overlap)):
            first = [p * stride for p, stride in zip(place, self.strides, strict=True)]
            met = _every(build, self.input, at, first, window, self.steps)
            met = build.transpose(met, [0, 1, *apart, *at, *range(rank, rank + len(apart))])
            product = self._product(met, weights, kept, [*window, *(self.window[d] for d in self.apart)])
            places.append(build.reshape(product, [1, *shape_of(product)]))
        shape = [len(places), *shape_of(places[0])[1:]]
        stacked = build.add(ConcatOp, places, tensor(shape, self.work), dim=integer_attr(0))
        placed = build.reshape(stacked, [*(self.out[d] for d in self.overlap), *shape[1:]])
        found = len(self.overlap)
        where = {d: i for i, d in enumerate(self.overlap)} | {
            d: found + 2 + i for i, d in enumerate(self.apart)
        }
        return build.transpose(
            placed, [found, found + 1, *(where[d] for d in range(len(self.out))), found + 2 + len(self.apart)]
        )


def _reach(count: int, step: int) -> int:
    """From the first to the last of so many, a step apart."""
    return (count - 1) * step + 1


def met_by_tap(
    op: ConvOp,
    build: TensorBuilder,
    padded: SSAValue,
    spatial: Sequence[int],
    tap: Sequence[int],
    out: Sequence[int],
) -> SSAValue:
    """What one window position meets of a padded input with dimensions `spatial`, for `out` positions of the window."""
    first = [t * dilation for t, dilation in zip(tap, to_ints(op.rhs_dilation), strict=True)]
    return _every(build, padded, spatial, first, out, to_ints(op.strides))


def _every(
    build: TensorBuilder,
    x: SSAValue,
    dims: Sequence[int],
    first: Sequence[int],
    counts: Sequence[int],
    steps: Sequence[int],
) -> SSAValue:
    """Of dimensions `dims` so many positions from the first on, a step apart."""
    rank = len(shape_of(x))
    starts, limits, strides = [0] * rank, list(shape_of(x)), [1] * rank
    for d, start, n, step in zip(dims, first, counts, steps, strict=True):
        starts[d], limits[d], strides[d] = start, start + (n - 1) * step + 1, step
    return build.slice(x, starts, limits, strides)


def weights_of_tap(
    build: TensorBuilder, weights: SSAValue, spatial: Sequence[int], tap: Sequence[int]
) -> SSAValue:
    """The weights at one window position, of size 1 in the dimensions `spatial`."""
    starts, limits = [0] * len(shape_of(weights)), list(shape_of(weights))
    for d, t in zip(spatial, tap, strict=True):
        starts[d], limits[d] = t, t + 1
    return build.slice(weights, starts, limits, [1] * len(starts))


class DepthwiseConvOnVector(GraphPattern):
    """A convolution of one input feature for each output is, for each window position, a multiplication.

    The strided slice of the padded input that the position meets is multiplied by its weights; then all are added up.
    """

    name = "depthwise-conv-on-vector"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConvOp, rewriter: PatternRewriter, /) -> None:
        layout, rhs_layout = to_ints(op.out_layout), to_ints(op.rhs_layout)
        weights_shape = shape_of(op.rhs)
        window = [weights_shape[d] for d in rhs_layout[2:]]
        if weights_shape[rhs_layout[0]] != 1 or size(window) > MOST_TAPS or integer(op.groups) == 1:
            return
        out, rank, feature = shape_of(op.result), len(layout), layout[1]
        work = f32 if is_float(element_of(op.lhs)) else element_of(op.result)
        build = RewriteBuilder(rewriter)
        lhs = build.transpose(op.lhs, [to_ints(op.lhs_layout)[layout.index(d)] for d in range(rank)])
        low, high = [0] * rank, [0] * rank
        for d, lo, hi in zip(layout[2:], to_ints(op.low), to_ints(op.high), strict=True):
            low[d], high[d] = lo, hi
        padded = build.pad(lhs, 0, low, high, [0] * rank) if any((*low, *high)) else lhs
        groups = integer(op.groups)
        # the outputs of one input feature are next to each other: where there are several, a dimension of their own
        split = [groups] if out[feature] == groups else [groups, out[feature] // groups]
        shape = [*out[:feature], *split, *out[feature + 1 :]]
        kept = [d if d <= feature else d + len(split) - 1 for d in range(rank)]
        total: SSAValue | None = None
        for tap in np.ndindex(*window):
            met = met_by_tap(op, build, padded, layout[2:], tap, [out[d] for d in layout[2:]])
            weights = build.reshape(weights_of_tap(build, op.rhs, rhs_layout[2:], tap), split)
            factors = [
                build.broadcast(build.convert(met, work), shape, kept),
                build.broadcast(build.convert(weights, work), shape, range(feature, feature + len(split))),
            ]
            product = build.add(ELEMENTWISE["mul"], factors, tensor(shape, work))
            total = (
                product if total is None else build.add(ELEMENTWISE["add"], [total, product], product.type)
            )
        assert total is not None
        result = build.convert(total, element_of(op.result))
        rewriter.replace(op, (), [build.reshape(result, out) if len(split) > 1 else result])
