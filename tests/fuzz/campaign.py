"""Runs random JAX programs at every level and against JAX; prints what fails, with its seed and a small reproducer.

    python -m fuzz.campaign [--seed 0] [--count 2000] [--seconds S] [--only matmul,reduce] [--levels ...] [--jobs 1]
    python -m fuzz.campaign --dynamic [...]    # programs with open dimensions, each compiled once, called at 3 sizes
    python -m fuzz.campaign --spellings [...]  # what recognisers look for, in all spellings; mostly only compiled
    python -m fuzz.campaign --stacks [...]     # layers as nets have them, only compiled

Programs run in worker processes, which are watched: a crash of the process or a program that takes longer than
`--patience` seconds is a finding like any other. What a seed stands for does not depend on the other options.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compare import Verdict
    from .generate import Program

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

FAST = "--xla_backend_optimization_level=2"
"""How XLA compiles in workers: a program runs once, so that compiling it is what counts; but at LLVM's lower levels one
exponential is not always computed like another."""

TARGETS = ("ascend-310", "ascend-310p3", "ascend-910a", "ascend-950pr", "systolic-tpu1")
"""Used besides the default one."""

CLEAR = 40
"""Programs after which a worker forgets what JAX compiled: what is small and common is kept for a while."""

DIED = "crash process"
"""The key of a program whose process ended."""

RECYCLE = 200
"""Programs after which a worker is replaced, since XLA keeps what it compiled."""


SPLIT = ("ascend-910b1", "ascend-910b4", "ascend-310", "ascend-950pr")
"""Targets of spellings and stacks."""

RANDOM, DYNAMIC, SPELLINGS, STACKS = KINDS = ("random", "dynamic", "spellings", "stacks")
"""Kinds of programs."""


def plan(seed: int, kind: str = RANDOM) -> tuple[str, tuple[str, ...]]:
    """Target and levels of a seed. The graph and npu levels, steps and the report always run; the others, which take
    longer, on a share. Spellings and stacks are only compiled, but for the spellings that are small. kind: of KINDS."""
    if kind in (SPELLINGS, STACKS):
        from .spellings.programs import is_small

        target = SPLIT[(seed + seed // len(SPLIT)) % len(SPLIT)]
        runs = kind == SPELLINGS and is_small(seed)
        return target, ("compiled", *["report"] * (seed % 4 == 1), *["npu"] * runs)
    target = TARGETS[seed // 4 % len(TARGETS)] if seed % 4 == 3 else "ascend-910b1"
    if kind == DYNAMIC:
        return target, ("npu", "step", "report", *["bytes"] * (seed % 4 == 1))
    levels = ["graph", "npu", "step", "report"]
    levels += ["tile"] * (seed % 5 == 0) + ["bytes"] * (seed % 8 == 1) + ["text"] * (seed % 7 == 2)
    return target, tuple(levels)


# -- workers -----------------------------------------------------------------------------------------------


def work(only: str, levels: str, kind: str = RANDOM) -> None:
    """Judges the seeds on stdin, one by line, and prints one line of JSON for each. Behind a seed may stand
    `apart`: JAX op by op is the reference, and `alone`: nothing but the reference runs."""
    import jax

    from .generate import walk

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever JAX prints goes elsewhere
    for done, line in enumerate(sys.stdin, 1):
        number, *how = line.split()
        seed = int(number)
        target, own = plan(seed, kind)
        chosen = [] if "alone" in how else [x for x in levels.split(",") if x] or own
        program = made(seed, only, kind)
        verdict = judged(program, target, chosen, "apart" in how)
        kinds = Counter(s.kind for s in walk(program.main))
        found = {"seed": seed, "target": target, "levels": chosen, "kinds": kinds, **asdict(verdict)}
        found["key"], found["steps"] = verdict.key, program.steps()
        found["dtypes"] = sorted({program.types[r].dtype for s in walk(program.main) for r in s.results})
        print(json.dumps(found), file=out, flush=True)
        if done % CLEAR == 0:
            jax.clear_caches()


def made(seed: int, only: str, kind: str) -> Program:
    """The program of a seed."""
    from .open_programs import open_program_of
    from .spellings.programs import spelled_program_of
    from .stacks.programs import stack_of
    from .tables import program_of

    makers = {
        RANDOM: program_of,
        DYNAMIC: open_program_of,
        SPELLINGS: spelled_program_of,
        STACKS: stack_of,
    }
    return makers[kind](seed, only)


def judged(program: Program, target: str, levels: Sequence[str], apart: bool = False) -> Verdict:
    """The verdict on a program, which may have open dimensions."""
    from .compare import judge
    from .compiled import judge_compiled
    from .open_compare import judge_open
    from .open_programs import OpenProgram

    if "compiled" in levels:
        return judge_compiled(program, target, levels, apart)
    if isinstance(program, OpenProgram):
        return judge_open(program, target, levels, apart)
    return judge(program, target, levels, apart)


class Worker:
    """A process that judges seeds, one after the other, replaced when it dies or takes too long."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str] = queue.Queue()
        self.done = 0

    def judge(self, seed: int) -> dict[str, Any]:
        """The verdict on a seed. Where the process dies, and dies as well if only JAX runs there, JAX op by op is the
        reference; and where it dies of that, too, JAX has refused the program."""
        found = self.ask(seed)
        if found["key"] != DIED or self.ask(seed, "alone")["key"] != DIED:
            return found
        found = self.ask(seed, "apart")
        if found["key"] == DIED and self.ask(seed, "apart", "alone")["key"] == DIED:
            return {**found, "kind": "", "refused": True}
        return found

    def ask(self, seed: int, *how: str) -> dict[str, Any]:
        """What a process says of a seed, or that it died or took too long."""
        if self.process is None or self.process.poll() is not None or self.done >= RECYCLE:
            self._start()
        process, lines = self.process, self.lines
        assert process is not None and process.stdin is not None
        target, levels = plan(seed, self.options.kind)
        patience = self.options.patience * (3 if self.options.kind == DYNAMIC else 1)  # it runs at three sizes
        failed = {
            "seed": seed,
            "target": target,
            "levels": levels,
            "kind": "crash",
            "where": "process",
        }
        try:
            process.stdin.write(" ".join([str(seed), *how]) + "\n")
            process.stdin.flush()
            first = self.done == 0
            answer = lines.get(timeout=patience + (60 if first else 0))
        except (queue.Empty, BrokenPipeError):
            self.stop()
            return {
                **failed,
                "kind": "hang",
                "key": "hang",
                "message": f"longer than {patience} s",
            }
        self.done += 1
        if not answer:
            code = process.wait()
            return {**failed, "key": DIED, "message": f"the process ended with code {code}"}
        return json.loads(answer)

    def _start(self) -> None:
        self.stop()
        flags = os.environ.get("XLA_FLAGS", FAST)
        command = [sys.executable, "-m", "fuzz.campaign", "--worker", "--only", self.options.only]
        command += ["--levels", self.options.levels, "--kind", self.options.kind]
        place = str(Path(__file__).resolve().parent.parent)
        known = os.pathsep.join([place, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": known},
        )
        self.lines, self.done = queue.Queue(), 0

        def read(lines: queue.Queue[str] = self.lines) -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.reader.join()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            self.process = None


# -- the campaign ------------------------------------------------------------------------------------------


OF_SIZES = ("sizes", "ranged", "broken")
"""What is counted of programs with open dimensions only."""

NUMBERS = re.compile(r"\d+")
MOST_SAID, MOST_REASONS = 110, 12
"""Letters of a reason why a range has no version, and reasons that are printed."""


@dataclass
class Summary:
    """What a campaign found. failures: of each kind the verdicts, in the order they came."""

    programs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, found: dict[str, Any]) -> None:
        self.programs += 1
        self.targets[found["target"]] += 1
        for level in found["levels"]:
            self.counts[level] += 1
        for name in ("elements", "open", "strict", "refused", "apart", "steps", "host", "kernels", *OF_SIZES):
            self.counts[name] += int(found.get(name, 0))
        self.alone.update(NUMBERS.sub("N", reason)[:MOST_SAID] for reason in found.get("alone", ()))
        self.counts["disputed"] += bool(found.get("disputed"))
        self.counts["exported"] += bool(found.get("exported"))
        self.kinds.update(found.get("kinds", {}))
        self.dtypes.update(found.get("dtypes", ()))
        self.seconds.update(found.get("seconds", {}))
        if found["kind"]:
            self.failures.setdefault(found["key"], []).append(found)

    def table(self, seconds: float) -> str:
        c = self.counts
        failed = Counter(f["kind"] for fs in self.failures.values() for f in fs)
        share = f"{100 * c['open'] / max(c['elements'], 1):.2f} %"
        levels = ", ".join(
            f"{level} {c[level]}" for level in ("graph", "tile", "npu", "bytes", "text", "report")
        )
        times = ", ".join(f"{k} {v:.0f}" for k, v in self.seconds.most_common() if v >= 1)
        sizes = [
            f"{c['sizes']} sizes: {c['ranged']} by a version of their range, {c['broken']} alone since they break what "
            f"it assumes, {c['sizes'] - c['ranged'] - c['broken']} alone without one",
            *(f"{n} ranges have no version: {reason}" for reason, n in self.alone.most_common(MOST_REASONS)),
        ]
        return "\n".join(
            [
                f"{self.programs} programs of {c['steps'] / max(self.programs, 1):.1f} steps in {seconds:.0f} s: "
                f"{60 * self.programs / seconds:.0f} a minute",
                f"levels: {levels}",
                f"targets: {', '.join(f'{t} {n}' for t, n in self.targets.most_common())}",
                f"dtypes (programs): {', '.join(f'{t} {n}' for t, n in self.dtypes.most_common())}",
                f"steps: {', '.join(f'{k} {n}' for k, n in self.kinds.most_common())}",
                f"{c['kernels']} kernels, {c['host']} host calls; {c['strict']} programs equal JAX bit for bit, "
                f"{c['refused']} refused by JAX itself; "
                f"{c['elements']} numbers compared, {share} of them left open by their bounds",
                *(sizes if c["sizes"] else []),
                f"seconds: {times}",
                f"{failed['mismatch']} mismatches, {failed['crash']} crashes, {failed['hang']} hangs; "
                f"{c['disputed']} where XLA contradicts JAX op by op, "
                f"{c['exported']} where JAX with open sizes contradicts JAX without, "
                f"{c['apart']} held against that only, since XLA dies of the whole",
            ]
        )


