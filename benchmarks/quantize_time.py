"""What `tw.quantize` of GPT-2 takes in `w8a16`, against `tw.compile` of the program in floats and of the quantized one.
Medians of turns, in seconds of processor time.

    python benchmarks/quantize_time.py [--turns 5] [--mode w8a16]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import gpt2
import jax

import tilewright as tw


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5, help="of which the median is taken (default 5)")
    parser.add_argument("--mode", default="w8a16", help="of all products (default w8a16)")
    given = parser.parse_args()
    inputs = gpt2.forward_inputs()
    options = tw.Options(quantization=given.mode, weights="params")
    runs: dict[str, Callable[[], Any]] = {
        "tw.compile, floats": lambda: tw.compile(gpt2.forward, *inputs),
        f"tw.compile, {given.mode}": lambda: tw.compile(gpt2.forward, *inputs, options=options),
        f"tw.quantize, {given.mode}": lambda: tw.quantize(
            gpt2.forward, *inputs, config=given.mode, progress=False
        ),
    }
    tw.compile(lambda x: x + 1, jax.ShapeDtypeStruct((8,), "float32"))  # imports what compiling needs
    runs[f"tw.quantize, {given.mode}"]()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.turns):
        for name, run in runs.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    first = median(seconds["tw.compile, floats"])
    print("| GPT-2 | seconds | of tw.compile |\n|---|--:|--:|")
    for name, taken in seconds.items():
        print(f"| {name} | {median(taken):.2f} | {median(taken) / first:.2f} |")


if __name__ == "__main__":
    main()
