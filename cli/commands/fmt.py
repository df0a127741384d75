"""`tilewright fmt`: .tw files in their canonical form."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.files import read_plain
from ..common import (
    STDIN,
    CliError,
    OneLineParser,
    check_plain,
    complain,
    os_message,
    print_json,
    read_stdin,
    say,
    tell,
)
from ..help import texts
from ..outputs import write_output

if TYPE_CHECKING:
    from ...frontends.text import Diagnostic


@dataclass
class _Formatted:
    """What became of a file. text: its canonical form; None where `problem` or `diagnostics` say why there is none."""

    name: str
    text: str | None = None
    changed: bool = False
    problem: str = ""
    diagnostics: Sequence[Diagnostic] = field(default=())
    shown: str = ""


def add_parser(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """The command's grammar."""
    text = "rewrite .tw files in their canonical form"
    fmt = commands.add_parser("fmt", help=text, description=text, **texts("fmt"))
    fmt.add_argument("files", nargs="+", metavar="FILE", help=".tw files; - reads stdin and writes stdout")
    fmt.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 where a file would change"
    )
    fmt.add_argument("--json", action="store_true", help="print one JSON object")
    fmt.add_argument("--debug", action="store_true", help="show the traceback of an error")


def fmt(args: argparse.Namespace) -> int:
    """Formats each file; 1 where --check finds one that is not canonical, or where one cannot be formatted."""
    found = [_format(name) for name in args.files]
    for f in found:
        if f.text is not None and f.changed and not args.check and f.name != STDIN:
            try:
                write_output(f.name, f.text)
            except CliError as error:
                f.problem, f.text = str(error), None
    if args.json:
        result = {"check": args.check, "files": [_to_dict(f, args.check) for f in found]}
        print_json(result)
    for f in found:
        if f.problem:
            complain("tilewright", f.problem)
        elif f.text is None:
            say(f.shown)
        elif args.json:
            continue
        elif f.name == STDIN and not args.check:
            print(f.text, end="")
        elif f.changed:
            tell(f"{f.name}: {'not in canonical form' if args.check else 'formatted'}")
    return int(any(f.text is None or (args.check and f.changed) for f in found))


def _format(name: str) -> _Formatted:
    from ...frontends.text import TwError, decoded
    from ...frontends.text.format import format_text

    found = _Formatted(name)
    if name != STDIN and Path(name).suffix != ".tw":
        found.problem = f"{name}: not a .tw file"
        return found
    try:
        if name != STDIN:
            check_plain(name)
        content = read_stdin() if name == STDIN else read_plain(name)
        text = decoded(content)
    except CliError as error:
        found.problem = str(error)
        return found
    except OSError as error:
        found.problem = os_message(error)
        return found
    except ValueError as error:
        found.problem = f"{'stdin' if name == STDIN else name}: {error}"
        return found
    try:
        found.text = format_text("stdin" if name == STDIN else name, text)
    except TwError as error:
        found.diagnostics, found.shown = error.diagnostics, str(error)
    else:
        found.changed = found.text.encode() != content
    return found


def _to_dict(found: _Formatted, check: bool) -> dict[str, Any]:
    """Plain values for JSON; the text is there where it is written nowhere else."""
    result: dict[str, Any] = {
        "file": found.name,
        "changed": found.changed,
        "problem": found.problem or None,
        "diagnostics": [d.to_dict() for d in found.diagnostics],
    }
    if found.name == STDIN and not check and found.text is not None:
        result["text"] = found.text
    return result
