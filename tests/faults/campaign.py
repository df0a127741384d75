"""Injects faults and says what becomes of each: `python tests/faults/campaign.py [--mutants N] [--seed N]`.

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
import itertools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from mutants import HOST_MUTATIONS, KERNEL_MUTATIONS, Mutation
from oracle import Crash, Device, Launch, Stuck, noise, schedules
from programs_of import HostRun
from subjects import EXAMPLES, TARGETS, Subject, example, random_subjects
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.base import integer, text, to_ints
from tilewright.dialects.dtypes import size
from tilewright.dialects.npu import GmType, NpuOp
from tilewright.dialects.npu.structure import KernelOp, LaunchOp
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.npu.check import Finding, check_kernel
from tilewright.passes.npu.check.device import Summary
from tilewright.passes.npu.check.host import HostProgram

RANDOM_ORDERS = 6
MOST_WORK = 8_000_000
"""What one run of the oracle may cost (see work_of); kernels of which two grid points cost more are left out, and
others run on some of their grid points only."""

VERDICTS = ("verifier", "checker", "values", "harmless", "ESCAPED")


@dataclass
class Tally:
    """How many mutants of each kind got each verdict, and the escapes in words."""

    counts: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    escapes: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.escapes += other.escapes
        self.alarms += other.alarms

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


def check_host(func: FuncOp, summaries: dict[str, Summary], machine: Machine) -> list[Finding]:
    """What npu-check finds in @main, the only function of the subjects."""
    return HostProgram(func, summaries, {}, integer(func.attributes["npu.arena_bytes"]), machine).run()


class KernelSubject:
    """One kernel of a program, its original's summary and its original's result."""

    def __init__(self, subject: Subject, name: str):
        self.subject = subject
        self.machine = Machine.load(subject.target)
        self.kernels = {text(o.sym_name): o for o in subject.module.ops if isinstance(o, KernelOp)}
        self.kernel = self.kernels[name]
        self.name = name
        self.func = next(o for o in subject.module.ops if isinstance(o, FuncOp))
        self.summaries: dict[str, Summary] = {}
        self.alarms: list[Finding] = []
        for key, op in self.kernels.items():
            self.summaries[key], found = check_kernel(op, self.machine)
            if key == name:
                self.alarms += found
        self.alarms += check_host(self.func, self.summaries, self.machine)
        tensors = [a.type for a in self.kernel.body.block.args[len(to_ints(self.kernel.grid)) :]]
        self.types = [t for t in tensors if isinstance(t, GmType)]
        self.addresses = list(
            itertools.accumulate((-(-max(t.bytes, 1) // 512) * 512 + 512 for t in self.types), initial=512)
        )
        self.bytes = self.addresses.pop() + 512
        written = int(self.kernel.outputs.value.data) + int(self.kernel.workspaces.value.data)
        self.first_output = len(self.types) - written
        self.work = work_of(self.kernel)
        self.given = set(range(self.first_output))
        self.results: dict[bool, np.ndarray] = {}

    def points(self, every: bool) -> list[tuple[int, ...]]:
        """The grid points to run: all, or where that is much work the first ones and the last."""
        grid = list(itertools.product(*map(range, to_ints(self.kernel.grid))))
        room = max(MOST_WORK // max(self.work, 1), 2) if every else 2
        return grid if len(grid) <= room else [*grid[: room - 1], grid[-1]]

    def arena(self, seed: int) -> np.ndarray:
        """Inputs that never change, outputs full of noise by `seed`: no byte of it is equal for seeds 1 and 2."""
        arena = ~noise(self.bytes, 1) if seed == 2 else noise(self.bytes, seed)
        for i in self.given:
            n = self.types[i].bytes
            arena[self.addresses[i] : self.addresses[i] + n] = noise(n, 1000 + i)
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

    def judge(self, kernel: KernelOp, every: bool) -> tuple[str, str]:
        """The verdict on a mutant and the reason."""
        try:
            kernel.verify()
        except VerifyException as error:
            return "verifier", str(error)
        try:
            summary, found = check_kernel(kernel, self.machine)
            if not found:
                found = check_host(self.func, self.summaries | {self.name: summary}, self.machine)
        except PassError as error:
            return "checker", str(error)
        if found:
            return "checker", str(found[0])
        wanted = self.original(every)
        try:
            plain = self.outcome(kernel, every, 1)
            again = self.outcome(kernel, every, 2)
            if not np.array_equal(plain, again):
                return "ESCAPED", "what it reads depends on what memory held before"
            used = sorted(
                {o.PIPE.value for o in kernel.walk() if isinstance(o, NpuOp) and hasattr(o, "PIPE")}
            )
            room = max(5 * MOST_WORK // (self.work * len(self.points(every))), 8)
            for i, schedule in enumerate(itertools.islice(schedules(used, RANDOM_ORDERS), room)):
                other = self.outcome(kernel, every, 3 + i, schedule)
                if not np.array_equal(plain, other):
                    return "ESCAPED", f"order {i} gives other bytes"
        except Stuck:
            return "ESCAPED", "gets stuck"
        except Crash as error:
            return "ESCAPED", f"leaves a memory: {error}"
        return ("harmless" if np.array_equal(plain, wanted) else "values"), ""

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
        rng = random.Random(f"{seed} {self.subject.name} {self.name}")
        made = tries = 0
        first = rng.randrange(len(KERNEL_MUTATIONS))
        while made < count and tries < 20 * count:
            kind = tuple(KERNEL_MUTATIONS)[(first + tries) % len(KERNEL_MUTATIONS)]
            mutation = rng.choice(KERNEL_MUTATIONS[kind])
            tries += 1
            mutant = self.kernel.clone()
            what = mutation(mutant, rng, self.machine)
            if what is None:
                continue
            every = kind == "change a valid extent"
            verdict, why = self.judge(mutant, every)
            made += 1
            yield kind, f"{mutation.__name__}: {what}", verdict, why


def judge_host(subject: Subject, count: int, seed: int) -> Tally:
    """Makes and judges mutants of a program's host function."""
    machine = Machine.load(subject.target)
    summaries: dict[str, Summary] = {}
    for op in subject.module.ops:
        if isinstance(op, KernelOp):
            summaries[text(op.sym_name)], _ = check_kernel(op, machine)
    run = HostRun(subject.module, machine)
    tally = Tally()
    if not run.possible or run.work() > MOST_WORK:
        return tally
    wanted = run.outcome(run.func, 1)
    rng = random.Random(f"{seed} {subject.name}")
    made = tries = 0
    while made < count and tries < 10 * count:
        kind = tuple(HOST_MUTATIONS)[tries % len(HOST_MUTATIONS)]
        mutation = rng.choice(HOST_MUTATIONS[kind])
        tries += 1
        func = run.func.clone()
        what = mutation(func, rng, machine)
        if what is None:
            continue
        made += 1
        verdict, why = _judge_host(run, func, summaries, machine, wanted)
        tally.counts[f"host: {kind}", verdict] += 1
        if verdict == "ESCAPED":
            tally.escapes.append(f"{subject.name}: {mutation.__name__}: {what}: {why}")
    return tally


