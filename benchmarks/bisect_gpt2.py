"""How long a bisection of GPT-2 takes for one corrupted pass, and how small its reproducer is.

python benchmarks/bisect_gpt2.py                       # one mistake in each stage of the pipeline
python benchmarks/bisect_gpt2.py plan-overlaps-tensors   # one mistake of tests/verification/wrong_passes.py
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import tilewright as tw

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "verification")]

import gpt2  # noqa: E402  # found on the path above
from wrong_passes import CASES, corrupted  # noqa: E402  # found on the path above

EACH_STAGE = (
    "simplify-swaps-sub",
    "fuse-recomputes-wrongly",
    "tile-swaps-sub",
    "npu-keeps-accumulator",
    "allocate-overlaps-ub",
    "synchronize-wrong-event",
    "plan-overlaps-tensors",
)
"""One mistake in each stage; all of them strike GPT-2."""


def bisect(case: Any) -> bool:
    """Prints the culprit, the seconds and the ops; False where the bug was not found."""
    args: tuple[Any, ...] = gpt2.forward_inputs()
    start, used = time.perf_counter(), time.process_time()
    culprit = tw.verify(gpt2.forward, *args, stages=corrupted(case.stage, case.mistake), bisect=True).culprit
    took, used = time.perf_counter() - start, time.process_time() - used
    if culprit is None:
        print(f"{case.name}: not found, {took:.1f} s")
        return False
    ops = "no" if culprit.reproducer is None else f"{culprit.reproducer.ops} ops"
    blamed = "blamed" if culprit.stage == case.stage else "NOT BLAMED"
    print(
        f"{case.name}: {case.stage} {blamed}, {took:.1f} s ({used:.1f} s of processor time), reproducer: {ops}"
    )
    print("\n".join("    " + line for line in culprit.sentences()), flush=True)
    return culprit.stage == case.stage


def main() -> int:
    """0 where each mistake was found and its stage blamed."""
    known = {c.name: c for c in CASES}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("case", nargs="*", help="one in each stage where none is named")
    names = parser.parse_args().case or EACH_STAGE
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(sorted(known))}")
    failed = [name for name in names if not bisect(known[name])]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
