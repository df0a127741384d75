"""Modules as text that is kept, and such text as modules."""

from __future__ import annotations

import io
from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from ..dialects import make_context
from ..dialects.affine import Symbol
from ..dialects.open_sizes import assuming, typical_sizes
from ..dialects.open_text import reading
from ..dialects.sizes import Sizes
from ..dialects.text import TextParser
from ..dialects.text import verify as verify_module


def text_of(module: ModuleOp) -> str:
    """A module as text, places included."""
    out = io.StringIO()
    with typical_sizes():
        Printer(out, print_debuginfo=True).print_op(module)
    return out.getvalue()


def module_in(text: str, symbols: Mapping[str, Symbol], example: Sizes) -> ModuleOp:
    """The module in a text, verified for an example of its sizes, if it has any."""
    with reading(symbols), assuming(example) if example else typical_sizes():
        module = TextParser(make_context(), text).parse_module()
        verify_module(module)
    return module
