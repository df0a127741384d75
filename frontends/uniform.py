"""MLIR's `!quant.uniform` element types."""

from __future__ import annotations

import re

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect
from xdsl.utils.exceptions import ParseError

from ..dialects.graph import QuantizedType
from ..dialects.text import TextParser

PREFIX = "!quant.uniform"

_UNSIGNED = re.compile("<u(?=[0-9])")
"""How the storage type begins where it has no sign: MLIR says `u8` there."""


def uniform_type(text: str) -> QuantizedType:
    """The element type that MLIR prints as `!quant.uniform<...>`. Raises ValueError for one without a meaning here."""
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Dialect("graph", [], [QuantizedType]))
    ours = _UNSIGNED.sub("<ui", text.replace(PREFIX, f"!{QuantizedType.name}", 1), count=1)
    try:
        found = TextParser(context, ours).parse_attribute()
        assert isinstance(found, QuantizedType)
        return found
    except ParseError as error:
        raise ValueError(error.msg) from None
