"""Winograd's convolutions: those with windows of 3 as batched products of transformed tiles.

Before:  %y = graph.conv %x, %w {3 x 3, strides 1} : [n, h, w, c], [3, 3, c, k]
After:   %v = the input, each tile of 4 x 4 or 6 x 6 transformed    : [16, n * tiles, c]   vector cores
         %u = the weights, likewise                                 : [16, c, k]           once, if packed or constant
         %m = graph.contract %v, %u (a batch of 16 or 36)           : [16, n * tiles, k]   cube
         %y = each 16 of %m, transformed back to 2 x 2 or 4 x 4     : [n, h, w, k]         vector cores

Each transform is sums of shifted slices (winograd_transforms.py), in f32. Its results are parts of one tensor, which
one kernel stores (groups.py). Few parts are made in one kernel; for many of them, tiles of ub would be so short that
starting instructions takes longer than what they compute: then one dimension is transformed after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from itertools import product as every

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, SSAValue

from ...dialects.base import integer, integer_attr, ints, to_ints
from ...dialects.dtypes import dtype_name, numpy_dtype, size, tensor
from ...dialects.graph import ConcatOp, ConstantOp, ContractOp, ConvOp, DataAttr
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from ...machine import Machine
from ..forms.tensor_builder import TensorBuilder
from ..quantized.integer_chains import keep
from .winograd_transforms import TAPS, Matrix, transforms

Tile = tuple[int, ...]
"""A place in a tile: a number for each spatial dimension that is transformed."""

MOST_PARTS = 16
"""Parts that one kernel makes of a tile. Measured on ascend-910b1, 8 x 28 x 28 x 512 in f32: the 16 of F(2, 3) together
take 32 us and one dimension after the other 42, the 36 of F(4, 3) 90 and 33."""


def why_not(op: ConvOp, machine: Machine) -> str | None:
    """Why a convolution cannot be computed so; None where it can."""
    kinds = {dtype_name(element_of(v)) for v in (op.lhs, op.rhs)}
    if len(kinds) > 1 or not kinds <= {"f16", "bf16", "f32"} & machine.cube.keys():
        return f"its operands are {' and '.join(sorted(kinds))}"
    if integer(op.groups) != 1:
        return f"it has {integer(op.groups)} groups"
    lists = (op.strides, op.lhs_dilation, op.rhs_dilation)
    if any(n != 1 for values in lists for n in to_ints(values)):
        return "it has strides or dilations"
    window = [shape_of(op.rhs)[d] for d in to_ints(op.rhs_layout)[2:]]
    if any(n != TAPS for n in window) or len(window) > 2:
        return f"its window is {' x '.join(map(str, window))}, not 3 or 3 x 3"
    if any(n < 0 for n in (*to_ints(op.low), *to_ints(op.high))):
        return "its padding crops"
    if any_open((*shape_of(op.lhs), *shape_of(op.result))):
        return "its sizes are open"
    if 0 in (*shape_of(op.result), *shape_of(op.lhs)):
        return "it has no elements"
    return None


class WinogradConvolution:
    """Builds F(places, 3) along each spatial dimension, for a convolution that `why_not` has nothing against.

    `stages` are the spatial dimensions that are transformed together, in order. In transformed tensors each stage has a
    dimension of its own in front, with the products of its dimensions, those of the last one next to each other.
    """

    def __init__(self, op: ConvOp, build: TensorBuilder, places: int):
        self.op, self.build, self.places = op, build, places
        self.how = transforms(places)
        layout = to_ints(op.out_layout)
        self.batch, self.features, *self.spatial = (shape_of(op.result)[d] for d in layout)
        dims = len(self.spatial)
        self.tiles = [-(-n // places) for n in self.spatial]
        together = self.how.products**dims <= MOST_PARTS
        self.stages = [list(range(dims))] if together else [[d] for d in range(dims)]

    def result(self) -> SSAValue:
        """The result of the convolution."""
        build, dims = self.build, len(self.spatial)
        products, rows = self.how.products**dims, self.batch * size(self.tiles)
        channels = shape_of(self.op.lhs)[to_ints(self.op.lhs_layout)[1]]
        product = build.add(
            ContractOp,
            [build.reshape(self.inputs(), [products, rows, channels]), self.weights(products, channels)],
            tensor([products, rows, self.features], f32),
            lhs_batch=ints([0]),
            rhs_batch=ints([0]),
            lhs_contract=ints([2]),
            rhs_contract=ints([1]),
        )
        whole = [self.batch, *(t * self.places for t in self.tiles), self.features]
        result = build.reshape(self.outputs(product), whole)
        for d, n in enumerate(self.spatial):
            result = build.part(result, 1 + d, 0, n)
        order, layout = [0, dims + 1, *range(1, dims + 1)], to_ints(self.op.out_layout)
        return build.transpose(result, [order[layout.index(d)] for d in range(dims + 2)])

    def inputs(self) -> SSAValue:
        """The transformed input: [stages..., batch, tiles..., channels]."""
        build, layout, m = self.build, to_ints(self.op.lhs_layout), self.places
        x = build.transpose(self.op.lhs, [layout[0], *layout[2:], layout[1]])
        low, extents = to_ints(self.op.low), shape_of(x)[1:-1]
        high = [t * m + TAPS - 1 - n - lo for t, n, lo in zip(self.tiles, extents, low, strict=True)]
        rank = len(extents) + 2
        x = build.pad(x, 0, [0, *low, 0], [0, *(max(h, 0) for h in high), 0], [0] * rank)
        for at, dims in enumerate(self.stages):
            shape = shape_of(x)
            x = build.reshape(x, [*shape[:at], 1, *shape[at:]])
            parts: dict[Tile, SSAValue] = {}
            for place in every(range(self.how.products), repeat=len(dims)):
                part = x
                for d, first in zip(dims, place, strict=True):
                    part = build.part(part, at + 2 + d, first, self.tiles[d], m)
                parts[place] = build.convert(part, f32)
            x = self._stacked(along_each(build, parts, self.how.input), at, element_of(self.op.lhs))
        return x

    def weights(self, products: int, channels: int) -> SSAValue:
        """The transformed weights: [products, channels, features]. Constants are transformed here, in f64."""
        build, rhs, layout = self.build, self.op.rhs, to_ints(self.op.rhs_layout)
        order, element = [*layout[2:], layout[0], layout[1]], element_of(rhs)
        whole = [products, channels, self.features]
        if isinstance(rhs.owner, ConstantOp):
            values = rhs.owner.value.data.array().astype(np.float64).transpose(order)
            matrix = np.array([[float(c) for c in row] for row in self.how.weights])
            for d in range(len(self.spatial)):
                values = np.moveaxis(np.tensordot(matrix, values, (1, d)), 0, d)
            made = np.ascontiguousarray(values.reshape(whole).astype(numpy_dtype(element)))
            return build.add(ConstantOp, [], tensor(whole, element), value=DataAttr.of(made))
        lead = [TAPS ** len(dims) for dims in self.stages]
        x = build.reshape(build.transpose(rhs, order), [*lead, channels, self.features])
        for at, dims in enumerate(self.stages):
            parts = self._numbered(x, at, TAPS, len(dims))
            parts = {place: build.convert(part, f32) for place, part in parts.items()}
            x = self._stacked(along_each(build, parts, self.how.weights), at, element)
        return keep(build.reshape(x, whole))

    def outputs(self, product: SSAValue) -> SSAValue:
        """The products transformed back: [1..., batch, tile, place in it, tile, place..., features]."""
        build, lead = self.build, [self.how.products ** len(dims) for dims in self.stages]
        apart = [n for t in self.tiles for n in (t, 1)]
        x = build.reshape(product, [*lead, self.batch, *apart, self.features])
        for at, dims in enumerate(self.stages):
            element = element_of(self.op.result) if at == len(self.stages) - 1 else f32
            parts = along_each(build, self._numbered(x, at, self.how.products, len(dims)), self.how.output)
            values = {place: build.convert(part, element) for place, part in parts.items()}
            for i, d in reversed(list(enumerate(dims))):
                places = every(range(self.places), repeat=i)
                behind = len(lead) + 2 + 2 * d
                values = {
                    place: self._joined([values[*place, j] for j in range(self.places)], behind)
                    for place in places
                }
            x = values[()]
        return x

    def _numbered(self, x: SSAValue, at: int, count: int, dims: int) -> dict[Tile, SSAValue]:
        """The parts of dimension `at` of x, of extent 1, by their places: `count` along each of `dims` dimensions."""
        places = every(range(count), repeat=dims)
        return {place: self.build.part(x, at, i, 1) for i, place in enumerate(places)}

    def _stacked(self, parts: Mapping[Tile, SSAValue], at: int, element: Attribute) -> SSAValue:
        """Transformed parts side by side along dimension `at`, in f32 where another stage follows."""
        kind = element if at == len(self.stages) - 1 else f32
        return self._joined([self.build.convert(parts[place], kind) for place in sorted(parts)], at)

    def _joined(self, values: Sequence[SSAValue], at: int) -> SSAValue:
        shape = [len(values) if d == at else n for d, n in enumerate(shape_of(values[0]))]
        return self.build.add(
            ConcatOp, values, tensor(shape, element_of(values[0])), dim=integer_attr(at)
        )


# -- sums of parts ------------------------------------------------------------------------------------------------


def along_each(build: TensorBuilder, parts: dict[Tile, SSAValue], matrix: Matrix) -> dict[Tile, SSAValue]:
    """A matrix applied to the parts along each dimension of the tile in turn."""
    dims = len(next(iter(parts)))
    for d in range(dims):
        others = sorted({(*place[:d], *place[d + 1 :]) for place in parts})
        made: dict[Tile, SSAValue] = {}
        for rest in others:
            line = [parts[*rest[:d], i, *rest[d:]] for i in range(len(matrix[0]))]
            for i, value in enumerate(_Sums(build, line).of(matrix)):
                made[*rest[:d], i, *rest[d:]] = value
        parts = made
    return parts


class _Sums:
    """Sums of values with known factors. Rows, or columns, of a matrix that differ in signs alone share their halves:
    p = e + o and q = e - o."""

    def __init__(self, build: TensorBuilder, values: Sequence[SSAValue]) -> None:
        self.build = build
        self.values = values

    def of(self, matrix: Matrix) -> list[SSAValue]:
        """The product of a matrix and the column of values."""
        columns = _mirrored(tuple(zip(*matrix, strict=True)))
        if columns:
            return self._by_columns(matrix, columns)
        pairs, made = _mirrored(matrix), dict[int, SSAValue]()
        for p, q in pairs:
            even, odd = (self._sum([c if i % 2 == r else 0 for i, c in enumerate(matrix[p])]) for r in (0, 1))
            assert even is not None and odd is not None
            made[p] = self.build.elementwise("add", even, odd)
            made[q] = self.build.elementwise("sub", even, odd)
        for i, row in enumerate(matrix):
            if i not in made:
                value = self._sum(row)
                assert value is not None
                made[i] = value
        return [made[i] for i in range(len(matrix))]

    def _by_columns(self, matrix: Matrix, pairs: Sequence[tuple[int, int]]) -> list[SSAValue]:
        """The same where pairs of columns are mirrored: sums and differences of their values come first."""
        add = self.build.elementwise
        halves = {
            p: tuple(add(name, self.values[p], self.values[q]) for name in ("add", "sub")) for p, q in pairs
        }
        second = {q for _, q in pairs}
        out = []
        for i, row in enumerate(matrix):
            kept = [j for j in range(len(row)) if j not in second]
            values = [halves[j][i % 2] if j in halves else self.values[j] for j in kept]
            value = _Sums(self.build, values)._sum([row[j] for j in kept])
            assert value is not None
            out.append(value)
        return out

    def _sum(self, factors: Sequence[Fraction | int]) -> SSAValue | None:
        """The sum of the values times factors; None where all are 0."""
        terms = sorted(
            ((f, v) for f, v in zip(factors, self.values, strict=True) if f), key=lambda term: term[0] < 0
        )
        total: SSAValue | None = None
        for factor, value in terms:
            if total is None:
                total = self._times(value, factor)
            elif factor < 0:
                total = self.build.elementwise("sub", total, self._times(value, -factor))
            else:
                total = self.build.elementwise("add", total, self._times(value, factor))
        return total

    def _times(self, value: SSAValue, factor: Fraction | int) -> SSAValue:
        if factor == 1:
            return value
        number = self.build.constant(float(factor), shape_of(value), element_of(value))
        return self.build.elementwise("mul", value, number)


def _mirrored(rows: Sequence[Sequence[Fraction]]) -> list[tuple[int, int]]:
    """Pairs of rows a, b with b_i = (-1)^i a_i that have elements at even and at odd places; columns are given as
    rows."""
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    for p, q in combinations(range(len(rows)), 2):
        both = any(rows[p][::2]) and any(rows[p][1::2])
        turned = [c if i % 2 == 0 else -c for i, c in enumerate(rows[p])]
        if both and not taken & {p, q} and list(rows[q]) == turned:
            found.append((p, q))
            taken |= {p, q}
    return found
