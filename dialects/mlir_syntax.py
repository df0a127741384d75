"""The syntax of MLIR that xDSL lacks: ops of arith and scf, and affine maps that multiply or divide by a symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, VectorType, i1, i64
from xdsl.ir import Dialect, Operation
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineExpr
from xdsl.irdl import (
    AnyAttr,
    EqAttrConstraint,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure


@irdl_op_definition
class IndexCastUIOp(IRDLOperation):
    """An unsigned number as an index, or the reverse."""

    name = "arith.index_castui"
    operand = operand_def(IntegerType | IndexType)
    result = result_def(IntegerType | IndexType)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$operand attr-dict `:` type($operand) `to` type($result)"


@irdl_op_definition
class SelectOp(IRDLOperation):
    """One of two values by a condition; of vectors element by element, if the condition is one."""

    name = "arith.select"
    _T: ClassVar = VarConstraint("_T", AnyAttr())
    cond = operand_def(EqAttrConstraint(i1) | VectorType.constr(i1))
    lhs = operand_def(_T)
    rhs = operand_def(_T)
    result = result_def(_T)
    traits = traits_def(Pure(), arith.SelectHasCanonicalizationPatterns())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        cond = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        tests, found = i1, parser.parse_type()
        if parser.parse_optional_punctuation(","):
            tests, found = found, parser.parse_type()
        operands = [parser.resolve_operand(o, t) for o, t in ((cond, tests), (lhs, found), (rhs, found))]
        return cls.create(operands=operands, result_types=[found], attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list(
            [self.result.type] if self.cond.type == i1 else [self.cond.type, self.result.type],
            printer.print_attribute,
        )


@irdl_op_definition
class CmpiOp(IRDLOperation):
    """Compares integers, or vectors of them element by element."""

    name = "arith.cmpi"
    predicate = prop_def(IntegerAttr)
    lhs = operand_def()
    rhs = operand_def()
    result = result_def(EqAttrConstraint(i1) | VectorType.constr(i1))
    traits = traits_def(arith.CmpiHasCanonicalizationPatterns(), Pure())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        place = parser.pos
        wanted = parser.parse_identifier()
        if wanted not in arith.CMPI_COMPARISON_OPERATIONS:
            parser.raise_error(f"'{wanted}' is no comparison", place)
        parser.parse_punctuation(",")
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        found = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(lhs, found), parser.resolve_operand(rhs, found)],
            result_types=[VectorType(i1, found.shape) if isinstance(found, VectorType) else i1],
            properties={"predicate": IntegerAttr(arith.CMPI_COMPARISON_OPERATIONS.index(wanted), i64)},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {arith.CMPI_COMPARISON_OPERATIONS[self.predicate.value.data]}, ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.lhs.type)


class IndexSwitchOp(scf.IndexSwitchOp):
    """`scf.index_switch`, whose regions may leave out the yield of nothing."""

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        found = super().parse(parser)
        for region in found.regions:
            if not isinstance(region.block.last_op, scf.YieldOp):
                region.block.add_op(scf.YieldOp())
        return found


def replaced(dialect: Dialect, *ops: type[Operation]) -> Dialect:
    """A dialect with further ops, in place of its own of the same names."""
    ours = {op.name for op in ops}
    kept = [op for op in dialect.operations if op.name not in ours]
    return Dialect(dialect.name, [*kept, *ops], list(dialect.attributes))


Arith = replaced(arith.Arith, CmpiOp, IndexCastUIOp, SelectOp)
Scf = replaced(scf.Scf, IndexSwitchOp)


_OPERATORS = {
    "__mul__": AffineBinaryOpKind.Mul,
    "__floordiv__": AffineBinaryOpKind.FloorDiv,
    "__mod__": AffineBinaryOpKind.Mod,
    "ceil_div": AffineBinaryOpKind.CeilDiv,
}


def allow_semi_affine() -> None:
    """Gives xDSL's arithmetic on affine expressions the case that it refuses, `s0 * s1` or `d0 floordiv s0`; a second
    call changes nothing."""
    for name, kind in _OPERATORS.items():
        old = getattr(AffineExpr, name)
        if not hasattr(old, "semi_affine"):
            setattr(AffineExpr, name, _allowing(old, kind))


def _allowing(
    old: Callable[[AffineExpr, AffineExpr | int], AffineExpr], kind: AffineBinaryOpKind
) -> Callable[[AffineExpr, AffineExpr | int], AffineExpr]:
    def operator(self: AffineExpr, other: AffineExpr | int) -> AffineExpr:
        try:
            return old(self, other)
        except NotImplementedError:
            assert isinstance(other, AffineExpr)
            return AffineBinaryOpExpr(kind, self, other)

    operator.semi_affine = True
    return operator
