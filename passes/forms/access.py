"""How a kernel reads a tensor through a chain of layout ops, in plain arithmetic on indices.

A kernel iterates over a domain, a box of axes 0..n-1. A value used inside it has an index for each of its
dimensions: an `Expr` whose variables are axes. Following a layout op backwards turns the indices of its result into
those of its operand; at the end stands a tensor in device memory and the strided view of it that the kernel loads.

    broadcast {dims}:  index of operand dim i  =  index of result dim dims[i]   (constant 0 where the size is 1)
    slice:             start + stride * index
    reverse:           size - 1 - index
    reshape:           row-major position; linear when dimensions merge on the way back, or where no index carries over
                       from one of those that are parted into the next
    pad:               index - low, and what falls outside is the pad value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from xdsl.ir import Operation, SSAValue

from ...dialects.affine import Expr
from ...dialects.base import to_ints
from ...dialects.graph import BroadcastOp, ConstantOp, PadOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
from ...dialects.graph.interface import shape_of
from ...dialects.npu.types import row_strides
from ...dialects.open_sizes import any_open, is_open

Axis = int

ZERO: Expr[Axis] = Expr()


def reshape_groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Pairs of dimension lists (of source, of target) with equal element counts, as fine as possible, in order."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        left, right, a, b = [], [], 1, 1
        if i < len(source):
            left, a, i = [i], source[i], i + 1
        if j < len(target):
            right, b, j = [j], target[j], j + 1
        while a != b:
            if (a < b or b == 0) and i < len(source):
                left.append(i)
                a *= source[i]
                i += 1
            elif j < len(target):
                right.append(j)
                b *= target[j]
                j += 1
            else:
                left.append(i)
                a *= source[i]
                i += 1
        groups.append((left, right))
    return groups


def parted(
    position: Expr[Axis], sizes: Sequence[int], extent: Mapping[Axis, int]
) -> list[Expr[Axis]] | None:
    """The index into each dimension of these sizes at a row-major position; None where the indices into one may carry
    over into the one before."""
    coefficients = [c for _, c in position.terms]
    if any_open((*sizes, *coefficients, *(extent[a] for a, _ in position.terms))) or position.constant < 0:
        return None
    found: list[Expr[Axis]] = []
    for stride in row_strides(sizes):
        inner = {a: c for a, c in position.terms if c % stride}
        if any(c < 0 for c in inner.values()):
            return None
        first = position.constant % stride
        if first + sum(c * (extent[a] - 1) for a, c in inner.items()) >= stride:
            return None
        outer = {a: c // stride for a, c in position.terms if not c % stride}
        found.append(Expr(position.constant // stride, outer))
        position = Expr(first, inner)
    return found


def _through_reshape(
    op: ReshapeOp, indices: Sequence[Expr[Axis]], extent: Mapping[Axis, int]
) -> list[Expr[Axis]] | None:
    source, target = shape_of(op.x), shape_of(op.result)
    out: list[Expr[Axis]] = [ZERO] * len(source)
    for left, right in reshape_groups(source, target):
        position = ZERO
        for d in right:
            position = position * target[d] + (indices[d] if target[d] != 1 else ZERO)
        wide = [d for d in left if source[d] != 1]
        if len(wide) == 1:
            out[wide[0]] = position
        elif wide:
            if [target[d] for d in right if target[d] != 1] == [source[d] for d in wide]:
                places = [indices[d] for d in right if target[d] != 1]
            else:
                places = parted(position, [source[d] for d in wide], extent)
            if places is None:
                return None
            for d, index in zip(wide, places, strict=True):
                out[d] = index
    return out


def _through_broadcast(
    op: BroadcastOp, indices: Sequence[Expr[Axis]], _: Mapping[Axis, int]
) -> list[Expr[Axis]]:
    source, target = shape_of(op.x), shape_of(op.result)
    return [ZERO if source[i] == 1 and target[d] != 1 else indices[d] for i, d in enumerate(to_ints(op.dims))]


def _through_transpose(
    op: TransposeOp, indices: Sequence[Expr[Axis]], _: Mapping[Axis, int]
) -> list[Expr[Axis]]:
    out: list[Expr[Axis]] = [ZERO] * len(indices)
    for i, p in enumerate(to_ints(op.perm)):
        out[p] = indices[i]
    return out


def _through_slice(op: SliceOp, indices: Sequence[Expr[Axis]], _: Mapping[Axis, int]) -> list[Expr[Axis]]:
    spec = zip(indices, to_ints(op.starts), to_ints(op.strides), strict=True)
    return [i * stride + start for i, start, stride in spec]


def _through_reverse(op: ReverseOp, indices: Sequence[Expr[Axis]], _: Mapping[Axis, int]) -> list[Expr[Axis]]:
    shape, dims = shape_of(op.x), to_ints(op.dims)
    return [shape[d] - 1 - i if d in dims else i for d, i in enumerate(indices)]


BACKWARD: dict[type[Operation], Callable] = {
    ReshapeOp: _through_reshape,
    BroadcastOp: _through_broadcast,
    TransposeOp: _through_transpose,
    SliceOp: _through_slice,
    ReverseOp: _through_reverse,
}
"""For each layout op: indices of its result and the extents of axes -> indices of its operand (None where they are not
linear)."""


def rearranges(op: object) -> TypeGuard[Operation]:
    """True for layout ops that read all their elements from their operand. By type, which is not looked up in bases."""
    return type(op) in BACKWARD


def is_layout(op: object) -> TypeGuard[Operation]:
    """True for ops that only rearrange elements and can be folded into a load."""
    return type(op) in BACKWARD or is_plain_pad(op)


def splat_of(value: SSAValue) -> float | int | None:
    """The number a value is everywhere, if it is a constant of one value (seen through layout ops), else None."""
    op = value.owner
    while rearranges(op):
        op = op.operands[0].owner
    if isinstance(op, ConstantOp) and op.value.data.splat and op.value.data.dtype[0] in "fib":
        literal = op.value.data
        number = float if literal.dtype[0] in "fb" else int
        return number(literal.elements()[0])
    return None


def behind_ones(value: SSAValue) -> SSAValue:
    """The value that reshapes give other dimensions of size 1, as those of a stack are given; else the value itself."""
    while isinstance(op := value.owner, ReshapeOp) and long_extents(shape_of(op.x)) == long_extents(shape_of(value)):
        value = op.x
    return value


def long_dims(shape: Sequence[int]) -> list[int]:
    """The dimensions of a shape but those of one element."""
    return [d for d, n in enumerate(shape) if is_open(n) or n != 1]


def long_extents(shape: Sequence[int]) -> list[int]:
    """The extents of a shape but those of one element."""
    return [shape[d] for d in long_dims(shape)]


def is_plain_pad(op: object) -> bool:
    """A pad by a constant, without interior padding."""
    return type(op) is PadOp and not any(to_ints(op.interior)) and splat_of(op.value) is not None


@dataclass
class Load:
    """How a kernel reads `base`: the view of it (shape, strides, offset in elements), and for each view
    dimension the index into it; outside the view the value is `fill`."""

    base: SSAValue
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    indices: tuple[Expr[Axis], ...]
    position: tuple[Expr[Axis], ...]
    """Index into each dimension of the base itself (meaningless behind a pad)."""
    fill: float | int | None = None

    @property
    def axes(self) -> set[Axis]:
        return {a for i in self.indices for a, _ in i.terms}


def resolve(
    value: SSAValue,
    indices: Sequence[Expr[Axis]],
    domain: Mapping[Axis, int] | Sequence[int],
    is_base: Callable[[SSAValue], bool],
) -> Load:
    """Follows `value`, indexed by `indices`, up to a base tensor.

    The walk ends where `is_base` says so, at a value that is not made by a layout op, and at a layout op that
    cannot be followed (a reshape that is not linear, a second pad): then that op's result is the base.
    """
    extent = domain if isinstance(domain, Mapping) else dict(enumerate(domain))
    pad: tuple[float | int, tuple[int, ...], list[Expr[Axis]]] | None = None
    current = list(indices)
    while not is_base(value):
        op = value.owner
        if not is_layout(op):
            break
        if isinstance(op, PadOp):
            if pad is not None or any(len(i.terms) > 1 for i in current):
                break
            shape = shape_of(op.x)
            outside = [i - low for i, low in zip(current, to_ints(op.low), strict=True)]
            splat = splat_of(op.value)
            assert splat is not None
            pad = (splat, shape, outside)
            current = [Expr.of(-1 - d) for d in range(len(shape))]
            extent = {-1 - d: n for d, n in enumerate(shape)}
        else:
            further = BACKWARD[type(op)](op, current, extent)
            if further is None:
                break
            current = further
        value = op.operands[0]
    strides = row_strides(shape_of(value))
    offset = sum(s * i.constant for s, i in zip(strides, current, strict=True))
    step: dict[Axis, int] = {}
    for s, i in zip(strides, current, strict=True):
        for a, c in i.terms:
            step[a] = step.get(a, 0) + s * c
    if pad is not None:
        fill, shape, outside = pad
        view_strides = tuple(step.get(-1 - d, 0) for d in range(len(shape)))
        return Load(value, shape, view_strides, offset, tuple(outside), tuple(current), fill)
    axes = sorted(a for a in step if step[a])
    return Load(
        value,
        tuple(extent[a] for a in axes),
        tuple(step[a] for a in axes),
        offset,
        tuple(Expr.of(a) for a in axes),
        tuple(current),
    )


def base_behind(
    value: SSAValue,
    is_base: Callable[[SSAValue], bool],
    walked: tuple[Sequence[Expr[Axis]], Sequence[int]] | None = None,
) -> tuple[SSAValue, bool]:
    """Where `resolve` ends for a tensor, and whether the load fills in padding. walked: the index of each dimension
    and the extents of the axes; None for an axis of its own for each dimension."""
    end = value
    while rearranges(op := end.owner) and not isinstance(op, ReshapeOp) and not is_base(end):
        end = op.operands[0]
    if not is_layout(end.owner) or is_base(end):
        return end, False
    # only the indices say whether a reshape or a pad can be followed
    shape = shape_of(value)
    load = resolve(value, *(walked or ([Expr.of(d) for d in range(len(shape))], shape)), is_base)
    return load.base, load.fill is not None
