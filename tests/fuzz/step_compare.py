"""Random programs run one instruction at a time beside typed memory, and against JAX.

    python -m fuzz.step_compare [--seed 0] [--count 100] [--only matmul,reduce]

Prints how many seeds are equal in each bit, within the project's bounds of JAX's values, or different; which JAX or
the compiler refuse; and which faults the executor sees. A program of which the graph level itself is off by more counts
as different as well: the campaign without `step` says so, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tilewright.backends.interpreter import Executable
from tilewright.backends.stepper import Program, StepFault
from tilewright.verification.compare import compare, same_bits

from .campaign import plan
from .compare import Judge, Mismatch
from .tables import program_of

OUTCOMES = ("equal", "within bound", "different", "fault", "refused")


@dataclass
class Outcome:
    """How a seed came out, and why; milliseconds of the first and of the second run, instructions."""

    kind: str
    why: str = ""
    first: float = 0.0
    again: float = 0.0
    steps: int = 0


class _StepJudge(Judge):
    """A judge whose npu level is run step by step."""

    outcome: Outcome

    def _lower(self, module: Any) -> None:
        from tilewright.passes.pipeline import run_pipeline

        self._enter("to npu")
        run_pipeline(module, self.target)
        self._enter("step")
        flat = [np.asarray(x) for x in self.args]
        start = time.process_time()
        program = Program(module, self.machine)
        got = program(*flat)
        middle = time.process_time()
        session = program.session(flat)
        session.run()
        end = time.process_time()
        self.outcome = Outcome("equal", "", 1e3 * (middle - start), 1e3 * (end - middle), session.steps)
        self._enter("npu")
        typed = Executable(module, self.machine, "typed")(*self.args)
        pairs = list(zip(map(np.asarray, got), map(np.asarray, typed), strict=True))
        if all(same_bits(x, y) or compare(x, y, bits=True).ratio == 0 for x, y in pairs):
            return
        self.outcome.kind = "within bound"
        self._against_jax(got)


def stepped(seed: int, only: str = "") -> Outcome:
    """A seed, run step by step and in typed memory."""
    target, _ = plan(seed)
    judge = _StepJudge(program_of(seed, only), target, ("npu",))
    try:
        with jax.enable_x64(judge.program.x64):
            judge._run()
    except Mismatch as difference:
        return Outcome("different", str(difference))
    except StepFault as error:
        return Outcome("fault", str(error))
    except Exception as error:
        where = "refused" if judge.stage in ("reference", "frontend", "to npu", "npu", "bounds") else "fault"
        return Outcome(where, f"{judge.stage}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return judge.outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    counts, first, again, steps = Counter[str](), 0.0, 0.0, 0
    for seed in range(options.seed, options.seed + options.count):
        found = stepped(seed, options.only)
        counts[found.kind] += 1
        first, again, steps = first + found.first, again + found.again, steps + found.steps
        if found.kind not in ("equal", "within bound"):
            print(f"{seed}: {found.kind}: {found.why}", flush=True)
        if seed % 40 == 39:
            jax.clear_caches()
    ran = max(counts["equal"] + counts["within bound"], 1)
    print(", ".join(f"{counts[kind]} {kind}" for kind in OUTCOMES))
    print(
        f"{first / ran:.1f} ms the first time, {again / ran:.1f} ms again, {steps / ran:.0f} instructions a program"
    )
    return int(counts["different"] + counts["fault"] > 0)


if __name__ == "__main__":
    sys.exit(main())
