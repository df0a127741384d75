"""`tilewright-opt FILE -p graph-fuse,graph-schedule -t stages`: what the kernels of a module do, by stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from ...dialects.base import describe
from ...dialects.graph import FusionOp
from ...dialects.graph.schedules import all_complete, to_schedules
from ...kernels.text import fingerprint, text_of
from ...passes.base import settle_target
from ...passes.choose.launches import launches_of
from ...passes.errors import PassError


@dataclass(frozen=True)
class StagesTarget(Target):
    """The stages of each launch of the fusions that a module has, in order."""

    name = "stages"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Raises PassError where a module has no fusions: those are what graph-fuse makes."""
        machine, found = settle_target(module), False
        for fusion in module.walk():
            if not isinstance(fusion, FusionOp) or fusion.on_host:
                continue
            found = True
            schedules = to_schedules(fusion.schedule)
            launches = launches_of(fusion, machine)
            complete = all_complete(schedules) and len(schedules) == len(launches)
            for i, plan in enumerate(launches):
                kernel = plan.kernel(plan.stem, schedules[i] if complete else None)
                print(f"// {describe(fusion)}: {plan.stem}", file=output)
                for part, stages in kernel.stage_graphs().items():
                    said = f"{part}: " if part else ""
                    print(f"// {said}{fingerprint(stages)}\n{text_of(stages)}", file=output)
                if kernel.unstaged:
                    print(f"// not of stages: {kernel.unstaged}", file=output)
        if not found:
            raise PassError("stages: the module has no fusions: run graph-fuse before")
