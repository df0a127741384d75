"""One kernel by itself: a program of one launch, which oracles judge."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import inf, isfinite
from pathlib import Path
from typing import Protocol

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from ..backends.costs import joules_of
from ..backends.simulator import SimulationError, simulate
from ..dialects import make_context
from ..dialects.graph import FusionOp
from ..dialects.graph.schedules import schedule_attr
from ..dialects.module import set_target
from ..dialects.schedule_text import parse_schedule
from ..dialects.text import TextParser
from ..machine import Machine
from ..passes.errors import PassError
from ..passes.pipeline import PIPELINE, Stage, run_stage
from ..passes.states import recording
from ..support.collector import collector_paused

UNNEEDED = ("npu-join-launches", "npu-check")
"""Passes that change nothing of the time of one launch."""

MOST_PARSED = 64
"""Kernels whose programs are kept as they were parsed."""


@dataclass(frozen=True)
class LaunchQuestion:
    """How long one launch takes, as plain data: the fusion as a module of the graph level, a schedule of it as text,
    and the target."""

    module: str
    schedule: str
    target: str


@dataclass(frozen=True)
class Measured:
    """What a launch takes: microseconds, infinity where it cannot run, and joules, what the chip draws when idle
    included; None where nobody said. why: why it cannot run, as far as that is known."""

    microseconds: float
    joules: float | None = None
    why: str = field(default="", compare=False)

    @property
    def watts(self) -> float:
        """The mean power; infinity where nobody said."""
        return self.joules / self.microseconds * 1e6 if self.joules and self.microseconds else inf


UNKNOWN = Measured(0.0)
"""What was not asked for yet."""


class Judge(Protocol):
    """Says what launches take. What it is given and gives is plain data, so that it may be in another process."""

    @property
    def name(self) -> str:
        """What entries of a knowledge base say who judged."""
        ...

    def measure(self, questions: Sequence[LaunchQuestion]) -> list[Measured]:
        """What each launch takes."""
        ...


def module_of(fusion: FusionOp, target: str) -> ModuleOp:
    """A program that is one fusion without a schedule."""
    block = Block(arg_types=[v.type for v in fusion.inputs])
    known: dict[SSAValue, SSAValue] = dict(zip(fusion.inputs, block.args, strict=True))
    copy = fusion.clone(known)
    copy.schedule = None
    block.add_ops([copy, ReturnOp(*copy.results)])
    kinds = FunctionType.from_lists([a.type for a in block.args], copy.result_types)
    module = ModuleOp([FuncOp("main", kinds, Region(block))])
    set_target(module, target)
    return module


def fusion_of(module: ModuleOp) -> FusionOp:
    """The fusion of a program that is one."""
    return next(op for op in module.walk() if isinstance(op, FusionOp))


def lowered(question: LaunchQuestion) -> ModuleOp:
    """The npu level of a launch. Raises PassError where it cannot be obeyed, and VerifyException."""
    with collector_paused():
        module, schedule = _parsed(question.module).clone(), parse_schedule(question.schedule)
        fusion_of(module).schedule = schedule_attr([schedule])
        for stage in _stages():
            if schedule.complete and stage.name == "graph-schedule":
                with recording(stage, module):  # nothing is left to choose
                    continue
            run_stage(stage, module, question.target)
        return module


@lru_cache(MOST_PARSED)
def _parsed(text: str) -> ModuleOp:
    """A program that is one fusion, which nobody changes: many schedules of a kernel are judged one after the other."""
    return TextParser(make_context(), text).parse_module()


@cache
def _stages() -> list[Stage]:
    stages = [s for s in PIPELINE if s.name not in UNNEEDED and not s.optional]
    first = next(i for i, s in enumerate(stages) if s.name == "graph-schedule")
    return stages[first:]


@dataclass(frozen=True)
class SimulatorJudge:
    """The simulator."""

    name: str = "simulator"

    def measure(self, questions: Sequence[LaunchQuestion]) -> list[Measured]:
        return [self._of(question) for question in questions]

    def _of(self, question: LaunchQuestion) -> Measured:
        try:
            with collector_paused():
                simulation = simulate(lowered(question), Machine.load(question.target))
        except (PassError, SimulationError, VerifyException) as error:
            return Measured(inf, why=str(error))
        return Measured(simulation.microseconds, sum(joules_of(simulation).values()))


@dataclass(frozen=True)
class CommandJudge:
    """A command that measures, where somebody has a device: `measure {npu} {out}` reads the npu level of one launch
    from a file and writes `{"microseconds": 12.5}` to another one, and `"joules"` beside that where they matter. What
    takes longer than `seconds`, ends with an error or writes anything else cannot run."""

    command: str
    seconds: float = 60.0
    name: str = "command"

    def measure(self, questions: Sequence[LaunchQuestion]) -> list[Measured]:
        return [self._of(question) for question in questions]

    def _of(self, question: LaunchQuestion) -> Measured:
        try:
            text = str(lowered(question))
        except (PassError, VerifyException) as error:
            return Measured(inf, why=str(error))
        with tempfile.TemporaryDirectory() as folder:
            npu, out = Path(folder) / "kernel.mlir", Path(folder) / "out.json"
            npu.write_text(text)
            words = [w.replace("{npu}", str(npu)).replace("{out}", str(out)) for w in shlex.split(self.command)]
            try:
                subprocess.run(words, timeout=self.seconds, check=True, capture_output=True)
            except subprocess.TimeoutExpired:
                return Measured(inf, why=f"it took longer than {self.seconds:g} s")
            except subprocess.CalledProcessError as error:
                said = error.stderr.decode(errors="replace").strip().splitlines()
                return Measured(inf, why=": ".join([f"it ended with {error.returncode}", *said[-1:]]))
            except OSError as error:
                return Measured(inf, why=f"it cannot be run: {error.strerror}")
            return _read(out)


def _read(out: Path) -> Measured:
    """What a command has written."""
    try:
        found = json.loads(out.read_text())
        us, joules = found["microseconds"], found.get("joules")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Measured(inf, why='it wrote nothing such as {"microseconds": 12.5}')
    if not _amount(us):
        return Measured(inf, why=f"it wrote {us!r} as its microseconds")
    return Measured(float(us), float(joules) if _amount(joules) else None)


def _amount(found: object) -> bool:
    """Whether something is a number of at least 0."""
    return isinstance(found, int | float) and not isinstance(found, bool) and isfinite(found) and found >= 0
