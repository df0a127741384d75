"""Vector instructions on memrefs in ub: a table of those that compute each element alone, and the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntegerAttr, i1, i64
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    var_operand_def,
    var_result_def,
)

from .attributes import CastMode, CompareMode, DeinterleaveMode, Enumeration, ReduceKind, RoundMode
from .casts import CASTS, cast_name
from .forms import GROUPS, INS, OUTS, PLAIN, RESULT, TEMP, group, key
from .rules import (
    Shaped,
    check_dims,
    check_elements,
    check_same_element,
    check_same_rank,
    check_temporary,
    element_of,
    error,
    fits,
    shape_of,
    shapes_fit,
    type_name,
)

FLOATS = "f16 f32"
BOOL = IntegerAttr.constr(type=i1)
DIMS = DenseArrayBase.constr(i64)


@dataclass(frozen=True)
class Row:
    """An op that computes each element alone."""

    name: str
    arity: int
    elements: str | None
    """What its sources may hold; None: anything."""
    does: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    """Further properties with their types, written `name = value`."""
    colons: tuple[str, ...] = ()
    """Those of them that are written `name : value`."""
    dest: str | None = None
    """What the destination holds; None: what the sources hold."""
    scalars_from: int = 1
    """The first source that may be a scalar."""
    temp: bool = True
    """Whether the op may have scratch memory."""
    results: int = 1
    """How many results it may have."""


SIGNED = "i8 i16 i32 i64 f16 f32"
ORDERED = "i1 i8 ui8 i16 ui16 i32 ui32 i64 ui64 f16 bf16 f32 f8E4M3FN f8E5M2"
BITS = "i1 i8 ui8 i16 ui16 i32 ui32 i64 ui64"
ROWS = [
    *(Row(n, 1, FLOATS, "A function of each element") for n in ("vexp", "vln", "vsqrt", "vrsqrt", "vrec")),
    *(
        Row(n, 1, FLOATS, "A function of each element, which no library has", temp=False)
        for n in ("vexp2", "vlog2", "vlog10", "vlog1p", "vexpm1")
    ),
    *(
        Row(n, 1, None, "A function of each element, which no library has", temp=False)
        for n in ("vtanh", "vsin", "vcos", "vtan", "vatan", "verf")
    ),
    *(
        Row(n, 1, FLOATS, f"Whether an element is {what}", dest="i1 i8", temp=False)
        for n, what in (("visinf", "an infinity"), ("visnan", "no number"))
    ),
    Row("vabs", 1, SIGNED, "The absolute value"),
    Row("vrelu", 1, "i32 f16 f32", "The larger of an element and zero"),
    Row("vnot", 1, BITS + " f16 bf16 f32", "All bits inverted"),
    Row("vcast", 1, None, "A cast", {"round_mode": RoundMode, "cast": CastMode}, dest=""),
    Row("vadd", 2, SIGNED, "The sum"),
    Row("vmul", 2, SIGNED, "The product"),
    Row("vsub", 2, SIGNED, "The difference", scalars_from=0),
    Row("vdiv", 2, SIGNED, "The quotient", {"isSigned": BOOL, "isHP": BOOL}, scalars_from=0),
    Row("vmax", 2, ORDERED, "The larger", {"is_signed": BOOL}),
    Row("vmin", 2, ORDERED, "The smaller", {"is_signed": BOOL}),
    Row("vor", 2, BITS + " f16 bf16 f32", "Bits that either has", scalars_from=2),
    Row("vand", 2, BITS + " f16 bf16 f32", "Bits that both have", scalars_from=2),
    Row("vxor", 2, BITS, "Bits that one of them has", scalars_from=2),
    Row("vmod", 2, None, "The remainder", temp=False),
    Row("vshl", 2, "i16 i32 i64", "Bits moved up"),
    Row(
        "vshr",
        2,
        "i8 i16 i32 i64",
        "Bits moved down",
        {"round": BOOL, "is_signed": BOOL},
        ("round", "is_signed"),
    ),
    Row("vpow", 2, "i8 i16 i32 f16 f32", "A power"),
    Row("vmodui", 2, "i1 i8 i16 i32 i64", "The remainder of numbers without signs", temp=False),
    Row("vmulext", 2, "i32", "The upper half of the product, or both halves", temp=False, results=2),
    Row("vmulextui", 2, "i32", "The same of numbers without signs", temp=False, results=2),
    Row(
        "vcmp",
        2,
        ORDERED,
        "Whether a comparison holds, equality by default",
        {"compare_mode": CompareMode, "is_signed": BOOL},
        ("is_signed",),
        dest="i1 i8",
        temp=False,
    ),
    Row(
        "vsel", 3, None, "The second source where the first is true, else the third", dest="", scalars_from=0
    ),
]
"""Elements and scalars are those that the vendor's verifier takes, in ascendnpu-ir 1.2 or in the newer sources."""


