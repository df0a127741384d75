"""Tensor ops of the graph level. Each op infers its result types; the verifier compares them with what is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, TensorType, i32
from xdsl.dialects.builtin import i1 as I1
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from ..base import FormattedOp, integer, text, to_ints
from ..dtypes import same_width, size, tensor
from ..elementwise import REDUCTIONS, Function
from ..factory import make_elementwise
from .attributes import DataAttr


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """Static shape of a tensor value. Raises TypeError if it is not a tensor."""
    if not isinstance(value.type, TensorType):
        raise TypeError(f"expected a tensor, got {value.type}")
    return value.type.get_shape()


def element_of(value: SSAValue) -> Attribute:
    """Element type of a tensor value."""
    assert isinstance(value.type, TensorType)
    return value.type.element_type


def check_ranks(what: str, rank: int, *lists: Sequence[int]) -> None:
    """Raises ValueError unless each of `lists` has `rank` entries."""
    if any(len(entries) != rank for entries in lists):
        raise ValueError(f"needs {what} for each of {rank} dimensions")


class GraphOp(FormattedOp):
    """A pure tensor op. `infer` gives the result types that its operands and properties imply."""

    KERNEL: ClassVar[bool] = True
    """Whether it runs in a kernel; else it stays in the program around the kernels."""

    def infer(self) -> Sequence[Attribute]:
        raise NotImplementedError

    def flops(self) -> int:
        """Floating-point (or integer) operations, a multiply-add counted as two; data movement counts none."""
        return 0

    def steering(self) -> Sequence[SSAValue]:
        """Operands that decide what runs or where it reads and writes, rather than what is computed."""
        return ()

    def on_numbers(self) -> bool:
        """Whether all operands and results are single numbers, so that the host could do this on the way."""
        return not self.regions and not any(shape_of(v) for v in (*self.operands, *self.results))

    def verify_(self) -> None:
        for v in (*self.operands, *self.results):
            if not isinstance(v.type, TensorType):
                raise self.error(f"needs tensors, got {v.type}")
            if any(d < 0 for d in v.type.get_shape()):
                raise self.error(f"needs static shapes, got {v.type}")
        try:
            expected = list(self.infer())
        except ValueError as e:
            raise self.error(str(e)) from None
        if expected != list(self.result_types):
            want = ", ".join(map(str, expected))
            got = ", ".join(map(str, self.result_types))
            raise self.error(f"should give {want}, but is written as {got}")


class ElementwiseOp(GraphOp):
    """One scalar function over each element; all operands have the result's shape."""

    FUNCTION: ClassVar[Function]

    def infer(self) -> Sequence[Attribute]:
        shape = shape_of(self.operands[-1])
        for v in self.operands:
            if shape_of(v) != shape:
                raise ValueError(f"operand shapes differ: {[list(shape_of(o)) for o in self.operands]}")
        values = self.operands[1:] if self.FUNCTION.predicate else self.operands
        if self.FUNCTION.predicate and element_of(self.operands[0]) != I1:
            raise ValueError(f"operand 0 must be i1, got {element_of(self.operands[0])}")
        if len({element_of(v) for v in values}) != 1:
            raise ValueError(f"operand element types differ: {', '.join(str(element_of(v)) for v in values)}")
        kind = self.FUNCTION.result
        if kind == "bits":
            same_width(element_of(values[0]), element_of(self.results[0]))
        element = {"same": element_of(values[0]), "i1": I1}.get(kind, element_of(self.results[0]))
        return [tensor(shape, element)]

    def flops(self) -> int:
        return self.FUNCTION.flops * size(shape_of(self.results[0]))


ELEMENTWISE: dict[str, type[ElementwiseOp]] = make_elementwise("graph", ElementwiseOp, __name__, TensorType)


@irdl_op_definition
class ConstantOp(GraphOp):
    """A constant tensor."""

    name = "graph.constant"
    KERNEL: ClassVar[bool] = False
    value = prop_def(DataAttr)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        from ..dtypes import element_type

        return [tensor(self.value.data.shape, element_type(self.value.data.dtype))]


@irdl_op_definition
class IotaOp(GraphOp):
    """Each element is its own coordinate along `dim`."""

    name = "graph.iota"
    dim = prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if not 0 <= integer(self.dim) < len(shape_of(self.result)):
            raise ValueError(f"dim {integer(self.dim)} is outside the result's rank")
        return [self.result.type]


