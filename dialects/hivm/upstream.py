"""Ops of other dialects in HIVM text that xDSL lacks, or has without the syntax in which MLIR prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects import affine, memref, vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    VectorType,
)
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, NoMemoryEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..mlir_syntax import replaced
from .forms import GROUPS, PLAIN


@irdl_op_definition
class MarkOp(IRDLOperation):
    """Says something of a value: `{hivm.multi_buffer = 2 : i32}`."""

    name = "annotation.mark"
    src = operand_def()
    vals = var_operand_def()
    keys = opt_prop_def(ArrayAttr[StringAttr])
    effects = opt_prop_def(ArrayAttr[StringAttr])
    irdl_options = PLAIN
    assembly_format = (
        "$src attr-dict (`keys` `=` $keys^)? (`values` `=` `[` $vals^ `:` type($vals) `]`)? `:` type($src)"
    )


@irdl_op_definition
class AllocWorkspaceOp(IRDLOperation):
    """A part of the workspace of a kernel, from a byte offset on."""

    name = "memref_ext.alloc_workspace"
    workspaceArg = opt_operand_def(MemRefType)
    dynamicSize = var_operand_def(IndexType)
    offset = var_operand_def(IndexType)
    result = result_def(MemRefType)
    irdl_options = GROUPS
    assembly_format = (
        "`(` $dynamicSize `)` (`from` $workspaceArg^)? (`offset` `=` `[` $offset^ `]`)? attr-dict `:` "
        "(`from` type($workspaceArg)^ `to`)? type($result)"
    )


class RetypedMemref(IRDLOperation):
    """A memref as one of another type."""

    source = operand_def(MemRefType)
    dest = result_def(MemRefType)
    traits = traits_def(NoMemoryEffect())
    irdl_options = PLAIN
    assembly_format = "$source attr-dict `:` type($source) `to` type($dest)"


@irdl_op_definition
class MemrefCastOp(RetypedMemref):
    """A memref whose type says more or less of it."""

    name = "memref.cast"


@irdl_op_definition
class MemorySpaceCastOp(RetypedMemref):
    """A memref whose type says another memory, or none."""

    name = "memref.memory_space_cast"


@irdl_op_definition
class MemrefCopyOp(IRDLOperation):
    """A memref copied to another."""

    name = "memref.copy"
    source = operand_def(MemRefType)
    target = operand_def(MemRefType)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = PLAIN
    assembly_format = "$source `,` $target attr-dict `:` type($source) `to` type($target)"


@irdl_op_definition
class AffineMaxOp(IRDLOperation):
    """The largest result of an affine map."""

    name = "affine.max"
    map_operands = var_operand_def(IndexType)
    map = prop_def(AffineMapAttr)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, map_operands: Sequence[SSAValue], affine_map: AffineMapAttr):
        super().__init__(operands=[map_operands], properties={"map": affine_map}, result_types=[IndexType()])

    def verify_(self) -> None:
        wanted = self.map.data.num_dims + self.map.data.num_symbols
        if len(self.map_operands) != wanted:
            raise VerifyException(
                f"'affine.max' has {len(self.map_operands)} operands for {wanted} of its map"
            )

    @classmethod
    def parse(cls, parser: Parser) -> AffineMaxOp:
        place = parser.pos
        found = parser.parse_attribute()
        if not isinstance(found, AffineMapAttr):
            parser.raise_error("expected an affine map", place)
        dims, symbols = (
            parser.parse_optional_comma_separated_list(brackets, lambda: parser.parse_operand(IndexType()))
            or []
            for brackets in (parser.Delimiter.PAREN, parser.Delimiter.SQUARE)
        )
        op = cls([*dims, *symbols], found)
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.map)
        dims = self.map.data.num_dims
        with printer.in_parens():
            printer.print_list(self.map_operands[:dims], printer.print_ssa_value)
        if self.map.data.num_symbols:
            with printer.in_square_brackets():
                printer.print_list(self.map_operands[dims:], printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)


@irdl_op_definition
class MultiReductionOp(IRDLOperation):
    """A reduction of dimensions of a vector, from an accumulator on: `<add>, %x, %acc [1]`."""

    name = "vector.multi_reduction"
    kind = prop_def(vector.CombiningKindAttr)
    source = operand_def(VectorType)
    _T: ClassVar = VarConstraint("_T", AnyAttr())
    acc = operand_def(_T)
    reduction_dims = prop_def(ArrayAttr[IntegerAttr])
    dest = result_def(_T)
    traits = traits_def(Pure())
    irdl_options = PLAIN
    assembly_format = (
        "$kind `,` $source `,` $acc attr-dict $reduction_dims `:` type($source) `to` type($dest)"
    )


@irdl_op_definition
class ConstantMaskOp(IRDLOperation):
    """A mask that is true up to a number in each dimension."""

    name = "vector.constant_mask"
    mask_dim_sizes = prop_def(ArrayAttr[IntegerAttr])
    result = result_def(VectorType)
    traits = traits_def(Pure())
    irdl_options = PLAIN
    assembly_format = "$mask_dim_sizes attr-dict `:` type($result)"


@irdl_op_definition
class ShapeCastOp(IRDLOperation):
    """The elements of a vector in another shape."""

    name = "vector.shape_cast"
    source = operand_def(VectorType)
    result = result_def(VectorType)
    traits = traits_def(Pure())
    irdl_options = PLAIN
    assembly_format = "$source attr-dict `:` type($source) `to` type($result)"


@irdl_op_definition
class ExtractElementOp(IRDLOperation):
    """An element of a vector, or the one of a vector without dimensions."""

    name = "vector.extractelement"
    _T: ClassVar = VarConstraint("_T", AnyAttr())
    vector = operand_def(VectorType.constr(_T))
    position = opt_operand_def(IndexType | IntegerType)
    result = result_def(_T)
    traits = traits_def(Pure())
    irdl_options = PLAIN
    assembly_format = "$vector `[` ($position^ `:` type($position))? `]` attr-dict `:` type($vector)"


Annotation = Dialect("annotation", [MarkOp], [])
MemrefExt = Dialect("memref_ext", [AllocWorkspaceOp], [])
Memref = replaced(memref.MemRef, MemrefCastOp, MemorySpaceCastOp, MemrefCopyOp)
Affine = replaced(affine.Affine, AffineMaxOp)
Vector = replaced(vector.Vector, MultiReductionOp, ConstantMaskOp, ShapeCastOp, ExtractElementOp)