def _judge_host(
    run: HostRun, func: FuncOp, summaries: dict[str, Summary], machine: Machine, wanted: np.ndarray
) -> tuple[str, str]:
    try:
        func.verify()
    except VerifyException as error:
        return "verifier", str(error)
    found = check_host(func, summaries, machine)
    if found:
        return "checker", str(found[0])
    try:
        plain, again = (run.outcome(func, s) for s in (1, 2))
    except Crash as error:
        return "ESCAPED", str(error)
    if not np.array_equal(plain, again):
        return "ESCAPED", "what it reads depends on what memory held before"
    return ("harmless" if np.array_equal(plain, wanted) else "values"), ""


# -- all of it ---------------------------------------------------------------------------------------------------


def work_of(kernel: KernelOp) -> int:
    """About how many bytes the kernel's buffers hold, times its instructions: what a run costs."""
    from tilewright.dialects.npu import BufferType
    from tilewright.passes.npu.check.model import LOOP, Kernel, Node

    model = Kernel(kernel)

    def cost(nodes: Sequence[Node]) -> int:
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
    return {text(o.sym_name): o for o in module.ops if isinstance(o, KernelOp) and text(o.sym_name) in used}


Task = tuple[str, str, str, int, int]
_LOADED: dict[tuple[str, str], Subject] = {}
_RANDOM: dict[str, Subject] = {}


def _subject(source: str, target: str) -> Subject:
    key = (source, target)
    if key not in _LOADED:
        _LOADED[key] = _RANDOM[source] if source in _RANDOM else example(source, target)
    return _LOADED[key]


def run_task(task: Task) -> Tally:
    """One kernel, or with an empty name the host program."""
    source, target, kernel, count, seed = task
    subject = _subject(source, target)
    if not kernel:
        return judge_host(subject, count, seed)
    return KernelSubject(subject, kernel).mutants(count, seed)


def tasks(count: int, random_programs: int, seed: int, models: Sequence[str] = EXAMPLES) -> list[Task]:
    """Every kernel of every subject, with its share of about `count` mutants."""
    found: list[tuple[str, str, str]] = []
    for model in models:
        for target in TARGETS:
            names = launched(_subject(model, target).module)
            found += [(model, target, name) for name, op in names.items() if work_of(op) * 2 <= MOST_WORK]
            found.append((model, target, ""))
    for subject in random_subjects(random_programs):
        _RANDOM[subject.name] = subject
        found += [(subject.name, subject.target, name) for name in launched(subject.module)]
        found.append((subject.name, subject.target, ""))
    each = -(-count // max(len(found), 1)) + 1
    return [(*f, each, seed) for f in reversed(found)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=6000)
    parser.add_argument("--random", type=int, default=40, help="random programs besides the examples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args(argv)
    started = time.perf_counter()
    listed = tasks(args.mutants, args.random, args.seed)
    whole = Tally()
    with ProcessPoolExecutor(args.jobs) as pool:
        for tally in pool.map(run_task, listed):
            whole.add(tally)
    subjects = len({(s, t) for s, t, *_ in listed})
    kernels = sum(bool(k) for _, _, k, *_ in listed)
    seconds = time.perf_counter() - started
    print(f"{whole.total} mutants of {kernels} kernels and {subjects} host programs, {seconds:.0f} s")
    print(whole.table())
    print(f"false alarms on the originals: {len(whole.alarms)}")
    for line in [*whole.alarms, *whole.escapes]:
        print(line)
    return 1 if whole.alarms or whole.escapes else 0


__all__ = ["KernelSubject", "ModuleOp", "Mutation", "Operation", "Tally", "main", "run_task", "tasks"]

if __name__ == "__main__":
    sys.exit(main())
