"""The same elements at other places: layout ops, which loads and stores absorb where strides can say them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType
from xdsl.interfaces import HasCanonicalizationPatternsInterface, HasFolderInterface
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.traits import ConstantLike, HasParent, IsTerminator, Pure

from ..base import integer, ints, to_ints
from ..dtypes import is_complex, paired, size, tensor
from .attributes import DataAttr
from .control import FusionOp
from .extents import BoundedDim
from .interface import (
    Casting,
    GraphOp,
    Grouping,
    check_blocks_stay,
    check_ranks,
    element_of,
    moved_element,
    shape_of,
)


@irdl_op_definition
class BroadcastOp(GraphOp, HasFolderInterface, HasCanonicalizationPatternsInterface):
    """Operand dimension i becomes result dimension `dims[i]`; size-1 and absent dimensions repeat."""

    name = "graph.broadcast"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    dims = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue] | None:
        same = to_ints(self.dims) == tuple(range(len(shape_of(self.result))))
        return [self.x] if same and self.x.type == self.result.type else None

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        return (MergeBroadcasts(),)

    def infer(self) -> Sequence[Attribute]:
        src, out, dims = shape_of(self.x), shape_of(self.result), to_ints(self.dims)
        if len(dims) != len(src) or len(set(dims)) != len(dims):
            raise ValueError(
                f"dims {list(dims)} must name a result dimension for each of {len(src)} operand dims"
            )
        for d, s in zip(dims, src, strict=True):
            if not 0 <= d < len(out) or s not in (1, out[d]):
                raise ValueError(f"cannot broadcast {list(src)} into {list(out)} along dims {list(dims)}")
        dims = to_ints(self.dims)
        return [tensor(out, moved_element(self.x, lambda d: dims[d]))]

    def along(self, i: int, d: int) -> BoundedDim | None:
        to = to_ints(self.dims)[d]
        return BoundedDim(to) if shape_of(self.x)[d] == shape_of(self.result)[to] else None


@irdl_op_definition
class TransposeOp(GraphOp, HasFolderInterface, HasCanonicalizationPatternsInterface):
    """Result dimension i is operand dimension `perm[i]`."""

    name = "graph.transpose"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    perm = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        perm = to_ints(self.perm)
        return [self.x] if perm == tuple(range(len(perm))) else None

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        return (MergeTransposes(),)

    def infer(self) -> Sequence[Attribute]:
        src, perm = shape_of(self.x), to_ints(self.perm)
        if sorted(perm) != list(range(len(src))):
            raise ValueError(f"perm {list(perm)} is not a permutation of {len(src)} dimensions")
        return [tensor([src[p] for p in perm], moved_element(self.x, perm.index))]

    def along(self, i: int, d: int) -> BoundedDim:
        return BoundedDim(to_ints(self.perm).index(d))


@irdl_op_definition
class ReshapeOp(GraphOp, HasFolderInterface, HasCanonicalizationPatternsInterface):
    """The same elements in row-major order under another shape."""

    name = "graph.reshape"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    KERNEL: ClassVar[bool] = False
    WHOLE: ClassVar[bool] = True
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        if self.x.type == self.result.type:
            return [self.x]
        value = ConstantLike.get_constant_value(self.x)
        return [value.reshaped(shape_of(self.result))] if isinstance(value, DataAttr) else None

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        return (MergeReshapes(),)

    def infer(self) -> Sequence[Attribute]:
        src, out = shape_of(self.x), shape_of(self.result)
        if size(src) != size(out):
            raise ValueError(f"cannot reshape {list(src)} into {list(out)}: element counts differ")

        def place(d: int) -> int:
            before = size(src[:d])
            found = [i for i, n in enumerate(out) if n == src[d] and size(out[:i]) == before]
            if not found:
                raise ValueError(f"cannot reshape {list(src)} into {list(out)}: scales differ along dimension {d}")
            return found[0]

        return [tensor(out, moved_element(self.x, place))]

    def along(self, i: int, d: int) -> BoundedDim | None:
        """The first elements of a dimension are the first of the one that it becomes, where it is the outermost of
        those that are joined; one of a single element may go away. Of several such beside each other it becomes the
        one with the same number among them."""
        src, out = shape_of(self.x), shape_of(self.result)
        before, behind = size(src[:d]), size(src[d:])

        def alike(shape: Sequence[int]) -> list[int]:
            """The dimensions of which each step is one of d's."""
            return [r for r in range(len(shape)) if (size(shape[:r]), size(shape[r:])) == (before, behind)]

        found = alike(out)
        grown = [r for r in found if out[r] and out[r] % max(src[d], 1) == 0]
        if 0 in src or src[d] == 1:
            same = [r for r in grown if out[r] == src[d]]
            number = [r for r in alike(src) if src[r] == src[d]].index(d)
            return BoundedDim(same[min(number, len(same) - 1)] if same else None)
        return BoundedDim(grown[-1], scale=out[grown[-1]] // src[d]) if grown else None


@irdl_op_definition
class ViewOp(GraphOp):
    """The same memory with the parts of complex numbers along a last dimension of 2: complex<f32> of a shape as f32 of
    this shape x 2, or the other way round."""

    name = "graph.view"
    CASTING: ClassVar[Casting] = "fixed"
    KEEPS: ClassVar[str] = "it has the parts of complex numbers"
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
class SliceOp(GraphOp, HasFolderInterface):
    """`x[starts:limits:strides]` in each dimension."""

    name = "graph.slice"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    starts = prop_def(DenseArrayBase)
    limits = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        return [self.x] if self.x.type == self.result.type else None

    def infer(self) -> Sequence[Attribute]:
        src = shape_of(self.x)
        lists = to_ints(self.starts), to_ints(self.limits), to_ints(self.strides)
        check_ranks("a start, a limit and a stride", len(src), *lists)
        spec = list(zip(*lists, strict=True))
        for d, (a, b, s) in zip(src, spec, strict=True):
            if not (0 <= a <= b <= d and s > 0):
                raise ValueError(f"slice [{a}:{b}:{s}] is outside a dimension of {d}")
        return [tensor([-(-(b - a) // s) for a, b, s in spec], element_of(self.x))]

    def along(self, i: int, d: int) -> BoundedDim:
        start, stride = to_ints(self.starts)[d], to_ints(self.strides)[d]
        return BoundedDim(d, offset=stride - 1 - start, divisor=stride)


@irdl_op_definition
class PadOp(GraphOp, HasFolderInterface):
    """`low` and `high` elements of `value` around x (negative ones crop), `interior` between its elements."""

    name = "graph.pad"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    value = operand_def()
    low = prop_def(DenseArrayBase)
    high = prop_def(DenseArrayBase)
    interior = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        kept = not any((*to_ints(self.low), *to_ints(self.high), *to_ints(self.interior)))
        return [self.x] if kept else None

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

    def along(self, i: int, d: int) -> BoundedDim | None:
        low, high = to_ints(self.low)[d], to_ints(self.high)[d]
        padding = self.value if high > 0 else None
        return None if to_ints(self.interior)[d] else BoundedDim(d, offset=low + high, padding=padding)


def check_yielded_alone(op: GraphOp, result: SSAValue) -> None:
    """Only a yield reads a result that is not defined everywhere. Raises VerifyException."""
    if not all(use.operation.has_trait(IsTerminator) for use in result.uses):
        raise op.error("is for graph.yield alone: whatever else reads it would read what nothing defines")


@irdl_op_definition
class WidenOp(GraphOp):
    """x with `row` elements in each row of memory, more than its last dimension has: nothing defines those behind. A
    fusion yields a result so whose rows are to begin where lines of memory do, and what reads it takes a slice."""

    name = "graph.widen"
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    row = prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure(), HasParent(FusionOp))

    def infer(self) -> Sequence[Attribute]:
        shape, row = shape_of(self.x), integer(self.row)
        if not shape or row <= shape[-1]:
            raise ValueError(f"gives {self.x.type} rows of {row} elements: they are to be longer than they are")
        return [tensor([*shape[:-1], row], element_of(self.x))]

    def verify_(self) -> None:
        super().verify_()
        check_yielded_alone(self, self.result)


@irdl_op_definition
class PlaceOp(GraphOp):
    """x at the places of dimension `dim` from `start` on, of a tensor with `extent` of them. The others are those of
    `base`; nothing defines them where there is none. A fusion yields so its part of a tensor that several kernels make:
    its kernel stores that part alone, into what the kernel before it left."""

    name = "graph.place"
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    base = opt_operand_def()
    dim = prop_def(IntegerAttr)
    start = prop_def(IntegerAttr)
    extent = prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure(), HasParent(FusionOp))

    def infer(self) -> Sequence[Attribute]:
        shape, dim = list(shape_of(self.x)), integer(self.dim)
        if not 0 <= dim < len(shape):
            raise ValueError(f"dim {dim} is outside the operand's rank")
        start, extent = integer(self.start), integer(self.extent)
        if start < 0 or start + shape[dim] > extent:
            raise ValueError(f"has no room for {shape[dim]} places from {start} on among {extent}")
        shape[dim] = extent
        found = tensor(shape, element_of(self.x))
        if self.base is not None and self.base.type != found:
            raise ValueError(f"gives {found}, and the others of its places are those of {self.base.type}")
        return [found]

    def verify_(self) -> None:
        super().verify_()
        check_yielded_alone(self, self.result)
        if self.base is not None and not (isinstance(self.base, BlockArgument) and self.base.has_one_use()):
            raise self.error("has a base that is no argument of the fusion, or that something else reads, too")


@irdl_op_definition
class ReverseOp(GraphOp, HasFolderInterface):
    """Reverses the order of elements along `dims`."""

    name = "graph.reverse"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    dims = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        one = all(shape_of(self.x)[d] == 1 for d in to_ints(self.dims))
        return [self.x] if one else None

    def infer(self) -> Sequence[Attribute]:
        if any(not 0 <= d < len(shape_of(self.x)) for d in to_ints(self.dims)):
            raise ValueError(f"dims {list(to_ints(self.dims))} are outside the operand's rank")
        check_blocks_stay(self.x, to_ints(self.dims))
        return [self.x.type]

    def along(self, i: int, d: int) -> BoundedDim | None:
        return None if d in to_ints(self.dims) else BoundedDim(d)


@irdl_op_definition
class ConcatOp(GraphOp, HasFolderInterface):
    """Operands one after the other along `dim`."""

    name = "graph.concat"
    GROUPING: ClassVar[Grouping] = "concatenation"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    parts = var_operand_def()
    dim = prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        return [self.parts[0]] if len(self.parts) == 1 else None

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

    def along(self, i: int, d: int) -> BoundedDim | None:
        """Nothing comes behind the last operand."""
        dim, before = integer(self.dim), [shape_of(p)[d] for p in self.parts[:i]]
        if d != dim:
            return BoundedDim(d)
        return BoundedDim(d, offset=sum(before)) if i == len(self.parts) - 1 else None


class MergeBroadcasts(RewritePattern):
    """A broadcast of a broadcast is one broadcast."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BroadcastOp, rewriter: PatternRewriter, /) -> None:
        inner = op.x.owner
        if not isinstance(inner, BroadcastOp) or inner.attributes:
            return
        dims = to_ints(op.dims)
        through = ints([dims[d] for d in to_ints(inner.dims)])
        merged = BroadcastOp.create(
            operands=[inner.x], result_types=op.result_types, properties={"dims": through}
        )
        rewriter.replace(op, merged)


class MergeTransposes(RewritePattern):
    """A transpose of a transpose is one transpose."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TransposeOp, rewriter: PatternRewriter, /) -> None:
        inner = op.x.owner
        if not isinstance(inner, TransposeOp) or inner.attributes:
            return
        first = to_ints(inner.perm)
        perm = ints([first[p] for p in to_ints(op.perm)])
        merged = TransposeOp.create(
            operands=[inner.x], result_types=op.result_types, properties={"perm": perm}
        )
        rewriter.replace(op, merged)


class MergeReshapes(RewritePattern):
    """A reshape of a reshape is one reshape."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter, /) -> None:
        inner = op.x.owner
        if isinstance(inner, ReshapeOp) and not inner.attributes and not op.attributes:
            rewriter.replace(op, ReshapeOp.create(operands=[inner.x], result_types=op.result_types))
