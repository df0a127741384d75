"""`tilewright debug`: a program one instruction at a time, at a prompt or by a script."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..common import STDIN, CliError, print_json, working

if TYPE_CHECKING:
    from ...api.program import Program

AddCommand = Callable[[str, str], argparse.ArgumentParser]


def add_parser(command: AddCommand) -> None:
    """Adds the command to the grammar."""
    parser = command("debug", "run a program one instruction at a time: breakpoints, values, who wrote them")
    parser.add_argument(
        "-c",
        "--commands",
        action="append",
        metavar="COMMANDS",
        help="do these and leave, as in -c 'break exp; run; print %%5' (default: a prompt, or what a pipe brings)",
    )


def debug(args: argparse.Namespace) -> int:
    """Debugs the npu level; 1 where a script ends at a fault of the program."""
    from ...debugger import DebugError
    from ...debugger.prompt import PROMPT, interact, is_interactive, script
    from ..build import build, user_of
    from ..source import user_code

    if args.commands is None and args.source == STDIN:
        raise CliError("the program is read from stdin: give commands with -c")
    source, program, inputs = build(args, values=True, compiler=_unchecked)
    with working(f"preparing {source.name}"):
        debugger = program.debug(*inputs)
    if args.commands is None and not args.json and is_interactive():
        interact(debugger)
        return 0
    out = sys.stdout  # what the user's code prints goes to stderr
    said: list[dict[str, str]] = []
    try:
        with user_code(*user_of(source)):
            for command, text in script(debugger, args.commands if args.commands is not None else sys.stdin):
                said.append({"command": command, "output": text})
                if not args.json:
                    print(f"{PROMPT}{command}", *([text] if text else []), sep="\n", file=out)
    except DebugError as error:
        raise CliError(str(error)) from None
    if args.json:
        fault = None if debugger.fault is None else str(debugger.fault)
        result: dict[str, Any] = {"source": args.source, "target": program.target}
        print_json(result | {"commands": said, "fault": fault})
    return 0 if debugger.fault is None else 1


def _unchecked(*inputs: Any, options: Any, **how: Any) -> Program:
    """A program that npu-check does not refuse: a faulty one is what a debugger is for."""
    from ...api.compiling import compile

    return compile(*inputs, options=replace(options, check=False), **how)
