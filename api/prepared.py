"""What options do to a source before it is compiled: arguments are donated, products are quantized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from ..dialects.graph.donation import donate
from ..dialects.module import set_target, target_of
from ..machine import DEFAULT_TARGET, Machine
from ..passes.quantized.products_named import name_arguments
from ..passes.quantized.quantize import quantize_module, read_config
from ..support.winograd import parse_winograd, winograd_text
from .arguments.donation import donate_inputs
from .arguments.signature import Signature
from .options import Options
from .program import Lowering, Program, compile_source
from .quantized import quantized_source
from .sources import Source, entry_of


def prepared(origin: Source, options: Options, target: str | None) -> Source:
    """A source with the arguments donated, and the products quantized, that options say; with the names of arguments
    where choices go by them. Raises PassError for a configuration that cannot be read."""
    donating = _donating(origin, options)
    if options.quantization is None:
        return _naming(donating) if parse_winograd(winograd_text(options.winograd)).named else donating
    return quantized_source(donating, options.quantization, options.weight_patterns, target)


def compile_prepared(lowering: Lowering, target: str | None, options: Options, origin: Source) -> Program:
    """Compiles a source with what options do to it before. Raises CompileError."""
    return compile_source(lowering, prepared(origin, options, target), target, options)


def _donating(origin: Source, options: Options) -> Source:
    if options.donate == ():
        return origin

    def lower() -> tuple[ModuleOp, Signature]:
        module, signature = origin.lower()
        donate_inputs(module, signature, options.donate, origin.name, origin.places)
        return module, signature

    return replace(origin, lower=lower)


def _naming(origin: Source) -> Source:
    def lower() -> tuple[ModuleOp, Signature]:
        module, signature = origin.lower()
        name_arguments(module, signature.names)
        return module, signature

    return replace(origin, lower=lower)


def prepare_open(
    module: ModuleOp,
    signature: Signature,
    given: Sequence[bool],
    origin: Source,
    options: Options,
    target: str | None,
) -> None:
    """Does the same to a module with open dimensions, in place. signature: how it is called; given: which of its inputs
    the source donates itself. Raises CompileError and PassError."""
    donate(entry_of(module), given)
    donate_inputs(module, signature, options.donate, origin.name, origin.places)
    if options.quantization is None:
        return
    name_arguments(module, signature.names)
    chosen = target_of(module) or target or DEFAULT_TARGET
    quantize_module(
        module, Machine.load(chosen), read_config(options.quantization), options.weight_patterns
    )
    set_target(module, chosen)
