"""Where a program came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from .arguments.signature import Signature


@dataclass
class Source:
    """Where a program came from; `lower()` gives a fresh module and its signature. places: for each argument by
    position, its place in the call that it is part of; static ones are not there. original: of a source whose products
    are quantized, what it was before; twin: gives a module of its own that computes the same numbers in JAX. stablehlo:
    gives it as a portable artifact of StableHLO; None for what comes from no such program."""

    lower: Callable[[], tuple[ModuleOp, Signature]]
    name: str
    places: tuple[int, ...] | None = None
    original: Source | None = None
    twin: Callable[[], ModuleOp] | None = None
    stablehlo: Callable[[], bytes] | None = None
