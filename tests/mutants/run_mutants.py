"""Mutants of the compiler itself: changes one line of a copy of the tree, runs that module's tests, and counts which
changes no test sees.

    python tests/mutants/run_mutants.py [--count 100] [--seed 0] [--only passes/npu] [--jobs 2] [--log FILE]

A module is drawn for each mutant, by its number of lines, and in it a kind of change and a place. A mutant is killed
where a test fails or takes too long. `reasons.json` says of survivors that are known why no test can see them.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mutant_edits import Edit, edits_of
from mutant_table import ROOT, covering, modules

REASONS = Path(__file__).with_name("reasons.json")
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "*.egg-info", "__pycache__", ".hypothesis", ".ruff_cache", ".pytest_cache"
)


@dataclass(frozen=True)
class Mutant:
    """A change of a module."""

    module: str
    edit: Edit

    @property
    def text(self) -> str:
        return f"{self.edit.kind}: {self.edit.old} -> {self.edit.new}"


@dataclass
class Outcome:
    """What became of a mutant. by: the tests that killed it, or empty; reason: why no test can; seconds: of the
    processor."""

    module: str
    line: int
    kind: str
    old: str
    new: str
    by: str = ""
    reason: str = ""
    seconds: float = 0.0


def drawn(count: int, seed: int, only: str = "") -> list[Mutant]:
    """So many mutants, each another one; the kinds of changes are drawn alike, so that constants are not most."""
    rng = random.Random(seed)
    known = {m: found for m in modules() if only in m and (found := edits_of(ROOT / m))}
    sizes = [len((ROOT / m).read_text().splitlines()) for m in known]
    chosen: dict[tuple[str, int, str, str], Mutant] = {}
    most = sum(map(len, known.values()))
    while len(chosen) < min(count, most):
        (module,) = rng.choices(list(known), sizes)
        kinds = sorted({e.kind for e in known[module]})
        kind = rng.choice(kinds)
        edit = rng.choice([e for e in known[module] if e.kind == kind])
        chosen.setdefault((module, edit.line, edit.old, edit.new), Mutant(module, edit))
    return list(chosen.values())


def reason_of(mutant: Mutant, reasons: Sequence[dict[str, str]]) -> str:
    """Why no test can see a mutant, or an empty text."""
    e = mutant.edit
    return next(
        (
            r["reason"]
            for r in reasons
            if (r["module"], r["place"], r["old"], r["new"]) == (mutant.module, e.place, e.old, e.new)
        ),
        "",
    )


class Copy:
    """A copy of the tree, in which one module at a time is changed."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="tilewright-mutants-")
        self.root = Path(self.folder) / "tilewright"
        self.sound: dict[str, bool] = {}
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT)
        shared = ROOT.parent / "shared"
        if shared.is_dir():
            (Path(self.folder) / "shared").symlink_to(shared)
        bin = str(Path(sys.executable).parent)
        self.environment = os.environ | {
            "PYTHONPATH": self.folder,
            "PATH": os.pathsep.join([bin, os.environ.get("PATH", "")]),
            "TMPDIR": self.folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_COMPILATION_CACHE_DIR": os.environ.get(
                "JAX_COMPILATION_CACHE_DIR", str(ROOT / "build" / "xla-mutants")
            ),
        }

    def judge(self, mutant: Mutant) -> Outcome:
        e = mutant.edit
        outcome = Outcome(mutant.module, e.line, e.kind, e.old, e.new)
        path = self.root / mutant.module
        before = path.read_text()
        path.write_text(e.source)
        start, end = children(), time.monotonic() + self.options.patience
        try:
            for test in covering(mutant.module):
                verdict = self.run(test, end - time.monotonic())
                if verdict:
                    outcome.by = verdict
                    break
            path.write_text(before)
            if outcome.by and not self.passes(outcome.by):
                raise RuntimeError(f"{outcome.by} fails without a mutant")
        finally:
            path.write_text(before)
        outcome.seconds = round(children() - start, 1)
        return outcome

    def passes(self, killer: str) -> bool:
        """Whether what killed a mutant passes without it. Of what took too long nothing is known."""
        if killer not in self.sound:
            test = re.sub(r": (too long|code -?\d+)$", "", killer).replace("tilewright :: ", "lit/")
            self.sound[killer] = killer.endswith("too long") or not self.run(test, self.options.patience)
        return self.sound[killer]

    def run(self, test: str, seconds: float) -> str:
        """Empty where the tests pass, or what fails."""
        if test.startswith("lit"):
            command = ["lit", "-q", "-j", "1", "--max-failures", "1", test.replace("lit", "lit_tests", 1)]
        else:
            command = ["pytest", "-q", "-x", "--tb=no", "-p", "no:xdist", test]
        process = subprocess.Popen(
            [sys.executable, "-m", *command] if command[0] == "pytest" else command,
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=max(seconds, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return f"{test}: too long"
        if process.returncode in (0, 5):  # 5: none of its tests is here
            return ""
        failed = [
            x.split(" - ")[0]
            for x in said.splitlines()
            if x.startswith(("FAILED", "ERROR", "  tilewright ::"))
        ]
        return failed[0].split(" ", 1)[1].strip() if failed else f"{test}: code {process.returncode}"

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def campaign(options: argparse.Namespace) -> list[Outcome]:
    """The outcomes, as they come."""
    reasons = json.loads(REASONS.read_text())
    pending: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in drawn(options.count, options.seed, options.only)[options.skip :]:
        pending.put(mutant)
    found: list[Outcome] = []
    lock = threading.Lock()
    end = time.monotonic() + options.seconds if options.seconds else float("inf")

    def work() -> None:
        copy = Copy(options)
        try:
            while time.monotonic() < end:
                try:
                    mutant = pending.get_nowait()
                except queue.Empty:
                    break
                outcome = copy.judge(mutant)
                if not outcome.by:
                    outcome.reason = reason_of(mutant, reasons)
                with lock:
                    found.append(outcome)
                    print(row(outcome), flush=True)
                    if options.log:
                        with Path(options.log).open("a") as log:
                            log.write(json.dumps(asdict(outcome)) + "\n")
        finally:
            copy.remove()

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found


def row(outcome: Outcome) -> str:
    fate = (
        f"killed by {outcome.by}"
        if outcome.by
        else f"SURVIVED {outcome.reason and '(' + outcome.reason + ')'}"
    )
    return f"{outcome.module}:{outcome.line}  {outcome.kind}: {outcome.old} -> {outcome.new}  | {fate}"


def summary(outcomes: Sequence[Outcome]) -> str:
    killed = [o for o in outcomes if o.by]
    counted = [o for o in outcomes if o.by or not o.reason]
    areas = Counter("/".join(o.module.split("/")[:2]) for o in counted)
    alive = Counter("/".join(o.module.split("/")[:2]) for o in counted if not o.by)
    lines = [f"{area:<26} {n:>4} mutants, {alive[area]:>3} survived" for area, n in sorted(areas.items())]
    share = 100 * len(killed) / max(len(counted), 1)
    lines.append(
        f"{len(killed)} of {len(counted)} killed: {share:.0f} %; {len(outcomes) - len(counted)} more survived for a "
        f"reason; {sum(o.seconds for o in outcomes):.0f} s of the processor"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where at least nine in ten are killed."""
    parser = argparse.ArgumentParser(description="One-line mutants of the compiler against its tests.")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of them")
    parser.add_argument("--only", default="", help="modules whose path has this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=600, help="seconds for the tests of one mutant")
    parser.add_argument("--seconds", type=float, default=0, help="begin no mutant after so many")
    parser.add_argument("--log", help="append each outcome to this file, as a line of JSON")
    parser.add_argument("--list", action="store_true", help="print the mutants only")
    options = parser.parse_args(arguments)
    if options.list:
        for m in drawn(options.count, options.seed, options.only):
            print(f"{m.module}:{m.edit.line}  {m.text}")
        return 0
    outcomes = campaign(options)
    print(summary(outcomes))
    counted = [o for o in outcomes if o.by or not o.reason]
    return 0 if sum(bool(o.by) for o in counted) >= 0.9 * len(counted) else 1


if __name__ == "__main__":
    sys.exit(main())
