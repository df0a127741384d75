"""Random programs run one instruction at a time beside typed memory.

    python -m fuzz.step_compare [--seed 0] [--count 100] [--only matmul,reduce] [--dynamic]

Prints how many programs are equal in each bit, within the project's bounds of JAX's values, or different; which JAX
or the compiler refuse; and what a program takes. The campaign runs the same as one of its levels, `step`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import jax

from .campaign import DYNAMIC, RANDOM, judged, made, plan

OUTCOMES = ("equal", "within bound", "different", "fault", "refused")


def outcome(seed: int, only: str = "", kind: str = RANDOM) -> tuple[str, str, float]:
    """How the program of a seed comes out, why, and the seconds of the run by steps. kind: RANDOM, or DYNAMIC for one
    with open sizes."""
    target, _ = plan(seed, kind)
    verdict = judged(made(seed, only, kind), target, ("npu", "step"))
    seconds = verdict.seconds.get("step", 0.0)
    if verdict.kind:
        where = "refused" if verdict.where != "step" else "different" if verdict.kind == "mismatch" else "fault"
        return where, f"{verdict.where}: {verdict.message}", seconds
    return "refused" if verdict.refused else "equal" if verdict.stepped else "within bound", "", seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--dynamic", dest="kind", action="store_const", const=DYNAMIC, default=RANDOM)
    options = parser.parse_args()
    counts, seconds = Counter[str](), 0.0
    for done, seed in enumerate(range(options.seed, options.seed + options.count), 1):
        found, why, took = outcome(seed, options.only, options.kind)
        counts[found] += 1
        seconds += took
        if why:
            print(f"{seed}: {found}: {why}", flush=True)
        if done % 40 == 0:
            jax.clear_caches()
    print(", ".join(f"{counts[kind]} {kind}" for kind in OUTCOMES))
    print(f"{1e3 * seconds / options.count:.1f} ms a program")
    return int(counts["different"] + counts["fault"] > 0)


if __name__ == "__main__":
    sys.exit(main())
