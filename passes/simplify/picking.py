"""Picks elements before they are computed on, and puts single ones by comparing positions, as losses over many classes
ask for: what is taken of each row, or put into each, keeps the rest from being one kernel."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import i1
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer_attr, ints, text, to_ints
from ...dialects.dtypes import itemsize, size, tensor
from ...dialects.elementwise import REDUCTION_FUNCTION
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ElementwiseOp,
    GatherOp,
    IotaOp,
    ReverseOp,
    ScatterOp,
    SliceOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from ..forms.access import splat_of
from ..forms.known_numbers import known_numbers
from ..forms.tensor_builder import RewriteBuilder, TensorBuilder
from ..patterns import GraphPattern

FEW = 4
"""A gather picks few elements where its operand has so many times those of its result."""


class GatherBeforeElementwise(GraphPattern):
    """Few elements of a function of one tensor are the function of few elements of it."""

    name = "gather-before-elementwise"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GatherOp, rewriter: PatternRewriter, /) -> None:
        maker = op.x.owner
        shape = shape_of(op.result)
        if not isinstance(maker, ElementwiseOp) or any_open((*shape, *shape_of(op.x))):
            return
        if FEW * size(shape) > size(shape_of(op.x)):
            return
        if len({v for v in maker.operands if splat_of(v) is None and kept_dims(op, v) is None}) != 1:
            return
        build = RewriteBuilder(rewriter)
        operands = [picked(build, op, v) for v in maker.operands]
        properties = dict(maker.properties)
        result = build.add(type(maker), operands, tensor(shape, element_of(op.x)), **properties)
        rewriter.replace(op, (), [result])


class GatherAsSlice(GraphPattern):
    """A gather at evenly spaced places, each of them once or equally often in turn, is a slice that is repeated.

    Before:  %r = graph.gather %x, %places {...} : 0, 0, 2, 2, 4, 4... along a dimension
    After:   %s = graph.slice %x {starts = [0], strides = [2], ...} ; %r = graph.broadcast %s, reshaped
    """

    name = "gather-as-slice"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GatherOp, rewriter: PatternRewriter, /) -> None:
        moved, shape = to_ints(op.start_map), shape_of(op.x)
        batch = op.batch_shape()
        if len(moved) != 1 or len(batch) != 1 or to_ints(op.x_batch) or any_open((*shape, *batch)):
            return
        (d,) = moved
        if list(to_ints(op.collapsed_dims)) != [d] or not batch[0] or not shape[d]:
            return
        if any(z != n for i, (z, n) in enumerate(zip(to_ints(op.slice_sizes), shape, strict=True)) if i != d):
            return
        numbers = known_numbers(op.indices)
        steps = None if numbers is None else _even(np.clip(numbers.reshape(-1).astype(np.int64), 0, shape[d] - 1))
        if steps is None:
            return
        first, step, count, repeats = steps
        build = RewriteBuilder(rewriter)
        last = first + (count - 1) * step
        found = build.part(op.x, d, min(first, last), count, max(abs(step), 1))
        if step < 0:
            found = build.add(ReverseOp, [found], found.type, dims=ints([d]))
        kept = [i for i in range(len(shape_of(op.result))) if i not in to_ints(op.offset_dims)]
        perm = [i for i in range(len(shape)) if i != d]
        perm.insert(kept[0], d)
        found = build.transpose(found, perm)
        if repeats > 1:
            wide = [*shape_of(found)[: kept[0] + 1], repeats, *shape_of(found)[kept[0] + 1 :]]
            found = build.broadcast(found, wide, [i for i in range(len(wide)) if i != kept[0] + 1])
            found = build.reshape(found, shape_of(op.result))
        rewriter.replace(op, (), [found])


def _even(places: np.ndarray) -> tuple[int, int, int, int] | None:
    """The first one of evenly spaced places, how far they are apart, how many different ones there are and how often
    each follows itself; None where they are not such."""
    first = int(places[0])
    others = np.flatnonzero(places != first)
    repeats = int(others[0]) if len(others) else len(places)
    if len(places) % repeats:
        return None
    count = len(places) // repeats
    step = int(places[repeats]) - first if count > 1 else 0
    even = np.repeat(first + step * np.arange(count), repeats)
    return (first, step, count, repeats) if (places == even).all() else None


class SliceBeforeConvert(GraphPattern):
    """Slices of a conversion to a wider type, which are no more than all of it, are conversions of slices.

    Where slices lie apart, as the halves of a gated unit, one kernel does not make all of what they are taken of: the
    wide values would be stored."""

    name = "slice-before-convert"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SliceOp, rewriter: PatternRewriter, /) -> None:
        maker = op.x.owner
        if not isinstance(maker, ELEMENTWISE["convert"]) or any_open(shape_of(op.x)):
            return
        source, (narrow, wide) = maker.operands[0], (element_of(maker.operands[0]), element_of(op.x))
        if itemsize(narrow) >= itemsize(wide) or splat_of(source) is not None:
            return
        slices = [use.operation for use in op.x.uses]
        if not all(isinstance(other, SliceOp) for other in slices):
            return
        if sum(size(shape_of(other.results[0])) for other in slices) > size(shape_of(op.x)):
            return
        build = RewriteBuilder(rewriter)
        part = build.add(SliceOp, [source], tensor(shape_of(op.result), narrow), **op.properties)
        rewriter.replace(op, (), [build.convert(part, wide)])


def kept_dims(op: GatherOp, value: SSAValue) -> list[int] | None:
    """Where a value is a broadcast that is alike wherever a gather of it picks: the dimension of the gather's result
    that each dimension of the broadcast's operand becomes, those of size 1 left out. None where it is not."""
    maker = value.owner
    if not isinstance(maker, BroadcastOp):
        return None
    found = []
    for d, n in zip(to_ints(maker.dims), shape_of(maker.x), strict=True):
        if n == 1:
            continue
        to = op.along(0, d)
        if to is None or to.dim is None or shape_of(op.result)[to.dim] != n:
            return None
        found.append(to.dim)
    return found


