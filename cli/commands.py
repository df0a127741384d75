"""The commands of `tilewright`. Each takes the parsed arguments and gives the exit code."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..api.program import Options, Program, compile, lower, verify
from ..api.sources import input_types
from ..passes.errors import PassError
from ..passes.pins import parse_pins
from ..passes.pipeline import pinned
from ..support.progress import showing
from . import inspect
from .calibrate import calibrate
from .common import CliError, table, write_whole
from .output import (
    finite,
    print_culprit,
    print_flags,
    print_verification,
    verification_dict,
    write_program,
    write_reproducer,
)
from .source import (
    Source,
    check_takes,
    example_inputs,
    find_function,
    find_source,
    find_stages,
    random_inputs,
    user_code,
)

if TYPE_CHECKING:
    from ..api.program import Verification
    from ..passes.pipeline import Stage


def build(args: argparse.Namespace) -> tuple[Source, Program, list[Any]]:
    """The compiled source and its inputs."""
    source = find_source(args.source)
    inputs = example_inputs(source, args.shapes, args.inputs)
    options = _options(args)
    with showing(f"compiling {source.name}"), user_code(*_user(source)):
        program = compile(source.compiled, *(inputs or ()), target=args.target, options=options)
    if source.fn is None:
        inputs = list(random_inputs(program.inputs)) if inputs is None else inputs
        program.flatten(inputs)
    assert inputs is not None
    return source, program, inputs


def _user(source: Source) -> tuple[Path | None, Callable[..., Any] | None]:
    """What `user_code` needs to know of a source."""
    return (None, None) if source.fn is None else (source.path, source.fn)


def _options(args: argparse.Namespace) -> Options:
    try:
        schedule = parse_pins(args.schedule)
    except PassError as error:
        raise CliError(str(error)) from None
    donate = tuple(
        int(d) if re.fullmatch(r"-?\d+", d) else d for d in re.split(r"\s*,\s*", args.donate.strip()) if d
    )
    return Options(getattr(args, "memory", "typed"), schedule=schedule, host=args.host, donate=donate)


def _stages(args: argparse.Namespace) -> Sequence[Stage]:
    """The passes to run: those of --stages, with what the options ask of them."""
    if args.stages is None:
        return _options(args).stages()
    stages = find_stages(args.stages)
    return pinned(stages, args.schedule, args.host) if args.schedule or args.host != "allow" else stages


def _verify(args: argparse.Namespace, source: Source, inputs: Sequence[Any], **options: Any) -> Verification:
    twin = None if args.against is None else find_function(args.against)
    user = twin or source
    if twin is not None:
        check_takes(twin, inputs)
        options["against"] = twin.fn
    with showing(f"verifying {source.name}") as say, user_code(*_user(user)):
        options["progress"] = lambda what, done, steps: say(f"verifying {source.name}: {what}", done, steps)
        return verify(source.compiled, *inputs, target=args.target, **options)


def run(args: argparse.Namespace) -> int:
    """Executes the npu level and sums up each output."""
    source, program, inputs = build(args)
    checked = args.check or args.against is not None
    # first, since the program deletes arrays that are donated to it
    check = _verify(args, source, inputs, program=program, quick=True) if checked else None
    with showing(f"running {source.name}"), user_code(*_user(source)):
        outputs = _describe_outputs(program(*inputs))
    if args.json:
        result: dict[str, Any] = {"source": args.source, "target": program.target, "memory": args.memory}
        result["outputs"] = outputs
        if check is not None:
            result["check"] = verification_dict(check)
        _print_json(result)
    else:
        rows = [
            [o["name"], o["type"], *(_number(o[k]) for k in ("min", "max", "mean")), str(o["nan"])]
            for o in outputs
        ]
        title = f"{source.name} for {program.target}, {args.memory} memory"
        table(title, ["output", "type", "min", "max", "mean", "nan"], rows)
        if check is not None:
            print_verification(check)
    return 0 if check is None or check.ok else 1


def report(args: argparse.Namespace) -> int:
    """Prints where the time goes."""
    source, program, _ = build(args)
    with showing(f"simulating {source.name}"):
        found = program.report()
    if args.json:
        print(found.to_json())
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(found)
    else:
        print(found.table(200, borders=False), end="")
    return 0


def verify_passes(args: argparse.Namespace) -> int:
    """Compares the values after every pass with the reference; with --bisect finds the cause."""
    source = find_source(args.source)
    inputs = example_inputs(source, args.shapes, args.inputs)
    if inputs is None:
        inputs = list(random_inputs(input_types(source.compiled)))
    options: dict[str, Any] = {"bisect": args.bisect, "options": _options(args)}
    if args.stages is not None:
        options["stages"] = _stages(args)
    found = _verify(args, source, inputs, **options)
    files = None
    if found.culprit is not None and found.culprit.reproducer is not None:
        files = write_reproducer(args, found.culprit.reproducer, found.culprit.stage)
    flags = None
    if args.flags:
        with showing(f"looking for flags that {source.name} does not need"):
            program = compile(source.compiled, *inputs, target=args.target, options=options["options"])
            flags = program.removable_flags()
    if args.json:
        result = {"source": args.source, "target": args.target, **verification_dict(found)}
        if flags is not None:
            result["removable_flags"] = [asdict(f) for f in flags]
        if files is not None:
            result["culprit"]["reproducer"] = files
        _print_json(result)
    else:
        print_verification(found)
        print_culprit(found, files)
        if flags is not None:
            print_flags(flags)
    return 0 if found.ok else 1


def trace(args: argparse.Namespace) -> int:
    """Writes the timeline."""
    source, program, _ = build(args)
    try:
        with showing(f"simulating {source.name}"):
            program.trace(args.output)
    except OSError as error:
        raise CliError(f"{args.output}: {error.strerror}") from error
    if args.json:
        _print_json({"source": args.source, "target": program.target, "output": args.output})
    else:
        print(f"wrote {args.output}: open it in ui.perfetto.dev")
    return 0


def emit(args: argparse.Namespace) -> int:
    """Prints or writes the program at a level."""
    _, program, _ = build(args)
    with showing(f"printing the {args.emit} level"):
        text = (program.tw() if args.emit == "tw" else program.ir(args.emit)).rstrip() + "\n"
    if args.output is not None:
        write_whole(args.output, text)
    if args.json:
        result = {"source": args.source, "target": program.target, "level": args.emit}
        _print_json(result | ({"ir": text} if args.output is None else {"output": args.output}))
    elif args.output is None:
        print(text, end="")
    return 0


def reduce_program(args: argparse.Namespace) -> int:
    """Writes the smallest program found that still shows what --check or --command asks for."""
    from ..verification.bisect import count_ops
    from ..verification.checks import parse_check
    from ..verification.reduce import TESTS, Reducer

    source = find_source(args.source)
    inputs = example_inputs(source, args.shapes, args.inputs)
    if inputs is None:
        inputs = list(random_inputs(input_types(source.compiled)))
    if args.tests is not None and args.tests < 1:
        raise CliError("--tests must be at least 1")
    stages = _stages(args)
    try:
        check = parse_check(args.check, args.shell, args.target, stages)
    except ValueError as error:
        raise CliError(str(error)) from None
    with user_code(*_user(source)):
        module, flat = lower(source.compiled, *inputs, options=_options(args))
    before = count_ops(module)
    try:
        with showing(f"reducing {source.name}") as say:
            reducer = Reducer(module, flat, check, args.tests or TESTS)
            reducer.progress = lambda what, done, steps: say(f"reducing {source.name}: {what}", done, steps)
            found = reducer.run()
    except ValueError as error:
        raise CliError(f"{args.source}: {error}") from None
    files = write_program(args, found.module, found.inputs)
    result = {
        "source": args.source,
        "target": args.target,
        "ops_before": before,
        "tests": found.tests,
        **files,
    }
    if args.json:
        _print_json(result)
    else:
        print(f"{before} ops reduced to {files['ops']} in {found.tests} tests")
        print(f"wrote {files['file']} and {files['inputs']}")
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run,
    "reduce": reduce_program,
    "report": report,
    "verify": verify_passes,
    "trace": trace,
    "compile": emit,
    "calibrate": calibrate,
    "explain": inspect.explain,
    "machines": inspect.machines,
    "ops": inspect.ops,
    "completion": inspect.completion,
}


# -- output --------------------------------------------------------------------------------------------------


def _describe_outputs(outputs: Any) -> list[dict[str, Any]]:
    import jax
    import numpy as np

    from ..dialects.dtypes import name_of_numpy

    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(outputs)[0]:
        array = np.asarray(leaf)
        dtype = name_of_numpy(array.dtype)
        values = array.astype(np.complex128 if dtype[0] == "c" else np.float64)
        real = np.abs(values) if dtype[0] == "c" else values
        known = real[~np.isnan(real)]
        empty = known.size == 0
        found.append(
            {
                "name": jax.tree_util.keystr(path) or "out",
                "type": f"{dtype}[{','.join(map(str, array.shape))}]",
                "shape": list(array.shape),
                "dtype": dtype,
                "min": None if empty else finite(known.min()),
                "max": None if empty else finite(known.max()),
                "mean": None if empty else finite(known.mean()),
                "nan": int(real.size - known.size),
            }
        )
    return found


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2))
