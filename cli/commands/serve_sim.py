"""`tilewright serve-sim`: a service on modelled times, under several policies of batching.

`--json` gives this object; keys stay, new ones may come:

    {"schema": "tilewright.serve_sim/1", "source": str, "target": str,
     "arrivals": {"title": str, "count": int, "rate": float},     requests per second
     "devices": int, "queue": int | null, "goal": str | null,
     "best": int | null,         the number of the best row
     "rows": [{"policy": str, "served": int, "rejected": int, "late": int, "load": float, "saturated": bool,
               "throughput": float, "latency_ms": {"mean": float, "p50": float, "p90": float, "p99": float,
               "p999": float, "most": float}, "wait_ms": float, "batch": float, "batches": int,
               "utilisation": float, "queue_mean": float, "queue_most": int, "joules": float, "watts": float}]}
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...api.files.names import named_file
from ..common import CliError, print_json, table, tell, working

if TYPE_CHECKING:
    from ...api.program import Program
    from ...serving import Arrivals, ServiceReport


def serve_sim(args: argparse.Namespace) -> int:
    """Prints what each policy gives; 1 where none keeps the goal."""
    from ...serving import Arrivals, BatchPolicy, LatencyGoal, ServingError, simulate
    from ..build import parse_sizes, user_of
    from ..source import source_of, user_code

    try:
        policies = [BatchPolicy.of(text) for text in args.policy or ["none"]]
        goal = None if args.goal is None else LatencyGoal.of(args.goal)
        arrivals = Arrivals.of(args.arrivals)
        programs, target = _programs(args, arrivals)
        source = source_of(args)
        with working(f"pricing {source.name}") as say, user_code(*user_of(source)):
            found = simulate(
                programs,
                arrivals,
                policies,
                batch=args.batch,
                at=None if args.at is None else parse_sizes(args.at),
                devices=args.devices,
                queue=args.queue,
                goal=goal,
                progress=say,
            )
        if args.plot is not None:
            found.plot(args.plot)
    except ServingError as error:
        raise CliError(str(error)) from None
    _show(args, found, target)
    return 1 if goal is not None and found.best is None else 0


def _show(args: argparse.Namespace, found: ServiceReport, target: str) -> None:
    if args.json:
        print_json({"schema": "tilewright.serve_sim/1", "source": args.source, "target": target, **found.to_json()})
        return
    table(f"{args.source} for {target}: {found.title}", *found.columns)
    if found.verdict:
        tell(found.verdict)
    if args.plot is not None:
        tell(f"wrote {args.plot}")


def _programs(args: argparse.Namespace, arrivals: Arrivals) -> tuple[Any, str]:
    """What `simulate` takes, and the chip. Raises CliError."""
    from ...api.sizes.dynamic import DynamicProgram
    from ..build import closed
    from ..source import source_of

    named = named_file(args.source)
    if args.entry:
        programs = {
            service: {size: _program(args, f"{args.source}:{name}") for size, name in sizes.items()}
            for service, sizes in _entries(args).items()
        }
        (target, *_) = {program.target for sizes in programs.values() for program in sizes.values()}
        return programs.get("", programs), target
    if named is not None and named[1] is None and arrivals.names != ("",):
        programs = {name: _program(args, f"{args.source}:{name}") for name in arrivals.names}
        return programs, next(iter(programs.values())).target
    program = _program(args, args.source)
    if args.batch is not None and not isinstance(program, DynamicProgram):
        raise closed(source_of(args), f"--batch {args.batch}")
    return program, program.target


def _program(args: argparse.Namespace, source: str) -> Program:
    from ..build import compiled
    from ..source import source_of

    given = argparse.Namespace(**{**vars(args), "source": source})
    return compiled(given, source_of(given))[0]


def _entries(args: argparse.Namespace) -> dict[str, dict[int, str]]:
    """The functions of `--entry 8=decode8` or `--entry decode:8=decode8`, by what requests call and by size. Raises
    CliError."""
    named = named_file(args.source)
    if named is None or named[1] is not None:
        raise CliError(f"--entry {args.entry[0]}: names a function of a .twm file, and SOURCE is {args.source}")
    if args.batch is not None:
        raise CliError("--batch is for a program with an open size, and --entry for programs without: give one of them")
    found: dict[str, dict[int, str]] = {}
    for text in args.entry:
        match = re.fullmatch(r"(?:([^:=]+):)?([0-9]{1,9})=(.+)", text)
        if match is None:
            raise CliError(f"cannot read --entry {text}; write 8=decode8, or decode:8=decode8 for requests of decode")
        sizes = found.setdefault(match[1] or "", {})
        if sizes.setdefault(int(match[2]), match[3]) != match[3]:
            raise CliError(f"--entry {text}: batches of {match[2]} have {sizes[int(match[2])]} already")
    if "" in found and len(found) > 1:
        raise CliError("--entry: all say what requests call, as decode:8=decode8 does, or none does")
    return found


def add_parser(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Adds the command to the grammar."""
    parser = command("serve-sim", "what a service with a queue gives on modelled times, by policy of batching")
    parser.add_argument(
        "--arrivals",
        required=True,
        metavar="A",
        help="trace.csv with a column seconds (and entry, size, deadline); poisson:RATE,seconds=10,seed=0; or "
        "burst:COUNT,every=1s,within=0s,seconds=10,seed=0",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="P",
        help="none (default), batch=8,wait=2ms or fixed=8; with sizes=1+4+8, to which batches are padded, and "
        "deadline=10ms, of which the earliest comes first; several are compared",
    )
    parser.add_argument("--batch", metavar="S", help="the open size that is the batch; --at has the others")
    parser.add_argument(
        "--entry",
        action="append",
        metavar="N=NAME",
        help="the function of a .twm file for batches of N: 8=decode8; for requests of one entry: decode:8=decode8",
    )
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="devices that serve the queue (default 1)")
    parser.add_argument("--queue", type=int, metavar="N", help="requests that wait, at most; more are rejected")
    parser.add_argument(
        "--goal", metavar="G", help="p99=10ms (or mean, p50, p90, p99.9, most): mark the best policy that keeps it"
    )
    parser.add_argument(
        "--plot", metavar="FILE.svg", help="draw the queue and the latency: .svg, .png, .pdf or .html"
    )