@irdl_op_definition
class BroadcastOp(GraphOp):
    """Operand dimension i becomes result dimension `dims[i]`; size-1 and absent dimensions repeat."""

    name = "graph.broadcast"
    x = operand_def()
    dims = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        src, out, dims = shape_of(self.x), shape_of(self.result), to_ints(self.dims)
        if len(dims) != len(src) or len(set(dims)) != len(dims):
            raise ValueError(
                f"dims {list(dims)} must name a result dimension for each of {len(src)} operand dims"
            )
        for d, s in zip(dims, src, strict=True):
            if not 0 <= d < len(out) or s not in (1, out[d]):
                raise ValueError(f"cannot broadcast {list(src)} into {list(out)} along dims {list(dims)}")
        return [tensor(out, element_of(self.x))]


@irdl_op_definition
class TransposeOp(GraphOp):
    """Result dimension i is operand dimension `perm[i]`."""

    name = "graph.transpose"
    x = operand_def()
    perm = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        src, perm = shape_of(self.x), to_ints(self.perm)
        if sorted(perm) != list(range(len(src))):
            raise ValueError(f"perm {list(perm)} is not a permutation of {len(src)} dimensions")
        return [tensor([src[p] for p in perm], element_of(self.x))]


@irdl_op_definition
class ReshapeOp(GraphOp):
    """The same elements in row-major order under another shape."""

    name = "graph.reshape"
    KERNEL: ClassVar[bool] = False
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        src, out = shape_of(self.x), shape_of(self.result)
        if size(src) != size(out):
            raise ValueError(f"cannot reshape {list(src)} into {list(out)}: element counts differ")
        return [tensor(out, element_of(self.x))]


