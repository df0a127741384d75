"""The three dialects, those of plugins, and the context that knows them."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.context import Context
from xdsl.ir import Dialect

from ..support.plugins import Entry, PluginError, entries

OURS = ("builtin", "func", "arith", "scf", "graph", "tile", "npu")
"""The dialects that no plugin may replace."""


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


def added_dialects() -> dict[str, Callable[[], Dialect]]:
    """The dialects of plugins, by name; each is loaded when one of its ops is met. Raises PluginError then."""
    return {name: _loader(entry) for name, entry in entries("dialects", OURS).items()}


def _loader(entry: Entry) -> Callable[[], Dialect]:
    def load() -> Dialect:
        found = entry.load()
        if not isinstance(found, Dialect) or found.name != entry.name:
            raise PluginError(f"{entry.found}: {entry.given} is not an xDSL dialect called {entry.name}")
        return found

    return load


def make_context() -> Context:
    """An xDSL context with all dialects loaded, and those of plugins to be loaded when they are met."""
    context = Context()
    for dialect in all_dialects():
        context.load_dialect(dialect)
    for name, load in added_dialects().items():
        context.register_dialect(name, load)
    return context
