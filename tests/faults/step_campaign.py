"""Holds the faults that the stepping executor meets against those that npu-check proves.

    python tests/faults/step_campaign.py [--each N] [--seed N] [SOURCE ...]

Mutants of the kernels and the host programs of some programs are run on random inputs. Of each kind of mutation it
counts the mutants that both find, that only npu-check finds (the fault is not met with these inputs, or is none of
values and order), that only the executor finds (npu-check lets pass what goes wrong: prints it), and that neither does.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from host_mutants import HOST_MUTATIONS
from mutants import IMPOSSIBLE, KERNEL_MUTATIONS
from streams import PROGRAMS as STREAMED
from streams import compiled as streamed
from subject_types import TARGETS, Subject
from subjects import subject
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from tilewright.backends.stepper import StepFault, StepProgram
from tilewright.dialects.base import text
from tilewright.dialects.dtypes import numpy_dtype
from tilewright.dialects.module import find_main
from tilewright.dialects.npu import gm
from tilewright.dialects.npu.structure import KernelOp
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.npu.check import check

SOURCES = (
    "random 0",
    "random 1",
    "random 4",
    "random 5",
    "columns 0",
    "attention 0",
    "chained 0",
    "handed 0",
    "barriers 0",
    "made 0",
    *STREAMED,
)

ORDER = {"race", "deadlock", "reused-flag", "unpaired-flag", "stream-race", "barrier-race", "event-deadlock"}
"""Kinds of findings that are faults of order."""

OUTCOMES = ("both", "npu-check", "stepper", "neither")


@dataclass
class Agreement:
    """How many mutants of each kind got each outcome, and those that only the executor finds."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    only: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    """Faults of order that npu-check finds, and the executor does not."""

    def table(self) -> str:
        kinds = sorted({kind for kind, _ in self.counts})
        rows = [["mutation", *OUTCOMES]]
        for kind in [*kinds, "all"]:
            numbers = [
                sum(n for (k, o), n in self.counts.items() if o == each and kind in (k, "all"))
                for each in OUTCOMES
            ]
            rows.append([kind, *map(str, numbers)])
        return "\n".join(f"{row[0]:42}" + "".join(f"{c:>11}" for c in row[1:]) for row in rows)


def arguments(module: ModuleOp, seed: int) -> list[np.ndarray]:
    """Random arrays for a program."""
    rng, found = np.random.default_rng(seed), list[np.ndarray]()
    main = find_main(module)
    assert main is not None
    for arg in main.body.block.args:
        kind = gm(arg)
        dtype, shape = numpy_dtype(kind.element), kind.shape
        if dtype == np.bool_:
            found.append(rng.integers(0, 2, shape).astype(bool))
        elif dtype.kind in "iu":
            found.append(rng.integers(0, 5, shape).astype(dtype))
        else:
            found.append(rng.standard_normal(shape).astype(dtype))
    return found


MOST_STEPS = 200_000
"""Instructions of a mutant that are run: one may never end."""


def faults_of(module: ModuleOp, machine: Machine, arrays: Sequence[Any]) -> Exception | None:
    """The first fault that a run meets, or why there is none."""
    try:
        session = StepProgram(module, machine).session(arrays)
        while session.advance() is not None and session.steps < MOST_STEPS:
            pass
        if session.is_over:
            session.results()
    except (StepFault, VerifyException, ValueError, TypeError, KeyError) as error:
        return error
    return None


def subject_of(source: str, target: str) -> Subject:
    """A program of the fault campaigns, or one of those whose streams run side by side."""
    if source not in STREAMED:
        return subject(source, target)
    return Subject(source, streamed(source).module(), TARGETS[0])


def mutants(source: Subject, each: int, seed: int) -> Iterator[tuple[str, str, ModuleOp]]:
    """(kind, what was changed, mutant) of so many mutants of each kernel, and of the host program."""
    machine = Machine.load(source.target)
    for name in [text(op.sym_name) for op in source.module.ops if isinstance(op, KernelOp)]:
        rng = random.Random(f"{seed} {source.name} {name}")
        kinds = {k: mutations for k, mutations in KERNEL_MUTATIONS.items() if k != IMPOSSIBLE}

        def kernel_of(module: ModuleOp, name: str = name) -> KernelOp:
            return next(op for op in module.ops if isinstance(op, KernelOp) and text(op.sym_name) == name)

        for kind, what, module in _drawn(source, each, rng, machine, kinds, kernel_of):
            yield kind, f"{source.name} @{name}: {what}", module
    rng = random.Random(f"{seed} {source.name}")
    for kind, what, module in _drawn(source, each, rng, machine, HOST_MUTATIONS, lambda module: module):
        yield f"host: {kind}", f"{source.name}: {what}", module


def _drawn(
    source: Subject,
    each: int,
    rng: random.Random,
    machine: Machine,
    mutations: Mapping[str, Sequence[Callable[[Any, random.Random, Machine], str | None]]],
    part_of: Callable[[ModuleOp], Any],
) -> Iterator[tuple[str, str, ModuleOp]]:
    """So many mutants of a part of a program, of its kinds in turn; each try works on a copy."""
    kinds, made = list(mutations), 0
    first = rng.randrange(len(kinds))
    for tries in range(10 * each):
        if made == each:
            return
        kind = kinds[(first + tries) % len(kinds)]
        module = source.module.clone()
        mutation = rng.choice(mutations[kind])
        what = mutation(part_of(module), rng, machine)
        if what is not None:
            made += 1
            yield kind, f"{mutation.__name__}: {what}", module


def judged(source: Subject, each: int, seed: int, found: Agreement) -> None:
    """Adds the mutants of a program."""
    machine = Machine.load(source.target)
    arrays = arguments(source.module, seed)
    fault = faults_of(source.module, machine, arrays)
    if fault is not None:
        found.only.append(f"{source.name}: {fault}")
        return
    for kind, what, module in mutants(source, each, seed):
        try:
            module.verify()
        except VerifyException:
            continue
        try:
            findings = check(module, machine)
            proven, kinds = bool(findings), {f.kind for f in findings}
        except PassError:
            proven, kinds = True, set[str]()
        fault = faults_of(module, machine, arrays)
        outcome = OUTCOMES[(0 if fault else 1) if proven else (2 if fault else 3)]
        found.counts[kind, outcome] += 1
        if outcome == "stepper":
            found.only.append(f"{what}: {fault}")
        if outcome == "npu-check" and kinds & ORDER:
            found.missed.append(f"{what}: {findings[0]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="*", default=SOURCES)
    parser.add_argument("--each", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = Agreement()
    for i, source in enumerate(options.sources):
        judged(subject_of(source, TARGETS[i % 2]), options.each, options.seed, found)
        print(f"{source}: {sum(found.counts.values())} mutants so far", flush=True)
    print(found.table())
    for title, said in (("only the executor", found.only), ("of order, only npu-check", found.missed)):
        print(f"{title}: {len(said)}", *said, sep="\n    ")
    return int(bool(found.only))


if __name__ == "__main__":
    sys.exit(main())
