"""Products of 2:4 sparse right sides: which of them a cube computes as they are stored, and what else becomes of these.

    %w = graph.expand %values, %index {dim = 0} : ... -> tensor<64x16xi8>
    %y = graph.contract %x, %w : (tensor<8x64xi8>, tensor<64x16xi8>) -> tensor<8x16xi32>

is one instruction for each step where the cube has `[cube.sparse]`. What else expands is written out: compared with the
positions, and selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import f32, i1, i8
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, to_ints
from ...dialects.dtypes import dtype_name, is_integer, tensor
from ...dialects.graph import ELEMENTWISE, ConcatOp, ContractOp, ConvOp, ExpandOp, TransposeOp
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ..patterns import GraphPattern
from .tensor_builder import RewriteBuilder, TensorBuilder

GROUP = 4
"""Neighbours of which two are kept."""


def expansion_of(op: Operation) -> ExpandOp | None:
    """What a product's right side is expanded by, seen through transposes, where it is expanded along the one dimension
    that is summed over, of a convolution that of the input features, and sums are integers. None for other products."""
    if isinstance(op, ContractOp) and len(to_ints(op.rhs_contract)) == 1:
        (dim,) = to_ints(op.rhs_contract)
    elif isinstance(op, ConvOp) and integer(op.groups) == 1:
        dim = to_ints(op.rhs_layout)[0]
    else:
        return None
    value = op.rhs
    while isinstance(value.owner, TransposeOp):
        dim = to_ints(value.owner.perm)[dim]
        value = value.owner.x
    found = value.owner
    if not isinstance(found, ExpandOp) or integer(found.dim) != dim or not is_integer(element_of(op.result)):
        return None
    return found if element_of(op.lhs) == element_of(op.rhs) else None


def _expands_alone(value: SSAValue, machine: Machine) -> bool:
    """Whether every use of an expanded value is a product that the cube of a machine computes as it is stored."""
    if dtype_name(element_of(value)) not in machine.cube_sparse:
        return False
    for use in value.uses:
        op = use.operation
        if isinstance(op, TransposeOp):
            if not _expands_alone(op.result, machine):
                return False
        elif use.index != 1 or expansion_of(op) is None:
            return False
    return True


class ExpandElsewhere(GraphPattern):
    """A 2:4 sparse tensor is written out, unless it is the right side of a product that the cube computes of it.

    Each of four neighbours is the value at its position, or zero.
    """

    name = "expand-elsewhere"
    LATE: ClassVar[bool] = True

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ExpandOp, rewriter: PatternRewriter, /) -> None:
        if not _expands_alone(op.result, self.machine):
            rewriter.replace(
                op, (), [expanded(RewriteBuilder(rewriter), op.values, op.index, integer(op.dim))]
            )


def expanded(build: TensorBuilder, values: SSAValue, index: SSAValue, dim: int) -> SSAValue:
    """What 2:4 sparse numbers stand for, by comparisons and selections."""
    shape = list(shape_of(values))
    shape[dim] //= 2  # groups
    first, second = (_place(build, values, dim, 2, n) for n in range(2))
    low = build.elementwise("and", index, build.constant(15, shape_of(index), i8))
    high = build.elementwise("shr_arithmetic", index, build.constant(4, shape_of(index), i8))
    high = build.elementwise("and", high, build.constant(15, shape_of(index), i8))
    code = _interleaved(build, [low, high], dim)
    at_first = build.elementwise("and", code, build.constant(3, shape, i8))
    at_second = build.elementwise("shr_arithmetic", code, build.constant(2, shape, i8))
    zero = build.constant(0, shape, i8)

    def chosen(place: int) -> SSAValue:
        other = select(build, _equals(build, at_second, place), second, zero)
        return select(build, _equals(build, at_first, place), first, other)

    return _interleaved(build, [chosen(place) for place in range(GROUP)], dim)


def compressed(build: TensorBuilder, x: SSAValue, dim: int) -> tuple[SSAValue, SSAValue]:
    """The values and the index of i8 numbers [..., n, ...], of each four of which along `dim` at most two are not zero.

    The first value is the first number of three that is not zero, the second one the last that lies behind it; a
    position without such a number is the first or the last one."""
    parts = [_place(build, x, dim, GROUP, n) for n in range(GROUP)]
    shape = shape_of(parts[0])
    has = [_equals(build, part, 0, "ne") for part in parts]
    before = [has[0], build.elementwise("or", has[0], has[1])]
    second = build.elementwise("and", has[1], before[0])
    third = build.elementwise("and", has[2], before[1])

    def pick(choices: Sequence[tuple[SSAValue, SSAValue]], other: SSAValue) -> SSAValue:
        for condition, value in reversed(choices):
            other = select(build, condition, value, other)
        return other

    def number(n: int) -> SSAValue:
        return build.constant(n, shape, i8)

    first = [(has[0], 0), (has[1], 1), (has[2], 2)]
    last = [(has[3], 3), (third, 2), (second, 1)]
    values = [
        pick([(c, parts[n]) for c, n in first], parts[0]),
        pick([(c, parts[n]) for c, n in last], parts[3]),
    ]
    code = pick([(c, number(n)) for c, n in first], number(0))
    code = build.elementwise("or", code, pick([(c, number(4 * n)) for c, n in last], number(12)))
    low, high = (_place(build, code, dim, 2, n) for n in range(2))
    high = build.elementwise("shl", high, build.constant(4, shape_of(high), i8))
    return _interleaved(build, values, dim), build.elementwise("or", low, high)


def largest_two(build: TensorBuilder, x: SSAValue, dim: int) -> SSAValue:
    """Floats with zeros for those of each four neighbours along `dim` that are not among the two largest in magnitude,
    of equal ones the first (`pruning.two_of_four`)."""
    parts = [_place(build, x, dim, GROUP, n) for n in range(GROUP)]
    sizes = [build.elementwise("abs", part) for part in parts]
    shape, element = shape_of(parts[0]), element_of(x)
    kept = []
    for n, part in enumerate(parts):
        ahead = [
            build.convert(compare(build, "ge" if m < n else "gt", sizes[m], sizes[n]), f32)
            for m in range(GROUP)
            if m != n
        ]
        total = build.elementwise("add", build.elementwise("add", ahead[0], ahead[1]), ahead[2])
        few = compare(build, "lt", total, build.constant(2, shape, f32))
        kept.append(select(build, few, part, build.constant(0, shape, element)))
    return _interleaved(build, kept, dim)


def compare(build: TensorBuilder, name: str, a: SSAValue, b: SSAValue) -> SSAValue:
    """A comparison of two tensors of one shape, i1."""
    return build.add(ELEMENTWISE[name], [a, b], tensor(shape_of(a), i1))


def select(build: TensorBuilder, condition: SSAValue, first: SSAValue, second: SSAValue) -> SSAValue:
    """`first` where the condition is true, else `second`."""
    return build.add(ELEMENTWISE["select"], [condition, first, second], first.type)


def _equals(build: TensorBuilder, x: SSAValue, number: int, name: str = "eq") -> SSAValue:
    return compare(build, name, x, build.constant(number, shape_of(x), element_of(x)))


def _place(build: TensorBuilder, x: SSAValue, dim: int, size: int, n: int) -> SSAValue:
    """The n-th of each `size` neighbours along a dimension."""
    return build.part(x, dim, n, shape_of(x)[dim] // size, size)


def _interleaved(build: TensorBuilder, parts: Sequence[SSAValue], dim: int) -> SSAValue:
    """The inverse of `_place`: the first elements of all parts along a dimension, then the second ones."""
    shape = list(shape_of(parts[0]))
    apart = [build.reshape(part, [*shape[: dim + 1], 1, *shape[dim + 1 :]]) for part in parts]
    wide = [*shape[: dim + 1], len(parts), *shape[dim + 1 :]]
    joined = build.add(ConcatOp, apart, tensor(wide, element_of(parts[0])), dim=integer_attr(dim + 1))
    return build.reshape(joined, [*shape[:dim], shape[dim] * len(parts), *shape[dim + 1 :]])
