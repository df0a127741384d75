"""Injects faults and says what becomes of each: `python tests/faults/campaign.py [--each N] [--host N] [--seed N]`.

The verdict on a mutant:

    verifier   the op's own verifier refuses it
    checker    npu-check finds a hazard
    values     no hazard, and every order of instructions gives the same bytes, but other bytes than the original:
               the mutation changed what is computed, which comparing values (`tilewright verify`) finds
    harmless   every order tried gives the bytes of the original
    ESCAPED    npu-check finds nothing, but two orders differ, or it gets stuck, or it leaves a memory
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import itertools
import multiprocessing
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from host_mutants import HOST_MUTATIONS
from mutants import IMPOSSIBLE, KERNEL_MUTATIONS
from mutation import Mutation
from oracle import Crash, Device, Launch, Stuck, noise, schedules
from pieces import Parts
from programs_of import HostRun, host_module, kernels_of
from streams import outcomes
from subject_types import NARROW_TARGET, TARGETS, Subject
from subjects import examples, subject
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from tilewright import CompileError
from tilewright.dialects.base import to_ints
from tilewright.dialects.dtypes import size
from tilewright.dialects.npu import BufferType, GmType, NpuOp
from tilewright.dialects.npu.structure import KernelOp, LaunchOp
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.npu.check import Finding, check_kernel, check_program
from tilewright.passes.npu.check.device import KernelSummary
from tilewright.passes.npu.check.model import LOOP, CheckedKernel, CheckedNode

RANDOM_ORDERS = 6
STREAM_ORDERS = 12
MOST_WORK = 8_000_000
"""What one run of the oracle may cost (see work_of); kernels of which two grid points cost more are left out, and
others run on some of their grid points only."""

FEW_WORK = 500_000
"""Kernels that cost more get a quarter of the mutants."""

VERDICTS = ("verifier", "checker", "values", "harmless", "ESCAPED")


@dataclass
class Tally:
    """How many mutants of each kind got each verdict, and the escapes in words."""

    counts: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    escapes: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Programs that the compiler refuses, with its reasons."""
    large: int = 0
    """Kernels that are too much work to run."""

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.escapes += other.escapes
        self.alarms += other.alarms
        self.refused += other.refused
        self.large += other.large

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def table(self) -> str:
        kinds = sorted({kind for kind, _ in self.counts})
        rows = [["mutation", "mutants", *VERDICTS]]
        for kind in [*kinds, "all"]:
            numbers = [
                sum(n for (k, v), n in self.counts.items() if v == verdict and kind in (k, "all"))
                for verdict in VERDICTS
            ]
            rows.append([kind, str(sum(numbers)), *map(str, numbers)])
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]
        return "\n".join(lines)


def summaries_of(module: ModuleOp, machine: Machine) -> tuple[dict[str, KernelSummary], list[Finding]]:
    """What npu-check finds out about the kernels of a program, and all its findings."""
    summaries: dict[str, KernelSummary] = {}
    alarms: list[Finding] = []
    for name, op in kernels_of(module).items():
        summaries[name], found = check_kernel(op, machine)
        alarms += found
    return summaries, alarms + check_program(host_module(module), summaries, machine)


def drawn(
    kinds: Mapping[str, Sequence[Mutation]],
    original: Any,
    machine: Machine,
    rng: random.Random,
    count: int,
    most: int,
) -> Iterator[tuple[str, str, Any]]:
    """(kind, what was changed, mutant) of `count` mutants of a kernel or a module, evenly over the kinds; fewer where
    `most` tries give no more."""
    made = 0
    names = tuple(kinds)
    first = rng.randrange(len(names))
    for tries in range(most):
        if made == count:
            return
        kind = names[(first + tries) % len(names)]
        mutation = rng.choice(kinds[kind])
        mutant = original.clone()
        what = mutation(mutant, rng, machine)
        if what is not None:
            made += 1
            yield kind, f"{mutation.__name__}: {what}", mutant


