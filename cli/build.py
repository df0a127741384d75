"""From the arguments of a command to a compiled program: its source, inputs, options and stages."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..api.compiling import compile
from ..api.program import Options, Program
from ..passes.errors import PassError
from ..passes.pins import parse_pins
from ..passes.pipeline import pinned
from ..support.precisions import ORIGIN
from .common import CliError, working
from .source import (
    SourceSpec,
    example_inputs,
    find_source,
    find_stages,
    input_structs,
    random_inputs,
    user_code,
)

if TYPE_CHECKING:
    from ..passes.pipeline import Stage


def build(
    args: argparse.Namespace, values: bool = False, compiler: Callable[..., Program] | None = None
) -> tuple[SourceSpec, Program, list[Any]]:
    """The compiled source and its inputs: arrays where their `values` count, and else their types alone, of which
    no array is made, however large it would be. compiler: called in place of `compile`."""
    source = find_source(args.source)
    inputs = example_inputs(source, args.shapes, args.inputs, values)
    options = options_of(args)
    with working(f"compiling {source.name}"), user_code(*user_of(source)):
        program = (compiler or compile)(source.compiled, *(inputs or ()), target=args.target, options=options)
    if inputs is None:
        inputs = random_inputs(program.inputs) if values else input_structs(program.inputs)
    if source.fn is None:
        program.check(*inputs)
    return source, program, inputs


def user_of(source: SourceSpec) -> tuple[Path | None, Callable[..., Any] | None]:
    """What `user_code` needs to know of a source."""
    return (None, None) if source.fn is None else (source.path, source.fn)


def options_of(args: argparse.Namespace) -> Options:
    try:
        schedule = parse_pins(args.schedule)
    except PassError as error:
        raise CliError(str(error)) from None
    donate = tuple(
        int(d) if re.fullmatch(r"-?\d+", d) else d for d in re.split(r"\s*,\s*", args.donate.strip()) if d
    )
    weights = tuple(w for w in args.weights.split(",") if w) or None
    return Options(
        getattr(args, "memory", "typed"),
        schedule=schedule,
        host=args.host,
        donate=donate,
        quantization=args.quant_config,
        weights=weights,
        precision=args.precision,
    )


def stages_of(args: argparse.Namespace) -> Sequence[Stage]:
    """The passes to run: those of --stages, with what the options ask of them."""
    if args.stages is None:
        return options_of(args).stages()
    stages = find_stages(args.stages)
    if args.schedule or args.host != "allow" or args.precision != ORIGIN:
        return pinned(stages, args.schedule, args.host, precision=args.precision)
    return stages
