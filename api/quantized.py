"""Sources whose products are quantized as a configuration says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from ..dialects.module import set_target, target_of
from ..machine import DEFAULT_TARGET, Machine
from ..passes.errors import PassError
from ..passes.graph.products_named import name_arguments
from ..passes.graph.quantize import quantize_module, read_config
from ..passes.graph.recipes import QuantConfig
from ..passes.pipeline import level_of
from .signature import Signature
from .sources import Source


def named_module(origin: Source) -> tuple[ModuleOp, Signature]:
    """A source's module, which says what its arguments are called. Raises PassError for one below the graph level."""
    module, signature = origin.lower()
    if level_of(module) != "graph":
        raise PassError(
            f"{origin.name} starts at the {level_of(module)} level, and programs are quantized at the graph level"
        )
    name_arguments(module, signature.names)
    return module, signature


def quantized_source(
    origin: Source, config: QuantConfig | str | Path, weights: Sequence[str] | None, target: str | None
) -> Source:
    """A source that is quantized for a target when it is lowered. Raises PassError for a configuration that cannot be
    read."""

    def lower() -> tuple[ModuleOp, Signature]:
        module, signature = named_module(origin)
        chosen = target_of(module) or target or DEFAULT_TARGET
        quantize_module(module, Machine.load(chosen), read_config(config), weights)
        set_target(module, chosen)
        return module, signature

    return Source(lower, origin.name, origin.places)
