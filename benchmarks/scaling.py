"""How the time of each stage grows with a program: processor seconds at five sizes of each axis, each twice the one
before, and the exponent of the size that they grow with.

`python benchmarks/scaling.py [--axis NAME ...] [--times N]`. Exits with 1 where an exponent is above 1.2, where equal
layers become more kernels, or where a compilation takes longer than the limits of `LIMITS`. An exponent is the slope of
the last three sizes on logarithmic scales; each time is the least of N runs. Times below 50 ms are noise: where the
second of the three is below, there is no exponent.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

import tilewright as tw
from tilewright.dialects.npu.structure import KernelOp
from tilewright.passes.npu.check import check
from tilewright.support.collector import collector_paused

MOST = 1.2
NOISE = 0.05
"""Seconds."""

STAGES = ("compile", "check", "simulate", "report")
Case = tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]


@dataclass(frozen=True)
class Axis:
    """Programs of one kind: `case` makes the one of a size, `first` is the smallest of the sizes. `equal`: the parts
    are equal, so that a larger program has no more kernels."""

    case: Callable[[int], Case]
    first: int
    equal: bool = False


def _specs(*shapes: tuple[int, ...], dtype: str = "float16") -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


def mlp(x: jax.Array, *weights: jax.Array) -> jax.Array:
    """Products with a relu behind each."""
    for w in weights:
        x = jax.nn.relu(x @ w)
    return x


def layers(n: int) -> Case:
    """n equal layers."""
    return mlp, _specs(*[(256, 256)] * (n + 1))


def softmaxes(*rows: jax.Array) -> list[jax.Array]:
    """Each argument by itself."""
    return [jax.nn.softmax(x) for x in rows]


def kernels(n: int) -> Case:
    """n softmaxes, each of rows of a length of its own, few and many of them of the same lengths."""
    return softmaxes, _specs(*[(32, 512 + 8 * (37 * i % 128)) for i in range(n)])


def products(n: int) -> Case:
    """n layers, each of a width of its own."""
    widths = [512 + 16 * (37 * i % 64) for i in range(n + 1)]
    return mlp, _specs((256, widths[0]), *pairwise(widths))


def arguments(n: int) -> Case:
    """n scalars, added up."""
    return lambda *x: sum(x), _specs(*[()] * n, dtype="float32")


def clip(*gradients: jax.Array) -> list[jax.Array]:
    """Gradients, clipped by the norm of all of them."""
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in gradients))
    return [x / jnp.maximum(1, norm) for x in gradients]


def leaves(n: int) -> Case:
    """The gradients of n weights."""
    return clip, _specs(*[(64, 64)] * n, dtype="float32")


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Attention with its heads behind the sequence."""
    return jax.nn.dot_product_attention(q, k, v)


def heads(n: int) -> Case:
    """Attention of n heads, four to a sequence."""
    return attention, _specs(*[(n // 4, 512, 4, 64)] * 3)


def sequence(n: int) -> Case:
    """Attention of n places."""
    return attention, _specs(*[(1, n, 8, 64)] * 3)


def trips(n: int) -> Case:
    """A product whose inner loops run n times."""
    return lambda x, y: x @ y, _specs((256, 128 * n), (128 * n, 256))


AXES = {
    "layers": Axis(layers, 16, equal=True),
    "kernels": Axis(kernels, 8),
    "products": Axis(products, 4),
    "arguments": Axis(arguments, 125),
    "leaves": Axis(leaves, 15),
    "heads": Axis(heads, 16),
    "sequence": Axis(sequence, 512),
    "trips": Axis(trips, 16),
}


LIMITS: dict[str, tuple[Case, float]] = {
    "one op": ((lambda x: jnp.exp(x), _specs((1024, 1024))), 1.0),
    "300 leaves": (leaves(300), 3.0),
}
"""Seconds that a user feels: what a compilation with its check may take."""


@dataclass(frozen=True)
class Run:
    """The seconds of each stage for one program, and how many kernels it has."""

    seconds: tuple[float, ...]
    kernels: int


def measured(case: Case) -> Run:
    """One compilation, and what follows it."""
    fn, specs = case
    gc.collect()
    marks = [time.process_time()]
    program = tw.compile(fn, *specs, options=tw.Options(check=False))
    marks.append(time.process_time())
    with collector_paused():  # as in a compilation
        found = check(program.module(), program.machine)
    marks.append(time.process_time())
    program.simulation()
    marks.append(time.process_time())
    program.report()
    marks.append(time.process_time())
    if found:
        raise SystemExit(f"npu-check: {found[0]}")
    count = sum(isinstance(op, KernelOp) for op in program.module().ops)
    return Run(tuple(b - a for a, b in pairwise(marks)), count)


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    """The slope of the last three times; None where they are noise."""
    if seconds[-2] < NOISE:
        return None
    x, y = ([math.log(value) for value in some[-3:]] for some in (sizes, seconds))
    middle = sum(x) / 3
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def table(name: str, axis: Axis, times: int) -> bool:
    """Prints the rows of one axis; whether each stage grows as it should."""
    sizes = [axis.first << i for i in range(5)]
    runs = []
    for size in sizes:
        again = [measured(axis.case(size)) for _ in range(times)]
        runs.append(Run(tuple(map(min, zip(*(run.seconds for run in again), strict=True))), again[0].kernels))
    good = not axis.equal or runs[0].kernels == runs[-1].kernels
    print(f"| {name} | {' | '.join(map(str, sizes))} | exponent |")
    for i, stage in enumerate(STAGES):
        seconds = [run.seconds[i] for run in runs]
        power = exponent(sizes, seconds)
        good &= power is None or power <= MOST
        shown = "-" if power is None else f"{power:.2f}{'' if power <= MOST else ' !'}"
        print(f"| {stage} | {' | '.join(f'{s:.2f}' for s in seconds)} | {shown} |")
    print(f"| kernels | {' | '.join(str(run.kernels) for run in runs)} | |", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axis", action="append", choices=list(AXES))
    parser.add_argument("--times", type=int, default=2)
    options = parser.parse_args()
    tw.compile(lambda x: x + 1, *_specs((4,))).report()
    good = [table(name, AXES[name], options.times) for name in options.axis or AXES]
    for name, (case, most) in () if options.axis else LIMITS.items():
        seconds = sum(measured(case).seconds[:2])
        good.append(seconds <= most)
        print(f"{name}: {seconds:.2f} s, of {most:.0f}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
