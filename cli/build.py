"""From the arguments of a command to a compiled program: its source, inputs, options and stages."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..api.arguments.signature import generator_of, is_key
from ..api.compiling import compile
from ..api.onnx_sources import resolved
from ..api.options import Options
from ..api.program import Program
from ..api.sizes.dynamic import DynamicProgram, OpenSource
from ..api.sizes.filled import filled
from ..api.sizes.sources import open_source_of
from ..passes.errors import PassError
from ..passes.pins import parse_pins
from ..support.amounts import STRIP
from ..support.winograd import OFF
from .commands.cache import keep_executables
from .common import CliError, parse_bytes, working
from .configured import has_sizes, sizes_said
from .inputs import SEED, example_inputs, input_structs, random_inputs
from .source import SourceSpec, find_stages, source_of, user_code
from .switches import left_out

if TYPE_CHECKING:
    from ..passes.pipeline import Stage


def build(
    args: argparse.Namespace, values: bool = False, compiler: Callable[..., Program] | None = None
) -> tuple[SourceSpec, Program, list[Any]]:
    """The compiled source and its inputs: arrays where their `values` count, and else their types alone, of which
    no array is made, however large it would be. compiler: called in place of `compile`."""
    source = source_of(args)
    program, inputs = at_sizes(args, source, *compiled(args, source, values, compiler), values)
    return source, program, inputs


def at_sizes(
    args: argparse.Namespace, source: SourceSpec, program: Program, inputs: list[Any] | None, values: bool = False
) -> tuple[Program, list[Any]]:
    """The version for the sizes of `--at` of a compiled source, or itself where none are open, and its inputs."""
    if isinstance(program, DynamicProgram):
        sizes = sizes_of(args, program.open_source)
        inputs = _inputs_at(program.open_source, sizes, values, args.scale, inputs)
        with working(f"compiling {source.name}"), user_code(*user_of(source)):
            program = program.at(sizes)
    elif args.at is not None and not has_sizes(args):
        raise closed(source, sizes_said(args))
    if inputs is None:
        inputs = random_inputs(program.inputs, args.scale) if values else input_structs(program.inputs)
    if source.fn is None:
        program.check(*inputs)
    return program, inputs


def compiled(
    args: argparse.Namespace,
    source: SourceSpec,
    values: bool = False,
    compiler: Callable[..., Program] | None = None,
) -> tuple[Program, list[Any] | None]:
    """The compiled source, also one with open sizes, and its inputs where these do not follow from it."""
    inputs = given_inputs(args, source, values)
    options = options_of(args)
    with working(f"compiling {source.name}"), user_code(*user_of(source)):
        made = (compiler or compile)(source.compiled, *(inputs or ()), target=args.target, options=options)
    return made, inputs


def given_inputs(args: argparse.Namespace, source: SourceSpec, values: bool = False) -> list[Any] | None:
    """The inputs of a source as `example_inputs` has them, open ones too; of the sizes in the file of `--config` where
    this has some. Raises CliError where that has other sizes than the source."""
    inputs = example_inputs(source, args.shapes, args.inputs, values, args.where, args.scale)
    if not has_sizes(args):
        return inputs
    with user_code(*user_of(source)):
        open_ = open_of(args, source, inputs)
    if open_ is None:
        raise closed(source, sizes_said(args))
    return _inputs_at(open_, sizes_of(args, open_), values, args.scale, inputs)


def inputs_of(args: argparse.Namespace, source: SourceSpec) -> list[Any] | None:
    """The inputs of a source with their values, at the sizes of `--at` where some are open; None for an .mlir file
    whose inputs follow from @main. Nothing is compiled."""
    inputs = example_inputs(source, args.shapes, args.inputs, True, args.where, args.scale)
    with user_code(*user_of(source)):
        open_ = open_of(args, source, inputs)
    if open_ is not None:
        return _inputs_at(open_, sizes_of(args, open_), True, args.scale, inputs)
    if args.at is not None:
        raise closed(source, sizes_said(args))
    return inputs


def open_of(args: argparse.Namespace, source: SourceSpec, inputs: Sequence[Any] | None) -> OpenSource | None:
    """A source with these inputs, where it has open sizes; else None. Nothing is compiled. Raises CompileError."""
    return open_source_of(*resolved(source.compiled, inputs or (), {}), args.target)


def open_program(args: argparse.Namespace, option: str, why: str = "") -> tuple[SourceSpec, DynamicProgram]:
    """The source of a command and its program. Raises CliError where this has no open sizes, which an option is for."""
    source = source_of(args)
    if has_sizes(args):
        raise CliError(f"--config {args.config} is for the sizes {args.at} alone, and {option} is for open ones")
    program, _ = compiled(args, source)
    if not isinstance(program, DynamicProgram):
        raise closed(source, option, why)
    return source, program


def closed(source: SourceSpec, option: str, why: str = "") -> CliError:
    """A source has no open sizes, which an option is for. why: what that means for it, before what to do."""
    return CliError(
        f"{source.name} has no open sizes, which {option} is for: {why}open some, as in --shapes 'f32[b,128]'"
    )


def sizes_of(args: argparse.Namespace, program: OpenSource, but: str | None = None) -> dict[str, int]:
    """The sizes that a command line, or the file of its `--config`, says of a program; but: as `parse_at` has it.
    Raises CliError."""
    found, said = parse_at(args.at, program, but), sizes_said(args)
    other = next((name for name in found if name not in program.symbols), None)
    if other is not None and not said.startswith("--at"):
        raise CliError(f"{said}: {program.name} has no size {other}: its sizes are {', '.join(program.symbols)}")
    return found


def parse_at(text: str | None, program: OpenSource, but: str | None = None) -> dict[str, int]:
    """The sizes that `--at b=4,s=128` says of a program; but: one that need not be there. Raises CliError."""
    missing = [name for name in program.symbols if name != but]
    if text is None:
        if not missing:
            return {}
        sizes = ", ".join(program.symbols)
        raise CliError(
            f"{program.name} has open sizes: {sizes}; say which, as in --at {','.join(f'{n}=8' for n in missing)}"
        )
    return parse_sizes(text)


def parse_sizes(text: str) -> dict[str, int]:
    """`b=4,s=128` as sizes. Raises CliError."""
    found: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([^\W\d]\w*)\s*=\s*(-?\d+)\s*", part)
        if match is None:
            raise CliError(f"cannot read '{part.strip()}' in --at; write b=4,s=128")
        if found.setdefault(match[1], int(match[2])) != int(match[2]):
            raise CliError(f"--at says {match[1]}={found[match[1]]} and {match[1]}={match[2]}")
    return found


def _inputs_at(
    source: OpenSource, sizes: dict[str, int], values: bool, scale: float, inputs: Sequence[Any] | None
) -> list[Any]:
    """Inputs for sizes: those of the example inputs that have values, random ones where `values` count, and else their
    types. Those whose values are sizes have these. Raises CompileError for sizes that the source does not take."""
    import jax

    sizes = source.shapes.checked(source.name, sizes)
    given = list(filled(source, (tuple(inputs or ()), {}), sizes)[0])
    if not values:
        return given
    leaves, tree = jax.tree.flatten(given)
    types = source.shapes.types(sizes)
    open_ = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.ShapeDtypeStruct)]
    plain = [i for i in open_ if not is_key(leaves[i])]
    drawn = dict(zip(plain, random_inputs([types[i] for i in plain], scale), strict=True))
    for i in open_:
        leaf = leaves[i]
        leaves[i] = (
            drawn[i]
            if i in drawn
            else jax.random.split(jax.random.key(SEED, impl=generator_of(leaf)), leaf.shape)
        )
    return jax.tree.unflatten(tree, leaves)


def user_of(source: SourceSpec) -> tuple[Path | None, Callable[..., Any] | None]:
    """What `user_code` needs to know of a source."""
    return (None, None) if source.module is None else (source.path, source.fn)


def options_of(args: argparse.Namespace) -> Options:
    """The options of a command, whose `--cache` XLA's executables go to, too."""
    try:
        schedule = parse_pins(args.schedule)
    except PassError as error:
        raise CliError(str(error)) from None
    donate = tuple(
        int(d) if re.fullmatch(r"-?\d+", d) else d for d in re.split(r"\s*,\s*", args.donate.strip()) if d
    )
    keep_executables(args.cache)
    weights = None if args.weights is None else tuple(w for w in args.weights.split(",") if w)
    pool = getattr(args, "pool", None)
    return Options(
        getattr(args, "memory", "typed"),
        schedule=schedule,
        host=args.host,
        donate=donate,
        quantization=args.quant_config,
        weights=weights,
        precision=args.precision,
        cache=args.cache,
        plans=args.plans,
        plans_for=args.plans_for,
        pool=pool or "best-fit",
        pool_bytes=None if pool is None else parse_bytes(args.pool_bytes),
        without=left_out(args),
        strips=None if args.strips == OFF else parse_bytes(args.strips, "--strips") or STRIP,
        winograd=args.winograd,
        hivm=getattr(args, "hivm_forms", False),
        memory_limit=parse_bytes(args.memory_limit, "--memory-limit"),
    )


def stages_of(args: argparse.Namespace) -> Sequence[Stage]:
    """The passes to run: those of --stages, with what the options ask of them."""
    options = options_of(args)
    return options.stages() if args.stages is None else options.stages(find_stages(args.stages))
