"""What a reduction looks for: a wrong value, a crash, a hazard, a cost above a bound, or what a command says."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from ..backends.costs import build_report
from ..backends.simulator import SimulationError
from ..machine import Machine
from ..passes.errors import PassError
from ..passes.pipeline import PIPELINE, Stage, run_pipeline
from .examine import ExamineOptions, Examiner, Failure
from .structure import Cache

KINDS = {"wrong": ("wrong value",), "crash": ("crash", "invalid"), "hazard": ("hazard",)}
"""Kinds of failures that each check accepts."""


@dataclass
class Fails:
    """The program fails in one of `kinds`, in the same pass and in the same words as the first time it was asked."""

    kinds: Sequence[str]
    target: str
    stages: Sequence[Stage] = PIPELINE
    cache: Cache = field(default_factory=Cache)
    first: tuple[str, str] | None = None

    def __call__(self, module: ModuleOp, inputs: Sequence[Any]) -> bool:
        failure = self._failure(module, inputs)
        if failure is None or failure.kind not in self.kinds:
            return False
        said = "" if failure.kind == "wrong value" else _words(failure.problem)
        if self.first is None:
            self.first = failure.stage, said
        return self.first == (failure.stage, said)

    def _failure(self, module: ModuleOp, inputs: Sequence[Any]) -> Failure | None:
        options = ExamineOptions(first=True, accumulated=False, values="wrong value" in self.kinds)
        examiner = Examiner(module, inputs, self.target, None, self.stages, options, self.cache)
        try:
            examiner.run()
        except Exception as error:  # the interpreter itself
            return Failure("run", "crash", "npu", None, None, problem=f"{type(error).__name__}: {error}")
        return examiner.failures[0] if examiner.failures else None


def _words(message: str) -> str:
    """A message without what changes from program to program: numbers, names, places and types."""
    return re.sub(r"\(.*?\)|<.*?>|\[.*?\]|'[^']*'|[@%]\w+|\d+|\W+", " ", message).strip()


@dataclass
class Costs:
    """The program takes more than `microseconds` on the target."""

    microseconds: float
    target: str
    stages: Sequence[Stage] = PIPELINE

    def __call__(self, module: ModuleOp, inputs: Sequence[Any]) -> bool:
        try:
            run_pipeline(module, self.target, stages=self.stages)
            return build_report(module, Machine.load(self.target)).microseconds > self.microseconds
        except (PassError, VerifyException, SimulationError):
            return False


@dataclass
class CommandFails:
    """A command exits with 0 on the program's text; `{}` in it stands for the file."""

    command: str

    def __call__(self, module: ModuleOp, inputs: Sequence[Any]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.mlir"
            path.write_text(str(module) + "\n")
            words = [w.replace("{}", str(path)) for w in shlex.split(self.command)]
            done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            return done.returncode == 0


def parse_check(
    check: str | None, command: str | None, target: str, stages: Sequence[Stage] = PIPELINE
) -> Fails | Costs | CommandFails:
    """The check that `wrong`, `crash`, `hazard`, `cost>12.5` or a command stands for. Raises ValueError."""
    if (check is None) == (command is None):
        raise ValueError("give either --check or --command")
    if command is not None:
        if "{}" not in command:
            raise ValueError("--command needs {} where the file's name goes")
        return CommandFails(command)
    assert check is not None
    if check in KINDS:
        return Fails(KINDS[check], target, stages)
    bound = re.fullmatch(r"cost>(\d+(?:\.\d*)?(?:e[+-]?\d+)?)", check.replace(" ", ""))
    if bound is None:
        raise ValueError(f"--check must be {', '.join(KINDS)} or cost>MICROSECONDS, not '{check}'")
    return Costs(float(bound[1]), target, stages)
