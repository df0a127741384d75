"""MLIR's `!quant.uniform` element types."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Attribute, Dialect
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError

from ..dialects.graph import QuantizedType

PREFIX = "!quant.uniform"


def uniform_type(text: str) -> Attribute:
    """The element type that MLIR prints as `!quant.uniform<...>`. Raises ValueError for one without a meaning here."""
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Dialect("graph", [], [QuantizedType]))
    try:
        return Parser(context, text.replace(PREFIX, f"!{QuantizedType.name}", 1)).parse_attribute()
    except ParseError as error:
        raise ValueError(error.msg) from None
