"""Levels of a compiled program beside what it was compiled from: the values of each, by the tolerance of the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ..backends.stepper.errors import StepFault
from ..dialects.text import one_line
from ..passes.pipeline import Stage
from .agreement import agreement, sqnr
from .compare import Difference
from .examine import Examiner
from .results import Progress, Verification
from .run import adds_floats, equal_bits


@dataclass(frozen=True)
class JudgedLevel:
    """A level, and what gives its flat results. Raises StepFault for one that reads what nothing wrote."""

    name: str
    level: str
    memory: str
    run: Callable[[], Sequence[Any]]


@dataclass(frozen=True)
class LevelDifference:
    """The first result of the first level that is further from the reference than allowed. result: its number."""

    level: JudgedLevel
    result: int
    difference: Difference


def verify_levels(
    module: ModuleOp,
    inputs: Sequence[Any],
    reference: Sequence[Any] | None,
    target: str,
    stages: Sequence[Stage],
    levels: Sequence[JudgedLevel],
    compiled: ModuleOp,
    against: str,
    least: float | None = None,
    progress: Progress | None = None,
    original: Sequence[Any] | None = None,
) -> tuple[Verification, LevelDifference | None, float | None]:
    """Compares levels with the flat results of what they come from, or with those of its own level where there are
    none; gives a row for each, the first difference, and the least SQNR of a level in dB.

    module: the source, whose roundings, and those of what stages cast, are the tolerance; inputs: its flat inputs;
    compiled: the npu level, whose levels should have the same bits in all memories; least: the SQNR in dB that is asked
    for in the place of that tolerance; original: of a quantized program, whose reference is its twin's, flat results of
    what was quantized, which least is of then.
    """
    examiner = Examiner(module, inputs, target, reference, stages, progress=progress, further=len(levels))
    examiner.exact = original is not None
    examiner.source_only()
    first: LevelDifference | None = None
    ratios: list[float] = []
    outputs: list[Sequence[Any]] = []
    for each in levels:
        examiner.step(f"{each.level} level ({each.memory} memory)")
        try:
            results = each.run()
        except StepFault as error:
            examiner.hazard(each.name, one_line(str(error)))
            continue
        if each.level == "npu":
            outputs.append([np.asarray(one) for one in results])
        found = examiner.row(each.name, each.level, each.memory, results)
        assert examiner.reference is not None
        ratios.append(sqnr(examiner.counted(examiner.reference), examiner.counted(results)))
        wrong = next((i for i, one in enumerate(found) if one.ratio > 1), None)
        if least is not None and original is None:
            enough = ratios[-1] >= least
            note = "" if enough else f"SQNR {ratios[-1]:.1f} dB, below {least:g} dB"
            examiner.checks[-1] = replace(examiner.checks[-1], ratio=0.0, note=note)
            wrong = None if enough else max(range(len(found)), key=lambda i: found[i].error)
        if wrong is not None and first is None:
            first = LevelDifference(each, wrong, found[wrong])
    made = Verification(
        examiner.checks, reference=against, hazards=examiner.hazards, target=target, rounded=examiner.rounded
    )
    if original is not None and outputs and examiner.reference is not None:
        counted = examiner.counted
        made.quantization = agreement(counted(outputs[-1]), counted(examiner.reference), counted(original), least)
        ratios = [made.quantization.sqnr]
    pairs = [pair for other in outputs[1:] for pair in zip(outputs[0], other, strict=True)]
    if not all(starmap(equal_bits, pairs)):
        made.bitwise = made.sums_apart = adds_floats(compiled)  # rows say whether each is within its bounds
    return made, first, min(ratios, default=None)
