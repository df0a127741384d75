"""`tilewright diff`: what differs between two model files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..common import OneLineParser, print_json, table, tell, working
from ..help import texts
from ..secret import add_secret

if TYPE_CHECKING:
    from ...api.files.comparing import FileDifference

MOST_SHOWN = 60
"""Characters of what a file says that are shown."""


def diff(args: argparse.Namespace) -> int:
    """Prints what differs; 0 where nothing does, else 1."""
    from ...api.files.comparing import compare_files

    with working(f"comparing {args.first} and {args.second}"):
        found = compare_files(args.first, args.second, args.all)
    if args.json:
        print_json({"schema": "tilewright.diff/1", "first": args.first, "second": args.second, **found.to_json()})
        return 0 if found.same else 1
    if found.rows:
        header = ["part", "of", "", args.first, args.second, "by"]
        table("parts of two model files", header, [_cells(row) for row in found.rows])
    for where, counts in found.kernels.items():
        tell(f"kernels of {where}: {', '.join(f'{n} {state}' for state, n in counts.items() if n) or 'none'}")
    if found.same:
        tell(f"{args.first} and {args.second} have the same programs and weights")
    return 0 if found.same else 1


def _cells(row: FileDifference) -> list[str]:
    shown = ["" if each is None else _shown(row.part, each) for each in (row.before, row.after)]
    if row.distance is not None:
        by = str(row.distance)
    elif isinstance(row.before, float) and isinstance(row.after, float) and row.before and row.state != "same":
        by = f"{100 * (row.after / row.before - 1):+.3g} %"
    else:
        by = ""
    return [row.part, row.name, row.state, *shown, by]


def _shown(part: str, value: Any) -> str:
    """What a file says, in a few words: of a SHA-256 what it begins with."""
    if part in ("kernel", "host program", "graph level", "source lines", "signed by", "version", "plans"):
        return str(value)[:12]
    if part == "weights":
        kind, _, digest = str(value).rpartition(" ")
        return f"{kind} {digest[:12]}"
    said = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
    return said if len(said) <= MOST_SHOWN else f"{said[: MOST_SHOWN - 3]}..."


def add_parser(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """Adds the command to the grammar."""
    help = "say what differs between two model files; exit code 0 where nothing does, 1 where something does, else 2"
    made = commands.add_parser("diff", help=help, description=help, **texts("diff"))
    made.add_argument("first", metavar="A.twm")
    made.add_argument("second", metavar="B.twm")
    add_secret(made)
    made.add_argument("--all", action="store_true", help="say what is the same, too")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--debug", action="store_true", help="show the traceback of an error")
