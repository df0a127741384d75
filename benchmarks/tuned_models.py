"""The models of examples/ before and after tuning, and compiled once more with what was found.

python benchmarks/tuned_models.py [MODEL ...] [--budget 600s] [--workers 2] [--plans FILE] [--page docs/tuning.md]

The first compilation knows no plans, and the second one takes those of the knowledge base: its processor time is held
against the first one's. Both come after one that is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks")]

from models import MODELS  # noqa: E402  # found on the path above
from run import load  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright.support.files import write_part  # noqa: E402

BEGIN, END = "<!-- models: begin -->", "<!-- models: end -->"

HEADER = ("program", "before", "after", "kernels", "proven", "searched, s", "compiled again, of the first time")


def timed(fn: Any, args: Sequence[Any], plans: str) -> tuple[float, float]:
    """Modelled microseconds of a program, and the processor seconds that its compilation takes."""
    begin = time.process_time()
    program = tw.compile(fn, *args, options=tw.Options(plans=plans))
    seconds = time.process_time() - begin
    return program.report().microseconds, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--budget", default="600s")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plans", metavar="FILE", help="where plans are kept (default: nowhere)")
    parser.add_argument("--page", metavar="FILE.md", help="put the table between the marks of the page")
    args = parser.parse_args()
    rows: list[Sequence[str]] = []
    gains: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        store = args.plans or str(Path(folder) / "plans.sqlite")
        for model in args.models or MODELS:
            fn, given = load(model.replace(":", ".py:"))
            timed(fn, given, "")
            before, first = timed(fn, given, "")
            report = tw.tune(fn, *given, budget=args.budget, workers=args.workers, store=store).report
            after, again = timed(fn, given, store)
            proven = sum(k.certified for k in report.kernels)
            name = model.replace(":", ".py:")
            cells = (f"`{name}`", f"{before:,.1f}", f"{after:,.1f}", str(len(report.kernels)), str(proven))
            rows.append((*cells, f"{report.seconds:.0f}", f"{again / first:.2f}"))
            gains.append(before / after)
            print(*rows[-1], flush=True)
    lines = [f"| {' | '.join(HEADER)} |", "|---|" + "---:|" * (len(HEADER) - 1)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    mean, worst = statistics.geometric_mean(gains), min(gains)
    lines += ["", f"Geometric mean of before over after: {mean:.3f}; the least: {worst:.3f}."]
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
