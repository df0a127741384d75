"""Products of scaled 8-bit numbers as scaled products of these: what quantized layers are, however they are written.

    (float(p) - 3) * a  times  float(q) * b[n]    becomes    float(sum (p - 3) q) * a * b[n]

The cube multiplies 8-bit integers at several times the rate of wider floats, and their i32 sums are exact; so does it
8-bit floats, where it has them, whose products are exact in f32. A scale may be a number or go along dimensions that
the product keeps; it need not be known when the program is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from xdsl.dialects.builtin import f32, i8, i32
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, ints, to_ints
from ...dialects.dtypes import dtype_name, is_float, is_integer, itemsize, limits, tensor
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ContractOp,
    ConvOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ..forms.access import splat_of
from ..forms.tensor_builder import RewriteBuilder, TensorBuilder
from ..patterns import GraphPattern

MOVES = (ReshapeOp, ReverseOp, SliceOp, TransposeOp)
"""Ops that move elements, and take nothing else."""

STORED = ("i8", "ui8")
"""The integers that the cube multiplies, or that become those."""


def stored_types(machine: Machine) -> tuple[str, ...]:
    """The 8-bit types that the cube of a machine multiplies, or that become those."""
    integers = STORED if "i8" in machine.cube else ()
    return (*integers, *(name for name in machine.cube if is_float(name) and itemsize(name) == 1))


@dataclass
class Factor:
    """What numbers are multiplied by: a tensor. dims: which one of theirs each of its dimensions is that is not 1."""

    value: SSAValue
    dims: tuple[int, ...]


@dataclass
class ScaledNumbers:
    """Numbers that are 8-bit ones, integers less a zero point, times factors: `stored` behind the ops `moves` (the last
    one first)."""

    stored: SSAValue
    zero: int = 0
    known: float = 1.0
    factors: list[Factor] = field(default_factory=list)
    moves: list[Operation] = field(default_factory=list)

    def moved(self, build: TensorBuilder) -> SSAValue:
        """What is stored, where the numbers are."""
        x = self.stored
        for op in reversed(self.moves):
            kind = tensor(shape_of(op.results[0]), element_of(x))
            x = build.add(type(op), [x], kind, **op.properties)
        return x

    def kept(self, place: Mapping[int, int]) -> list[Factor] | None:
        """The factors of a result that has dimension d of the numbers as `place[d]`; None where one goes along a
        dimension that the result does not have."""
        found = []
        for factor in self.factors:
            dims = factor.dims
            for op in reversed(self.moves):
                if not isinstance(op, TransposeOp):
                    return None
                dims = tuple(to_ints(op.perm).index(d) for d in dims)
            if any(d not in place for d in dims):
                return None
            found.append(Factor(factor.value, tuple(place[d] for d in dims)))
        return found


def scaled_numbers(value: SSAValue, kinds: Sequence[str]) -> ScaledNumbers | None:
    """How a tensor of floats is made of numbers of 8 bits, of one of the types `kinds`; None where it is not."""
    found = ScaledNumbers(value)
    while isinstance(found.stored.owner, MOVES):
        found.moves.append(found.stored.owner)
        found.stored = found.stored.owner.x
    if not is_float(element_of(found.stored)):
        return None
    while isinstance(found.stored.owner, ELEMENTWISE["mul"]) and is_float(element_of(found.stored)):
        left, right = found.stored.owner.operands
        rest = right if _multiplies(found, left) else left
        if rest is left and not _multiplies(found, right):
            return None
        found.stored = rest
    return found if _shifted(found, kinds) else None


def _shifted(found: ScaledNumbers, kinds: Sequence[str]) -> bool:
    """Takes in a conversion from what is stored, and a zero point that is subtracted before it or behind it."""
    while (kind := dtype_name(element_of(found.stored))) not in kinds:
        op = found.stored.owner
        if isinstance(op, (ELEMENTWISE["sub"], ELEMENTWISE["add"])) and not found.zero:
            sign = 1 if isinstance(op, ELEMENTWISE["sub"]) else -1
            number, rest = splat_of(op.operands[1]), op.operands[0]
            if number is None and sign == -1:
                number, rest = splat_of(op.operands[0]), op.operands[1]
            if number is None or number != int(number):
                return False
            found.zero, found.stored = sign * int(number), rest
        elif isinstance(op, ELEMENTWISE["convert"]) and _keeps(op.operands[0], kind, kinds):
            found.stored = op.operands[0]
        else:
            return False
    if is_float(kind):
        return not found.zero
    low, high = limits(kind)
    return low <= found.zero <= high


def _keeps(value: SSAValue, kind: str, kinds: Sequence[str]) -> bool:
    """Whether a conversion to the type `kind` keeps 8-bit numbers, or integers, as they are."""
    name = dtype_name(element_of(value))
    return is_integer(name) or (name in kinds and is_float(kind))


def _multiplies(found: ScaledNumbers, value: SSAValue) -> bool:
    """Takes in a factor: a number, or a tensor that is broadcast."""
    number = splat_of(value)
    if number is not None:
        found.known *= float(number)
        return True
    if not isinstance(value.owner, BroadcastOp):
        return False
    source, dims = value.owner.x, to_ints(value.owner.dims)
    whole = shape_of(value)
    wide = [d for d, n in zip(dims, shape_of(source), strict=True) if n != 1]
    if len(wide) == len(whole) or any(
        n not in (1, whole[d]) for d, n in zip(dims, shape_of(source), strict=True)
    ):
        return False
    found.factors.append(Factor(source, tuple(wide)))
    return True


class ProductOfStored(GraphPattern):
    """A product of scaled 8-bit numbers is the product of these numbers, which is scaled.

    Only where the cube has such products, and sums of integers do not overflow.
    """

    name = "product-of-stored"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp | ConvOp, rewriter: PatternRewriter, /) -> None:
        kinds = stored_types(self.machine)
        operands = {dtype_name(element_of(v)) for v in (op.lhs, op.rhs)}
        if not is_float(element_of(op.result)) or operands & {*kinds}:
            return
        left, right = scaled_numbers(op.lhs, kinds), scaled_numbers(op.rhs, kinds)
        if left is None or right is None or not self._multiplies(op, left.stored, right.stored):
            return
        places = _places(op)
        kept = left.kept(places[0]), right.kept(places[1])
        if kept[0] is None or kept[1] is None:
            return
        build, out = RewriteBuilder(rewriter), shape_of(op.result)
        x = build.convert(_product(build, op, left, right), f32)
        known = float(np.float32(left.known * right.known))
        if known != 1:
            x = build.elementwise("mul", x, build.constant(known, out, f32))
        for factor in (*kept[0], *kept[1]):
            x = build.elementwise("mul", x, _over(build, factor, out))
        rewriter.replace(op, (), [build.convert(x, element_of(op.result))])

    def _multiplies(self, op: ContractOp | ConvOp, left: SSAValue, right: SSAValue) -> bool:
        """Whether the cube has the product of two tensors of stored numbers."""
        a, b = (dtype_name(element_of(v)) for v in (left, right))
        if is_float(a) or is_float(b):
            return self.machine.multiplies(a, b)
        return _terms(op) * 255 * 255 < 2**31


def _product(
    build: TensorBuilder, op: ContractOp | ConvOp, left: ScaledNumbers, right: ScaledNumbers
) -> SSAValue:
    """The sums of products of stored numbers: of integers less their zero points in i32, of floats in f32."""
    a, b = left.moved(build), right.moved(build)
    if is_float(element_of(a)):
        return build.add(type(op), [a, b], tensor(shape_of(op.result), f32), **op.properties)
    a, za = signed(build, a, [left.zero])
    b, zb = signed(build, b, [right.zero])
    if isinstance(op, ContractOp):
        return contraction(build, op, a, za[0], b, zb)
    return convolution(build, op, a, za[0], b, zb)


def _terms(op: ContractOp | ConvOp) -> int:
    """How many products each result adds up."""
    if isinstance(op, ContractOp):
        return prod(shape_of(op.lhs)[d] for d in to_ints(op.lhs_contract))
    return prod(n for d, n in enumerate(shape_of(op.rhs)) if d != to_ints(op.rhs_layout)[1])


def _places(op: ContractOp | ConvOp) -> tuple[dict[int, int], dict[int, int]]:
    """Which dimension of the result each one of both operands is that is in it."""
    if isinstance(op, ConvOp):
        lhs, rhs, out = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)
        return {lhs[0]: out[0]}, {rhs[1]: out[1]}
    m, n = op.free_dims()
    batch = len(to_ints(op.lhs_batch))
    first = {d: i for i, d in enumerate(to_ints(op.lhs_batch))}
    second = {d: i for i, d in enumerate(to_ints(op.rhs_batch))}
    first |= {d: batch + i for i, d in enumerate(m)}
    return first, second | {d: batch + len(m) + i for i, d in enumerate(n)}


def _over(build: TensorBuilder, factor: Factor, out: Sequence[int]) -> SSAValue:
    order = sorted(range(len(factor.dims)), key=lambda i: factor.dims[i])
    shape = [n for n in shape_of(factor.value) if n != 1]
    x = factor.value if len(shape) == len(shape_of(factor.value)) else build.reshape(factor.value, shape)
    source = build.convert(build.transpose(x, order), f32)
    return build.broadcast(source, out, [factor.dims[i] for i in order])


# -- sums of integers ------------------------------------------------------------------------------------------


def signed(build: TensorBuilder, x: SSAValue, zeros: Sequence[int]) -> tuple[SSAValue, tuple[int, ...]]:
    """Stored numbers and their zero points as the cube takes them: 8 signed bits where they fit."""
    name = dtype_name(element_of(x))
    if name == "ui8":  # u - 128 is u with its top bit turned
        turned = build.elementwise("xor", x, build.constant(128, shape_of(x), element_of(x)))
        return build.add(ELEMENTWISE["bitcast"], [turned], tensor(shape_of(x), i8)), tuple(
            z - 128 for z in zeros
        )
    low, high = limits(name)
    return build.convert(x, i8 if low >= -128 and high <= 127 else i32), tuple(zeros)


def contraction(
    build: TensorBuilder,
    op: ContractOp,
    a: SSAValue,
    za: int,
    b: SSAValue,
    zb: Sequence[int],
    feature: int = 0,
) -> SSAValue:
    """The i32 sums of (a - za) (b - zb); feature: the dimension of the result along which the zero points of b go, if
    they are several."""
    out = shape_of(op.result)
    m, n = op.free_dims()
    batch = len(to_ints(op.lhs_batch))
    total = build.add(ContractOp, [a, b], tensor(out, i32), **op.properties)
    k = int(np.prod([shape_of(a)[d] for d in to_ints(op.lhs_contract)], dtype=np.int64))
    over_b = _sums(build, b, [*to_ints(op.rhs_batch), *n], to_ints(op.rhs_contract)) if za else None
    over_a = _sums(build, a, [*to_ints(op.lhs_batch), *m], to_ints(op.lhs_contract)) if any(zb) else None
    batches, features = list(range(batch)), [batch + len(m) + i for i in range(len(n))]
    if over_b is not None:
        total = _less(build, total, build.broadcast(over_b, out, [*batches, *features]), za)
    if over_a is not None:
        spread = build.broadcast(over_a, out, [*batches, *range(batch, batch + len(m))])
        total = _less(build, total, spread, _along(build, zb, feature, out))
    if za and any(zb):
        total = _less(build, total, _along(build, [-za * k * z for z in zb], feature, out), 1)
    return total


def _sums(build: TensorBuilder, x: SSAValue, kept: Sequence[int], dims: Sequence[int]) -> SSAValue:
    """x added up along `dims` in i32; the other dimensions in the order `kept`."""
    found = build.reduce(build.convert(x, i32), "sum", sorted(dims))
    left = sorted(kept)
    return build.transpose(found, [left.index(d) for d in kept])


def _along(build: TensorBuilder, values: Sequence[int], d: int, out: Sequence[int]) -> SSAValue:
    """A number for each place of dimension d of the result, or one for all."""
    if len(set(values)) == 1:
        return build.constant(values[0], out, i32)
    return build.broadcast(build.numbers(values, [len(values)], i32), out, [d])


def _less(build: TensorBuilder, total: SSAValue, x: SSAValue, times: SSAValue | int) -> SSAValue:
    """total - x * times, in i32."""
    if isinstance(times, int):
        if times == 1:
            return build.elementwise("sub", total, x)
        times = build.constant(times, shape_of(total), i32)
    return build.elementwise("sub", total, build.elementwise("mul", x, times))


def convolution(
    build: TensorBuilder, op: ConvOp, a: SSAValue, za: int, b: SSAValue, zb: Sequence[int]
) -> SSAValue:
    """The same of a convolution. What is beside the input stands for 0, so it is padded with the zero point before."""
    lhs, rhs, layout = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)
    out, groups, rank = shape_of(op.result), integer(op.groups), len(lhs)
    feature = layout[1]
    properties = dict(op.properties)
    if za or any(zb):
        a = _padded(build, op, a, za)
        zero = ints([0] * (rank - 2))
        properties |= {"low": zero, "high": zero, "lhs_dilation": ints([1] * (rank - 2))}
    total = build.add(ConvOp, [a, b], tensor(out, i32), **properties)
    features = [d for d in range(rank) if d != rhs[1]]
    window = int(np.prod([shape_of(b)[d] for d in features], dtype=np.int64))
    if za:
        over_b = build.reduce(build.convert(b, i32), "sum", features)
        total = _less(build, total, build.broadcast(over_b, out, [layout[1]]), za)
    if any(zb):
        shape = [groups if d == rhs[1] else n for d, n in enumerate(shape_of(b))]
        met = [groups if d == layout[1] else n for d, n in enumerate(out)]
        ones = build.constant(1, shape, element_of(b))
        over_a = build.add(ConvOp, [a, ones], tensor(met, i32), **properties)
        over_a = _each_feature(build, over_a, layout[1], out)
        total = _less(build, total, over_a, _along(build, zb, feature, out))
    if za and any(zb):
        total = _less(build, total, _along(build, [-za * window * z for z in zb], feature, out), 1)
    return total


def _padded(build: TensorBuilder, op: ConvOp, a: SSAValue, zero: int) -> SSAValue:
    """The input of a convolution with the zero point around and between its elements, as the window meets them."""
    rank = len(to_ints(op.lhs_layout))
    low, high, interior = [0] * rank, [0] * rank, [0] * rank
    lists = zip(to_ints(op.low), to_ints(op.high), to_ints(op.lhs_dilation), strict=True)
    for i, (before, after, dilation) in enumerate(lists):
        d = to_ints(op.lhs_layout)[2 + i]
        low[d], high[d], interior[d] = before, after, dilation - 1
    return build.pad(a, zero, low, high, interior)


def _each_feature(build: TensorBuilder, x: SSAValue, d: int, out: Sequence[int]) -> SSAValue:
    """x, which has a feature for each group, with that for each feature of the group."""
    shape, groups = shape_of(x), shape_of(x)[d]
    if groups == 1:
        others = [i for i in range(len(out)) if i != d]
        return build.broadcast(build.reshape(x, [shape[i] for i in others]), out, others)
    split = [*shape[:d], groups, out[d] // groups, *shape[d + 1 :]]
    dims = [i for i in range(len(split)) if i != d + 1]
    return build.reshape(build.broadcast(x, split, dims), out)
