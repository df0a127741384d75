"""How searches compare where the best plan is known: spaces that are looked through as a whole.

python benchmarks/tuning.py [--kernels N] [--seeds N] [--page docs/tuning.md]

Of products, convolutions and kernels of the vector cores with at most a million plans all plans are priced, and those
that fit found. Branch and bound, which begins with graph-schedule's plan, is held against that: evaluations are
prices and bounds together, and time is that of its processor as a share of what looking through all plans takes. The
regret of a search is what its best plan of 300 takes over the best of all, by the price.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilewright.benchmarks.fusions import fusions_of
from tilewright.dialects.graph import FusionOp
from tilewright.machine import Machine
from tilewright.passes.choose.launches import launches_of
from tilewright.passes.lower.spaces import KernelSpace
from tilewright.support.files import write_part
from tilewright.tuning.search.exact import Plan, exact
from tilewright.tuning.search.sampled import SEARCHES, run

BEGIN, END = "<!-- searches: begin -->", "<!-- searches: end -->"

MOST = 1_000_000
"""Plans of a space that is looked through."""

LARGE = 10_000
"""Plans of a space of which the share of evaluations is said by itself."""

FEW = 300
"""Plans that a search looks at whose regret is measured."""

CHUNK = 1 << 16


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


def biased(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ w + b)


def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def shapes(*given: Sequence[int], dtype: str = "float16") -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape in given]


def programs() -> Iterator[tuple[str, Callable[..., Any], list[jax.ShapeDtypeStruct]]]:
    """Names, functions and operands."""
    sides = ((32, 64, 48), (64, 64, 64), (1, 512, 256), (100, 60, 70), (16, 256, 128), (96, 128, 32))
    for m, k, n in (*sides, (256, 256, 192), (96, 512, 256), (512, 128, 320)):
        yield "product", product, shapes((m, k), (k, n))
        yield "product with an epilogue", biased, shapes((m, k), (k, n), (n,))
    for hw, c, o in ((14, 32, 64), (28, 64, 128), (56, 64, 64), (7, 256, 512), (17, 16, 24)):
        yield "convolution", convolution, shapes((1, hw, hw, c), (3, 3, c, o))
    for rows, columns in ((1000, 777), (64, 4096), (4096, 64), (13, 100), (333, 333), (2000, 50), (128, 128)):
        for dtype in ("float16", "float32"):
            x = shapes((rows, columns), dtype=dtype)
            yield "elementwise", lambda x: jnp.exp(x) * 2, x
            yield "rows", lambda x: jax.nn.softmax(x, -1), x
            yield "transpose", lambda x: x.T + 1, x
            yield "columns", lambda x: x - x.max(0), x


@dataclass
class Family:
    """Kernels of one kind. spaces: plans of each; share: evaluations of branch and bound for a plan; time: what it
    takes, of what looking through all plans takes; found: whether it
    found the best; heuristic: regret of graph-schedule; regrets: of searches, each seed."""

    spaces: list[int] = field(default_factory=list[int])
    share: list[float] = field(default_factory=list[float])
    time: list[float] = field(default_factory=list[float])
    found: list[bool] = field(default_factory=list[bool])
    heuristic: list[float] = field(default_factory=list[float])
    regrets: dict[str, list[float]] = field(default_factory=lambda: defaultdict[str, list[float]](list))
    seconds: float = 0.0


def whole(space: KernelSpace) -> tuple[float, int, float]:
    """The least price of a plan that fits, of all plans; how many plans there are; and seconds."""
    best, begin, count = inf, time.process_time(), 0
    for plans in space.space.chunks(CHUNK):
        plans = plans[space.valid(plans)]
        count += len(plans)
        us = space.price(plans)
        for i in np.argsort(us, kind="stable").tolist():
            if us[i] >= best:
                break
            if space.schedule(tuple(plans[i].tolist())) is not None:
                best = float(us[i])
                break
    return best, count, max(time.process_time() - begin, 1e-9)


def searched(kernel: Any, name: str, family: Family, names: Sequence[str], seeds: int) -> float:
    """Measures the searches over one kernel; plans that were priced in a second."""
    space = kernel.space(name)
    best, count, seconds = whole(space)
    tried = [*kernel.candidates(name)]
    first = kernel.completed(name, tried[int(np.argmin(kernel.price_many(tried)))])
    begin, fresh = time.process_time(), kernel.space(name)
    found = exact(fresh, lambda p: fresh.schedule(p) is not None, [n for n in (fresh.numbers(first),) if n is not None])
    family.time.append((time.process_time() - begin) / seconds)
    family.spaces.append(count)
    family.share.append(found.evaluations / count)
    family.found.append(found.certified and abs(found.microseconds - best) <= 1e-9 * best)
    family.heuristic.append(kernel.bound(first) / best - 1)

    def judge(plans: np.ndarray) -> list[float]:
        def fits(plan: Plan) -> bool:
            return space.schedule(plan) is not None

        priced = zip(space.price(plans).tolist(), plans.tolist(), strict=True)
        return [us if isfinite(us) and fits(tuple(plan)) else inf for us, plan in priced]

    for each in names:
        for seed in range(seeds):
            us = run(SEARCHES[each](space.space, seed), judge, FEW).microseconds
            family.regrets[each].append(us / best - 1 if isfinite(us) else inf)
    return count / seconds


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=1000, help="kernels that are looked at, at most")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--searches", default="random,genetic,tree")
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--page", help="a Markdown file whose part of results is written anew")
    args = parser.parse_args(argv)
    machine, names = Machine.load(args.target), args.searches.split(",")
    families: dict[str, Family] = defaultdict(Family)
    speeds: list[float] = []
    for name, function, operands in programs():
        if len(speeds) >= args.kernels:
            break
        fusion = max(fusions_of(function, operands, args.target), key=FusionOp.flops)
        plan = launches_of(fusion, machine)[0]
        kernel = plan.kernel(plan.stem, None)
        if 1 < kernel.space(plan.stem).space.size <= MOST:
            speeds.append(searched(kernel, plan.stem, families[name], names, args.seeds))
    lines = [
        "| kernels | how many | plans, median | best found | evaluations a plan, median | most | time, median "
        f"| heuristic | {' | '.join(names)} |",
        "|---|" + "---:|" * (7 + len(names)),
    ]
    for name, each in families.items():
        regrets = [f"{statistics.median(each.regrets[n]):.1%}, {max(each.regrets[n]):.1%}" for n in names]
        lines.append(
            f"| {name} | {len(each.spaces)} | {statistics.median(each.spaces):,.0f} | {sum(each.found)} "
            f"| {statistics.median(each.share):.2%} | {max(each.share):.2%} | {statistics.median(each.time):.1%} "
            f"| {statistics.median(each.heuristic):.1%}, {max(each.heuristic):.1%} | {' | '.join(regrets)} |"
        )
    large = [s for f in families.values() for s, n in zip(f.share, f.spaces, strict=True) if n >= LARGE]
    many = sum(len(f.spaces) for f in families.values())
    total = sum(sum(s * n for s, n in zip(f.share, f.spaces, strict=True)) for f in families.values())
    plans = sum(sum(f.spaces) for f in families.values())
    lines += [
        "",
        f"{many} kernels; {total / max(plans, 1):.2%} evaluations for all plans together, "
        f"{statistics.median(large or [0]):.2%} median and {max(large or [0]):.2%} at most for the {len(large)} with "
        f"{LARGE:,}",
        f"plans or more; {statistics.median(speeds):,.0f} plans priced in a processor second, median.",
    ]
    print(*lines, sep="\n")
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
