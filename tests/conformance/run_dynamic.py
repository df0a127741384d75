"""Runs the suite's programs with dynamic shapes at the npu level, each at several sizes, and counts what is equal.

    python tests/conformance/run_dynamic.py [SUITE] [--only TEXT] [--sizes 1,2,5,7] [--bytes-every 1] [--json FILE]

SUITE: its directory, `../shared/conformance` by default. A program is compiled once, without inputs; at each size it
is called with arrays whose open dimensions all have that size. The golden model is XLA on the program refined to that
size. Where the golden model refuses a size, Tilewright has to refuse it too. Every n-th program runs in addressed
memory too. Exits with 1 where a result differs, or the suite is absent.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from conformance_bounds import bound_of
from conformance_suite import SuiteMissing, module_of, within

import tilewright as tw

SIZES = (1, 2, 5, 7, 16, 33)
RULE = ("expect_close", 3)
"""As the suite's own programs of JAX are judged: floats within 3 units in the last place, the rest exactly."""


@dataclass
class DynamicRecord:
    """A program's outcome at each size: `equal`, `documented`, `refused` (as the golden model does) or `failed`, with
    what was said."""

    name: str
    outcomes: dict[int, tuple[str, str]] = field(default_factory=dict)
    seconds: float = 0.0


def programs(suite: str) -> list[Path]:
    """The programs with dynamic shapes. Raises SuiteMissing where there are none."""
    found = sorted((Path(suite) / "stablehlo" / "dynamic").glob("*.mlir")) or sorted(
        (Path(suite) / "dynamic").glob("*.mlir")
    )
    if not found:
        raise SuiteMissing(f"{suite} has no folder dynamic: give the directory of the conformance suite")
    return found


def run_program(suite: str, path: Path, sizes: Sequence[int], in_bytes: bool) -> DynamicRecord:
    """Compiles a program once and runs it at each size."""
    record, start = DynamicRecord(path.stem), time.perf_counter()
    try:
        program = tw.compile(path)
    except Exception as error:  # whatever it raises, the other programs go on
        record.outcomes = dict.fromkeys(sizes, ("failed", f"{type(error).__name__}: {_line(error)}"))
        return record
    for size in sizes:
        record.outcomes[size] = _run(suite, path.read_text(), program, size, in_bytes)
    ranges = program.ranges.values() if isinstance(program, tw.DynamicProgram) else ()
    broken = [str(reason) for reason in ranges if str(reason).startswith("internal error")]
    if broken:
        record.outcomes[sizes[0]] = ("failed", broken[0])
    record.seconds = time.perf_counter() - start
    return record


def _run(suite: str, text: str, program: tw.Program, size: int, in_bytes: bool) -> tuple[str, str]:
    sys.path.insert(0, suite)  # the golden model imports its neighbour by name
    golden = module_of(suite, "dynamic_golden")
    inputs = golden.make_inputs(text, size)
    try:
        want = golden.run_refined(text, inputs)
    except Exception as error:  # XLA's or MLIR's, of many classes
        want, refusal = None, _line(error)
    else:
        refusal = ""
    try:
        made = program(*inputs)
    except tw.CompileError as error:
        return ("refused", str(error)) if want is None else ("failed", f"refused: {error}")
    except Exception as error:
        return "failed", f"{type(error).__name__}: {_line(error)}"
    if want is None:
        return "failed", f"gives a result, and the golden model refuses: {refusal}"
    got = [np.asarray(x) for x in (made if isinstance(made, tuple) else (made,))]
    if in_bytes:
        version = program.at(program.sizes(*inputs)) if isinstance(program, tw.DynamicProgram) else program
        again = version.executable("bytes")(*version.flatten(inputs))
        if any(a.tobytes() != np.asarray(b).tobytes() for a, b in zip(got, again, strict=True)):
            return "failed", "typed and bytes memory differ"
    return _judge(suite, text, got, want, inputs)


def _judge(
    suite: str, text: str, got: Sequence[np.ndarray], want: Sequence[np.ndarray], inputs: list[np.ndarray]
) -> tuple[str, str]:
    outcome = ("equal", "")
    golden = module_of(suite, "dynamic_golden")
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        strict, _, message = module_of(suite, "golden").compare(a, np.asarray(b), *RULE)
        if strict:
            continue
        bound = bound_of(re.findall(r"stablehlo\.(\w+)", text), a.dtype)
        if bound is None:
            return "failed", message
        allowed = bound.tolerance(a.dtype, inputs, np.asarray(b), lambda xs: golden.run_refined(text, xs), i)
        if not within(a, b, allowed):
            return "failed", message
        outcome = ("documented", bound.what)
    return outcome


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _work(job: tuple[str, Path, tuple[int, ...], bool]) -> DynamicRecord:
    return run_program(*job)


def run(suite: str, only: str, sizes: tuple[int, ...], every: int) -> list[DynamicRecord]:
    """All programs whose name contains `only`, in two processes. Raises SuiteMissing."""
    wanted = [p for p in programs(suite) if only in p.stem]
    jobs = [(suite, p, sizes, bool(every) and i % every == 0) for i, p in enumerate(wanted)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_work, jobs, chunksize=4))


def summary(records: Sequence[DynamicRecord], seconds: float) -> str:
    """What failed, what was refused and why, and the counts."""
    lines: list[str] = []
    for status in ("documented", "refused", "failed"):
        for r in records:
            at = [size for size, (found, _) in r.outcomes.items() if found == status]
            if at:
                lines.append(f"{status}: {r.name} at {', '.join(map(str, at))}: {r.outcomes[at[0]][1]}")
    found = Counter(status for r in records for status, _ in r.outcomes.values())
    counts = ", ".join(f"{found[s]} {s}" for s in ("equal", "documented", "refused", "failed"))
    lines.append(f"{len(records)} programs at {len(records[0].outcomes)} sizes: {counts}, {seconds:.0f} s")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where nothing failed, 1 otherwise."""
    parser = argparse.ArgumentParser(
        description="Runs the suite's programs with dynamic shapes at the npu level."
    )
    parser.add_argument("suite", nargs="?", default="../shared/conformance", help="directory of the suite")
    parser.add_argument("--only", default="", help="run programs whose name contains this")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="sizes of all open dimensions")
    parser.add_argument(
        "--bytes-every", type=int, default=1, help="bytes memory too: every n-th program; 0: none"
    )
    parser.add_argument("--json", metavar="FILE", help="write every outcome to FILE")
    options = parser.parse_args(arguments)
    sizes = tuple(int(s) for s in options.sizes.split(",") if s)
    start = time.perf_counter()
    try:
        records = run(options.suite, options.only, sizes, options.bytes_every)
    except SuiteMissing as error:
        print(error, file=sys.stderr)
        return 1
    print(summary(records, time.perf_counter() - start))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(r) for r in records], indent=1) + "\n")
    return int(any(status == "failed" for r in records for status, _ in r.outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