class KernelSubject:
    """One kernel of a program, its original's summary and its original's result."""

    def __init__(
        self,
        subject: Subject,
        name: str,
        summaries: dict[str, KernelSummary] | None = None,
        host: HostSubject | None = None,
    ):
        """summaries: of all kernels, where they are known and the program is without findings. host: the same
        subject's host program, if it is there already."""
        self.host_program = host
        self.subject = subject
        self.machine = Machine.load(subject.target)
        self.kernels = kernels_of(subject.module)
        self.kernel = self.kernels[name]
        self.name = name
        self.host = host_module(subject.module) if host is None else host.run.module
        self.alarms: list[Finding] = []
        if summaries is None:
            summaries, self.alarms = summaries_of(subject.module, self.machine)
        self.summaries = summaries
        tensors = [a.type for a in self.kernel.body.block.args[len(to_ints(self.kernel.grid)) :]]
        self.types = [t for t in tensors if isinstance(t, GmType)]
        self.addresses = list(
            itertools.accumulate((-(-max(t.bytes, 1) // 512) * 512 + 512 for t in self.types), initial=512)
        )
        self.noise = noise(self.addresses.pop() + 512, 1)
        written = int(self.kernel.outputs.value.data) + int(self.kernel.workspaces.value.data)
        self.first_output = len(self.types) - written
        self.work = work_of(self.kernel, self.machine)
        self.given = set(range(self.first_output))
        self.results: dict[bool, np.ndarray] = {}

    def points(self, every: bool) -> list[tuple[int, ...]]:
        """The grid points to run: all, or where that is much work the first ones and the last."""
        grid = list(itertools.product(*map(range, to_ints(self.kernel.grid))))
        room = max(MOST_WORK // max(self.work, 1), 2) if every else 2
        return grid if len(grid) <= room else [*grid[: room - 1], grid[-1]]

    def arena(self, seed: int) -> np.ndarray:
        """Inputs that never change, outputs full of noise by `seed`: no byte of it is equal for two seeds."""
        arena = self.noise ^ np.uint8(37 * seed & 0xFF)
        for i in self.given:
            here = slice(self.addresses[i], self.addresses[i] + self.types[i].bytes)
            arena[here] = self.noise[here]
        return arena

    def outcome(self, kernel: KernelOp, every: bool, seed: int, schedule=None) -> np.ndarray:
        """The bytes of the outputs after a run; workspaces do not count."""
        arena = self.arena(seed)
        launch = Launch(kernel, self.machine, Device(arena), self.addresses, seed, self.points(every))
        if schedule is None:
            launch.in_order()
        else:
            launch.run(schedule)
        outputs = range(self.first_output, self.first_output + int(kernel.outputs.value.data))
        parts = [arena[self.addresses[i] : self.addresses[i] + self.types[i].bytes] for i in outputs]
        return np.concatenate([np.zeros(0, np.uint8), *parts])

    def original(self, every: bool) -> np.ndarray:
        """The original's outputs. Those that it writes in part only come with contents, as updates in place do."""
        if every not in self.results:
            first, second = (self.outcome(self.kernel, every, s) for s in (1, 2))
            at = 0
            for i in range(self.first_output, self.first_output + int(self.kernel.outputs.value.data)):
                here = slice(at, at := at + self.types[i].bytes)
                if not np.array_equal(first[here], second[here]):
                    self.given.add(i)
            self.results[every] = self.outcome(self.kernel, every, 1)
        return self.results[every]

    def judge(self, kernel: KernelOp, every: bool, possible: bool = True) -> tuple[str, str]:
        """The verdict on a mutant and the reason. possible: whether a machine could run it at all."""
        try:
            kernel.verify()
        except VerifyException as error:
            return "verifier", str(error)
        try:
            summary, found = check_kernel(kernel, self.machine)
            if not found:
                found = check_program(self.host, self.summaries | {self.name: summary}, self.machine)
        except PassError as error:
            return "checker", str(error)
        if found:
            return "checker", str(found[0])
        if not possible:
            return "ESCAPED", "the machine cannot run it"
        wanted, given = self.original(every), self.given
        try:
            plain = self.outcome(kernel, every, 1)
            again = self.outcome(kernel, every, 2)
            if not np.array_equal(plain, again):
                if not self.comes_with_contents(kernel):
                    return "ESCAPED", "what it reads depends on what memory held before"
                self.given = set(range(len(self.types)))
                plain = self.outcome(kernel, every, 1)
            used = sorted({o.PIPE for o in kernel.walk() if isinstance(o, NpuOp) and hasattr(o, "PIPE")})
            room = max(5 * MOST_WORK // (self.work * len(self.points(every))), 8)
            for i, schedule in enumerate(itertools.islice(schedules(used, RANDOM_ORDERS), room)):
                other = self.outcome(kernel, every, 3 + i, schedule)
                if not np.array_equal(plain, other):
                    return "ESCAPED", f"order {i} gives other bytes"
        except Stuck:
            return "ESCAPED", "gets stuck"
        except Crash as error:
            return "ESCAPED", f"leaves a memory: {error}"
        finally:
            self.given = given
        return ("harmless" if np.array_equal(plain, wanted) else "values"), ""

    def comes_with_contents(self, kernel: KernelOp) -> bool:
        """Whether the outputs that a mutant leaves as they were have contents in the program, as a loop's state has:
        its results do not depend then on what memory held at the start."""
        if self.host_program is None:
            self.host_program = HostSubject(self.subject, self.summaries)
        if not self.host_program.possible:
            return False
        run = self.host_program.run
        original, effect = run.kernels[self.name], run.effects.pop(self.name, None)
        run.kernels[self.name] = kernel
        plain, again = (run.outcome(run.module, s) for s in (1, 2))
        run.kernels[self.name] = original
        del run.effects[self.name]
        if effect is not None:
            run.effects[self.name] = effect
        return plain == again

    def mutants(self, count: int, seed: int) -> Tally:
        """Makes and judges `count` mutants, evenly over the kinds."""
        tally = Tally(alarms=[f"{self.subject.name} @{self.name}: {f}" for f in self.alarms])
        for kind, what, verdict, why in self.verdicts(count, seed):
            tally.counts[kind, verdict] += 1
            if verdict == "ESCAPED":
                tally.escapes.append(f"{self.subject.name} @{self.name}: {what}: {why}")
        return tally

    def verdicts(self, count: int, seed: int) -> Iterator[tuple[str, str, str, str]]:
        """(kind, what was changed, verdict, reason) of each mutant."""
        rng = random.Random(f"{seed} {text_of(self.kernel)}")
        for kind, what, mutant in drawn(KERNEL_MUTATIONS, self.kernel, self.machine, rng, count, 20 * count):
            verdict, why = self.judge(mutant, kind == "change a valid extent", kind != IMPOSSIBLE)
            yield kind, what, verdict, why


class HostSubject:
    """The host program of a subject."""

    def __init__(self, subject: Subject, summaries: dict[str, KernelSummary] | None = None):
        self.subject, self.machine = subject, Machine.load(subject.target)
        self.summaries = summaries_of(subject.module, self.machine)[0] if summaries is None else summaries
        self.run = HostRun(subject.module, self.machine)

    @property
    def possible(self) -> bool:
        """Whether the oracle knows all its ops."""
        return self.run.possible

    def mutants(self, count: int, seed: int) -> Tally:
        """Makes and judges `count` mutants, evenly over the kinds; none where they cannot be run."""
        tally = Tally()
        if not self.possible:
            return tally
        wanted = self.run.outcome(self.run.module, 1)
        if (
            wanted != self.run.outcome(self.run.module, 2)
            or len(outcomes(self.run.module, STREAM_ORDERS)) > 1
        ):
            tally.alarms.append(f"{self.subject.name}: the original's results are not the same each time")
        rng = random.Random(f"{seed} {self.subject.name}")
        for kind, what, mutant in drawn(
            HOST_MUTATIONS, self.run.module, self.machine, rng, count, 10 * count
        ):
            verdict, why = self.judge(mutant, wanted)
            tally.counts[f"host: {kind}", verdict] += 1
            if verdict == "ESCAPED":
                tally.escapes.append(f"{self.subject.name}: {what}: {why}")
        return tally

    def judge(self, mutant: ModuleOp, wanted: list[Parts]) -> tuple[str, str]:
        """The verdict on a mutant and the reason; `wanted` is the original's outcome."""
        try:
            mutant.verify()
        except VerifyException as error:
            return "verifier", str(error)
        try:
            found = check_program(mutant, self.summaries, self.machine)
        except PassError as error:
            return "checker", str(error)
        if found:
            return "checker", str(found[0])
        try:
            plain, again = (self.run.outcome(mutant, s) for s in (1, 2))
        except Crash as error:
            return "ESCAPED", str(error)
        if plain != again:
            return "ESCAPED", "what it reads depends on what memory held before"
        if len(outcomes(mutant, STREAM_ORDERS)) > 1:
            return "ESCAPED", "two orders of its streams differ, or one gets stuck"
        return ("harmless" if plain == wanted else "values"), ""


# -- all of it ---------------------------------------------------------------------------------------------------


def text_of(kernel: KernelOp) -> str:
    """The kernel's text without its name: equal kernels of different programs have one."""
    return str(kernel).replace(f"@{kernel.sym_name.data}", "@", 1)


def claimed(kernel: KernelOp, target: str, claims: str) -> bool:
    """Whether no program has claimed an equal kernel; claims it."""
    key = hashlib.sha256(f"{target} {text_of(kernel)}".encode()).hexdigest()
    try:
        (Path(claims) / key).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def work_of(kernel: KernelOp, machine: Machine) -> int:
    """About how many bytes the kernel's buffers hold, times its instructions: what a run costs."""
    model = CheckedKernel(kernel, machine)

    def cost(nodes: Sequence[CheckedNode]) -> int:
        total = 0
        for node in nodes:
            if node.kind == LOOP:
                total += node.trips * cost(node.body)
            else:
                total += 400
                for value in node.op.operands:
                    if isinstance(value.type, BufferType):
                        total += size(value.type.shape)
        return total

    return sum(s.units * cost(s.nodes) for s in model.sections)


def launched(module: ModuleOp) -> dict[str, KernelOp]:
    """The kernels that the program runs."""
    used = {o.callee.root_reference.data for o in module.walk() if isinstance(o, LaunchOp)}
    return {name: op for name, op in kernels_of(module).items() if name in used}


Task = tuple[str, str, int, int, int, str]


def run_task(task: Task) -> tuple[Tally, int, int]:
    """The mutants of the kernels, which no equal one was before, and of the host program of one source for one target;
    how many kernels and host programs those are of."""
    source, target, each, host, seed, claims = task
    try:
        found = subject(source, target)
    except CompileError as error:
        return Tally(refused=[f"{source} for {target}: {error}"]), 0, 0
    summaries, alarms = summaries_of(found.module, Machine.load(found.target))
    whole = Tally(alarms=[f"{found.name}: {f}" for f in alarms])
    kernels = 0
    program = HostSubject(found, summaries)
    for name, op in launched(found.module).items():
        if work_of(op, program.machine) * 2 > MOST_WORK:
            whole.large += 1
        elif claimed(op, found.target, claims):
            kernels += 1
            some = each if work_of(op, program.machine) <= FEW_WORK else -(-each // 4)
            whole.add(KernelSubject(found, name, summaries, program).mutants(some, seed))
    tally = program.mutants(host, seed)
    whole.add(tally)
    return whole, kernels, bool(tally.total)


def tasks(args: argparse.Namespace, claims: str) -> list[Task]:
    """Every source for its targets."""
    sources = [(e, target) for e in examples() for target in TARGETS]
    sources += [(f"random {i}", TARGETS[i % 2]) for i in range(args.random)]
    sources += [(f"barriers {i}", TARGETS[i % 2]) for i in range(1, args.barriers + 1)]
    sources += [(f"attention {i}", TARGETS[0]) for i in range(args.attention)]
    sources += [(f"chained {i}", TARGETS[0]) for i in range(args.chained)]
    sources += [(f"handed {i}", TARGETS[0]) for i in range(args.handed)]
    sources += [(f"grouped {i}", TARGETS[i % 2]) for i in range(args.grouped)]
    sources += [(f"rows {i}", TARGETS[i % 2]) for i in range(args.rows)]
    sources += [(f"statistics {i}", TARGETS[i % 2]) for i in range(args.statistics)]
    sources += [(f"pooled {i}", target) for i in range(args.pooled) for target in TARGETS]
    sources += [(f"waiting {i}", TARGETS[0]) for i in range(args.waiting)]
    sources += [(f"gradient {i}", TARGETS[0]) for i in range(args.gradient)]
    sources += [(f"decoding {i}", TARGETS[0]) for i in range(args.decoding)]
    sources += [(f"skinny {i}", TARGETS[0]) for i in range(args.skinny)]
    sources += [(f"made {i}", ("ascend-910b1", "ascend-950pr")[i % 2]) for i in range(args.made)]
    sources += [(f"rotated {i}", ("ascend-910b1", "ascend-950pr")[i % 2]) for i in range(args.rotated)]
    sources += [(f"elements {i}", TARGETS[i % 2]) for i in range(args.elements)]
    sources += [(f"recomputed {i}", TARGETS[0]) for i in range(args.recomputed)]
    sources += [(f"padded {i}", TARGETS[i % 2]) for i in range(args.padded)]
    sources += [(f"streamed {i}", TARGETS[i % 2]) for i in range(args.streamed)]
    sources += [(f"placed {i}", TARGETS[i % 2]) for i in range(args.placed)]
    sources += [(f"quantized {i}", TARGETS[i % 2]) for i in range(args.quantized)]
    sources += [(f"columns {i}", TARGETS[0]) for i in range(args.columns)]
    sources += [(f"narrow {i}", NARROW_TARGET) for i in range(args.narrow)]
    sources += [(f"sparse {i}", TARGETS[0]) for i in range(args.sparse)]
    sources += [(f"fuzz {i}", TARGETS[i % 2]) for i in range(args.fuzz)]
    sources += [(f"imported {i}", TARGETS[0]) for i in range(args.imported)]
    return [(*s, args.each, args.host, args.seed, claims) for s in sources if re.search(args.only, s[0])]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=8, help="mutants of each kernel")
    parser.add_argument("--host", type=int, default=20, help="mutants of each host program")
    parser.add_argument("--random", type=int, default=40, help="random functions besides the examples")
    parser.add_argument("--fuzz", type=int, default=60, help="random programs with control flow")
    parser.add_argument("--quantized", type=int, default=8, help="programs of quantized layers")
    parser.add_argument("--narrow", type=int, default=4, help="products of 8-bit floats")
    parser.add_argument(
        "--columns", type=int, default=6, help="products with bias and factors of their columns"
    )
    parser.add_argument("--sparse", type=int, default=4, help="products of sparse right sides")
    parser.add_argument("--barriers", type=int, default=4, help="programs with barriers")
    parser.add_argument("--attention", type=int, default=9, help="attention in one kernel")
    parser.add_argument("--handed", type=int, default=4, help="two products that a cube core hands on by itself")
    parser.add_argument("--chained", type=int, default=4, help="two products in one kernel, without a softmax")
    parser.add_argument("--grouped", type=int, default=4, help="rows in groups, each with a matrix of its own")
    parser.add_argument("--rows", type=int, default=8, help="softmaxes whose rows are read in pieces")
    parser.add_argument("--statistics", type=int, default=8, help="products whose kernel reduces rows of the result")
    parser.add_argument("--pooled", type=int, default=4, help="convolutions that are pooled in their kernel")
    parser.add_argument("--imported", type=int, default=8, help="kernels of the vendor's compiler")
    parser.add_argument("--waiting", type=int, default=4, help="products that wait with their weights on chip")
    parser.add_argument("--gradient", type=int, default=4, help="attention and its gradient in kernels")
    parser.add_argument("--decoding", type=int, default=8, help="attention of few rows")
    parser.add_argument("--skinny", type=int, default=8, help="products of few rows on the vector cores")
    parser.add_argument("--made", type=int, default=6, help="products of which vector cores make an operand")
    parser.add_argument("--rotated", type=int, default=6, help="products of which columns are combined")
    parser.add_argument("--elements", type=int, default=4, help="elements of rows and columns picked on chip")
    parser.add_argument("--recomputed", type=int, default=4, help="rows that their readers make themselves")
    parser.add_argument("--padded", type=int, default=4, help="rows that are padded in memory")
    parser.add_argument("--streamed", type=int, default=4, help="products whose last tiles have their sums cut")
    parser.add_argument("--placed", type=int, default=4, help="parts of a concatenation that kernels store in place")
    parser.add_argument("--only", default="", help="sources whose name has this (a regular expression)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="a line for each source")
    args = parser.parse_args(argv)
    started = time.perf_counter()
    whole, kernels, programs = Tally(), 0, 0
    crashes: list[str] = []
    # JAX has threads, which a fork would not take along: each worker starts anew
    with (
        tempfile.TemporaryDirectory() as claims,
        ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool,
    ):
        running = {pool.submit(run_task, task): task for task in tasks(args, claims)}
        for done in as_completed(running):
            if (error := done.exception()) is not None:
                source, target, *_ = running[done]
                crashes.append(f"{source} for {target}: {type(error).__name__}: {error}")
                continue
            tally, some, host = done.result()
            whole.add(tally)
            kernels, programs = kernels + some, programs + host
            if args.verbose:
                line = f"{running[done][0]} for {running[done][1]}: {some} kernels, {tally.total} mutants"
                print(
                    f"{time.perf_counter() - started:6.0f} s  {line}",
                    *tally.escapes,
                    sep="\n    ",
                    flush=True,
                )
    seconds = time.perf_counter() - started
    print(f"{whole.total} mutants of {kernels} kernels and {programs} host programs, {seconds:.0f} s")
    print(whole.table())
    print(f"false alarms on the originals: {len(whole.alarms)}")
    print(f"kernels that are too much work to run on bytes: {whole.large}")
    for line in sorted([*whole.alarms, *whole.escapes, *(f"not compiled: {r}" for r in whole.refused)]):
        print(line)
    for line in crashes:
        print(f"CRASHED: {line}")
    return 1 if whole.alarms or whole.escapes or crashes else 0


if __name__ == "__main__":
    sys.exit(main())
