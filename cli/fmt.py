"""`tilewright fmt`: .tw files in their canonical form."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .common import CliError, OneLineParser, os_message, write_whole
from .help import texts


def add_parser(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """The command's grammar."""
    text = "rewrite .tw files in their canonical form"
    fmt = commands.add_parser("fmt", help=text, description=text, **texts("fmt"))
    fmt.add_argument("files", nargs="+", metavar="FILE", help=".tw files; - reads stdin and writes stdout")
    fmt.add_argument("--check", action="store_true", help="change nothing; exit code 1 where a file would change")
    fmt.add_argument("--debug", action="store_true", help="show the traceback of an error")


def fmt(args: argparse.Namespace) -> int:
    """Formats each file; 1 where --check finds one that is not canonical, or where one has errors."""
    from ..frontends.text import TwError
    from ..frontends.text.format import format_text

    changed, failed = [], False
    for name in args.files:
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_bytes().decode()
        except OSError as error:
            raise CliError(os_message(error)) from None
        except UnicodeDecodeError:
            raise CliError(f"{name}: not a text file in UTF-8") from None
        try:
            made = format_text("stdin" if name == "-" else name, text)
        except TwError as error:
            print(error, file=sys.stderr)
            failed = True
            continue
        if name == "-" and not args.check:
            print(made, end="")
        elif made != text:
            changed.append(name)
            if not args.check:
                write_whole(name, made)
    for name in changed:
        print(f"{name}: {'not in canonical form' if args.check else 'formatted'}")
    return 1 if failed or (args.check and changed) else 0
