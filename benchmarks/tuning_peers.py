"""Tilewright's search of plans beside those of two peers, on the same matrix products.

    python benchmarks/tuning_peers.py [--python PATH] [--seconds 30] [--page docs/tuning.md]

The peers, zigzag-dse and MetaSchedule, which is in apache-tvm, are no dependencies: install them into an
environment of their own, and name its interpreter with --python. Each tool runs by itself and takes one processor,
whose seconds are counted: what else the machine does matters little. What they cost plans by is not the same:
cycles of zigzag-dse's `ascend_like` chip, seconds of this processor, Tilewright's price and its simulator. So
rates, evaluations until the best plan, proofs, and what a plan costs more within one tool can be held against each
other; costs cannot.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from math import isfinite

import jax
import numpy as np

from tilewright.benchmarks import peer_searches
from tilewright.benchmarks.fusions import fusions_of
from tilewright.benchmarks.peer_searches import PACKAGES, Product, Row, Watch
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.schedule_text import schedule_text
from tilewright.kernels.space import Box, Plans, PlanSpace
from tilewright.machine import Machine
from tilewright.passes.choose.launches import launches_of
from tilewright.passes.lower.spaces import KernelSpace
from tilewright.support.files import write_part
from tilewright.tuning.alone import LaunchQuestion, SimulatorJudge, module_of
from tilewright.tuning.search.exact import Plan, exact

BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"

PRODUCTS: tuple[Product, ...] = (
    (100, 60, 70),
    (256, 192, 320),
    (333, 1021, 517),
    (1000, 777, 640),
    (1024, 1024, 1024),
    (4096, 4096, 4096),
    (1, 4096, 4096),
    (17, 4096, 1001),
)

HEADER = (
    "| product | search | plans | evaluations | seconds | a second | until the best | proven | first plan worse |",
    "|---|---|---:|---:|---:|---:|---:|---|---:|",
)

JUDGED = 64
"""Plans of the least price that the simulator judges."""

INSTALL = "python -m venv peers && peers/bin/pip install zigzag-dse six 'apache-tvm[all]' 'apache-tvm-ffi<0.1.15'"
"""How to get the peers: zigzag-dse lacks six, and with a later apache-tvm-ffi this apache-tvm ends as it begins."""

ONE = {f"{name}_NUM_THREADS": "1" for name in ("MKL", "OMP", "OPENBLAS", "TVM")}
"""What limits the threads of a peer."""


class Counted:
    """A space whose prices and bounds are counted."""

    def __init__(self, inner: KernelSpace) -> None:
        self.inner, self.evaluations = inner, 0

    @property
    def space(self) -> PlanSpace:
        return self.inner.space

    def price(self, plans: Plans) -> np.ndarray:
        self.evaluations += len(plans)
        return self.inner.price(plans)

    def valid(self, plans: Plans) -> np.ndarray:
        return self.inner.valid(plans)

    def bound(self, box: Box) -> float:
        self.evaluations += 1
        return self.inner.bound(box)

    def parts(self, box: Box) -> Sequence[Box]:
        return self.inner.parts(box)


def tilewright(product: Product, seconds: float, target: str, judged: int = JUDGED) -> Iterator[Row]:
    """Branch and bound by the price, and the simulator as the judge of the plans of the least price. The first plan is
    the one that graph-schedule takes, in both."""
    m, k, n = product
    operands = [jax.ShapeDtypeStruct(shape, "float16") for shape in ((m, k), (k, n))]
    fusion = max(fusions_of(lambda x, w: x @ w, operands, target), key=FusionOp.flops)
    plan = launches_of(fusion, Machine.load(target))[0]
    kernel = plan.kernel(plan.stem, None)
    tried = [*kernel.candidates(plan.stem)]
    first = kernel.completed(plan.stem, tried[int(np.argmin(kernel.price_many(tried)))])

    watch, space = Watch(seconds), Counted(kernel.space(plan.stem))
    start = [numbers for numbers in (space.inner.numbers(first),) if numbers is not None]

    def fits(plan: Plan) -> bool:
        """Asked of the plans alone that would be the best one."""
        if space.inner.schedule(plan) is None:
            return False
        watch.until_best = space.evaluations
        return True

    found = exact(space, fits, start, None, seconds)
    watch.evaluations, watch.best, watch.first = space.evaluations, found.microseconds, kernel.bound(first)
    yield watch.row("Tilewright, price", product, space.space.size, found.certified)

    fresh = kernel.space(plan.stem)
    drafts = exact(fresh, lambda plan: fresh.schedule(plan) is not None, start, None, seconds, judged).best
    schedules = dict.fromkeys([first, *filter(None, (fresh.schedule(plan) for _, plan in drafts))])
    judge, module, watch = SimulatorJudge(), str(module_of(fusion, target)), Watch(seconds)
    for schedule in schedules:
        if watch.over:
            break
        (measured,) = judge.measure([LaunchQuestion(module, schedule_text(schedule), target)])
        if isfinite(measured.microseconds):
            watch.add(measured.microseconds)
    yield watch.row("Tilewright, simulator", product, len(schedules), False)


def asked(python: str, which: str, request: str = "") -> list[str]:
    """The lines that the side of the peers writes. Raises OSError where the interpreter cannot be run; one that ends
    early is said, and what it has written counts."""
    command = [python, peer_searches.__file__, which]
    done = subprocess.run(command, input=request, capture_output=True, text=True, env=os.environ | ONE)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        print(f"{which} ended with {done.returncode}: {' '.join(said[-1:])}", file=sys.stderr)
    return done.stdout.splitlines()


def peers(python: str, products: Sequence[Product], seconds: float) -> tuple[dict[str, str], list[Row]]:
    """Versions of the peers that are installed, and their rows. Raises OSError where the interpreter cannot be run, and
    ValueError where it is none."""
    known: dict[str, str | None] = json.loads("".join(asked(python, "versions")))
    rows: list[Row] = []
    for peer, package in PACKAGES.items():
        if known[peer] is None:
            print(f"{package} is not installed for {python}; to get it: {INSTALL}", file=sys.stderr)
            continue
        for text in asked(python, peer, json.dumps({"products": products, "seconds": seconds})):
            found = json.loads(text)
            rows.append(Row(**found | {"product": tuple(found["product"])}))
    return {PACKAGES[peer]: found for peer, found in known.items() if found is not None}, rows


def line(row: Row) -> str:
    """A line of the table."""
    m, k, n = row.product
    plans = "" if row.plans is None else f"{row.plans:,}" if row.plans < 10**12 else f"{row.plans:.1e}"
    rate = row.evaluations / max(row.seconds, 1e-9)
    worse = "" if row.first_worse is None else f"{row.first_worse:.1%}"
    return (
        f"| {m} x {k} x {n} | {row.search} | {plans} | {row.evaluations:,} | {row.seconds:.1f} | {rate:,.1f} "
        f"| {row.until_best or ''} | {'yes' if row.proven else 'no'} | {worse} |"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter in which the peers are installed")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the processor, for each product and search")
    parser.add_argument("--products", type=int, default=len(PRODUCTS), help="how many are looked at")
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--page", help="a Markdown file whose part of results is written anew")
    args = parser.parse_args(argv)
    products = PRODUCTS[: args.products]
    try:
        versions, rows = peers(args.python, products, args.seconds)
    except OSError as error:
        print(f"{args.python}: cannot be run: {error.strerror}", file=sys.stderr)
        return 1
    except ValueError:
        print(f"{args.python}: is no Python interpreter", file=sys.stderr)
        return 1
    ours = [row for product in products for row in tilewright(product, args.seconds, args.target)]
    lines = [
        *HEADER,
        *map(line, sorted([*ours, *rows], key=lambda row: products.index(row.product))),
        "",
        f"{', '.join(f'{name} {found}' for name, found in versions.items()) or 'No peers'}.",
        f"{args.seconds:g} s of one processor for each product and search, or until it is done.",
    ]
    print(*lines, sep="\n")
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
