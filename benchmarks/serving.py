"""What dynamic shapes save when requests of many lengths are served: modelled time and traffic.

    python benchmarks/serving.py [--requests 1000] [--longest 1024] [--seed 0] [--target T]

Requests of GPT-2's decoder (4 layers of 256) have lengths that are drawn log-normally. They are served as they are, by
one program with an open length; padded to the next power of two, by a program for each; and padded to the longest, by
one program. Microseconds and bytes are those of the reports, launches included.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gpt2.py"
LAYERS, WIDTH, HEADS, VOCABULARY = 4, 256, 8, 8192


def decoder(longest: int) -> tuple[Callable[..., Any], Any]:
    """The decoder as a function of weights and tokens, and the types of its weights."""
    import jax

    spec = importlib.util.spec_from_file_location("gpt2", EXAMPLE)
    assert spec is not None and spec.loader is not None
    gpt2 = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpt2)
    config = gpt2.Config(LAYERS, WIDTH, HEADS, longest, VOCABULARY, longest)
    weights = jax.eval_shape(lambda: gpt2.init(config, "float16"))

    def forward(params: Any, tokens: Any) -> Any:
        return gpt2.decode(params, tokens, HEADS)

    return forward, weights


def lengths(count: int, longest: int, seed: int) -> Counter[int]:
    """How many requests have each length: log-normal, a median of 120 tokens."""
    drawn = np.random.default_rng(seed).lognormal(np.log(120), 0.8, count)
    return Counter(int(n) for n in np.clip(drawn, 2, longest))


def main() -> None:
    """Prints a row for each way of serving."""
    import jax
    from jax import export

    import tilewright as tw

    parser = argparse.ArgumentParser(description="Serves requests of many lengths.")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="ascend-910b1")
    options = parser.parse_args()
    forward, weights = decoder(options.longest)
    asked = lengths(options.requests, options.longest, options.seed)
    (t,) = export.symbolic_shape("t", constraints=[f"t <= {options.longest}"])
    dynamic = tw.compile(forward, weights, jax.ShapeDtypeStruct((t,), "int32"), target=options.target)
    static: dict[int, Any] = {}

    def padded(n: int) -> Any:
        if n not in static:
            tokens = jax.ShapeDtypeStruct((n,), "int32")
            static[n] = tw.compile(forward, weights, tokens, target=options.target).report()
        return static[n]

    ways: dict[str, Callable[[int], Any]] = {
        "one program, open length": lambda n: dynamic.report(at={"t": n}),
        "padded to powers of two": lambda n: padded(min(1 << (n - 1).bit_length(), options.longest)),
        "padded to the longest": lambda n: padded(options.longest),
    }
    print(f"{sum(asked.values())} requests of {len(asked)} lengths, {min(asked)} to {max(asked)} tokens")
    first: tuple[float, float] | None = None
    for name, price in ways.items():
        start = time.perf_counter()
        reports = {n: price(n) for n in asked}
        us = sum(count * reports[n].microseconds for n, count in asked.items())
        moved = sum(count * sum(sum(k.bytes.values()) for k in reports[n].kernels) for n, count in asked.items())
        first = first or (us, moved)
        print(
            f"{name:26} {us / 1e6:7.3f} s  {us / first[0]:5.2f}x   {moved / 1e9:8.1f} GB  {moved / first[1]:5.2f}x   "
            f"(priced in {time.perf_counter() - start:.0f} s)"
        )
    made = sum(hasattr(v, "template") for v in dynamic.ranges.values())
    print(f"programs: {made} ranges of the open one, {len(static)} padded ones")


if __name__ == "__main__":
    main()
