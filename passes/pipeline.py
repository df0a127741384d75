"""Runs the remaining stages of the pipeline on a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import fields, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.passes import ModulePass

from ..dialects.module import FOR_HIVM, target_of
from .base import LevelPass, settle_target
from .calls import callers_first
from .errors import PassError, SeveralErrors
from .stages import (
    PIPELINE,
    STATES,
    PassChoices,
    Stage,
    all_passes,
    check_requirements,
    insert_stage,
    stage_of,
    stage_table,
)
from .states import check_level, confirmed_states, level_of, recording, states_of

ORDER = ("graph", "tile", "npu")
"""The levels from the top."""

__all__ = [
    "ORDER",
    "PIPELINE",
    "STATES",
    "PassChoices",
    "Stage",
    "all_passes",
    "check_pinnable",
    "check_requirements",
    "insert_stage",
    "level_of",
    "make_pass",
    "pinned",
    "recording",
    "remaining",
    "run_pipeline",
    "run_stage",
    "stage_of",
    "stage_table",
    "states_of",
]


def run_pipeline(
    module: ModuleOp,
    target: str | None = None,
    until: str = "npu",
    stages: Sequence[Stage] = PIPELINE,
    reached: Callable[[str], object] | None = None,
) -> None:
    """Runs what is left of the pipeline on a module, up to the end of level `until`.

    target: the machine, for a module that does not say its own. A module that starts in the middle (a hand-written
    tile or npu program) only gets the passes below it. `reached`: is told of each level from the module's own on,
    when the module has been through all passes of the level. Raises PassError.
    """
    check_level(module)
    callers_first(module)
    settle_target(module, target)
    ran: list[str] = []
    left = remaining(module, until, stages)
    for level in ORDER[ORDER.index(level_of(module)) : ORDER.index(until) + 1]:
        for stage in (s for s in left if s.level == level):
            try:
                run_stage(stage, module)
            except SeveralErrors as error:
                raise error.blaming(ran) from None
            ran.append(stage.name)
        if reached is not None:
            reached(level)


def run_stage(stage: Stage, module: ModuleOp, target: str | None = None) -> None:
    """Runs one stage on a module: for the machine that it says or, where it says none, for `target`.

    A module whose kernels are to be made for the vendor's IR says so from then on. Raises PassError where the module
    says another machine than `target`, and for what the pass refuses.
    """
    if stage.choices.hivm:
        module.attributes[FOR_HIVM] = UnitAttr()
    settle_target(module, target, stage.name)
    made = make_pass(stage, target_of(module))
    if isinstance(made, LevelPass):
        made.apply(Context(), module)
        return
    with recording(stage, module):
        made.apply(Context(), module)


def check_pinnable(module: ModuleOp, stages: Sequence[Stage]) -> None:
    """Raises PassError where choices are pinned, or a precision is asked for, that a module has behind it."""
    level = level_of(module)
    asked = next((s for s in stages if s.level == "graph" and s.optional and s.asked), None)
    if asked is not None and (level != "graph" or "fused" in confirmed_states(module)):
        where = f"is written at the {level} level" if level != "graph" else "is fused already"
        done = f"cast to {asked.choices.precision}" if asked.optional == "precision" else "rewritten"
        raise PassError(f"{asked.optional}: the program {where}, where nothing is {done} any more")
    if not any(stage.choices.schedule for stage in stages):
        return
    if level != "graph":
        raise PassError(
            f"schedule: the program is written at the {level} level, where tiles are chosen already"
        )
    if "scheduled" in confirmed_states(module):
        raise PassError(
            "schedule: the program has its schedules already: change them there, or take the pins away"
        )


def remaining(
    module: ModuleOp, until: str = "npu", stages: Sequence[Stage] = PIPELINE, have: Set[str] | None = None
) -> list[Stage]:
    """The stages that a module in the states `have` (None: in its own) has not been through, up to the end of level
    `until`. What has been proven of it is proven anew."""
    have, start = confirmed_states(module) if have is None else have, level_of(module)
    out = []
    for stage in stages:
        if ORDER.index(stage.level) > ORDER.index(until):
            break
        if ORDER.index(stage.level) < ORDER.index(start):
            continue
        if not stage.asked:
            continue
        new = set(stage.establishes) - (have - {"checked"})
        if new or not stage.establishes:
            out.append(stage)
    return out


def pinned(stages: Sequence[Stage], choices: PassChoices) -> list[Stage]:
    """The stages with what is asked of their passes."""
    return [replace(s, choices=choices) for s in stages]


def make_pass(stage: Stage, target: str | None = None) -> ModulePass:
    """The pass of a stage, for a target and with those of the stage's choices that it takes."""
    cls = stage.load()
    given = {"target": target, **vars(stage.choices)}
    arguments = {f.name: given[f.name] for f in fields(cls) if f.name in given and given[f.name] is not None}
    return cls(**arguments)
