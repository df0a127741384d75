"""What each alternative saves: examples compiled with all of them and without each, in modelled microseconds, and by
other judges.

python benchmarks/ablation.py [MODEL ...] [--target T] [--rows RECORDS.json ...] [--page docs/ablation.md]

RECORDS are the vendor's benchmark and published kernels, as cann_bench.py and products.py read them: of each
alternative it is then said how many of those rows it moves by a hundredth, and the one that it saves most.
The judges: the machine as it is (frozen), as it was before mixed launches, signals between cores and banks cost
anything, and with barriers of half and of twice the cost. They time the program that the frozen one chose.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import cann_bench
import jax
import products
from run import load

import tilewright as tw
from tilewright.backends.simulator import simulate
from tilewright.calibration.express import express
from tilewright.calibration.expressed import Inexpressible
from tilewright.machine import Machine
from tilewright.passes.alternatives import OURS
from tilewright.support.files import write_part

MODELS = (
    "gpt2.py:forward_f16",
    "bert.py:forward_f16",
    "vit.py:forward_f16",
    "resnet50.py:forward_f16",
    "llama.py:prefill",
    "llama.py:decode",
)
BEGIN, END = "<!-- ablation: begin -->", "<!-- ablation: end -->"

STEPS = {
    "all": tw.Options(),
    **{f"without {each.name}": tw.Options(without=each.name) for each in OURS},
    "none": tw.Options(without=[each.name for each in OURS]),
}
"""Which alternatives are considered."""

MOVED = 0.01
"""The share of a row's time from which on an alternative moves it."""

SAVINGS = (
    "| alternative | examples moved | benchmark rows moved | published products moved | most saved | its row |",
    "|---|---:|---:|---:|---:|---|",
)

HEADER = (
    "| model | on | us | launches | MiB moved | judge before us | barrier 0.5x us | barrier 2x us |",
    "|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Judges:
    """The machine as it is, and as others would have it."""

    frozen: Machine
    before: Machine
    half: Machine
    twice: Machine

    @staticmethod
    def of(machine: Machine) -> Judges:
        free = replace(machine, mixed_us=0.0, mixed_us_all=0.0, cross_us=0.0)
        return Judges(
            machine,
            replace(free, vector=replace(machine.vector, banks=None)),
            replace(machine, barrier_share=machine.barrier_share / 2),
            replace(machine, barrier_share=machine.barrier_share * 2),
        )

    def microseconds(self, program: tw.Program) -> list[float]:
        """The time of a program by each of them."""
        module = program.module("npu")
        found = (self.frozen, self.before, self.half, self.twice)
        return [simulate(module, machine).microseconds for machine in found]


def rows(model: str, target: str) -> list[str]:
    """The lines of one model."""
    function, inputs = load(model)
    judges, found = Judges.of(Machine.load(target)), []
    for name, options in STEPS.items():
        program = tw.compile(function, *inputs, target=target, options=options)
        report = program.report()
        moved = sum(kernel.bytes["hbm"] + kernel.bytes["l2"] for kernel in report.kernels)
        us, before, half, twice = judges.microseconds(program)
        found.append(
            f"| `{model}` | {name} | {us:,.1f} | {report.counts.launches} | {moved / 2**20:,.1f} "
            f"| {before:,.1f} | {half:,.1f} | {twice:,.1f} |"
        )
    return found


@dataclass(frozen=True)
class Case:
    """A program that is compiled with each alternative left out. kind: which column counts it."""

    kind: str
    name: str
    function: Callable[..., Any]
    operands: Sequence[Any]
    target: str
    types: Callable[[], AbstractContextManager[Any]] = nullcontext

    def microseconds(self, without: str = "") -> float:
        """What it takes; infinity where it cannot be compiled so."""
        try:
            with self.types():
                options = tw.Options(without=without)
                program = tw.compile(self.function, *self.operands, target=self.target, options=options)
            return program.report().microseconds
        except tw.CompileError:
            return inf


KINDS = ("examples", "rows", "products")


def cases(models: Sequence[str], target: str, files: Sequence[str]) -> Iterator[Case]:
    """The examples, and what the files hold."""
    for model in models:
        yield Case("examples", model, *load(model), target)
    for file in files:
        entries = json.loads(Path(file).read_text())
        for entry in entries if "t_hw_us" in entries[0] else ():
            with suppress(cann_bench.Unclear):
                row = cann_bench.case_of(entry)
                yield Case("rows", row.id, row.function, row.operands, cann_bench.CHIPS[row.chip], row.types)
        if "t_hw_us" not in entries[0]:
            for record in products.records_of([file]):
                with suppress(Inexpressible):
                    each = express(record)
                    if not isinstance(each.source, str):
                        yield Case("products", record.id, each.source, each.arguments, each.machine, each.precision)


def savings(found: Iterable[Case]) -> list[str]:
    """The lines of all alternatives: what they move of some cases."""
    moved = {each.name: Counter[str]() for each in OURS}
    most = {each.name: (0.0, "") for each in OURS}
    for case in found:
        whole = case.microseconds()
        for each in OURS if isfinite(whole) else ():
            saved = 1 - whole / case.microseconds(each.name)
            moved[each.name][case.kind] += abs(saved) >= MOVED
            most[each.name] = max(most[each.name], (saved, case.name))
        jax.clear_caches()
    return [
        f"| `{name}` | {' | '.join(str(counts[kind]) for kind in KINDS)} | {most[name][0]:.0%} | {most[name][1]} |"
        for name, counts in moved.items()
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--rows", nargs="*", default=(), metavar="FILE", help="records that are tried as well")
    parser.add_argument("--page", help="a Markdown file whose part of results is written anew")
    args = parser.parse_args(argv)
    lines = []
    if args.rows:
        lines += [*SAVINGS, *savings(cases(args.models, args.target, args.rows)), ""]
        print(*lines, sep="\n", flush=True)
    lines += HEADER
    for model in args.models:
        found = rows(model, args.target)
        print(*found, sep="\n", flush=True)
        lines += found
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
