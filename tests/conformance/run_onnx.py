"""Runs ONNX's own backend suite at the npu level, and counts by op what passes, runs on the host, or is refused.

    python tests/conformance/run_onnx.py [--only REGEX] [--kind node] [--every 1] [--bytes-every 8] [--jobs 2]
                                         [--open] [--page docs/onnx.md] [--json FILE]

A case passes where its results have the types and shapes of the suite's and are within the suite's own tolerance. Cases
with text, or with floats of 8 or 4 bits that the compiler refuses, are left out and counted. Exits with 1 where a case
fails, or fewer than 97 % of the others pass.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from onnx_suite import KINDS, Outcome, cases, run_case

from tilewright.support.files import write_part

BEGIN, END = "<!-- suite: begin -->", "<!-- suite: end -->"

WANTED = 0.97
"""The share of cases that has to pass."""


def _work(job: tuple[int, bool, tuple[str, ...], bool]) -> Outcome:
    return run_case(*job)


def run(
    only: str, kinds: tuple[str, ...], every: int, bytes_every: int, jobs: int, is_open: bool = False
) -> list[Outcome]:
    """The outcomes of the cases whose name matches, one in `every`. is_open: with all dimensions open."""
    wanted = [i for i, c in enumerate(cases(kinds)) if re.search(only, c.name)][::every]
    work = [(i, bool(bytes_every) and n % bytes_every == 0, kinds, is_open) for n, i in enumerate(wanted)]
    if jobs == 1:
        return list(map(_work, work))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=cases, initargs=(kinds,)) as pool:
        return list(pool.map(_work, work, chunksize=8))


def table(outcomes: Sequence[Outcome]) -> str:
    """By op, in Markdown: cases, how many pass, how many of these use the host, and why others do not."""
    by_op: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        for op in one.ops:
            by_op[op].append(one)
    lines = [
        "| op | cases | pass | on host | left out | refused or apart, and why |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for op, group in sorted(by_op.items()):
        count = Counter(o.status for o in group)
        bad = [o for o in group if o.status in ("refused", "documented", "failed")]
        said = {"as documented" if o.status == "documented" else _short(o.why) for o in bad}
        why = "; ".join(sorted(said))
        hosted = sum(bool(o.host) for o in group)
        lines.append(
            f"| {op} | {len(group)} | {count['passed']} | {hosted or ''} | {count['left out'] or ''} | "
            f"{f'{len(bad)}: {why}' if bad else ''} |"
        )
    return "\n".join(lines)


def _short(why: str) -> str:
    """The clause of a message behind the names of file and node."""
    found = re.search(r"(is not supported|cannot be converted|decides shapes[^:]*): ?(.*)", why)
    return (found[2] if found and found[2] else why)[:120].replace("|", "/")


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Failures, and the totals."""
    lines = [
        f"{o.status}: {o.name}: {o.why}" for o in outcomes if o.status in ("failed", "documented", "refused")
    ]
    count = Counter(o.status for o in outcomes)
    judged = len(outcomes) - count["left out"]
    host = sum(bool(o.host) for o in outcomes if o.status == "passed")
    lines.append(
        f"{len(outcomes)} cases: {count['left out']} left out (text, f8, f4, images); of the other {judged} "
        f"{count['passed']} pass ({count['passed'] / max(judged, 1):.1%}), {host} of them with host ops, "
        f"{count['refused']} are refused, {count['documented']} apart as documented, {count['failed']} fail; "
        f"{sum(o.in_bytes for o in outcomes)} in both memories; {seconds:.0f} s"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where enough passes and nothing fails, 1 otherwise."""
    parser = argparse.ArgumentParser(description="Runs ONNX's own backend suite at the npu level.")
    parser.add_argument("--only", default="", help="run cases whose name matches this")
    parser.add_argument("--kind", default=",".join(KINDS), help="kinds of cases")
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    parser.add_argument(
        "--bytes-every", type=int, default=8, help="bytes memory too: one in so many; 0: none"
    )
    parser.add_argument(
        "--open",
        action="store_true",
        help="compile without inputs, each dimension open under a name of its own",
    )
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--page", metavar="FILE", help="put the table between the marks of a page")
    parser.add_argument("--json", metavar="FILE", help="write every outcome to FILE")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    kinds = tuple(options.kind.split(","))
    outcomes = run(options.only, kinds, options.every, options.bytes_every, options.jobs, options.open)
    said = summary(outcomes, time.perf_counter() - start)
    print(said)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    if options.page:
        totals = textwrap.fill(said.splitlines()[-1], 108)
        write_part(options.page, BEGIN, END, f"{totals}\n\n{table(outcomes)}")
    count = Counter(o.status for o in outcomes)
    judged = len(outcomes) - count["left out"]
    return int(count["failed"] > 0 or count["passed"] < WANTED * judged)


if __name__ == "__main__":
    sys.exit(main())