def campaign(options: argparse.Namespace) -> Summary:
    """Runs the seeds in `--jobs` workers, until they or the seconds are over, or someone interrupts."""
    summary, lock, stopped = Summary(), threading.Lock(), threading.Event()
    seeds = iter(range(options.seed, options.seed + options.count))
    end = time.monotonic() + options.seconds if options.seconds else float("inf")

    def run() -> None:
        worker = Worker(options)
        while time.monotonic() < end and not stopped.is_set():
            with lock:
                seed = next(seeds, None)
            if seed is None:
                break
            found = worker.judge(seed)
            if stopped.is_set():  # the interrupt was the worker's, too
                break
            with lock:
                summary.add(found)
                if options.log:
                    with Path(options.log).open("a") as log:
                        log.write(json.dumps(found) + "\n")
                at = f" for {found['at']}" if found.get("at") else ""
                said = f"{found['kind']} in {found['where']}{at}: {found['message']}" if found["kind"] else ""
                if not said and found["key"] == DIED:
                    said = "JAX dies of it, as a whole and op by op"
                if not said and found.get("apart"):
                    said = "XLA dies of it, with JAX alone; as JAX op by op"
                if not said and found.get("disputed"):
                    said = f"XLA contradicts JAX op by op, which gives this: {found['disputed']}"
                if not said and found.get("exported"):
                    said = f"JAX with open sizes contradicts JAX without, and gives this: {found['exported']}"
                if said:
                    print(f"seed {seed} on {found['target']}: {said}", flush=True)
        worker.stop()

    threads = [threading.Thread(target=run) for _ in range(options.jobs)]
    for t in threads:
        t.start()
    try:
        for t in threads:
            t.join()
    except KeyboardInterrupt:
        stopped.set()
        for t in threads:
            t.join()
    return summary