class ElementwiseOp(IRDLOperation):
    """`ins(..) outs(..)` of one rank; `broadcast` names dimensions of size 1 that are repeated on the way."""

    ROW: ClassVar[Row]
    src = var_operand_def()
    dst = var_operand_def(Shaped)
    broadcast = opt_prop_def(DIMS)
    transpose = opt_prop_def(DIMS)
    result = var_result_def()
    irdl_options = GROUPS

    def verify_(self) -> None:
        row = self.ROW
        if len(self.src) != row.arity or not 1 <= len(self.dst) <= row.results:
            wanted = "1" if row.results == 1 else "1 or 2"
            raise error(
                self, f"has {len(self.src)} sources and {len(self.dst)} results, not {row.arity} and {wanted}"
            )
        for number, source in enumerate(self.src[: row.scalars_from]):
            if shape_of(source) is None:
                raise error(self, f"takes no scalar as source {number}")
        check_same_rank(self, [*self.src, *self.dst])
        if row.elements is not None:
            check_elements(self, self.src, row.elements)
        if row.dest is None:
            check_same_element(self, [*self.src, *self.dst])
        elif row.dest:
            check_elements(self, self.dst, row.dest)
            check_same_element(self, self.src)
        check_temporary(self, getattr(self, "temp_buffer", None))
        self._verify_shapes()
        if row.name == "vcast":
            self._verify_cast()
        elif row.name == "vsel":
            check_elements(self, self.src[:1], "i1 i8")
            check_elements(self, self.src[1:], ORDERED)
            check_same_element(self, [*self.src[1:], *self.dst])

    def _verify_shapes(self) -> None:
        """Refuses sources whose sizes are not those of the result, or 1 where they are broadcast."""
        dest = shape_of(self.dst[0]) or ()
        repeated = self.broadcast.get_values() if self.broadcast is not None else ()
        if repeated:
            check_dims(self, repeated, len(dest), "broadcast dimension")
        if self.transpose is not None and self.transpose.get_values():
            if sorted(self.transpose.get_values()) != list(range(len(dest))):
                raise error(self, f"has transpose {list(self.transpose.get_values())}, no permutation")
            return
        for source in self.src:
            if (shape := shape_of(source)) is None:
                continue
            for d, (size, wanted) in enumerate(zip(shape, dest, strict=True)):
                if not fits(size, wanted) and not (d in repeated and size == 1):
                    raise error(self, f"has {size} elements of {wanted} along dimension {d}")

    def _verify_cast(self) -> None:
        mode = self.properties.get("round_mode")
        kind = self.properties.get("cast")
        signs = isinstance(kind, Enumeration) and kind.data == "cast_unsigned"
        source, dest = element_of(self.src[0]), element_of(self.dst[0])
        rounding = mode.data if isinstance(mode, Enumeration) else "rint"
        if cast_name(source, dest, signs, rounding) not in CASTS:
            raise error(
                self, f"cannot cast {type_name(source)} to {type_name(dest)} with round_mode {rounding}"
            )


