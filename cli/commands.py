"""The commands of `tilewright`. Each takes the parsed arguments and gives the exit code."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..passes.errors import PassError
from ..passes.pins import parse_pins
from ..program import Options, Program, compile, verify
from .calibrate import calibrate
from .common import CliError, write_whole
from .source import Source, example_inputs, find_source, random_inputs, user_code

if TYPE_CHECKING:
    from ..program import Verification


def _build(args: argparse.Namespace) -> tuple[Source, Program, list[Any]]:
    """The compiled source and its inputs."""
    source = find_source(args.source)
    inputs = example_inputs(source, args.shapes, args.inputs)
    try:
        options = Options(memory=getattr(args, "memory", "typed"), schedule=parse_pins(args.schedule))
    except PassError as error:
        raise CliError(str(error)) from None
    with user_code(source.path if source.fn is not None else None):
        program = compile(source.compiled, *(inputs or ()), target=args.target, options=options)
    if source.fn is None:
        inputs = list(random_inputs(program.inputs)) if inputs is None else inputs
        program.flatten(inputs)
    assert inputs is not None
    return source, program, inputs


def _verify(
    args: argparse.Namespace, source: Source, program: Program, inputs: Sequence[Any], levels: Sequence[str]
) -> Verification:
    with user_code(source.path if source.fn is not None else None):
        return verify(source.compiled, *inputs, target=args.target, levels=levels, program=program)


def run(args: argparse.Namespace) -> int:
    """Executes the npu level and sums up each output."""
    source, program, inputs = _build(args)
    outputs = _describe_outputs(program(*inputs))
    check = _verify(args, source, program, inputs, ("npu typed", "npu bytes")) if args.check else None
    if args.json:
        result: dict[str, Any] = {"source": args.source, "target": program.target, "memory": args.memory}
        result["outputs"] = outputs
        if check is not None:
            result["check"] = _verification(check)
        _print_json(result)
    else:
        rows = [
            [o["name"], o["type"], *(_number(o[k]) for k in ("min", "max", "mean")), str(o["nan"])]
            for o in outputs
        ]
        title = f"{source.name} for {program.target}, {args.memory} memory"
        _table(title, ["output", "type", "min", "max", "mean", "nan"], rows)
        if check is not None:
            _print_verification(check)
    return 0 if check is None or check.ok else 1


def report(args: argparse.Namespace) -> int:
    """Prints where the time goes."""
    _, program, _ = _build(args)
    found = program.report()
    if args.json:
        print(found.to_json())
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(found)
    else:
        print(found.table(), end="")
    return 0


def verify_levels(args: argparse.Namespace) -> int:
    """Compares every level with the reference."""
    source, program, inputs = _build(args)
    found = _verify(args, source, program, inputs, ("graph", "tile", "npu typed", "npu bytes"))
    if args.json:
        _print_json({"source": args.source, "target": program.target, **_verification(found)})
    else:
        _print_verification(found)
    return 0 if found.ok else 1


def trace(args: argparse.Namespace) -> int:
    """Writes the timeline."""
    _, program, _ = _build(args)
    try:
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
    _, program, _ = _build(args)
    text = program.ir(args.emit).rstrip() + "\n"
    if args.output is not None:
        write_whole(args.output, text)
    if args.json:
        result = {"source": args.source, "target": program.target, "level": args.emit}
        _print_json(result | ({"ir": text} if args.output is None else {"output": args.output}))
    elif args.output is None:
        print(text, end="")
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run,
    "report": report,
    "verify": verify_levels,
    "trace": trace,
    "compile": emit,
    "calibrate": calibrate,
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
                "min": None if empty else _finite(known.min()),
                "max": None if empty else _finite(known.max()),
                "mean": None if empty else _finite(known.mean()),
                "nan": int(real.size - known.size),
            }
        )
    return found


def _verification(found: Verification) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "tolerance": found.tolerance,
        "bitwise": found.bitwise,
        "levels": {level: _finite(error) for level, error in found.levels.items()},
    }


def _print_verification(found: Verification) -> None:
    rows = [
        [level, f"{error:.3g}", "ok" if error <= found.tolerance else "DIFFERS"]
        for level, error in found.levels.items()
    ]
    _table(
        f"largest error relative to the largest output (tolerance {found.tolerance:g})",
        ["level", "error", ""],
        rows,
    )
    if {"npu typed", "npu bytes"} <= found.levels.keys():
        print(f"both memory modes {'agree bit for bit' if found.bitwise else 'DIFFER'}")


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return float(value) if math.isfinite(value) else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2))


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A rich table on a terminal, plain columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*header, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    print(title)
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        print("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
