"""Reads the text that Triton-Ascend's adapter hands to the vendor's compiler: tensors, linalg and copies, before there
are addresses."""

from __future__ import annotations

import re
from typing import Self

from xdsl.context import Context
from xdsl.dialects import bufferization, get_all_dialects, linalg
from xdsl.dialects.builtin import DenseArrayBase, MemRefType, ModuleOp, TensorType, i64
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    result_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser

from ..dialects import hivm, vendor_dialects
from ..dialects.mlir_syntax import Arith, Scf, allow_semi_affine, replaced
from ..dialects.text import parse_module


@irdl_op_definition
class ToTensorOp(IRDLOperation):
    """The contents of a buffer; MLIR 19 prints no type of the tensor."""

    name = "bufferization.to_tensor"
    memref = operand_def(MemRefType)
    tensor = result_def(TensorType)
    irdl_options = (ParsePropInAttrDict(),)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        for word in ("restrict", "writable"):
            parser.parse_optional_keyword(word)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        place = parser.pos
        kind = parser.parse_type()
        if not isinstance(kind, MemRefType):
            parser.raise_error("expected the type of a memref", place)
        result = (
            parser.parse_type()
            if parser.parse_optional_keyword("to")
            else TensorType(kind.element_type, kind.get_shape())
        )
        return cls.create(
            operands=[parser.resolve_operand(operand, kind)], result_types=[result], attributes=attributes
        )


@irdl_op_definition
class MaterializeOp(IRDLOperation):
    """A tensor stored in a buffer, which may lie otherwise."""

    name = "bufferization.materialize_in_destination"
    source = operand_def(TensorType)
    dest = operand_def()
    result = var_result_def()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        source = parser.parse_unresolved_operand()
        parser.parse_characters("in")
        for word in ("restrict", "writable"):
            parser.parse_optional_keyword(word)
        dest = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        parser.parse_punctuation("->")
        results = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        results = [parser.parse_type()] if results is None else results
        operands = [parser.resolve_operand(o, t) for o, t in zip((source, dest), types, strict=True)]
        return cls.create(operands=operands, result_types=results, attributes=attributes)


class DestinationOp(IRDLOperation):
    """An op on whole tensors or buffers in the style of linalg: inputs, and destinations, which its results have the
    places of."""

    ins = var_operand_def()
    outs = var_operand_def()
    res = var_result_def()
    regions_ = var_region_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        attributes: dict[str, Attribute] = {}
        if parser.parse_optional_punctuation("{"):  # `{ arith.addf }`, or attributes
            word = parser.parse_optional_identifier()
            if word is not None and parser.parse_optional_punctuation("="):
                attributes[word] = parser.parse_attribute()
                while parser.parse_optional_punctuation(","):
                    word = parser.parse_identifier()
                    parser.parse_punctuation("=")
                    attributes[word] = parser.parse_attribute()
            parser.parse_punctuation("}")
        ins, outs = _group(parser, "ins"), _group(parser, "outs")
        for word in ("dimensions", "permutation"):
            if parser.parse_optional_keyword(word):
                parser.parse_punctuation("=")
                numbers = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
                attributes[word] = DenseArrayBase.from_list(i64, numbers)
        if parser.parse_optional_keyword("attrs"):
            parser.parse_punctuation("=")
            attributes |= parser.parse_optional_attr_dict()
        regions: list[Region] = []
        arguments = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
        region = parser.parse_optional_region(arguments)
        if region is not None:
            regions.append(region)
        results = [o.type for o in outs if isinstance(o.type, TensorType)]
        if parser.parse_optional_punctuation("->"):
            found = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
            results = [parser.parse_type()] if found is None else found
        return cls.build(operands=[ins, outs], result_types=[results], attributes=attributes, regions=[regions])


def _group(parser: Parser, word: str) -> list[SSAValue]:
    if parser.parse_optional_keyword(word) is None:
        return []
    parser.parse_punctuation("(")
    place = parser.pos
    names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
    parser.parse_punctuation(":")
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    parser.parse_punctuation(")")
    return list(parser.resolve_operands(names, types, place))


LINALG = (
    "batch_matmul",
    "broadcast",
    "elemwise_binary",
    "elemwise_unary",
    "fill",
    "generic",
    "map",
    "matmul",
    "matmul_transpose_b",
    "reduce",
    "transpose",
)
HFUSION = ("cast", "compare", "elemwise_binary", "elemwise_unary", "select")


def _destination_op(name: str) -> type[DestinationOp]:
    body = {"__module__": __name__, "__doc__": f"`{name}`, as `DestinationOp`.", "name": name}
    made = type("".join(map(str.capitalize, re.split(r"[._]", name))) + "Op", (DestinationOp,), body)
    return irdl_op_definition(made)


Linalg = replaced(linalg.Linalg, *(_destination_op(f"linalg.{name}") for name in LINALG))
Hfusion = replaced(hivm.Hfusion, *(_destination_op(f"hfusion.{name}") for name in HFUSION))
Bufferization = replaced(bufferization.Bufferization, ToTensorOp, MaterializeOp)


def read(text: str, name: str) -> ModuleOp:
    """The module of a text; `name` is what errors call its file. Raises ParseError and PlacedError."""
    allow_semi_affine()
    context = Context(allow_unregistered=True)
    ours = {d.name: lambda d=d: d for d in (Arith, Scf, Bufferization, Linalg, Hfusion)}
    for known, load in (get_all_dialects() | vendor_dialects() | ours).items():
        context.register_dialect(known, load)
    return parse_module(context, text, name)
