"""Runs a command of `tilewright`: checks its files, calls it, and says in one sentence what went wrong."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..api.files.names import SUFFIX
from ..machine import Machine, MachineError
from ..support.plugins import PluginError
from ..support.progress import silent
from .commands.fmt import fmt
from .common import (
    STDIN,
    CliError,
    check_plain,
    complain,
    os_message,
    quiet_pipe,
    say,
    short_warnings,
    unreadable,
)
from .configured import settle_config
from .grammar import PROGRAM, make_parser
from .interrupt import interrupted
from .outputs import outputs_of
from .secret import READ as SECRETS
from .secret import opened_as_said
from .targets import settle_target, several

_INPUTS = ("source", "inputs", "target", "records", "table", "quant_config", "config", "data", "profile", "arrivals")
_READ = (*_INPUTS, "against", "stages", "quality", "first", "second", "spec", *SECRETS, "values")
"""Arguments that name files, or what is in a file: `model.py:fn`."""


_DIFFERS = ("diff",)
"""Commands whose exit code 1 says that files differ: an error is 2 there, as it is of diff(1)."""

_EXHAUSTED = "RESOURCE_EXHAUSTED: "
"""Begins what XLA says where memory is not enough, by errors of several classes."""


def dispatch(given: list[str]) -> int:
    """Runs the command line `given`; 0, 1 after an error or a failed check, or 3 after one that judged nothing."""
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
        command = next((word for word in given if not word.startswith("-")), "")
        return 2 if command in _DIFFERS else error.code if isinstance(error, CliError) else 1


def _run(given: list[str]) -> int:
    parser = make_parser()
    args = parser.parse_args(given)
    if args.version:
        from .. import __version__

        print(PROGRAM, __version__)
        return 0
    if args.command is None:
        parser.print_help()
        return 0
    if args.command == "fmt":
        return fmt(args)
    read = [v for v in (getattr(args, name, None) for name in _READ) if v]
    files = {r for v in read for r in (v, v.rpartition(":")[0]) if r}
    files |= {str(Path(r).with_suffix(".npz")) for r in files if r.endswith(".toml")}  # arrays of a configuration
    for path in files - {STDIN}:
        check_plain(path)
    outputs = outputs_of(args, files)
    outputs.check()
    settle_config(args)
    settle_target(args)
    if several(args) and not _takes_several(args):
        raise CliError(
            f"--target {args.target}: several chips are for report, without --sweep and --pool, and for compile -o "
            f"model{SUFFIX}"
        )
    if getattr(args, "target", None) is not None and not several(args):
        Machine.load(args.target)
    # XLA greets on stderr unless it is told not to before JAX is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ.pop("JAX_DISABLE_JIT", None)  # JAX lowers nothing with it
    from .commands.programs import COMMANDS

    with outputs.writing(), silent(getattr(args, "quiet", False)), opened_as_said(args):
        return COMMANDS[args.command](args)


def _takes_several(args: argparse.Namespace) -> bool:
    """Whether a command is for several chips."""
    if args.command == "compile":
        return (args.output or "").endswith(SUFFIX)
    return args.command == "report" and not (args.sweep or args.pool)


def _message(error: Exception) -> str:
    if isinstance(error, CliError | MachineError | PluginError):
        return str(error)
    if isinstance(error, OSError):
        return os_message(error)
    # what only the compiler itself can have raised, so that it is loaded
    from ..api.program import CompileError
    from ..backends.simulator.errors import SimulationError
    from ..fleet.policy import FleetError
    from ..knowledge.base import KnowledgeError
    from ..modelfile.archive import ModelFileError

    if isinstance(error, CompileError | FleetError | SimulationError | KnowledgeError | ModelFileError):
        return str(error)
    if (said := unreadable(error)) is not None:
        return said
    if isinstance(error, RecursionError):
        return "the program, or a file that it names, is nested too deeply"
    said = " ".join(str(error).split())
    _, exhausted, amount = said.partition(_EXHAUSTED)
    if isinstance(error, MemoryError) or exhausted:
        amount = amount if exhausted else said
        return f"not enough memory{': ' + amount if amount else ''}"
    return f"internal error, {type(error).__name__}: {said[:200]} (--debug shows where)"
