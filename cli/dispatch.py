"""Runs a command of `tilewright`: checks its files, calls it, and says in one sentence what went wrong."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..machine import Machine, MachineError
from ..support.plugins import PluginError
from .common import (
    STDIN,
    CliError,
    check_output,
    check_plain,
    complain,
    os_message,
    quiet_pipe,
    say,
    short_warnings,
)
from .fmt import fmt
from .grammar import PROGRAM, make_parser
from .interrupt import interrupted

_READ = ("source", "inputs", "against", "stages", "target", "records", "table", "quant_config", "data")
"""Arguments that name files, or what is in a file: `model.py:fn`."""


def dispatch(given: list[str]) -> int:
    """Runs the command line `given`; 0, or 1 after an error or a failed check."""
    try:
        code = 0
        with quiet_pipe(), short_warnings(PROGRAM):
            code = _run(given)
        return code
    except Exception as error:
        if "--debug" in given or interrupted():
            raise
        message = _message(error)
        if message.startswith("error: "):  # diagnostics of a .tw program, with lines of the source
            say(message)
        else:
            complain(PROGRAM, message)
        return 1


def _run(given: list[str]) -> int:
    parser = make_parser()
    args = parser.parse_args(given)
    if args.version:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(PROGRAM, version(PROGRAM))
        except PackageNotFoundError:
            print(PROGRAM, "(not installed)")
        return 0
    if args.command is None:
        parser.print_help()
        return 0
    if args.command == "fmt":
        return fmt(args)
    read = [v for v in (getattr(args, name, None) for name in _READ) if v]
    files = {r for v in read for r in (v, v.rpartition(":")[0]) if r}
    for path in files - {STDIN}:
        check_plain(path)
    outputs = _outputs(args)
    for path in outputs:
        check_output(path, files)
    _check_stdout(args, outputs)
    if getattr(args, "target", None) is not None:
        Machine.load(args.target)
    # XLA greets on stderr unless it is told not to before JAX is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    from .commands import COMMANDS

    return COMMANDS[args.command](args)


def _check_stdout(args: argparse.Namespace, outputs: list[str]) -> None:
    """Raises CliError where stdout cannot take the output."""
    if STDIN not in outputs:
        return
    if len(outputs) > 1:
        raise CliError(f"{args.command} writes more than one file: give the name of one, and not -")
    if args.json:
        raise CliError("-o - and --json would both write to stdout; give the name of a file")


def _outputs(args: argparse.Namespace) -> list[str]:
    """The files that a command is going to write."""
    if args.command == "verify" and not args.bisect:
        return []
    found = [getattr(args, option, None) for option in ("output", "page", "plot")]
    if args.command in ("verify", "reduce"):  # inputs go beside the program
        named = [Path(path) for path in found if path and Path(path).name]
        found += [str(path.with_suffix(".npz")) for path in named]
        # the program right before the pass that is found, whichever it is
        found += [str(old) for path in named for old in path.parent.glob(f"{path.stem}.before-*.mlir")]
    return [path for path in found if path is not None]


def _message(error: Exception) -> str:
    if isinstance(error, CliError | MachineError | PluginError):
        return str(error)
    if isinstance(error, OSError):
        return os_message(error)
    # what only the compiler itself can have raised, so that it is loaded
    from ..api.program import CompileError
    from ..backends.simulator.errors import SimulationError

    if isinstance(error, CompileError | SimulationError):
        return str(error)
    said = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"not enough memory{': ' + said if said else ''}"
    return f"internal error, {type(error).__name__}: {said[:200]} (--debug shows where)"
