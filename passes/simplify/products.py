"""Products and convolutions in the forms that the cube takes: plain ones, of operands of one type. A convolution whose
window has one place, where it meets the whole input, is a product."""

from __future__ import annotations

from xdsl.dialects.builtin import f16
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, ints, to_ints
from ...dialects.dtypes import dtype_name, is_float, itemsize, tensor
from ...dialects.graph import ContractOp, ConvOp, TransposeOp
from ...dialects.graph.interface import element_of, shape_of
from ..forms.sparse_products import expansion_of
from ..forms.tensor_builder import RewriteBuilder
from ..patterns import GraphPattern


class ConvDilationAsPad(GraphPattern):
    """Input dilation of a convolution is an interior pad, and padding that crops is a slice."""

    name = "conv-dilation-as-pad"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConvOp, rewriter: PatternRewriter, /) -> None:
        dilation, layout = to_ints(op.lhs_dilation), to_ints(op.lhs_layout)
        low, high = to_ints(op.low), to_ints(op.high)
        crop = any(v < 0 for v in (*low, *high))
        if all(d == 1 for d in dilation) and not crop:
            return
        rank = len(layout)
        interior, before, after = [0] * rank, [0] * rank, [0] * rank
        for i, d in enumerate(dilation):
            interior[layout[2 + i]] = d - 1
            before[layout[2 + i]], after[layout[2 + i]] = min(low[i], 0), min(high[i], 0)
        build = RewriteBuilder(rewriter)
        padded = build.pad(op.lhs, 0, before, after, interior)
        properties = dict(op.properties)
        properties["lhs_dilation"] = ints([1] * len(dilation))
        properties["low"] = ints([max(v, 0) for v in low])
        properties["high"] = ints([max(v, 0) for v in high])
        rewriter.replace(op, (), [build.add(ConvOp, [padded, op.rhs], op.result.type, **properties)])


class SameInputTypes(GraphPattern):
    """Operands of a product of two types are converted to the wider one, unless the cube multiplies the two.

    Integers are converted to the result's type, in which they wrap.
    """

    name = "same-input-types"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp | ConvOp, rewriter: PatternRewriter, /) -> None:
        a, b = element_of(op.lhs), element_of(op.rhs)
        if a == b or self.machine.multiplies(dtype_name(a), dtype_name(b)):
            return
        floats = [f16 if itemsize(e) == 1 else e for e in (a, b) if is_float(e)]  # f16 has all of 8 bits
        order = ["f16", "bf16", "f32"]
        wide = max(floats, key=lambda e: order.index(dtype_name(e)), default=element_of(op.result))
        build = RewriteBuilder(rewriter)
        operands = [build.convert(op.lhs, wide), build.convert(op.rhs, wide)]
        rewriter.replace(op, (), [build.add(type(op), operands, op.result.type, **op.properties)])


class OrderContracted(GraphPattern):
    """A product sums over dimensions in the order in which they lie in lhs.

    A load of it then takes what is next to each other in memory first.
    """

    name = "order-contracted"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        pairs = [*zip(to_ints(op.lhs_contract), to_ints(op.rhs_contract), strict=True)]
        ordered = sorted(pairs)
        if pairs == ordered:
            return
        op.lhs_contract, op.rhs_contract = (ints(dims) for dims in zip(*ordered, strict=True))
        rewriter.notify_op_modified(op)


class SwapContractOperands(GraphPattern):
    """A product whose transpose has a dimension of lhs innermost is computed as rhs times lhs.

    So its rows are written in one go.
    """

    name = "swap-contract-operands"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TransposeOp, rewriter: PatternRewriter, /) -> None:
        product = op.x.owner
        if not isinstance(product, ContractOp) or len(list(product.result.uses)) != 1:
            return
        if expansion_of(product) is not None:  # a cube takes it on the right side only
            return
        m, n = map(len, product.free_dims())
        batch, perm = len(to_ints(product.lhs_batch)), to_ints(op.perm)
        if not n or not batch <= perm[-1] < batch + m:
            return
        order = [*range(batch), *range(batch + m, batch + m + n), *range(batch, batch + m)]
        shape = shape_of(product.result)
        build = RewriteBuilder(rewriter)
        swapped = build.add(
            ContractOp,
            [product.rhs, product.lhs],
            tensor([shape[d] for d in order], element_of(product.result)),
            lhs_batch=product.rhs_batch,
            rhs_batch=product.lhs_batch,
            lhs_contract=product.rhs_contract,
            rhs_contract=product.lhs_contract,
        )
        assert isinstance(swapped.owner, ContractOp)
        swapped.owner.location = product.location
        rewriter.replace(op, (), [build.transpose(swapped, [order.index(p) for p in perm])])


class ConvAsContract(GraphPattern):
    """A convolution whose window has one place, where it meets the whole input, is a product.

    The gradient of a convolution's weights has such windows, and so has a dense layer written as a convolution. A
    product walks the window's positions as one long axis, in the order in which they lie in memory.

    Dimensions in which the window is a point and goes everywhere are those of the product; groups are its batch.
    """

    name = "conv-as-contract"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConvOp, rewriter: PatternRewriter, /) -> None:
        lhs_layout, rhs_layout, layout = (to_ints(a) for a in (op.lhs_layout, op.rhs_layout, op.out_layout))
        summed = _summed(op)
        if summed is None or not any(shape_of(op.lhs)[lhs_layout[2 + i]] > 1 for i in summed):
            return
        groups = integer(op.groups)
        build = RewriteBuilder(rewriter)
        lhs = build.grouped(op.lhs, lhs_layout[1], groups)
        rhs = build.grouped(op.rhs, rhs_layout[1], groups)

        def left(d: int) -> int:
            return d + (groups > 1 and d >= lhs_layout[1])

        def right(d: int) -> int:
            return d + (groups > 1 and d >= rhs_layout[1])

        spatial = range(len(layout) - 2)
        kept = [i for i in spatial if i not in summed]
        points = [
            right(rhs_layout[2 + i]) for i in kept
        ]  # of extent 1: they end up beside the output features
        free = sorted(
            [(left(lhs_layout[0]), layout[0]), *((left(lhs_layout[2 + i]), layout[2 + i]) for i in kept)]
        )
        features = right(rhs_layout[1])
        shapes = shape_of(lhs), shape_of(rhs)
        ends = sorted([features, *points])
        batched = [groups] if groups > 1 else []
        made = [*batched, *(shapes[0][d] for d, _ in free), *(shapes[1][d] for d in ends)]
        product = build.add(
            ContractOp,
            [lhs, rhs],
            tensor(made, element_of(op.result)),
            lhs_batch=ints([lhs_layout[1]] if groups > 1 else []),
            rhs_batch=ints([rhs_layout[1]] if groups > 1 else []),
            lhs_contract=ints([left(lhs_layout[1]), *(left(lhs_layout[2 + i]) for i in summed)]),
            rhs_contract=ints([right(rhs_layout[0]), *(right(rhs_layout[2 + i]) for i in summed)]),
        )
        product = build.reshape(product, [*made[: len(batched) + len(free)], shapes[1][features]])
        # the result's dimensions that are here: the groups before the features of one, the others as they are found
        order = {out: len(batched) + i for i, (_, out) in enumerate(free)}
        perm: list[int] = []
        for d in range(len(layout)):
            if d == layout[1]:
                perm += [0] if batched else []
                perm.append(len(batched) + len(free))
            elif d in order:
                perm.append(order[d])
        rewriter.replace(op, (), [build.reshape(build.transpose(product, perm), shape_of(op.result))])


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
