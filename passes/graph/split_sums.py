"""Splits products and convolutions of few results with long sums: each core computes a part of the sum."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, ints, to_ints
from ...dialects.dtypes import element_type, is_float, itemsize, size, tensor
from ...dialects.graph import ContractOp, ConvOp
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ..pins import Pins
from .patterns import GraphPattern
from .tensor_builder import RewriteBuilder, TensorBuilder

TILE = 128
"""Rows and columns of results that one core computes together."""

FEW_PARTS = 4
"""With fewer parts, smaller tiles do as well."""

BLOCK = 16
"""Rows and columns are computed in blocks of so many."""

MANY_BYTES = 1 << 19
"""So many bytes of operands take a core longer than a second launch."""


class SplitContractSum(GraphPattern):
    """A product of few results, each of a long sum, is a part of the sum for each core.

    Such are gradients of weights, with fewer tiles than there are cores. The parts are added up.
    """

    name = "split-contract-sum"

    @classmethod
    def allowed(cls, pins: Pins) -> bool:
        return pins is None

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        a, b = shape_of(op.lhs), shape_of(op.rhs)
        batch = size([a[d] for d in to_ints(op.lhs_batch)])
        m, n = (size([x[d] for d in free]) for x, free in zip((a, b), op.free_dims(), strict=True))
        length = size([a[d] for d in to_ints(op.lhs_contract)])
        most = _most_parts(batch, m, n, length, itemsize(element_of(op.lhs)), self.machine)
        if not most:
            return
        pairs = list(zip(to_ints(op.lhs_contract), to_ints(op.rhs_contract), strict=True))
        even = {p: even_parts(a[p[0]], most) for p in pairs}
        left, right = max(pairs, key=lambda p: (even[p] or 0, a[p[0]]))
        extent = a[left]
        parts = even[left, right] or min(most, extent)
        if parts < FEW_PARTS:
            return

        build = RewriteBuilder(rewriter)

        def product(start: int, stop: int, split: int) -> SSAValue:
            """The product of a part of the long dimension, of which `split` parts are a batch where that is not 0."""
            new, cut, batches, sums = bool(split), [], [], []
            dims = ((op.lhs_batch, op.lhs_contract), (op.rhs_batch, op.rhs_contract))
            for x, d, (over, along) in zip((op.lhs, op.rhs), (left, right), dims, strict=True):
                cut.append(build.grouped(build.part(x, d, start, stop - start), d, split))
                batches.append(ints([*([d] if new else []), *(i + (new and i > d) for i in to_ints(over))]))
                sums.append(ints([i + (new and i >= d) for i in to_ints(along)]))
            return build.add(
                ContractOp,
                cut,
                tensor([*([split] if new else []), *shape_of(op.result)], _wide(op)),
                lhs_batch=batches[0],
                rhs_batch=batches[1],
                lhs_contract=sums[0],
                rhs_contract=sums[1],
            )

        rewriter.replace(op, (), [_added_up(build, op, extent, parts, 0, product)])


class SplitConvSum(GraphPattern):
    """A convolution of few results, each of a long sum, is a part of the sum for each core.

    Such is the gradient of a first layer's weights, whose window is larger than the result. The parts are those of the
    input features, as groups; they are added up.
    """

    name = "split-conv-sum"

    @classmethod
    def allowed(cls, pins: Pins) -> bool:
        return pins is None

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConvOp, rewriter: PatternRewriter, /) -> None:
        b, out = shape_of(op.rhs), shape_of(op.result)
        left, right, features = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)[1]
        extent, n = b[right[0]], max(out[features], 1)
        most = _most_parts(1, size(out) // n, n, size(b) // n, itemsize(element_of(op.lhs)), self.machine)
        window, places = (
            size([x[d] for d in layout[2:]]) for x, layout in ((b, right), (out, to_ints(op.out_layout)))
        )
        if not most or integer(op.groups) > 1 or window <= places:
            return  # to put groups of weights side by side takes as long as is won
        parts = even_parts(extent, most) or min(most, extent)
        if parts < FEW_PARTS:
            return

        build = RewriteBuilder(rewriter)

        def conv(start: int, stop: int, groups: int) -> SSAValue:
            """The results of a part of the input features, for each of `groups` groups of it where that is not 0."""
            lhs = build.part(op.lhs, left[1], start, stop - start)
            rhs = build.part(op.rhs, right[0], start, stop - start)
            many = max(groups, 1)
            if groups:
                # the groups go in front of the output features
                each = list(b)
                each[right[0]], each[right[1]] = (stop - start) // groups, groups * n
                order = [d + (d >= right[0]) for d in range(len(b))]
                order.insert(right[1], right[0])
                inside = build.grouped(rhs, right[0], groups)
                rhs = build.reshape(build.transpose(inside, order), each)
            shape = [*out[:features], many * n, *out[features + 1 :]]
            kept = {name: value for name, value in op.properties.items() if name != "groups"}
            made = build.add(ConvOp, [lhs, rhs], tensor(shape, _wide(op)), groups=integer_attr(many), **kept)
            return build.grouped(made, features, groups)

        rewriter.replace(op, (), [_added_up(build, op, extent, parts, features, conv)])


def _added_up(
    build: TensorBuilder,
    op: ContractOp | ConvOp,
    extent: int,
    parts: int,
    dim: int,
    product: Callable[[int, int, int], SSAValue],
) -> SSAValue:
    """The result of `op` from `parts` products of one size over its long dimension of `extent`, which `product` gives
    side by side along `dim`, and from one of what is left."""
    most_of_it = extent // parts * parts
    total = build.reduce(product(0, most_of_it, parts), "sum", [dim])
    if most_of_it < extent:
        rest = product(most_of_it, extent, 0)
        total = build.elementwise("add", total, rest)
    return build.convert(total, element_of(op.result))


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
