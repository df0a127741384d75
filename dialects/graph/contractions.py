"""What the cube computes: matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from ..base import integer, to_ints
from ..dtypes import PAIR, is_complex, is_integer, numbers_in, size, tensor
from ..quantized import QuantizedType, quantized
from .extents import BoundedDim
from .interface import Casting, GraphOp, Grouping, Place, element_of, shape_of
from .reductions import along_windows, window_count


@irdl_op_definition
class ContractOp(GraphOp):
    """General matrix product: result dimensions are batch, then lhs free, then rhs free.

    The result's element type is the accumulator rounded: f16/bf16/f32 products add in f32, i8 and i4x2 ones in i32. The
    product of two pairs (i4x2) is the sum of the products of their first and of their second numbers.
    """

    name = "graph.contract"
    GROUPING: ClassVar[Grouping] = "contraction"
    READS_THROUGH_LAYOUT: ClassVar[bool] = True
    TAKES_QUANTIZED: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "product"
    lhs = operand_def()
    rhs = operand_def()
    lhs_batch = prop_def(DenseArrayBase)
    rhs_batch = prop_def(DenseArrayBase)
    lhs_contract = prop_def(DenseArrayBase)
    rhs_contract = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def free_dims(self) -> tuple[list[int], list[int]]:
        """The dimensions of lhs and rhs that are neither batch nor contracted."""
        lhs = {*to_ints(self.lhs_batch), *to_ints(self.lhs_contract)}
        rhs = {*to_ints(self.rhs_batch), *to_ints(self.rhs_contract)}
        return (
            [d for d in range(len(shape_of(self.lhs))) if d not in lhs],
            [d for d in range(len(shape_of(self.rhs))) if d not in rhs],
        )

    def infer(self) -> Sequence[Attribute]:
        a, b = shape_of(self.lhs), shape_of(self.rhs)
        batch, contract = (self.lhs_batch, self.rhs_batch), (self.lhs_contract, self.rhs_contract)
        if any(len(to_ints(left)) != len(to_ints(right)) for left, right in (batch, contract)):
            raise ValueError("needs as many batch and contracted dimensions of lhs as of rhs")
        for left, right in zip(batch, contract, strict=True):
            used = [*to_ints(left), *to_ints(right)]
            if len(set(used)) != len(used):
                raise ValueError(f"batch and contracted dimensions {used} name one twice")
        pairs = [
            *zip(to_ints(self.lhs_batch), to_ints(self.rhs_batch), strict=True),
            *zip(to_ints(self.lhs_contract), to_ints(self.rhs_contract), strict=True),
        ]
        for i, j in pairs:
            if not (0 <= i < len(a) and 0 <= j < len(b)) or a[i] != b[j]:
                raise ValueError(f"lhs dim {i} of {list(a)} does not match rhs dim {j} of {list(b)}")
        m, n = self.free_dims()
        shape = [*(a[i] for i in to_ints(self.lhs_batch)), *(a[i] for i in m), *(b[j] for j in n)]
        check_quantized_product(self.lhs, self.rhs, self.result, {d: len(shape) - len(n) + i for i, d in enumerate(n)})
        self._check_pairs()
        return [tensor(shape, element_of(self.result))]

    def _check_pairs(self) -> None:
        """Raises ValueError for pairs of numbers that do not meet others along one summed dimension."""
        kinds, made = {element_of(self.lhs), element_of(self.rhs)}, element_of(self.result)
        if PAIR in kinds and (kinds != {PAIR} or made != i32 or len(to_ints(self.lhs_contract)) != 1):
            raise ValueError(
                "multiplies pairs of numbers: it takes pairs on both sides, along one summed dimension, and gives i32"
            )

    def along(self, i: int, d: int) -> BoundedDim:
        batch, contract = (self.lhs_batch, self.lhs_contract) if i == 0 else (self.rhs_batch, self.rhs_contract)
        if d in to_ints(contract):
            return BoundedDim(None, padding="sum")
        if d in to_ints(batch):
            return BoundedDim(to_ints(batch).index(d))
        free = self.free_dims()
        return BoundedDim(len(to_ints(batch)) + (len(free[0]) if i else 0) + free[i].index(d))

    def meeting(self) -> Sequence[tuple[Place, Place]]:
        pairs = ((self.lhs_batch, self.rhs_batch), (self.lhs_contract, self.rhs_contract))
        return [
            ((0, a), (1, b))
            for left, right in pairs
            for a, b in zip(to_ints(left), to_ints(right), strict=True)
        ]

    def sum_kind(self) -> QuantizedType:
        """How the i32 sums of a product of quantized numbers stand for numbers."""
        m, n = self.free_dims()
        first = len(to_ints(self.lhs_batch)) + len(m)
        return sum_kind(self.lhs, self.rhs, {d: first + i for i, d in enumerate(n)})

    def flops(self) -> int:
        a = shape_of(self.lhs)
        n = size([a[i] for i in to_ints(self.lhs_contract)]) * numbers_in(element_of(self.lhs))
        return multiply_adds(self.result) * size(shape_of(self.result)) * n


@irdl_op_definition
class ConvOp(GraphOp):
    """Convolution of 1 to 3 spatial dimensions.

    Layouts list positions: `lhs_layout` and `out_layout` = [batch, feature, spatial...], `rhs_layout` =
    [input feature, output feature, spatial...]. `groups` splits the features.
    """

    name = "graph.conv"
    GROUPING: ClassVar[Grouping] = "contraction"
    READS_THROUGH_LAYOUT: ClassVar[bool] = True
    TAKES_QUANTIZED: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "product"
    lhs = operand_def()
    rhs = operand_def()
    strides = prop_def(DenseArrayBase)
    low = prop_def(DenseArrayBase)
    high = prop_def(DenseArrayBase)
    lhs_dilation = prop_def(DenseArrayBase)
    rhs_dilation = prop_def(DenseArrayBase)
    lhs_layout = prop_def(DenseArrayBase)
    rhs_layout = prop_def(DenseArrayBase)
    out_layout = prop_def(DenseArrayBase)
    groups = prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        a, b, g = shape_of(self.lhs), shape_of(self.rhs), integer(self.groups)
        la, lb, lo = to_ints(self.lhs_layout), to_ints(self.rhs_layout), to_ints(self.out_layout)
        if not len(a) == len(b) == len(la) == len(lb) == len(lo):
            raise ValueError(f"ranks of lhs {list(a)}, rhs {list(b)} and the layouts differ")
        for layout in (la, lb, lo):
            if sorted(layout) != list(range(len(a))):
                raise ValueError(f"layout {list(layout)} is not a permutation of {len(a)} dimensions")
        props = (self.strides, self.low, self.high, self.lhs_dilation, self.rhs_dilation)
        lists = [to_ints(x) for x in props]
        if any(len(entries) != len(a) - 2 for entries in lists):
            raise ValueError(f"needs stride, padding and dilations for each of {len(a) - 2} spatial dims")
        if g < 1 or any(n < 1 for entries in (lists[0], *lists[3:]) for n in entries):
            raise ValueError("needs groups, strides and dilations of at least 1")
        if a[la[1]] != b[lb[0]] * g or b[lb[1]] % g:
            raise ValueError(f"features of lhs {list(a)} and rhs {list(b)} do not fit {g} group(s)")
        out = [0] * len(a)
        out[lo[0]], out[lo[1]] = a[la[0]], b[lb[1]]
        for i, (s, p, q, ld, rd) in enumerate(zip(*lists, strict=True)):
            d = a[la[2 + i]]
            extent = (0 if d == 0 else (d - 1) * ld + 1) + p + q
            out[lo[2 + i]] = window_count(extent, b[lb[2 + i]], s, rd)
        check_quantized_product(self.lhs, self.rhs, self.result, {lb[1]: lo[1]})
        if PAIR in (element_of(self.lhs), element_of(self.rhs)):
            raise ValueError("multiplies pairs of numbers, which only matrix products do: graph.contract")
        return [tensor(out, element_of(self.result))]

    def along(self, i: int, d: int) -> BoundedDim | None:
        place = to_ints(self.rhs_layout if i else self.lhs_layout).index(d)
        out = to_ints(self.out_layout)
        if i == 0 and place == 0:
            return BoundedDim(out[0])
        if place < 2:
            summed = place == 1 if i == 0 else place == 0
            alone = integer(self.groups) == 1
            return (BoundedDim(None, padding="sum") if summed else BoundedDim(out[1])) if alone else None
        if i == 1 or to_ints(self.lhs_dilation)[place - 2] != 1:
            return None
        window = shape_of(self.rhs)[to_ints(self.rhs_layout)[place]]
        props = (self.strides, self.rhs_dilation, self.low, self.high)
        stride, dilation, low, high = (to_ints(p)[place - 2] for p in props)
        return along_windows(out[place], window, stride, dilation, low + high, "sum")

    def meeting(self) -> Sequence[tuple[Place, Place]]:
        return [((0, to_ints(self.lhs_layout)[1]), (1, to_ints(self.rhs_layout)[0]))]

    def sum_kind(self) -> QuantizedType:
        """How the i32 sums of a product of quantized numbers stand for numbers."""
        return sum_kind(self.lhs, self.rhs, {to_ints(self.rhs_layout)[1]: to_ints(self.out_layout)[1]})

    def flops(self) -> int:
        b, lb = shape_of(self.rhs), to_ints(self.rhs_layout)
        return (
            multiply_adds(self.result) * size(shape_of(self.result)) * size([b[d] for d in (lb[0], *lb[2:])])
        )


def check_quantized_product(lhs: SSAValue, rhs: SSAValue, result: SSAValue, kept: Mapping[int, int]) -> None:
    """Checks a product of quantized numbers: integers with scales that are known, of which those of rhs may differ
    along one of the dimensions `kept`, and those of the result along what that becomes. Raises ValueError."""
    kinds = [quantized(v.type) for v in (lhs, rhs)]
    made = quantized(result.type)
    if kinds == [None, None] and made is None:
        return
    left, right = kinds
    if left is None or right is None:
        raise ValueError("multiplies quantized numbers by others: dequantize them, or quantize the others")
    for kind in (left, right, made or left):
        if not is_integer(kind.storage) or kind.data.scales is None or kind.data.zeros is None:
            raise ValueError(f"multiplies {kind}: products are of integers whose scales are known; for others take "
                             "what is stored (graph.storage) and multiply by the scales")
    if left.data.blocks:
        raise ValueError(f"has several scales for its first operand, {left}")
    for kind, places in ((right, {*kept}), (made or left, {*kept.values()})):
        if any(n != 1 or d not in places for d, n in kind.data.blocks) or len(kind.data.blocks) > 1:
            raise ValueError(f"has scales along a dimension of {kind} that is no feature of the result")
    if left.expressed != right.expressed or (made.expressed if made else element_of(result)) != left.expressed:
        raise ValueError(f"multiplies {left} by {right} into {element_of(result)}: they stand for different types")


def sum_kind(lhs: SSAValue, rhs: SSAValue, place: Mapping[int, int]) -> QuantizedType:
    """How sums of products of two quantized values stand for numbers: each by the product of their scales. place: the
    dimension of the result that one of rhs becomes."""
    left, right = quantized(lhs.type), quantized(rhs.type)
    assert left is not None and left.data.scales is not None and right is not None and right.data.scales is not None
    scales = [left.data.scales[0] * s for s in right.data.scales]
    return QuantizedType.of("i32", left.data.expressed, scales, 0, [(place[d], n) for d, n in right.data.blocks])


def multiply_adds(result: SSAValue) -> int:
    """Operations on real numbers of a multiply-add: two, or eight of complex numbers."""
    return 8 if is_complex(element_of(result)) else 2
