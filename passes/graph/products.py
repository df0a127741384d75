"""Convolutions that are matrix products: the window has one place, where it meets the whole input. And products of few
results: their long axis is shared out over the cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xdsl.ir import Attribute, SSAValue

from ...dialects.base import integer, integer_attr, ints, to_ints
from ...dialects.dtypes import element_type, is_float, itemsize, size, tensor
from ...dialects.graph import ELEMENTWISE, ContractOp, ConvOp
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine

if TYPE_CHECKING:
    from .simplify import Rewriter

TILE = 128
"""Rows and columns of results that one core computes together."""

FEW_PARTS = 4
"""With fewer parts, smaller tiles do as well."""

BLOCK = 16
"""Rows and columns are computed in blocks of so many."""

MANY_BYTES = 1 << 19
"""So many bytes of operands take a core longer than a second launch."""


def conv_as_product(op: ConvOp, rewriter: Rewriter, machine: Machine) -> bool:
    """The gradient of a convolution's weights has such windows, and so has a dense layer written as a convolution. A
    product walks the window's positions as one long axis, in the order in which they lie in memory.

    Dimensions in which the window is a point and goes everywhere are those of the product; groups are its batch.
    """
    lhs_layout, rhs_layout, layout = (to_ints(a) for a in (op.lhs_layout, op.rhs_layout, op.out_layout))
    summed = _summed(op)
    if summed is None or not any(shape_of(op.lhs)[lhs_layout[2 + i]] > 1 for i in summed):
        return False
    groups = integer(op.groups)
    lhs = _grouped(rewriter, op.lhs, lhs_layout[1], groups)
    rhs = _grouped(rewriter, op.rhs, rhs_layout[1], groups)

    def left(d: int) -> int:
        return d + (groups > 1 and d >= lhs_layout[1])

    def right(d: int) -> int:
        return d + (groups > 1 and d >= rhs_layout[1])

    spatial = range(len(layout) - 2)
    kept = [i for i in spatial if i not in summed]
    points = [right(rhs_layout[2 + i]) for i in kept]  # of extent 1: they end up beside the output features
    free = sorted(
        [(left(lhs_layout[0]), layout[0]), *((left(lhs_layout[2 + i]), layout[2 + i]) for i in kept)]
    )
    features = right(rhs_layout[1])
    shapes = shape_of(lhs), shape_of(rhs)
    ends = sorted([features, *points])
    batched = [groups] if groups > 1 else []
    made = [*batched, *(shapes[0][d] for d, _ in free), *(shapes[1][d] for d in ends)]
    product = rewriter.add(
        ContractOp,
        [lhs, rhs],
        tensor(made, element_of(op.result)),
        lhs_batch=ints([lhs_layout[1]] if groups > 1 else []),
        rhs_batch=ints([rhs_layout[1]] if groups > 1 else []),
        lhs_contract=ints([left(lhs_layout[1]), *(left(lhs_layout[2 + i]) for i in summed)]),
        rhs_contract=ints([right(rhs_layout[0]), *(right(rhs_layout[2 + i]) for i in summed)]),
    )
    product = rewriter.reshape(product, [*made[: len(batched) + len(free)], shapes[1][features]])
    # the result's dimensions that are here: the groups before the features of one, the others as they are found
    order = {out: len(batched) + i for i, (_, out) in enumerate(free)}
    perm: list[int] = []
    for d in range(len(layout)):
        if d == layout[1]:
            perm += [0] if batched else []
            perm.append(len(batched) + len(free))
        elif d in order:
            perm.append(order[d])
    return rewriter.replace(rewriter.reshape(rewriter.transpose(product, perm), shape_of(op.result)))


def _summed(op: ConvOp) -> list[int] | None:
    """The spatial dimensions that the window fills, if in all others it is a point that goes everywhere; else None."""
    lhs, rhs, out = shape_of(op.lhs), shape_of(op.rhs), shape_of(op.result)
    lists = (op.strides, op.low, op.high, op.lhs_dilation, op.rhs_dilation)
    found = []
    for i, (stride, low, high, spread, dilation) in enumerate(zip(*map(to_ints, lists), strict=True)):
        extent, window = lhs[to_ints(op.lhs_layout)[2 + i]], rhs[to_ints(op.rhs_layout)[2 + i]]
        if low or high or spread != 1:
            return None
        if window == extent and out[to_ints(op.out_layout)[2 + i]] == 1 and (dilation == 1 or window == 1):
            found.append(i)
        elif window != 1 or stride != 1:
            return None
    return found


def _grouped(rewriter: Rewriter, x: SSAValue, d: int, groups: int) -> SSAValue:
    """x with the groups of dimension d before it, where there are several."""
    if groups < 2:
        return x
    shape = shape_of(x)
    return rewriter.reshape(x, [*shape[:d], groups, shape[d] // groups, *shape[d + 1 :]])


def split_contract(op: ContractOp, rewriter: Rewriter, machine: Machine) -> bool:
    """A product of fewer tiles than there are cores, each of a long sum, as gradients of weights are: a part of the sum
    for each core, then the parts added up."""
    a, b = shape_of(op.lhs), shape_of(op.rhs)
    batch = size([a[d] for d in to_ints(op.lhs_batch)])
    m, n = (size([x[d] for d in free]) for x, free in zip((a, b), op.free_dims(), strict=True))
    length = size([a[d] for d in to_ints(op.lhs_contract)])
    most = _most_parts(batch, m, n, length, itemsize(element_of(op.lhs)), machine)
    if not most:
        return False
    pairs = list(zip(to_ints(op.lhs_contract), to_ints(op.rhs_contract), strict=True))
    even = {p: even_parts(a[p[0]], most) for p in pairs}
    left, right = max(pairs, key=lambda p: (even[p] or 0, a[p[0]]))
    extent = a[left]
    parts = even[left, right] or min(most, extent)
    if parts < FEW_PARTS:
        return False

    def product(start: int, stop: int, split: int) -> SSAValue:
        """The product of a part of the long dimension, of which `split` parts are a batch where that is not 0."""
        new, cut, batches, sums = bool(split), [], [], []
        dims = ((op.lhs_batch, op.lhs_contract), (op.rhs_batch, op.rhs_contract))
        for x, d, (over, along) in zip((op.lhs, op.rhs), (left, right), dims, strict=True):
            cut.append(_grouped(rewriter, rewriter.part(x, d, start, stop - start), d, split))
            batches.append(ints([*([d] if new else []), *(i + (new and i > d) for i in to_ints(over))]))
            sums.append(ints([i + (new and i >= d) for i in to_ints(along)]))
        return rewriter.add(
            ContractOp,
            cut,
            tensor([*([split] if new else []), *shape_of(op.result)], _wide(op)),
            lhs_batch=batches[0],
            rhs_batch=batches[1],
            lhs_contract=sums[0],
            rhs_contract=sums[1],
        )

    return rewriter.replace(_added_up(rewriter, op, extent, parts, 0, product))


def split_conv(op: ConvOp, rewriter: Rewriter, machine: Machine) -> bool:
    """A convolution of few results, each of a long sum over a window larger than the result, as the gradient of a first
    layer's weights is: a part of the input features for each core, as groups, then the parts added up."""
    b, out = shape_of(op.rhs), shape_of(op.result)
    left, right, features = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)[1]
    extent, n = b[right[0]], max(out[features], 1)
    most = _most_parts(1, size(out) // n, n, size(b) // n, itemsize(element_of(op.lhs)), machine)
    window, places = (
        size([x[d] for d in layout[2:]]) for x, layout in ((b, right), (out, to_ints(op.out_layout)))
    )
    if not most or integer(op.groups) > 1 or window <= places:
        return False  # to put groups of weights side by side takes as long as is won
    parts = even_parts(extent, most) or min(most, extent)
    if parts < FEW_PARTS:
        return False

    def conv(start: int, stop: int, groups: int) -> SSAValue:
        """The results of a part of the input features, for each of `groups` groups of it where that is not 0."""
        lhs = rewriter.part(op.lhs, left[1], start, stop - start)
        rhs = rewriter.part(op.rhs, right[0], start, stop - start)
        many = max(groups, 1)
        if groups:
            # the groups go in front of the output features
            each = list(b)
            each[right[0]], each[right[1]] = (stop - start) // groups, groups * n
            order = [d + (d >= right[0]) for d in range(len(b))]
            order.insert(right[1], right[0])
            inside = _grouped(rewriter, rhs, right[0], groups)
            rhs = rewriter.reshape(rewriter.transpose(inside, order), each)
        shape = [*out[:features], many * n, *out[features + 1 :]]
        kept = {name: value for name, value in op.properties.items() if name != "groups"}
        made = rewriter.add(
            ConvOp, [lhs, rhs], tensor(shape, _wide(op)), groups=integer_attr(many), **kept
        )
        return _grouped(rewriter, made, features, groups)

    return rewriter.replace(_added_up(rewriter, op, extent, parts, features, conv))


def _added_up(
    rewriter: Rewriter,
    op: ContractOp | ConvOp,
    extent: int,
    parts: int,
    dim: int,
    product: Callable[[int, int, int], SSAValue],
) -> SSAValue:
    """The result of `op` from `parts` products of one size over its long dimension of `extent`, which `product` gives
    side by side along `dim`, and from one of what is left."""
    most_of_it = extent // parts * parts
    total = rewriter.reduce(product(0, most_of_it, parts), "sum", [dim])
    if most_of_it < extent:
        rest = product(most_of_it, extent, 0)
        total = rewriter.add(ELEMENTWISE["add"], [total, rest], rest.type)
    return rewriter.convert(total, element_of(op.result))


def _most_parts(batch: int, m: int, n: int, length: int, width: int, machine: Machine) -> int:
    """How many parts of its sums a product of m x n results, each over `length`, has idle cores for; 0 where cutting
    them does not pay. `width`: bytes of an element."""
    most = machine.cube_cores // max(batch * -(-m // TILE) * -(-n // TILE), 1)
    lines = sum(-(-min(x, TILE) // BLOCK) * BLOCK for x in (m, n))
    if most < FEW_PARTS or length * lines * width < MANY_BYTES:
        return 0
    # else the parts would be written and read again for as long as is won
    return most if length * (m + n) * width >= 2 * 4 * most * m * n else 0


def _wide(op: ContractOp | ConvOp) -> Attribute:
    """The type in which parts of sums are kept."""
    return element_type("f32") if is_float(element_of(op.lhs)) else element_of(op.result)


def even_parts(extent: int, most: int) -> int | None:
    """The largest number of equal parts, if that is more than half of `most`."""
    return next((p for p in range(min(most, extent), most // 2, -1) if extent % p == 0), None)
