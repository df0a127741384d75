"""The whole of `tw.verify`: examine every pass, then the program as it runs, then look for the cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import starmap
from typing import Any, Protocol

from xdsl.dialects.builtin import ModuleOp

from ..backends.stepper.errors import StepFault
from ..dialects.dtypes import numpy_dtype
from ..dialects.npu import MmadOp
from ..dialects.npu.interface import buffer
from ..dialects.text import one_line
from ..passes.pipeline import PIPELINE, Stage, level_of
from ..support.collector import collector_paused
from .agreement import agreement
from .bisect import SECONDS, Bisector
from .compare import compare, same_bits
from .examine import ExamineOptions, Examiner
from .hostwalk import Memory
from .results import Progress, Verification
from .structure import Cache
from .tolerance import roundoff

RUN = "run"
"""The row of the compiled program as users run it."""

MEMORIES: tuple[Memory, ...] = ("typed", "bytes")
"""The memories that it is run in: compiled by XLA, and one instruction at a time on addressed bytes."""


class CompiledProgram(Protocol):
    """The program as users have it, compiled when it is asked for."""

    def modules(self) -> Sequence[ModuleOp]:
        """Its npu level: several modules where it runs in parts."""
        ...

    def prepare(self) -> None:
        """Has XLA compile what `run("typed")` runs."""
        ...

    def run(self, memory: Memory) -> Sequence[Any]:
        """Its flat results. Raises StepFault for one that reads what nothing wrote in `bytes` memory."""
        ...


def verify_module(
    module: ModuleOp,
    inputs: Sequence[Any],
    reference: Sequence[Any] | None,
    target: str,
    stages: Sequence[Stage] = PIPELINE,
    program: CompiledProgram | None = None,
    bisect: bool = False,
    quick: bool = False,
    seconds: float = SECONDS,
    cache: Cache | None = None,
    progress: Progress | None = None,
    against: str = "JAX",
    original: Sequence[Any] | None = None,
    least: float | None = None,
) -> Verification:
    """Verifies a module that a frontend or a file gave, on flat inputs.

    reference: flat results to compare with, None for the module's own level; program: the compiled program, which is
    compared too; bisect: stop at the first bad pass and explain it within about `seconds`; quick: only the compiled
    program, not each pass; cache: compiled functions of earlier verifications; progress: is told of each step; against:
    what gave the reference; original: of a quantized program, whose reference is its twin's, flat results of what was
    quantized; least: the SQNR against these that is asked for, in dB.
    """
    deadline = time.process_time() + seconds
    cache = cache or Cache()
    if bisect and not quick:
        options = ExamineOptions(first=True, accumulated=False, once=True)
        found = _examined(Examiner(module, inputs, target, None, stages, options, cache, progress), deadline)
        if found is not None:
            return found
    against = against if reference is not None else f"its own {level_of(module)} level"
    options = ExamineOptions(first=bisect)
    examiner = Examiner(module, inputs, target, reference, stages, options, cache, progress)
    examiner.further = len(MEMORIES) if program is not None else 0
    examiner.exact = original is not None
    compiling = _start(program) if program is not None and not bisect else None
    if quick:
        examiner.source_only()
    else:
        examiner.run()
    if compiling is not None:
        compiling.join()
    if bisect and examiner.failures:
        return _explained(examiner, deadline, against)
    result = Verification(examiner.checks, None, examiner.bitwise, against, examiner.hazards, target, examiner.rounded)
    if program is not None and not any(f.kind in ("crash", "invalid") for f in examiner.failures):
        outputs = _run(examiner, program, result)
        if original is not None and reference is not None:
            counted = examiner.counted
            result.quantization = agreement(counted(outputs), counted(reference), counted(original), least)
    return result


def _start(program: CompiledProgram) -> threading.Thread | None:
    """Has XLA compile the program on another thread."""
    try:
        program.modules()
    except Exception:  # the pass that raises is found when it is examined
        return None

    def run() -> None:
        with suppress(Exception), collector_paused():  # the run raises again what cannot be compiled
            program.prepare()

    thread = threading.Thread(target=run, name="tilewright-ahead", daemon=True)
    thread.start()
    return thread


def _examined(examiner: Examiner, deadline: float) -> Verification | None:
    examiner.run()
    own = f"its own {level_of(examiner.module)} level"
    return _explained(examiner, deadline, own) if examiner.failures else None


def _explained(examiner: Examiner, deadline: float, against: str) -> Verification:
    if examiner.progress is not None:
        examiner.progress(f"looking for the cause in {examiner.failures[0].stage}", 0, 0)
    culprit = Bisector(examiner, deadline).culprit()
    ended = (examiner.hazards, examiner.target, examiner.rounded)
    return Verification(examiner.checks, culprit, examiner.bitwise, against, *ended)


def _run(examiner: Examiner, program: CompiledProgram, result: Verification) -> Sequence[Any]:
    """The rows of the compiled program; gives its results as users have them."""
    outputs: dict[str, Sequence[Any]] = {}
    for memory in MEMORIES:
        examiner.step(f"{RUN} ({memory} memory)")
        try:
            outputs[memory] = program.run(memory)
        except StepFault as error:
            examiner.hazard(RUN, one_line(str(error)))
            result.hazards = examiner.hazards
    for memory, values in outputs.items():
        examiner.row(RUN, "npu", memory, values)
    pairs = list(zip(*outputs.values(), strict=True)) if len(outputs) == len(MEMORIES) else []
    if not all(starmap(equal_bits, pairs)):
        # the rows say whether each is within its bounds
        result.sums_apart = any(map(adds_floats, program.modules()))
        result.bitwise &= result.sums_apart
    return outputs["typed"]


def equal_bits(a: Any, b: Any) -> bool:
    """Whether two results have the same bits, but for those of NaNs."""
    return same_bits(a, b) or compare(a, b, bits=True).ratio == 0


def adds_floats(module: ModuleOp) -> bool:
    """Whether products of floats are added up, which XLA does in an order of its own."""
    return any(
        isinstance(op, MmadOp) and roundoff(numpy_dtype(buffer(op.acc).element)) > 0 for op in module.walk()
    )
