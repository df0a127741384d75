"""`tilewright pack`: offsets for the buffers of a table."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.files import read_plain
from ...support.sentences import counted
from ..common import STDIN, CliError, OneLineParser, parse_bytes, print_json, read_stdin, say, working
from ..help import texts
from ..outputs import write_output

if TYPE_CHECKING:
    from ...packing import Buffer, PackingPlan, PackingProblem
    from ...packing.cp_sat import SecondOpinion

SECONDS = 30.0
"""Processor time that the search has where nobody says how much."""

SHOWN = 5
"""Buffers that a refusal names."""


def add_parser(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """The command's grammar."""
    text = "offsets for buffers with lifetimes, so that no two share a byte at one time"
    pack = commands.add_parser("pack", help=text, description=text, **texts("pack"))
    pack.add_argument(
        "table",
        metavar="FILE.csv",
        help="columns id, lower, upper, size, as MiniMalloc reads them; - is stdin",
    )
    pack.add_argument(
        "--capacity",
        metavar="N",
        help="bytes that the offsets must fit into: 4096, 512K, 64M, 2G; without it, as few as possible",
    )
    pack.add_argument("--align", type=int, default=1, metavar="N", help="offsets are multiples of N bytes")
    pack.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help="processor time to search (default 30)"
    )
    pack.add_argument(
        "--second-opinion",
        action="store_true",
        help="ask OR-tools' CP-SAT, too, for as long; the lower of the two plans is written",
    )
    pack.add_argument(
        "-o", "--output", metavar="FILE.csv", help="the rows with a column offset (default stdout)"
    )
    pack.add_argument("--json", action="store_true", help="print one JSON object")
    pack.add_argument("--debug", action="store_true", help="show the traceback of an error")


def pack(args: argparse.Namespace) -> int:
    """Writes the rows of a table with offsets, and says how low they end."""
    from ...packing import PackingError

    if not (math.isfinite(args.seconds) and args.seconds > 0):
        raise CliError("--seconds must be more than 0")
    if args.align < 1:
        raise CliError("--align must be at least 1")
    capacity = parse_bytes(args.capacity, "--capacity")
    try:
        return _packed(args, capacity)
    except PackingError as error:
        raise CliError(f"{args.table}: {error}") from None


def _packed(args: argparse.Namespace, capacity: int | None) -> int:
    from ...packing.cp_sat import second_opinion
    from ...packing.tables import parse_table

    table = parse_table(_text(args.table))
    if args.align > 1:
        table = table.with_alignment(args.align)
    problem = table.problem
    began = time.process_time()
    with working(f"placing {counted(len(problem.buffers), 'buffer', 'buffers')}"):
        found = _found(problem, capacity, args.seconds)
    seconds = time.process_time() - began
    other = None
    if args.second_opinion:
        with working("asking CP-SAT"):
            other = second_opinion(problem, capacity, args.seconds)
    better = other is not None and other.height is not None and other.height < found.height
    offsets = other.offsets if better and other is not None and other.offsets is not None else found.offsets
    problem.check(offsets)
    if args.output is not None:
        write_output(args.output, table.text(offsets))
    if args.json:
        result = _to_dict(args, problem, found, capacity, seconds, other)
        names = [b.name for b in problem.buffers]
        print_json({**result, "offsets": dict(zip(names, offsets.tolist(), strict=True))})
        return 0
    if args.output is None:
        print(table.text(offsets), end="")
    say(_summary(problem, found, seconds))
    if other is not None:
        end = "no plan" if other.height is None else f"height {other.height}"
        say(f"CP-SAT: {end}, {other.status}; no height below {other.bound}")
    return 0


def _text(path: str) -> str:
    """What is in a table. Raises CliError for what is no text, and for a file of another kind."""
    if path == STDIN:
        data = read_stdin()
    elif Path(path.rpartition(":")[0] or path).suffix.lower() != ".csv":
        raise CliError(f"{path}: pack places the buffers of a .csv file, and takes no program")
    else:
        data = read_plain(path)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CliError(f"{path}: no CSV: it is not UTF-8") from None


def _found(problem: PackingProblem, capacity: int | None, seconds: float) -> PackingPlan:
    """Offsets within a capacity, or the lowest. Raises PackingError where there are none, or none were found."""
    from ...packing import Budget, PackingError, solve, within

    budget = Budget(seconds=seconds)
    if capacity is None:
        return solve(problem, budget)
    if problem.fullest is not None and problem.bound > capacity:
        raise PackingError(
            f"{problem.bound} bytes are in use at time {problem.fullest}, and the capacity is {capacity}: "
            f"{_listed(problem.live_at(problem.fullest))}"
        )
    found = within(problem, capacity, budget)
    if found is None:
        raise PackingError(
            f"no offsets fit into {capacity} bytes, though no more than {problem.bound} are in use at one time"
        )
    return found


def _listed(live: list[Buffer]) -> str:
    """The largest of some buffers."""
    shown = ", ".join(f"{b.name} ({b.size})" for b in live[:SHOWN])
    return shown + (f" and {len(live) - SHOWN} more" if len(live) > SHOWN else "")


def _summary(problem: PackingProblem, found: PackingPlan, seconds: float) -> str:
    proof = ", the lowest" if found.proved else ""
    return (
        f"{counted(len(problem.buffers), 'buffer', 'buffers')}: bound {found.bound}, height {found.height}{proof}, "
        f"ratio {found.ratio:.4f}, {counted(found.nodes, 'placement', 'placements')} in {seconds:.2f} s"
    )


def _to_dict(
    args: argparse.Namespace,
    problem: PackingProblem,
    found: PackingPlan,
    capacity: int | None,
    seconds: float,
    other: SecondOpinion | None,
) -> dict[str, Any]:
    return {
        "schema": "tilewright.pack/1",
        "file": args.table,
        "buffers": len(problem.buffers),
        "sections": problem.sections,
        "capacity": capacity,
        "bound": found.bound,
        "greedy": found.greedy,
        "height": found.height,
        "ratio": found.ratio,
        "proved": found.proved,
        "nodes": found.nodes,
        "seconds": seconds,
        "second_opinion": None
        if other is None
        else {"status": other.status, "bound": other.bound, "height": other.height},
        "output": args.output,
    }
