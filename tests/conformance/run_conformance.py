"""Runs the StableHLO conformance suite at the npu level and counts strict, documented and failed cases.

    python tests/conformance/run_conformance.py [SUITE] [--only TEXT] [--seeds 1] [--bytes-every 1] [--json FILE]

SUITE: its directory, `../shared/conformance` by default. Each case runs on its own inputs and, for each seed, on a
permutation of them, where XLA is the golden model. Every n-th case (each one by default) runs in addressed memory too,
whose results must be those of typed memory, bit for bit. Exits with 1 where a case fails, or the suite is absent.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from conformance_bounds import BOUNDS
from conformance_suite import (
    ORDER,
    Quantized,
    Record,
    SuiteMissing,
    cases,
    quantized,
    run_case,
    run_quantized,
)

SLOW = 5.0
"""Seconds from which on a case is listed as slow."""

Job = tuple[str, int, tuple[int, ...], bool]


def _work(job: Job) -> Record:
    suite, number, seeds, in_bytes = job
    return run_case(suite, cases(suite)[number], seeds, in_bytes)


def _warm(suite: str) -> None:
    """Import everything before the clock of the first case runs."""
    run_case(suite, cases(suite)[0], (), False)


def run(suite: str, only: str, seeds: tuple[int, ...], every: int) -> tuple[list[Record], list[Quantized]]:
    """All cases and quantized modules whose name contains `only`, in two processes. Raises SuiteMissing."""
    wanted = [i for i, c in enumerate(cases(suite)) if only in c["pure"]]
    jobs: list[Job] = [(suite, i, seeds, bool(every) and i % every == 0) for i in wanted]
    modules = [p for p in quantized(suite) if only in p.stem]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn, initializer=_warm, initargs=(suite,)) as pool:
        later = pool.map(run_quantized, modules, chunksize=4)
        return list(pool.map(_work, jobs, chunksize=4)), list(later)


# -- printing --------------------------------------------------------------------------------------------


def table(records: Sequence[Record]) -> str:
    """Counts by op: strict / documented / failed on the original and on permuted inputs."""
    by_op: dict[str, list[Record]] = defaultdict(list)
    for r in records:
        by_op[r.op].append(r)
    lines = [f"{'op':<28} {'cases':>5}  {'original':>12}  {'permuted':>12}  {'on host':>7}  {'slowest':>8}"]
    lines.append(f"{'':<28} {'':>5}  {'s / d / f':>12}  {'s / d / f':>12}")
    for op, group in sorted(by_op.items()):
        lines.append(
            f"{op:<28} {len(group):>5}  {_counts(group, True):>12}  {_counts(group, False):>12}  "
            f"{sum(bool(r.host) for r in group) or '':>7}  {max(r.seconds for r in group):>6.1f} s"
        )
    return "\n".join(lines)


def count(records: Sequence[Record], original: bool) -> Counter[str]:
    """Verdicts by status; an error counts as a failure on both kinds of inputs."""
    return Counter(
        v.status
        for r in records
        for name, v in r.verdicts.items()
        if name == "error" or (name.startswith("permuted") != original)
    )


def _counts(records: Sequence[Record], original: bool) -> str:
    found = count(records, original)
    return " / ".join(str(found[s]) for s in ORDER)


def summary(records: Sequence[Record], modules: Sequence[Quantized], seconds: float) -> str:
    """Documented bounds that were used, failures, slow cases, quantized modules and totals."""
    lines: list[str] = []
    runs = [(r, name, v) for r in records for name, v in r.verdicts.items()]
    for bound in BOUNDS:
        names = [
            f"{r.name} ({name})" for r, name, v in runs if v.status == "documented" and v.why == bound.what
        ]
        if names:
            lines.append(f"documented: {bound.what}: within {bound.allowed}. {bound.reason}")
            lines += [f"    {name}" for name in names]
    lines += [f"failed: {r.name} ({name}): {v.why}" for r, name, v in runs if v.status == "failed"]
    lines += [f"slow: {r.name}: {r.seconds:.1f} s" for r in records if r.seconds > SLOW]
    lines += [f"quantized, {m.status}: {m.name} {m.message}" for m in modules if m.status != "equal"]
    done = Counter(m.status for m in modules)
    lines.append(
        f"quantized modules: {done['equal']} equal, {done['differs']} differ, {done['refused']} refused with one line"
    )
    for what, original in (("original", True), ("permuted", False)):
        found = count(records, original)
        lines.append(f"{what} inputs: " + ", ".join(f"{found[s]} {s}" for s in ORDER))
    host, in_bytes = sum(bool(r.host) for r in records), sum(r.in_bytes for r in records)
    lines.append(f"{len(records)} cases, {host} with host ops, {in_bytes} in both memories, {seconds:.0f} s")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where nothing failed, 1 otherwise."""
    parser = argparse.ArgumentParser(description="Runs the StableHLO conformance suite at the npu level.")
    parser.add_argument("suite", nargs="?", default="../shared/conformance", help="directory of the suite")
    parser.add_argument("--only", default="", help="run cases whose name contains this")
    parser.add_argument("--seeds", default="1", help="permutations of the inputs, as 1,2,3")
    parser.add_argument(
        "--bytes-every", type=int, default=1, help="bytes memory too: every n-th case; 0: none"
    )
    parser.add_argument("--json", metavar="FILE", help="write every verdict to FILE")
    options = parser.parse_args(arguments)
    seeds = tuple(int(s) for s in options.seeds.split(",") if s)
    start = time.perf_counter()
    try:
        records, modules = run(options.suite, options.only, seeds, options.bytes_every)
    except SuiteMissing as e:
        print(e, file=sys.stderr)
        return 1
    print(table(records))
    print(summary(records, modules, time.perf_counter() - start))
    if options.json:
        found = {"cases": [asdict(r) for r in records], "quantized": [asdict(m) for m in modules]}
        Path(options.json).write_text(json.dumps(found, indent=1))
    bad = sum(r.worst.status == "failed" for r in records) + sum(m.status == "differs" for m in modules)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
