"""`tilewright checklist`: the checklist of a tuning guide, filled from reports of a program and its variants."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any

from ...support.precisions import ORIGIN
from ...support.winograd import OFF
from ..common import CliError, print_json, tell, working

GIVEN: dict[str, Any] = {
    "target": None,
    "set": None,
    "shapes": None,
    "scale": 1.0,
    "where": None,
    "at": None,
    "inputs": None,
    "schedule": "",
    "host": "allow",
    "donate": "",
    "quant_config": None,
    "weights": None,
    "weights_as_arguments": False,
    "launch": None,
    "triton": None,
    "triton_python": None,
    "precision": ORIGIN,
    "without": [],
    "winograd": OFF,
    "strips": None,
    "memory_limit": None,
    "plans": None,
    "cache": None,
}
"""What says which program is meant, and what each is where it is not given."""


def checklist(args: argparse.Namespace) -> int:
    """Prints the items, ticked or with what to do and what that gave."""
    from ...tuning.checklist import checklist as fill
    from ..build import closed, open_of, options_of, parse_at, user_of
    from ..inputs import example_inputs
    from ..source import source_of, user_code

    only = tuple(name for name in (part.strip() for part in (args.only or "").split(",")) if name)
    if args.only is not None and not only:
        raise CliError("--only: name headings, as in --only precision,memory")
    command = given_again(args)
    source = source_of(args)
    inputs = example_inputs(source, args.shapes, args.inputs, False, args.where, args.scale)
    with working(f"checking {source.name}") as say, user_code(*user_of(source)):
        open_ = open_of(args, source, inputs)
        if open_ is None and args.at is not None:
            raise closed(source, f"--at {args.at}")
        found = fill(
            source.compiled,
            *(inputs or ()),
            target=args.target,
            options=options_of(args),
            only=only,
            at=None if open_ is None else parse_at(args.at, open_),
            command=command,
            budget=args.budget,
            evaluations=args.evaluations,
            progress=lambda what: say(f"checking {source.name}: {what}"),
        )
    if args.json:
        print_json({**found.to_dict(), "source": args.source})
    else:
        tell(str(found))
    return 0


def given_again(args: argparse.Namespace) -> str:
    """How another command is given the same program: the source, and all that says what it is compiled to."""
    words = [args.source]
    for name, usual in GIVEN.items():
        value = getattr(args, name)
        if value == usual or (name == "target" and args.set):
            continue
        switch = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list) else [value]:
            text = str(each)
            words += [switch] if each is True else [f"{switch}={text}"] if text.startswith("-") else [switch, text]
    return shlex.join(words)


def add_parser(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Adds the command to the grammar."""
    parser = command("checklist", "the checklist of a tuning guide, filled from reports; what it advises was tried")
    parser.add_argument(
        "--only",
        metavar="HEADINGS",
        help="of preparation, precision, fusion, memory, streams and monitoring these: precision,memory",
    )
    parser.add_argument(
        "--budget", default="20s", metavar="T", help="how long the search for plans takes at most (default 20s)"
    )
    parser.add_argument(
        "--evaluations",
        type=int,
        default=1000,
        metavar="N",
        help="prices and bounds of each search, at most (default 1000)",
    )