@irdl_op_definition
class SliceOp(GraphOp):
    """`x[starts:limits:strides]` in each dimension."""

    name = "graph.slice"
    x = operand_def()
    starts = prop_def(DenseArrayBase)
    limits = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        src = shape_of(self.x)
        lists = to_ints(self.starts), to_ints(self.limits), to_ints(self.strides)
        check_ranks("a start, a limit and a stride", len(src), *lists)
        spec = list(zip(*lists, strict=True))
        for d, (a, b, s) in zip(src, spec, strict=True):
            if not (0 <= a <= b <= d and s > 0):
                raise ValueError(f"slice [{a}:{b}:{s}] is outside a dimension of {d}")
        return [tensor([-(-(b - a) // s) for a, b, s in spec], element_of(self.x))]


@irdl_op_definition
class PadOp(GraphOp):
    """`low` and `high` elements of `value` around x (negative ones crop), `interior` between its elements."""

    name = "graph.pad"
    x = operand_def()
    value = operand_def()
    low = prop_def(DenseArrayBase)
    high = prop_def(DenseArrayBase)
    interior = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        src, lists = shape_of(self.x), (to_ints(self.low), to_ints(self.high), to_ints(self.interior))
        check_ranks("low, high and interior padding", len(src), *lists)
        if self.value.type != tensor([], element_of(self.x)):
            raise ValueError(f"pads {self.x.type} with {self.value.type}")
        spec = zip(src, *lists, strict=True)
        out = [lo + hi + d + max(d - 1, 0) * i for d, lo, hi, i in spec]
        if any(n < 0 for n in out) or any(i < 0 for i in to_ints(self.interior)):
            raise ValueError(f"crops more than there is of {list(src)}")
        return [tensor(out, element_of(self.x))]


@irdl_op_definition
class ReverseOp(GraphOp):
    """Reverses the order of elements along `dims`."""

    name = "graph.reverse"
    x = operand_def()
    dims = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if any(not 0 <= d < len(shape_of(self.x)) for d in to_ints(self.dims)):
            raise ValueError(f"dims {list(to_ints(self.dims))} are outside the operand's rank")
        return [self.x.type]


@irdl_op_definition
class ConcatOp(GraphOp):
    """Operands one after the other along `dim`."""

    name = "graph.concat"
    parts = var_operand_def()
    dim = prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if not self.parts:
            raise ValueError("needs an operand")
        dim, shapes = integer(self.dim), [list(shape_of(p)) for p in self.parts]
        elements = [element_of(p) for p in self.parts]
        if len(set(elements)) != 1:
            raise ValueError(f"operand element types differ: {', '.join(map(str, elements))}")
        if any(
            not 0 <= dim < len(s) or s[:dim] + s[dim + 1 :] != shapes[0][:dim] + shapes[0][dim + 1 :]
            for s in shapes
        ):
            raise ValueError(f"shapes {shapes} do not agree outside dim {dim}")
        out = list(shapes[0])
        out[dim] = sum(s[dim] for s in shapes)
        return [tensor(out, element_of(self.parts[0]))]


def _reduced(shape: Sequence[int], dims: Sequence[int]) -> list[int]:
    if any(not 0 <= d < len(shape) for d in dims) or len(set(dims)) != len(dims):
        raise ValueError(f"dims {list(dims)} do not name distinct dimensions of {list(shape)}")
    return [s for d, s in enumerate(shape) if d not in dims]


@irdl_op_definition
class ReduceOp(GraphOp):
    """Combines all elements along `dims` with `kind` (sum, prod, max, min, and, or), from its neutral element."""

    name = "graph.reduce"
    x = operand_def()
    kind = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if text(self.kind) not in REDUCTIONS:
            raise ValueError(f"kind {text(self.kind)!r} is not one of {', '.join(REDUCTIONS)}")
        return [tensor(_reduced(shape_of(self.x), to_ints(self.dims)), element_of(self.x))]

    def flops(self) -> int:
        return size(shape_of(self.x))


@irdl_op_definition
class ArgReduceOp(GraphOp):
    """The largest (`max`) or smallest (`min`) element along `dim` and its first index; NaN wins."""

    name = "graph.arg_reduce"
    x = operand_def()
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    value = result_def()
    index = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if text(self.kind) not in ("max", "min"):
            raise ValueError(f"kind {text(self.kind)!r} is not one of max, min")
        shape = _reduced(shape_of(self.x), [integer(self.dim)])
        return [tensor(shape, element_of(self.x)), tensor(shape, element_of(self.index))]

    def flops(self) -> int:
        return size(shape_of(self.x))


@irdl_op_definition
class ReduceWindowOp(GraphOp):
    """Reduces windows of x: window, strides and dilation per dimension; the border counts as neutral."""

    name = "graph.reduce_window"
    x = operand_def()
    kind = prop_def(StringAttr)
    window = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    dilation = prop_def(DenseArrayBase)
    low = prop_def(DenseArrayBase)
    high = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if text(self.kind) not in REDUCTIONS:
            raise ValueError(f"kind {text(self.kind)!r} is not one of {', '.join(REDUCTIONS)}")
        props = (self.window, self.strides, self.dilation, self.low, self.high)
        lists = [to_ints(p) for p in props]
        check_ranks("window, stride, dilation, low and high padding", len(shape_of(self.x)), *lists)
        if any(n < 1 for entries in lists[:3] for n in entries):
            raise ValueError("needs windows, strides and dilations of at least 1")
        spec = zip(shape_of(self.x), *lists, strict=True)
        return [
            tensor([window_count(d + lo + hi, w, s, dl) for d, w, s, dl, lo, hi in spec], element_of(self.x)),
        ]

    def flops(self) -> int:
        return size(shape_of(self.result)) * size(to_ints(self.window))


def window_count(extent: int, window: int, stride: int, dilation: int) -> int:
    """How many windows of `window` elements, `dilation` apart, start every `stride` within `extent` elements."""
    reach = (window - 1) * dilation + 1
    return 0 if extent < reach else (extent - reach) // stride + 1


@irdl_op_definition
class ContractOp(GraphOp):
    """General matrix product: result dimensions are batch, then lhs free, then rhs free.

    The result's element type is the accumulator rounded: f16/bf16/f32 products add in f32, i8 ones in i32.
    """

    name = "graph.contract"
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
        return [tensor(shape, element_of(self.result))]

    def flops(self) -> int:
        a = shape_of(self.lhs)
        return 2 * size(shape_of(self.result)) * size([a[i] for i in to_ints(self.lhs_contract)])


@irdl_op_definition
class ConvOp(GraphOp):
    """Convolution of 1 to 3 spatial dimensions.

    Layouts list positions: `lhs_layout` and `out_layout` = [batch, feature, spatial...], `rhs_layout` =
    [input feature, output feature, spatial...]. `groups` splits the features.
    """

    name = "graph.conv"
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
        return [tensor(out, element_of(self.result))]

    def flops(self) -> int:
        b, lb = shape_of(self.rhs), to_ints(self.rhs_layout)
        return 2 * size(shape_of(self.result)) * size([b[d] for d in (lb[0], *lb[2:])])


@irdl_op_definition
class GatherOp(GraphOp):
    """StableHLO's gather: slices of `slice_sizes` of x at clamped starts read from `indices`."""

    name = "graph.gather"
    x = operand_def()
    indices = operand_def()
    offset_dims = prop_def(DenseArrayBase)
    collapsed_dims = prop_def(DenseArrayBase)
    x_batch = prop_def(DenseArrayBase)
    indices_batch = prop_def(DenseArrayBase)
    start_map = prop_def(DenseArrayBase)
    index_dim = prop_def(IntegerAttr)
    slice_sizes = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def batch_shape(self) -> list[int]:
        """Shape of the positions in `indices`, its index dimension left out."""
        return [s for d, s in enumerate(shape_of(self.indices)) if d != integer(self.index_dim)]

    def slice_dims(self) -> list[int]:
        """Dimensions of x that survive in the result, in order."""
        gone = {*to_ints(self.collapsed_dims), *to_ints(self.x_batch)}
        return [d for d in range(len(shape_of(self.x))) if d not in gone]

    def infer(self) -> Sequence[Attribute]:
        src, sizes, offset = shape_of(self.x), to_ints(self.slice_sizes), to_ints(self.offset_dims)
        if len(sizes) != len(src) or any(not 0 <= z <= d for z, d in zip(sizes, src, strict=True)):
            raise ValueError(f"slice_sizes {list(sizes)} do not fit the operand {list(src)}")
        index = integer(self.index_dim)
        starts = shape_of(self.indices)
        if not 0 <= index <= len(starts):
            raise ValueError(f"index_dim {index} is outside the rank of {list(starts)}")
        vector = starts[index] if index < len(starts) else 1
        moved = to_ints(self.start_map)
        if len(moved) != vector or any(not 0 <= d < len(src) for d in moved):
            raise ValueError(f"start_map {list(moved)} must name {vector} dimensions of {list(src)}")
        rank, kept = len(self.batch_shape()) + len(offset), len(self.slice_dims())
        if len(offset) != kept or any(not 0 <= d < rank for d in offset):
            raise ValueError(
                f"offset_dims {list(offset)} must name a result dimension for each of {kept} slice dims"
            )
        batch, inner = iter(self.batch_shape()), iter([sizes[d] for d in self.slice_dims()])
        return [
            tensor([next(inner) if d in offset else next(batch) for d in range(rank)], element_of(self.x))
        ]


@irdl_op_definition
class DynamicSliceOp(GraphOp):
    """The box of `sizes` of x that starts at the (clamped) scalar operands."""

    name = "graph.dynamic_slice"
    x = operand_def()
    starts = var_operand_def()
    sizes = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def steering(self) -> Sequence[SSAValue]:
        return self.starts

    def infer(self) -> Sequence[Attribute]:
        src, sizes = shape_of(self.x), to_ints(self.sizes)
        if not len(src) == len(sizes) == len(self.starts) or any(
            not 0 <= z <= d for z, d in zip(sizes, src, strict=True)
        ):
            raise ValueError(f"sizes {list(sizes)} with {len(self.starts)} starts do not fit {list(src)}")
        return [tensor(sizes, element_of(self.x))]


@irdl_op_definition
class DynamicUpdateSliceOp(GraphOp):
    """x with the box at the (clamped) scalar operands replaced by `update`."""

    name = "graph.dynamic_update_slice"
    x = operand_def()
    update = operand_def()
    starts = var_operand_def()
    strides = opt_prop_def(DenseArrayBase)
    """Steps between the written elements (an interior pad writes every other one); 1 where absent."""
    result = result_def()
    traits = traits_def(Pure())

    def steering(self) -> Sequence[SSAValue]:
        return self.starts

    def infer(self) -> Sequence[Attribute]:
        src, update = shape_of(self.x), shape_of(self.update)
        if not len(src) == len(update) == len(self.starts) or any(
            z > d for z, d in zip(update, src, strict=True)
        ):
            raise ValueError(f"update {list(update)} with {len(self.starts)} starts does not fit {list(src)}")
        if element_of(self.update) != element_of(self.x):
            raise ValueError(f"writes {element_of(self.update)} into {self.x.type}")
        return [self.x.type]


INDEX_TENSOR = tensor([], i32)
