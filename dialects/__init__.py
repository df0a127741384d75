"""Our dialects, those of plugins and of the vendor, and the context that knows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.context import Context
from xdsl.ir import Dialect

from ..support.plugins import PluginEntry, PluginError, entries
from .mlir_syntax import allow_semi_affine

OURS = ("builtin", "func", "arith", "scf", "graph", "tile", "npu", "hivm")
"""The dialects that no plugin may replace."""


VENDOR = ("hivm", "hacc", "hfusion", "annotation", "memref_ext")
"""The dialects of the vendor's compiler."""

BESIDE = ("dlti", "memref", "affine", "vector", "math", "cf", "llvm")
"""Those of MLIR that its text has, too, with syntax that xDSL's lack."""


def all_dialects() -> list[Dialect]:
    """graph, tile, npu and the xDSL dialects they are used with."""
    from xdsl.dialects.builtin import Builtin
    from xdsl.dialects.func import Func

    from .graph import Graph
    from .mlir_syntax import Arith, Scf
    from .npu import Npu
    from .tile import Tile

    return [Builtin, Func, Arith, Scf, Graph, Tile, Npu]


def vendor_dialects(names: Sequence[str] = VENDOR + BESIDE) -> dict[str, Callable[[], Dialect]]:
    """hivm and what else text of the vendor's compiler has, by name; each is loaded when one of its ops is met."""

    def loader(name: str) -> Callable[[], Dialect]:
        def load() -> Dialect:
            from . import hivm

            return next(d for d in hivm.DIALECTS if d.name == name)

        return load

    return {name: loader(name) for name in names}


def added_dialects() -> dict[str, Callable[[], Dialect]]:
    """The dialects of plugins, by name; each is loaded when one of its ops is met. Raises PluginError then."""
    return {name: _loader(entry) for name, entry in entries("dialects", OURS).items()}


def _loader(entry: PluginEntry) -> Callable[[], Dialect]:
    def load() -> Dialect:
        found = entry.load()
        if not isinstance(found, Dialect) or found.name != entry.name:
            raise PluginError(f"{entry.found}: {entry.given} is not an xDSL dialect called {entry.name}")
        return found

    return load


def make_context() -> Context:
    """An xDSL context with our dialects loaded, and the others to be loaded when they are met."""
    allow_semi_affine()
    context = Context()
    for dialect in all_dialects():
        context.load_dialect(dialect)
    for name, load in (vendor_dialects() | added_dialects()).items():
        context.register_dialect(name, load)
    return context
