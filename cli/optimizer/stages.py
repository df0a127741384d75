"""`tilewright-opt FILE -p graph-fuse,graph-schedule -t stages` (or `-t nests`): what the kernels of a module do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from ...dialects.base import describe
from ...dialects.graph import FusionOp
from ...dialects.graph.schedules import Schedule, all_complete, to_schedules
from ...kernels.nest_text import nest_text
from ...kernels.text import digest, text_of
from ...passes.base import settle_target
from ...passes.choose.launches import LaunchPlan, launches_of
from ...passes.errors import PassError
from ...passes.lower.nested import NestedKernel


@dataclass(frozen=True)
class StagesTarget(Target):
    """The stages of each launch of the fusions that a module has, in order."""

    name = "stages"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Raises PassError where a module has no fusions: those are what graph-fuse makes."""
        for fusion, plan, schedule in _launches(self.name, module):
            kernel = plan.kernel(plan.stem, schedule)
            print(f"// {describe(fusion)}: {plan.stem}", file=output)
            for part, stages in kernel.stage_graphs().items():
                _print(f"{part}: " if part else "", text_of(stages), output)
            if kernel.unstaged:
                print(f"// not of stages: {kernel.unstaged}", file=output)


@dataclass(frozen=True)
class NestsTarget(Target):
    """The stages of each launch in the loops of its schedule, section by section."""

    name = "nests"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Raises PassError where a module has no fusions, or where one has no complete schedule."""
        for fusion, plan, schedule in _launches(self.name, module):
            if schedule is None:
                raise PassError(f"nests: {describe(fusion)} has no complete schedule: run graph-schedule before")
            kernel = plan.kernel(plan.stem, schedule)
            print(f"// {describe(fusion)}: {plan.stem}", file=output)
            if not isinstance(kernel, NestedKernel):
                print(f"// not of stages: {kernel.unstaged}", file=output)
                continue
            for core, nest, units in kernel.sections(schedule):
                shared = f", shared by {units} vector cores" if units > 1 else ""
                _print(f"{core}{shared}: ", nest_text(nest), output)


def _print(title: str, text: str, output: IO[str]) -> None:
    """Prints a text behind its title and its fingerprint."""
    print(f"// {title}{digest(text)}\n{text}", file=output)


def _launches(target: str, module: ModuleOp) -> Iterator[tuple[FusionOp, LaunchPlan, Schedule | None]]:
    """The launches of the fusions that a module has, in order, with their schedules as far as these are complete."""
    machine, found = settle_target(module), False
    for fusion in module.walk():
        if not isinstance(fusion, FusionOp) or fusion.on_host:
            continue
        found = True
        schedules = to_schedules(fusion.schedule)
        launches = launches_of(fusion, machine)
        complete = all_complete(schedules) and len(schedules) == len(launches)
        for i, plan in enumerate(launches):
            yield fusion, plan, schedules[i] if complete else None
    if not found:
        raise PassError(f"{target}: the module has no fusions: run graph-fuse before")
