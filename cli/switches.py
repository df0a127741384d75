"""What the compiler does unless it is left out, on the command line: `--without NAME`, and the switches of before."""

from __future__ import annotations

import argparse

from ..passes.alternatives import FORMER, OURS


def add_switches(group: argparse._ArgumentGroup) -> None:
    """Adds `--without`, and for one version more `--no-FORMER` for each alternative that had a switch of its own."""
    group.add_argument(
        "--without",
        metavar="NAMES",
        action="append",
        default=[],
        help=f"leave alternatives out: {', '.join(each.name for each in OURS)} "
        "(tilewright-opt --list-alternatives says what each does)",
    )
    for former in FORMER:
        group.add_argument(f"--no-{former.replace('_', '-')}", action="store_true", help=argparse.SUPPRESS)


def left_out(args: argparse.Namespace) -> list[str]:
    """The names of the alternatives that a command line leaves out."""
    named = [name.strip() for text in args.without for name in text.split(",") if name.strip()]
    before = [name for former, name in FORMER.items() if name and getattr(args, f"no_{former}", False)]
    return list(dict.fromkeys([*named, *before]))