def picked(build: TensorBuilder, op: GatherOp, value: SSAValue) -> SSAValue:
    """What a gather picks of another tensor of the shape of its own."""
    shape, number, kept = shape_of(op.result), splat_of(value), kept_dims(op, value)
    if number is not None:
        return build.constant(number, shape, element_of(value))
    if kept is not None and isinstance(value.owner, BroadcastOp):
        source = value.owner.x
        wide = [n for n in shape_of(source) if n != 1]
        if len(wide) < len(shape_of(source)):
            source = build.reshape(source, wide)
        return build.broadcast(source, shape, kept)
    return build.add(GatherOp, [value, op.indices], tensor(shape, element_of(value)), **dict(op.properties))


class ScatterAsSelect(GraphPattern):
    """A scatter of one update into each group of rows of one number selects by position."""

    name = "scatter-as-select"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ScatterOp, rewriter: PatternRewriter, /) -> None:
        (rows, columns), (count,), groups = shape_of(op.x), shape_of(op.index), op.runs()
        number = splat_of(op.x)
        if number is None or count != groups or columns != 1 or any_open((rows, count)):
            return
        build, numbers, element = RewriteBuilder(rewriter), element_of(op.index), element_of(op.x)
        length = rows // groups
        shape = [groups, length]
        # the place within its group, which an update that goes nowhere has none of
        group = build.add(IotaOp, [], tensor([groups], numbers), dim=integer_attr(0))
        first = build.elementwise("mul", group, build.constant(length, [groups], numbers))
        place = build.broadcast(build.elementwise("sub", op.index, first), shape, [0])
        column = build.add(IotaOp, [], tensor([length], numbers), dim=integer_attr(0))
        here = build.add(
            ELEMENTWISE["eq"], [build.broadcast(column, shape, [1]), place], tensor(shape, i1)
        )
        old = build.constant(number, shape, element)
        new = build.broadcast(build.reshape(op.updates, [groups]), shape, [0])
        if text(op.kind) != "set":
            new = build.elementwise(REDUCTION_FUNCTION[text(op.kind)], old, new)
        result = build.add(ELEMENTWISE["select"], [here, new, old], tensor(shape, element))
        rewriter.replace(op, (), [build.reshape(result, [rows, columns])])
