"""The same elements at other places: layout ops, which loads and stores absorb where strides can say them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import Pure

from ..base import integer, to_ints
from ..dtypes import is_complex, paired, size, tensor
from .interface import GraphOp, Grouping, check_ranks, element_of, shape_of


@irdl_op_definition
class BroadcastOp(GraphOp):
    """Operand dimension i becomes result dimension `dims[i]`; size-1 and absent dimensions repeat."""

    name = "graph.broadcast"
    PARTWISE: ClassVar[bool] = True
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
    PARTWISE: ClassVar[bool] = True
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
    PARTWISE: ClassVar[bool] = True
    KERNEL: ClassVar[bool] = False
    WHOLE: ClassVar[bool] = True
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        src, out = shape_of(self.x), shape_of(self.result)
        if size(src) != size(out):
            raise ValueError(f"cannot reshape {list(src)} into {list(out)}: element counts differ")
        return [tensor(out, element_of(self.x))]


@irdl_op_definition
class ViewOp(GraphOp):
    """The same memory with the parts of complex numbers along a last dimension of 2: complex<f32> of a shape as f32 of
    this shape x 2, or the other way round."""

    name = "graph.view"
    KERNEL: ClassVar[bool] = False
    WHOLE: ClassVar[bool] = True
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        given, out = self.x.type, self.result.type
        assert isinstance(given, TensorType) and isinstance(out, TensorType)
        if is_complex(given.element_type):
            return [paired(given)]
        if not is_complex(out.element_type) or paired(out) != given:
            raise ValueError(
                f"cannot view {given} as {out}: one has the parts of the other's complex numbers"
            )
        return [out]


@irdl_op_definition
class SliceOp(GraphOp):
    """`x[starts:limits:strides]` in each dimension."""

    name = "graph.slice"
    PARTWISE: ClassVar[bool] = True
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
    PARTWISE: ClassVar[bool] = True
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
    PARTWISE: ClassVar[bool] = True
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
    GROUPING: ClassVar[Grouping] = "move"
    PARTWISE: ClassVar[bool] = True
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
