"""`tilewright tune` and `tilewright kb`: the best plans of a program's kernels, and the files that keep plans."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...api.plans import own_path
from ...knowledge.base import Entry, KnowledgeBase, read_lines
from ...knowledge.goals import LATENCY, Goal
from ..build import closed, given_inputs, open_of, options_of, sizes_of, user_of
from ..common import CliError, print_json, table, tell, working
from ..configured import has_sizes
from ..outputs import write_output
from ..source import source_of, user_code

if TYPE_CHECKING:
    from ...tuning.report import TuneReport


def tune(args: argparse.Namespace) -> int:
    """Prints what tuning found of each kernel, and keeps the plans."""
    from ...tuning.alone import CommandJudge
    from ...tuning.tune import tune as run

    if args.oracle is not None and "{npu}" not in args.oracle:
        raise CliError(f"--oracle {args.oracle!r}: say where the program goes: 'measure {{npu}} {{out}}'")
    source = source_of(args)
    inputs = given_inputs(args, source)
    judge = None if args.oracle is None else CommandJudge(args.oracle, args.patience)
    with working(f"tuning {source.name}") as say, user_code(*user_of(source)):
        open_ = open_of(args, source, inputs)
        if open_ is None and args.at is not None and not has_sizes(args):
            raise closed(source, f"--at {args.at}")
        found = run(
            source.compiled,
            *(inputs or ()),
            target=args.target,
            options=options_of(args),
            at=None if open_ is None else sizes_of(args, open_),
            budget=args.budget,
            objective=args.objective,
            power_limit=args.power_limit,
            oracle=judge,
            profile=args.profile,
            store=args.plans,
            verify=args.verify,
            evaluations=args.evaluations,
            search=args.search,
            seed=args.seed,
            workers=_workers(args.workers),
            alternatives=args.alternatives,
            front=args.front,
            explain=args.explain,
            progress=lambda what: say(f"tuning {source.name}: {what}"),
        )
    report = found.report
    if args.plot is not None:
        report.plot(args.plot)
    if args.json:
        kept = None if found.store is None else str(found.store.path)
        print_json({"schema": "tilewright.tune/1", "source": args.source, "plans": kept, **report.to_json()})
        return 0
    table(str(report), *_columns(report))
    for kernel in (k for k in report.kernels if k.why):
        tell(f"{kernel.name}: {kernel.why}")
    for decided in report.decided:
        tell(str(decided))
    if report.front:
        rows = [
            [f"{c.microseconds:.1f}", f"{c.joules * 1e3:.3g}", f"{c.watts:.0f}", f"{c.memory_bytes:,}"]
            for c in report.front
        ]
        table("programs that no other one beats", ["us", "mJ", "W", "bytes"], rows)
    if found.store is not None:
        use = ["--plans", args.plans] if args.plans is not None else []
        if found.options.plans_for != LATENCY:
            use += ["--plans-for", found.options.plans_for]
        if report.without:
            use += ["--without", ",".join(report.without)]
        how = f"use them with {shlex.join(use)}" if use else "all commands use them"
        tell(f"plans are kept in {found.store.path}: {how}")
    return 0


def _columns(report: TuneReport) -> tuple[list[str], list[list[str]]]:
    """What kernels are shown by, and a row for each."""
    powered, measured = not Goal.of(report.objective, report.power_limit).plain, any(k.measured for k in report.kernels)
    header = ["kernel", "launches", *(["measured, us"] if measured else []), "before, us", "after, us"]
    header += ["mJ before", "after", "W after"] if powered else []
    rows = [
        [
            k.name,
            str(k.launches),
            *([f"{k.measured:.2f}" if k.measured else ""] if measured else []),
            f"{k.before:.2f}",
            f"{k.after:.2f}",
            *([f"{k.joules_before * 1e3:.3g}", f"{k.joules_after * 1e3:.3g}", f"{k.watts:.0f}"] if powered else []),
            f"{k.priced:.2f}",
            f"{k.bound:.2f}",
            "yes" if k.certified else "no",
            f"{k.evaluations:,}",
            f"{k.plans:,}" if k.plans else k.how,
        ]
        for k in report.kernels
    ]
    return [*header, "price", "bound", "proven", "evaluations", "plans"], rows


def _workers(given: str) -> int | str:
    """How many processes, or where a cluster is. Raises CliError."""
    if re.match(r"\w+://", given):
        return given
    if not given.isdecimal() or not 0 < int(given) <= MOST_WORKERS:
        raise CliError(f"--workers {given}: say 1 to {MOST_WORKERS}, or where a cluster is, as tcp://HOST:PORT")
    return int(given)


MOST_WORKERS = 1024
"""No computer has more processors."""


def kb(args: argparse.Namespace) -> int:
    """Lists, merges, exports, imports or removes plans."""
    args.base = args.base or str(own_path())
    return _ACTIONS[args.action](args, KnowledgeBase(args.base))


def _list(args: argparse.Namespace, base: KnowledgeBase) -> int:
    _there(base)
    entries = base.entries()
    if args.json:
        print_json({"schema": "tilewright.kb/1", "base": args.base, "entries": [e.to_json() for e in entries]})
        return 0
    header = ["kernel", "fingerprint", "machine", "goal", "for", "before, us", "after, us", "proven", "how"]
    rows = [
        [
            e.name,
            e.kernel[:12],
            e.machine,
            e.goal,
            "a stage" if e.joined else "a launch",
            f"{e.before:.2f}",
            f"{e.microseconds:.2f}",
            "yes" if e.certified else "no",
            e.how,
        ]
        for e in entries
    ]
    table(f"{args.base}: {len(entries)} plans", header, rows)
    return 0


def _merge(args: argparse.Namespace, base: KnowledgeBase) -> int:
    others = [KnowledgeBase(_given(path)) for path in args.files]
    if not others:
        raise CliError("kb merge: which ones? give the files that are to be merged")
    return _added(args, base, [e for other in others for e in other.entries()])


def _export(args: argparse.Namespace, base: KnowledgeBase) -> int:
    _there(base)
    lines = "".join(f"{line}\n" for line in base.export())
    if args.output is None:
        print(lines, end="")
    else:
        write_output(args.output, lines)
        tell(f"wrote {args.output}")
    return 0


def _import(args: argparse.Namespace, base: KnowledgeBase) -> int:
    found: list[Entry] = []
    for path in args.files or ("-",):
        text = sys.stdin.read() if path == "-" else Path(_given(path)).read_text()
        found += read_lines(text.splitlines(), "standard input" if path == "-" else path)
    return _added(args, base, found)


def _prune(args: argparse.Namespace, base: KnowledgeBase) -> int:
    """Forgets what another version of the price judged, or kernels whose fingerprints begin so."""
    from ...kernels.price import VERSION

    _there(base)
    begins = tuple(args.files)
    gone = [e for e in base.entries() if (e.kernel.startswith(begins) if begins else e.price != VERSION)]
    count = base.remove(e.kernel for e in gone) if gone else 0
    return _said(args, {"removed": count}, f"removed {count} plans from {args.base}")


def _added(args: argparse.Namespace, base: KnowledgeBase, entries: Sequence[Entry]) -> int:
    count = base.add(entries)
    return _said(args, {"read": len(entries), "kept": count}, f"kept {count} of {len(entries)} plans in {args.base}")


def _said(args: argparse.Namespace, found: dict[str, Any], sentence: str) -> int:
    if args.json:
        print_json({"schema": "tilewright.kb/1", "base": args.base, **found})
    else:
        print(sentence)
    return 0


def _there(base: KnowledgeBase) -> None:
    """Raises CliError for a file that is not there."""
    _given(str(base.path))


def _given(path: str) -> str:
    if not Path(path).is_file():
        raise CliError(f"{path}: there is no such file")
    return path


_ACTIONS = {"list": _list, "merge": _merge, "export": _export, "import": _import, "prune": _prune}
