"""The fusions of a program, as graph-schedule gets them: what several benchmarks look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects.graph import FusionOp
from tilewright.dialects.module import set_target
from tilewright.frontends import lower_function
from tilewright.passes.pipeline import PIPELINE, run_stage


def fusions_of(function: Any, operands: Sequence[Any], target: str) -> list[FusionOp]:
    """The fusions of a program that are on the device."""
    module = lower_function(function, operands).module
    set_target(module, target)
    for stage in PIPELINE:
        if stage.name == "graph-schedule":
            break
        if not stage.optional:
            run_stage(stage, module, target)
    return [op for op in module.walk() if isinstance(op, FusionOp) and not op.on_host]
