"""The three dialects and the context that knows them."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.ir import Dialect


def all_dialects() -> list[Dialect]:
    """graph, tile, npu and the xDSL dialects they are used with."""
    from xdsl.dialects.arith import Arith
    from xdsl.dialects.builtin import Builtin
    from xdsl.dialects.func import Func
    from xdsl.dialects.scf import Scf

    from .graph import Graph
    from .npu import Npu
    from .tile import Tile

    return [Builtin, Func, Arith, Scf, Graph, Tile, Npu]


def make_context() -> Context:
    """An xDSL context with all dialects loaded."""
    context = Context()
    for dialect in all_dialects():
        context.load_dialect(dialect)
    return context