def _elementwise(row: Row) -> type[Any]:
    keys = " ".join(key(name, ":" if name in row.colons else "=") for name in row.properties)
    scratch = TEMP if row.temp else ""
    body: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": f"{row.does}.",
        "name": f"hivm.hir.{row.name}",
        "assembly_format": f"attr-dict {INS} {OUTS} {scratch} {keys} {key('broadcast')} {key('transpose')} {RESULT}",
        "src": var_operand_def(),
        "dst": var_operand_def(Shaped),
    }
    if row.temp:
        body["temp_buffer"] = opt_operand_def(Shaped)
    body |= {name: opt_prop_def(of) for name, of in row.properties.items()}
    made: type[Any] = irdl_op_definition(type(f"{row.name.capitalize()}Op", (ElementwiseOp,), body))
    made.ROW = row
    return made


ELEMENTWISE = {row.name: _elementwise(row) for row in ROWS}


class VectorOp(IRDLOperation):
    """A vector instruction from `src` to `dst`."""

    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    result = var_result_def()
    irdl_options = PLAIN


@irdl_op_definition
class VbrcOp(IRDLOperation):
    """A scalar, or a memref along its dimensions of size 1, repeated."""

    name = "hivm.hir.vbrc"
    src = operand_def()
    dst = operand_def(Shaped)
    temp_buffer = opt_operand_def(Shaped)
    broadcast_dims = opt_prop_def(DIMS)
    result = var_result_def()
    irdl_options = PLAIN
    assembly_format = f"attr-dict {INS} {OUTS} {TEMP} {key('broadcast_dims')} {RESULT}"

    def verify_(self) -> None:
        check_same_element(self, [self.src, self.dst])
        check_elements(self, [self.src], ORDERED)
        check_temporary(self, self.temp_buffer)
        dims = self.broadcast_dims.get_values() if self.broadcast_dims is not None else ()
        shape = shape_of(self.src)
        if shape is None:
            if dims:
                raise error(self, "repeats a scalar along all dimensions, and names none")
            return
        check_same_rank(self, [self.src, self.dst])
        check_dims(self, dims, len(shape), "broadcast dimension")
        if wrong := [d for d in dims if not fits(shape[d], 1)]:
            raise error(self, f"repeats dimension {wrong[0]}, which has {shape[wrong[0]]} elements, not 1")


@irdl_op_definition
class VreduceOp(VectorOp):
    """A reduction of dimensions, which have size 1 in the result; also where the extremum is."""

    name = "hivm.hir.vreduce"
    src = operand_def(Shaped)
    dst = var_operand_def(Shaped)
    temp_buffer = opt_operand_def(Shaped)
    indices = opt_operand_def(Shaped)
    arith = prop_def(ReduceKind)
    unsigned_src = opt_prop_def(BOOL)
    tie_break_left = opt_prop_def(BOOL)
    reduce_dims = prop_def(DIMS)
    irdl_options = GROUPS
    assembly_format = (
        f"attr-dict $arith {INS} {group('indices')} {OUTS} {TEMP} {key('unsigned_src')} {key('tie_break_left')} "
        f"`reduce_dims` `=` $reduce_dims {RESULT}"
    )

    def verify_(self) -> None:
        check_elements(self, [self.src], BITS + " f16 f32")
        check_temporary(self, self.temp_buffer)
        kind = self.arith.data
        wanted = 2 if "with_index" in kind else 1
        if len(self.dst) != wanted:
            raise error(self, f"of kind {kind} gives {wanted} results, not {len(self.dst)}")
        check_same_rank(self, [self.src, self.dst[0]])
        source, dest = shape_of(self.src) or (), shape_of(self.dst[0]) or ()
        dims = self.reduce_dims.get_values()
        check_dims(self, dims, len(source), "reduced dimension")
        for d, (size, found) in enumerate(zip(source, dest, strict=True)):
            if not fits(found, 1 if d in dims else size):
                raise error(
                    self, f"gives {found} elements along dimension {d}, not {1 if d in dims else size}"
                )
        if wanted == 2 and type_name(element_of(self.dst[1])) != "i32":
            raise error(self, "gives indices as i32")


