"""`tilewright completion`: what a shell completes, read off the grammar of the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from ..grammar import make_parser

FILES = frozenset(
    {"SOURCE", "FILE", "NPZ", "RECORDS.json", "FILE.csv", "FILE.md", "FILE.png", "FILE.py:NAME", "FILE.py:FN"}
)
"""Arguments that the shell completes with names of files."""


def completion(args: argparse.Namespace) -> int:
    """Prints the completion script of a shell."""
    import shtab

    parser = make_parser()
    for action in _actions(parser):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue]  # where shtab looks
    sys.stdout.write(shtab.complete(parser, shell=args.shell) + "\n")
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
