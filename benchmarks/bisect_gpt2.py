"""How long a bisection of GPT-2 takes for one corrupted pass, and how small its reproducer is.

python benchmarks/bisect_gpt2.py            # graph-to-tile swaps the operands of every subtraction
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

import tilewright as tw
from tilewright.passes.pipeline import PIPELINE, make_pass

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
REAL = next(s for s in PIPELINE if s.name == "graph-to-tile")


@dataclass(frozen=True)
class SwappedSubtraction(ModulePass):
    """graph-to-tile with one mistake."""

    name = "graph-to-tile"
    target: str = "ascend-910b1"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        make_pass(REAL, self.target).apply(ctx, op)
        for inner in op.walk():
            if inner.name == "tile.sub":
                inner.operands = list(inner.operands)[::-1]


def main() -> int:
    """Prints the culprit, the seconds and the ops; 1 where the bug was not found."""
    import gpt2  # pyright: ignore[reportMissingImports]

    args: tuple[Any, ...] = gpt2.forward_inputs()
    stages = [replace(s, load=lambda: SwappedSubtraction) if s is REAL else s for s in PIPELINE]
    start, used = time.perf_counter(), time.process_time()
    culprit = tw.verify(gpt2.forward, *args, stages=stages, bisect=True).culprit
    took, used = time.perf_counter() - start, time.process_time() - used
    if culprit is None or culprit.reproducer is None:
        print("not found")
        return 1
    print("\n".join(culprit.sentences()))
    print(f"{took:.1f} s ({used:.1f} s of processor time), reproducer of {culprit.reproducer.ops} ops")
    return 0


if __name__ == "__main__":
    sys.exit(main())