@irdl_op_definition
class VtransposeOp(VectorOp):
    """Two dimensions exchanged."""

    name = "hivm.hir.vtranspose"
    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    temp_buffer = opt_operand_def(Shaped)
    permutation = opt_prop_def(DIMS)
    disable_align = opt_prop_def(BOOL)
    assembly_format = f"attr-dict {INS} {OUTS} {TEMP} {key('permutation')} {key('disable_align')} {RESULT}"

    def verify_(self) -> None:
        check_same_element(self, [self.src, self.dst])
        check_same_rank(self, [self.src, self.dst])
        order = self.permutation.get_values() if self.permutation is not None else ()
        rank = len(shape_of(self.src) or ())
        if sorted(order) != list(range(rank)):
            raise error(self, f"has permutation {list(order)}, and operands of rank {rank}")
        if rank != 4 and sum(at != d for at, d in enumerate(order)) != 2:
            raise error(self, f"exchanges two dimensions, not {list(order)}")


@irdl_op_definition
class VarangeOp(IRDLOperation):
    """Numbers from an offset on, with a stride for each dimension."""

    name = "hivm.hir.varange"
    dst = operand_def(Shaped)
    offset = opt_operand_def(IndexType)
    strides = var_operand_def(IndexType)
    result = var_result_def()
    irdl_options = GROUPS
    assembly_format = f"attr-dict (`offset` `[` $offset^ `]`)? `strides` `[` $strides `]` {OUTS} {RESULT}"

    def verify_(self) -> None:
        check_elements(self, [self.dst], "i16 i32 f16 f32 i64")
        if len(self.strides) != len(shape_of(self.dst) or ()):
            raise error(
                self, f"has {len(self.strides)} strides for {len(shape_of(self.dst) or ())} dimensions"
            )


@irdl_op_definition
class VinterleaveOp(VectorOp):
    """Two memrefs, element by element in turn."""

    name = "hivm.hir.vinterleave"
    src = var_operand_def()
    dst = operand_def(Shaped)
    temp_buffer = opt_operand_def(Shaped)
    interleave_channel_nums = prop_def(IntegerAttr.constr(type=i64))
    irdl_options = GROUPS
    assembly_format = (
        f"attr-dict {INS} {OUTS} `interleave_channel_nums` `=` $interleave_channel_nums {TEMP} {RESULT}"
    )

    def verify_(self) -> None:
        check_same_element(self, [*self.src, self.dst])
        if len(self.src) != 2 or self.interleave_channel_nums.value.data != 2:
            raise error(self, f"interleaves two memrefs, not {len(self.src)}")


@irdl_op_definition
class VdeinterleaveOp(VectorOp):
    """Each second element, or both halves."""

    name = "hivm.hir.vdeinterleave"
    dst = var_operand_def(Shaped)
    channel_num = opt_prop_def(IntegerAttr.constr(type=i64))
    index_mode = opt_prop_def(DeinterleaveMode)
    assembly_format = f"attr-dict {INS} {OUTS} {key('channel_num')} {key('index_mode')} {RESULT}"

    def verify_(self) -> None:
        check_same_element(self, [self.src, *self.dst])
        channels = self.channel_num.value.data if self.channel_num is not None else 2
        every = self.index_mode is None or self.index_mode.data == "ALL_CHANNELS"
        if len(self.dst) != (channels if every else 1):
            raise error(self, f"gives {channels if every else 1} memrefs, not {len(self.dst)}")


@irdl_op_definition
class VflipOp(VectorOp):
    """A dimension backwards."""

    name = "hivm.hir.vflip"
    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    flip_axis = prop_def(IntegerAttr.constr(type=i64))
    assembly_format = f"attr-dict {INS} {OUTS} `flip_axis` `=` $flip_axis {RESULT}"

    def verify_(self) -> None:
        check_same_element(self, [self.src, self.dst])
        if not shapes_fit(shape_of(self.src) or (), shape_of(self.dst) or ()):
            raise error(self, "needs operands of one shape")


