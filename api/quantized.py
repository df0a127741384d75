"""Sources whose products are quantized as a configuration says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from ..dialects.module import set_target, target_of
from ..machine import DEFAULT_TARGET, Machine
from ..passes.errors import PassError
from ..passes.pipeline import PIPELINE, Stage, level_of, run_stage
from ..passes.quantized.products_named import main_function, name_arguments
from ..passes.quantized.quantize import quantize_module, read_config
from ..passes.quantized.recipes import QuantConfig
from .arguments.signature import Signature
from .options import Options
from .sources import Source

INTEGERS = "graph-simplify"
"""The pass behind which products of quantized numbers are products of integers."""


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

    def twin() -> ModuleOp:
        module, _ = named_module(origin)
        machine = Machine.load(target_of(module) or target or DEFAULT_TARGET)
        return integer_module(module, machine, read_config(config), weights)

    return Source(lower, origin.name, origin.places, origin, twin)


def requantized(origin: Source, options: Options, target: str) -> Source:
    """A source that is quantized as options say, or one before that, quantized for another target."""
    if options.quantization is None:
        return origin
    return quantized_source(origin.original or origin, options.quantization, options.weight_patterns, target)


def integer_module(
    module: ModuleOp,
    machine: Machine,
    config: QuantConfig | None,
    weights: Sequence[str] | None = None,
    stages: Sequence[Stage] = PIPELINE,
) -> ModuleOp:
    """A module that is quantized for a machine, in place, down to products of integers: what its numbers are, whatever
    the machine makes of scales. config: None for one that is not quantized; stages: the passes that change its numbers
    are those of these. Raises PassError."""
    if config is not None:
        quantize_module(module, machine, config, weights, words=False)
    for stage in stages:
        run_stage(stage, module, machine.name)
        if stage.name == INTEGERS:
            break
    return module


def module_values(module: ModuleOp, flat: Sequence[Any]) -> list[Any] | None:
    """The flat results of a module at the graph level, computed by JAX; None where it calls the host."""
    from ..backends.interpreter.graph import needs_host, run_graph

    return None if needs_host(main_function(module)) else list(run_graph(module, *flat))
