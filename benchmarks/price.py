"""How well the price of a schedule ranks schedules: beside the simulated time of the same kernel alone, by kinds of
kernels.

python benchmarks/price.py [MODEL ...] [--target T] [--rows RECORDS.json] [--most N] [--page docs/price.md]
python benchmarks/price.py --speed                     # plans that are priced in a second, instead

Of each kernel of the examples, and of rows of the vendor's benchmark, up to N of the schedules that graph-schedule
tries are priced and simulated. The rank correlation is Spearman's; the regret is what the schedule of the least price
takes over what the best one takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import cann_bench
import jax
import numpy as np
from ablation import MODELS
from run import load
from scipy.stats import spearmanr

import tilewright as tw
from tilewright.benchmarks.fusions import fusions_of
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.schedules import Schedule
from tilewright.dialects.schedule_text import schedule_text
from tilewright.kernels.product_cost import on_cores
from tilewright.machine import Machine
from tilewright.passes.choose.launches import LaunchPlan, launches_of
from tilewright.passes.errors import PassError
from tilewright.passes.forms.fingerprint import fingerprint
from tilewright.passes.lower.chains.attention_costs import AttentionCosts
from tilewright.passes.lower.cube.contraction_choice import ContractionChoice
from tilewright.passes.lower.scheduled import ScheduledKernel
from tilewright.support.files import write_part
from tilewright.tuning.alone import LaunchQuestion, SimulatorJudge, module_of

BEGIN, END = "<!-- price: begin -->", "<!-- price: end -->"

LEAST = 4
"""A kernel of fewer schedules ranks nothing."""

HEADER = (
    "| kernels | how many | schedules | rank correlation, median | worst tenth | regret, median | 90 % | worst |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)


@dataclass
class Family:
    """Kernels of one class. correlations, regrets: of each kernel; schedules: judged in all."""

    correlations: list[float] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)
    schedules: int = 0

    def add(self, priced: Sequence[float], simulated: Sequence[float]) -> None:
        """The schedules of one kernel."""
        self.schedules += len(priced)
        best, chosen = min(simulated), simulated[min(range(len(priced)), key=priced.__getitem__)]
        self.regrets.append(chosen / best - 1)
        if len(set(priced)) > 1 and len(set(simulated)) > 1:
            self.correlations.append(float(spearmanr(priced, simulated).statistic))

    def line(self, name: str) -> str:
        ranks, regrets = sorted(self.correlations) or [float("nan")], sorted(self.regrets)
        tenth, ninety = ranks[len(ranks) // 10], regrets[min(len(regrets) * 9 // 10, len(regrets) - 1)]
        return (
            f"| `{name}` | {len(regrets)} | {self.schedules} | {statistics.median(ranks):.2f} | {tenth:.2f} "
            f"| {statistics.median(regrets):.1%} | {ninety:.1%} | {regrets[-1]:.1%} |"
        )


def simulated(fusion: FusionOp, schedule: Schedule, target: str) -> float | None:
    """Microseconds of a kernel alone; None where it cannot run so."""
    question = LaunchQuestion(str(module_of(fusion, target)), schedule_text(schedule), target)
    (found,) = SimulatorJudge().measure([question])
    return found.microseconds if np.isfinite(found.microseconds) else None


def judged(
    fusion: FusionOp, plan: LaunchPlan, machine: Machine, target: str, most: int
) -> tuple[str, list, list]:
    """The class of a kernel, and the prices and times of its schedules."""
    kernel = plan.kernel(plan.stem, None)
    tried = list(kernel.candidates(plan.stem))
    tried = tried[:: max(-(-len(tried) // most), 1)]
    pairs = [(kernel.bound(s), simulated(fusion, s, target)) for s in tried]
    known = [(price, time) for price, time in pairs if time is not None and np.isfinite(price)]
    return type(kernel).__name__, [p for p, _ in known], [t for _, t in known]


def programs(
    models: Sequence[str], target: str, rows: str | None
) -> Iterator[tuple[Any, Sequence[Any], str, Any]]:
    """(function, operands, target, context of its types) of what is looked at."""
    for model in models:
        yield (*load(model), target, None)
    for entry in json.loads(Path(rows).read_text()) if rows else ():
        with suppress(cann_bench.Unclear):
            case = cann_bench.case_of(entry)
            yield case.function, case.operands, cann_bench.CHIPS[case.chip], case


def families(found: Iterable[tuple[Any, Sequence[Any], str, Any]], most: int) -> dict[str, Family]:
    """What was found of the kernels of some programs, equal ones once."""
    known: set[str] = set()
    out: dict[str, Family] = defaultdict(Family)
    for function, operands, target, case in found:
        machine = Machine.load(target)
        try:
            with case.types() if case is not None else nullcontext():
                fusions = fusions_of(function, operands, target)
        except (PassError, tw.CompileError):
            continue
        for fusion in fusions:
            key = fingerprint(fusion, machine)
            if key in known:
                continue
            known.add(key)
            with suppress(PassError):
                launches = launches_of(fusion, machine)
                if len(launches) == 1:
                    name, prices, times = judged(fusion, launches[0], machine, target, most)
                    if len(prices) >= LEAST:
                        out[name].add(prices, times)
        jax.clear_caches()
    return out


# -- how fast plans are priced ---------------------------------------------------------------------------------

SPEED = (
    "| kernel | schedules that are tried | one by one | as a list | as arrays |",
    "|---|---:|---:|---:|---:|",
)
MANY, LEAST_SECONDS = 100_000, 0.5
"""Plans of an array, and how long each way is tried, at least."""


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, axis=-1) @ v


def anew(kernel: ScheduledKernel, tried: Sequence[Schedule]) -> Any:
    """Prices of schedules of which none is known."""
    if isinstance(kernel, ContractionChoice):
        kernel.known = {True: {}, False: {}}
    return kernel.price_many(tried)


def per_second(count: int, price: Callable[[], Any]) -> float:
    """Plans in a processor second where each call prices so many."""
    price()
    begin, calls = time.process_time(), 0
    while time.process_time() - begin < LEAST_SECONDS:
        price()
        calls += 1
    return count * calls / (time.process_time() - begin)


def priced_arrays(kernel: ScheduledKernel, tried: Sequence[Any]) -> Callable[[], Any]:
    """What prices MANY plans that are arrays: those that are tried, over and over."""
    numbers = np.arange(MANY) % len(tried)
    if isinstance(kernel, ContractionChoice):
        few = kernel.plans([s for s in tried if s.inner == tried[0].inner], kernel.problem)
        numbers = np.arange(MANY) % len(few.numbers)
        grid = [each[numbers] for each in few.grid]
        many = replace(few, numbers=np.array(few.numbers)[numbers], grid=grid, overlaps=few.overlaps[numbers])
        return lambda: (
            on_cores(many, kernel.problem, kernel.outside, kernel.machine).price(kernel.machine).microseconds
        )
    assert isinstance(kernel, AttentionCosts)
    plans = kernel.plans(tried)
    names = [f.name for f in fields(plans) if f.name != "grid"]
    many = {name: np.broadcast_to(getattr(plans, name), len(tried))[numbers] for name in names}
    arrays = replace(plans, **many, grid=[each[numbers] for each in plans.grid])
    return lambda: kernel.facts.price(arrays).microseconds


def speeds(target: str) -> Iterator[str]:
    """How many plans are priced in a second, of a large product and of attention."""
    machine = Machine.load(target)

    def operands(*shapes: Sequence[int]) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(shape, "float16") for shape in shapes]

    heads = (1, 16, 4096, 128)
    for name, function, args in (
        ("product, 4096 x 4096 x 4096", product, operands((4096, 4096), (4096, 4096))),
        ("attention, 16 heads, 4096 x 128", attention, operands(heads, heads, heads)),
    ):
        fusion = max(fusions_of(function, args, target), key=FusionOp.flops)
        (plan,) = launches_of(fusion, machine)
        kernel = plan.kernel(plan.stem, None)
        tried = list(kernel.candidates(plan.stem))
        found = (
            per_second(len(tried), lambda kernel=kernel, tried=tried: [kernel.bound(s) for s in tried]),
            per_second(len(tried), partial(anew, kernel, tried)),
            per_second(MANY, priced_arrays(kernel, tried)),
        )
        yield f"| {name} | {len(tried)} | {' | '.join(f'{n:,.0f}' for n in found)} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--rows", help="the vendor's benchmark, whose rows are looked at, too")
    parser.add_argument(
        "--most", type=int, default=12, help="schedules of a kernel that are judged (default 12)"
    )
    parser.add_argument("--page", help="a Markdown file whose part of results is written anew")
    parser.add_argument("--speed", action="store_true", help="how many plans are priced in a second")
    args = parser.parse_args(argv)
    if args.speed:
        print(*SPEED, *speeds(args.target), sep="\n")
        return
    found = families(programs(args.models, args.target, args.rows), args.most)
    lines = [*HEADER, *(family.line(name) for name, family in sorted(found.items()))]
    print(*lines, sep="\n")
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