SHORT = {
    DYNAMIC: "programs with open dimensions",
    SPELLINGS: "what recognisers look for, in all spellings and with every extent 1 in its turn",
    STACKS: "layers as nets have them",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where nothing failed, 1 otherwise."""
    parser = argparse.ArgumentParser(description="Random JAX programs against JAX, at every level.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=2000, help="how many programs")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    parser.add_argument("--only", default="", help="generators to use, as matmul,reduce (see --list)")
    parser.add_argument("--kind", choices=KINDS, default=RANDOM, help="which programs; for short:")
    for kind, said in SHORT.items():
        parser.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=said)
    parser.add_argument(
        "--levels", default="", help="of graph,tile,npu,bytes,step,text,report; by default a share of each"
    )
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--patience", type=float, default=120, help="seconds after which a program hangs")
    parser.add_argument("--shrink", type=int, default=5, help="shrink the first failure of so many kinds")
    parser.add_argument("--out", default="build/fuzz", help="where reproducers go")
    parser.add_argument("--log", metavar="FILE", help="append each verdict to FILE, as a line of JSON")
    parser.add_argument("--list", action="store_true", help="list the generators")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work(options.only, options.levels, options.kind)
        return 0
    if options.list:
        from . import table_open, tables
        from .spellings.programs import FAMILIES
        from .stacks.programs import FAMILIES as BLOCKS

        table = {
            RANDOM: tables.TABLE,
            DYNAMIC: table_open.TABLE,
            SPELLINGS: [(name, 1, None) for name, _ in FAMILIES],
            STACKS: [(name, 1, None) for name, _ in BLOCKS],
        }[options.kind]
        print("\n".join(f"{name:<18} weight {weight}" for name, weight, _ in table))
        return 0
    started = time.perf_counter()
    summary = campaign(options)
    for failures in list(summary.failures.values())[: options.shrink]:
        report_failure(min(failures, key=lambda f: f.get("steps", 10**6)), options)
    print(summary.table(time.perf_counter() - started))
    return 1 if summary.failures else 0


def report_failure(found: dict[str, Any], options: argparse.Namespace) -> None:
    """Shrinks one failure and writes its reproducer."""
    from .shrink import shrink

    program = made(found["seed"], options.only, options.kind)
    where = Path(options.out)
    where.mkdir(parents=True, exist_ok=True)
    file = where / f"{'' if options.kind == RANDOM else options.kind + '_'}seed_{found['seed']}.py"
    if found["kind"] == "mismatch" or (found["where"] != "process" and found["kind"] == "crash"):
        program = shrink(program, found["target"], found["levels"], found["key"])
    file.write_text(program.text)
    print(f"seed {found['seed']} ({found['key']}), {program.steps()} steps: wrote {file}; replay:")
    verify = f"tilewright verify {file}:program --target {found['target']}"
    print(f"    {f'python {file}' if options.kind == DYNAMIC else verify}")


if __name__ == "__main__":
    sys.exit(main())