class CumulativeOp(VectorOp):
    """What a dimension accumulates to, element by element."""

    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    temp_buffer = opt_operand_def(Shaped)
    cum_dims = prop_def(DIMS)
    reverse = prop_def(BOOL)
    assembly_format = (
        f"attr-dict {INS} {OUTS} {TEMP} `cum_dims` `=` $cum_dims `reverse` `=` $reverse {RESULT}"
    )

    def verify_(self) -> None:
        check_same_rank(self, [self.src, self.dst])
        check_dims(self, self.cum_dims.get_values(), len(shape_of(self.src) or ()), "accumulated dimension")


@irdl_op_definition
class VcumsumOp(CumulativeOp):
    """Sums."""

    name = "hivm.hir.vcumsum"


@irdl_op_definition
class VcumprodOp(CumulativeOp):
    """Products."""

    name = "hivm.hir.vcumprod"


@irdl_op_definition
class VcummaxOp(CumulativeOp):
    """Largest so far."""

    name = "hivm.hir.vcummax"


@irdl_op_definition
class VcumminOp(CumulativeOp):
    """Smallest so far."""

    name = "hivm.hir.vcummin"


@irdl_op_definition
class VsortOp(VectorOp):
    """The last dimension sorted, also with where each element was."""

    name = "hivm.hir.vsort"
    src = operand_def(Shaped)
    dst = var_operand_def(Shaped)
    temp_buffer = opt_operand_def(Shaped)
    descending = prop_def(BOOL)
    sort_axis = prop_def(IntegerAttr.constr(type=i64))
    irdl_options = GROUPS
    assembly_format = (
        f"attr-dict {INS} {OUTS} `descending` `=` $descending `sort_axis` `=` $sort_axis {TEMP} {RESULT}"
    )

    def verify_(self) -> None:
        check_temporary(self, self.temp_buffer)
        rank = len(shape_of(self.src) or ())
        if self.sort_axis.value.data not in (-1, rank - 1):
            raise error(
                self, f"sorts the last dimension, not dimension {self.sort_axis.value.data} of {rank}"
            )


@irdl_op_definition
class VgatherOp(VectorOp):
    """Elements of `src` at `indices`."""

    name = "hivm.hir.vgather"
    src = operand_def(Shaped)
    indices = operand_def(Shaped)
    dst = operand_def(Shaped)
    temp_buffer = opt_operand_def(Shaped)
    gather_axis = opt_prop_def(IntegerAttr.constr(type=i64))
    assembly_format = (
        f"attr-dict {INS} `indices` `(` $indices `:` type($indices) `)` {OUTS} {TEMP} "
        f"{key('gather_axis')} {RESULT}"
    )

    def verify_(self) -> None:
        check_elements(self, [self.indices], "i16 i32")


@irdl_op_definition
class VgathermaskOp(VectorOp):
    """Elements of `src` where `mask` is true, and how many they are."""

    name = "hivm.hir.vgathermask"
    src = operand_def(Shaped)
    mask = operand_def(Shaped)
    dst = var_operand_def(Shaped)
    assembly_format = f"attr-dict {INS} `mask` `(` $mask `:` type($mask) `)` {OUTS} {RESULT}"

    def verify_(self) -> None:
        check_elements(self, [self.mask], "i1")


@irdl_op_definition
class VconcatOp(VectorOp):
    """Memrefs one behind the other along a dimension."""

    name = "hivm.hir.vconcat"
    src = var_operand_def()
    dim = prop_def(IntegerAttr.constr(type=i64))
    assembly_format = f"`dim` `(` $dim `)` attr-dict {INS} {OUTS} {RESULT}"

    def verify_(self) -> None:
        check_same_element(self, [*self.src, self.dst])


VECTOR = [
    *ELEMENTWISE.values(),
    VbrcOp,
    VreduceOp,
    VtransposeOp,
    VarangeOp,
    VinterleaveOp,
    VdeinterleaveOp,
    VflipOp,
    VcumsumOp,
    VcumprodOp,
    VcummaxOp,
    VcumminOp,
    VsortOp,
    VgatherOp,
    VgathermaskOp,
    VconcatOp,
]
