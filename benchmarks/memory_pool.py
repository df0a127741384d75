"""What the policies of the memory pool make of random requests: watermark, fragmentation, moves, spills and speed.

python benchmarks/memory_pool.py                               # some ten seconds
python benchmarks/memory_pool.py --page docs/memory-pool.md    # and put the tables between the marks of the page

Sizes are log-normal with a median of 64 KiB; an allocation lives until it is drawn at random from those that live. With
`large`, one request in eight is 16 times as large. Means over the seeds, blocks aligned to 512 bytes.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from pathlib import Path

from tilewright.backends.pool import (
    POLICIES,
    Pool,
    PoolEvent,
    Replay,
    best_fit_bound,
    peak_of_live,
    replay,
    robson_bound,
)
from tilewright.support.files import write_part

ALIGNMENT = 512
MEDIAN = 64 << 10
SEEDS = range(1, 6)
EVENTS = 6000
LIVE = 400
KINDS = {
    "sigma 0.5": (0.5, False),
    "sigma 1": (1.0, False),
    "sigma 2": (2.0, False),
    "sigma 1, large": (1.0, True),
}
BEGIN, END = "<!-- begin measured -->", "<!-- end measured -->"


def trace_of(seed: int, sigma: float, large: bool) -> list[PoolEvent]:
    """Allocations up to about `LIVE` at a time, then as many freed as made."""
    rng = random.Random(seed)
    live: list[int] = []
    found: list[PoolEvent] = []
    for number in range(EVENTS):
        if live and rng.random() < 0.5 * min(1.0, len(live) / LIVE) ** 0.25 + 0.02:
            at = rng.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            found.append(PoolEvent("free", live.pop()))
        else:
            size = rng.lognormvariate(math.log(MEDIAN), sigma) * (16 if large and rng.random() < 1 / 8 else 1)
            live.append(number)
            found.append(PoolEvent("allocate", number, max(1, round(size))))
    return found


def mean(values: list[float]) -> float:
    """The mean of some numbers."""
    return statistics.fmean(values)


def without_moves(traces: list[list[PoolEvent]], policy: str) -> list[Replay]:
    """The traces on pools that are as large as they like and move nothing."""
    return [replay(t, Pool(1 << 40, ALIGNMENT, policy, moves=False, spills=False)) for t in traces]


def watermarks() -> list[str]:
    """The table of pools without a limit."""
    rows = [
        "| sizes | policy | watermark | internal | Robson | bound of best-fit |",
        "|---|---|---|---|---|---|",
    ]
    for name, (sigma, large) in KINDS.items():
        traces = [trace_of(seed, sigma, large) for seed in SEEDS]
        peaks = [peak_of_live(t) for t in traces]
        robson = mean(
            [b.forced_bytes / p for t, p in zip(traces, peaks) if (b := robson_bound(t, ALIGNMENT))]
        )
        bound = mean([best_fit_bound(t, ALIGNMENT) / p for t, p in zip(traces, peaks)])
        for policy in POLICIES:
            runs = without_moves(traces, policy)
            own = f"{bound:,.0f}" if policy == "best-fit" else ""
            rows.append(
                f"| {name} | {policy} | {mean([r.overhead for r in runs]):.3f} "
                f"| {100 * mean([r.internal_fragmentation for r in runs]):.1f}% | {robson:.1f} | {own} |"
            )
    return rows


def tight() -> list[str]:
    """The table of pools with little more than the peak of live bytes."""
    rows = [
        "| capacity | policy | refused without moves | external | compactions | moved | spilled and restored |",
        "|---|---|---|---|---|---|---|",
    ]
    traces = [trace_of(seed, 1.0, True) for seed in SEEDS]
    for factor in (1.02, 1.1, 1.5):
        for policy in POLICIES:
            stuck, moving = [], []
            for t in traces:
                capacity = int(peak_of_live(t) * factor)
                stuck.append(replay(t, Pool(capacity, ALIGNMENT, policy, moves=False, spills=False)))
                moving.append(replay(t, Pool(capacity, ALIGNMENT, policy)))
            asked = [sum(e.bytes for e in t) for t in traces]
            ends = [r.statistics for r in moving]
            rows.append(
                f"| {factor} | {policy} | {mean([len(r.refused) for r in stuck]):.1f} "
                f"| {100 * mean([r.external_fragmentation for r in stuck]):.0f}% "
                f"| {mean([s.defragmentations for s in ends]):.1f} "
                f"| {100 * mean([s.moved_bytes / a for s, a in zip(ends, asked)]):.1f}% "
                f"| {100 * mean([s.link_bytes / a for s, a in zip(ends, asked)]):.1f}% |"
            )
    return rows


def speed(live: int = 10_000, pairs: int = 50_000) -> list[str]:
    """Calls per second with so many live blocks, and what one compaction of all of them takes."""
    rows = ["| policy | allocate and free, per second | one compaction, ms |", "|---|---|---|"]
    for policy in POLICIES:
        rng = random.Random(1)
        sizes = [max(1, round(rng.lognormvariate(math.log(MEDIAN), 1.5))) for _ in range(live + pairs)]
        pool = Pool(1 << 40, ALIGNMENT, policy)
        blocks = [pool.allocate(size) for size in sizes[:live]]
        start = time.perf_counter()
        for size in sizes[live:]:
            at = rng.randrange(live)
            pool.free(blocks[at])
            blocks[at] = pool.allocate(size)
        rate = 2 * pairs / (time.perf_counter() - start)
        start = time.perf_counter()
        pool.defragment()
        took = time.perf_counter() - start
        rows.append(f"| {policy} | {round(rate, -4):,.0f} | {1e3 * took:.0f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--page", type=Path, help="a page with marks for the tables")
    args = parser.parse_args()
    text = "\n\n".join("\n".join(rows) for rows in (watermarks(), tight(), speed()))
    print(text)
    if args.page is not None:
        write_part(args.page, BEGIN, END, text)


if __name__ == "__main__":
    main()
