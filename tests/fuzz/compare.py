"""Holds a random program against JAX at every level.

The tolerance of each element is the project's own: the bounds that `verification/bounds/` carries beside the values
of the source program, as `tw.verify` uses them. They are computed only where the bits differ. From tile to npu, and
from typed to addressed memory, no bit may differ.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from visible import check_visible
from xdsl.dialects.builtin import ModuleOp

from tilewright.backends.costs import build_report
from tilewright.backends.interpreter import Executable, run_graph
from tilewright.backends.report import Report
from tilewright.backends.stepper import StepProgram
from tilewright.backends.tile_level import run_tile
from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module
from tilewright.dialects.text import verify as verify_module
from tilewright.frontends import lower_function
from tilewright.machine import Machine
from tilewright.passes.pipeline import run_pipeline
from tilewright.verification.bounds import Bound
from tilewright.verification.compare import compare, same_bits
from tilewright.verification.structure import Cache
from tilewright.verification.tolerance import LIKELY
from tilewright.verification.walk import GraphWalk, Settings

from .generate import Program

LEVELS = ("graph", "tile", "npu", "bytes", "step", "text", "report")
"""What can be asked for: values at three levels, in addressed memory and one instruction at a time; each level's text
read back; a report."""

REFERENCE = {
    "xla_allow_excess_precision": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_disable_hlo_passes": "constant_folding",
    "xla_cpu_use_fusion_emitters": False,
}
"""How JAX compiles the reference: f16 and bf16 values are rounded where the program says so; a maximum or minimum of
many numbers keeps NaN, which a library that XLA:CPU calls drops; constants are computed like all else: XLA folds a
convolution of narrow integers to the nearest one there is (127), where at run time it wraps around. With its newer
emitters of fusions XLA dies of some programs (seed 1041598, with JAX alone)."""


@dataclass
class Verdict:
    """How a program came out. kind: "" where all is well, else `crash` or `mismatch`; where: the stage; elements,
    open: numbers compared, and how many of them a bound left open; strict: whether no bit differed from JAX;
    stepped: whether no bit of a run by steps differed from typed memory; disputed: what of it JAX as a whole and JAX op
    by op disagree about, where we are with the latter; refused: JAX itself could not compile it; apart: it was held
    against JAX op by op only; host: ops on the host; seconds: by stage."""

    kind: str = ""
    where: str = ""
    message: str = ""
    elements: int = 0
    open: int = 0
    strict: bool = True
    stepped: bool = True
    disputed: str = ""
    refused: bool = False
    apart: bool = False
    host: int = 0
    kernels: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.kind

    @property
    def key(self) -> str:
        """What shrinking keeps: the kind and place, and of a crash its words without numbers."""
        words = (
            "".join(c for c in self.message.split(":")[0] if not c.isdigit()) if self.kind == "crash" else ""
        )
        return f"{self.kind} {self.where} {words}"


TESTS = Path(__file__).resolve().parents[1]
PACKAGE = TESTS.parent
"""The folder of the package, and that of its tests in it."""


class Mismatch(Exception):
    """Values differ by more than allowed: one clause."""


def check_times(report: Report) -> None:
    """Raises Mismatch for a report whose times cannot be: none are below zero or not finite, and no kernel is faster
    than its floor."""
    if not (np.isfinite(report.microseconds) and report.microseconds >= 0):
        raise Mismatch(f"the report says {report.microseconds} us")
    for k in report.kernels:
        if not 0 <= k.launch_microseconds <= k.microseconds * (1 + 1e-9):
            raise Mismatch(f"{k.name} takes {k.microseconds} us, {k.launch_microseconds} of them to launch it")
        if k.floor_microseconds > k.microseconds * (1 + 1e-9):
            raise Mismatch(f"{k.name} takes {k.microseconds} us, and no less than {k.floor_microseconds}")


def crash_text(error: Exception) -> str:
    """What was raised, in which function of the package, and its words. A warning of the compiler names its fault."""
    if isinstance(error, Warning):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).is_relative_to(PACKAGE) and TESTS not in Path(f.filename).parents]
    place = f" in {Path(own[-1].filename).relative_to(PACKAGE)} {own[-1].name}" if own else ""
    return f"{type(error).__name__}{place}: {' '.join(str(error).split())[:400]}"


class Judge:
    """One program on one target. Without levels only JAX runs. apart: JAX op by op is the reference."""

    def __init__(
        self,
        program: Program,
        target: str,
        levels: Sequence[str],
        path: str = "<program>",
        apart: bool = False,
    ):
        self.program, self.levels = program, levels
        self.machine, self.target = Machine.load(target), target
        self.path = path
        self.verdict = Verdict(apart=apart)
        self.stage = ""
        self.bounds: list[Bound] | None = None
        self.single: list[np.ndarray] | None = None

    def run(self) -> Verdict:
        with jax.enable_x64(self.program.x64):
            try:
                self._run()
            except Mismatch as difference:
                self.verdict.kind, self.verdict.message = "mismatch", str(difference)
            except Exception as error:  # whatever it raises is a crash
                if self.stage == "reference":
                    self.verdict.refused = True
                    return self.verdict
                self.verdict.kind, self.verdict.message = "crash", crash_text(error)
            self.verdict.where = self.stage if self.verdict.kind else ""
        return self.verdict

    def _enter(self, stage: str) -> None:
        now = time.perf_counter()
        if self.stage:
            self.verdict.seconds[self.stage] = now - self._since
        self.stage, self._since = stage, now

    def _run(self) -> None:
        self._enter("reference")
        self.fn = fn = self.program.function(self.path)
        self.args = jax.tree.map(jax.numpy.asarray, self.program.arguments())
        self.want = self._op_by_op() if self.verdict.apart else self._whole()
        if not self.levels:
            return
        self.verdict.elements = sum(x.size for x in self.want)
        self._enter("frontend")
        structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.args]
        module = lower_function(fn, structs).module
        verify_module(module)
        self.source = module.clone()
        self._text(module)
        if "graph" in self.levels:
            self._enter("graph")
            self._against_jax(run_graph(module, *self.args))
        if {"tile", "npu", "bytes", "step", "report"} & set(self.levels):
            self._lower(module)
        self._enter("")

    def _lower(self, module: ModuleOp) -> None:
        self._enter("to tile")
        run_pipeline(module, self.target, "tile")
        verify_module(module)
        check_visible(module)
        self._text(module)
        tile = None
        if "tile" in self.levels:
            self._enter("tile")
            tile = run_tile(module, *self.args)
            self._against_jax(tile)
        self._enter("to npu")
        run_pipeline(module, self.target)
        verify_module(module)
        check_visible(module)
        self._text(module)
        self.verdict.host = sum(op.name == "npu.host_call" for op in module.walk())
        self.verdict.kernels = sum(op.name == "npu.kernel" for op in module.ops)
        if "report" in self.levels:
            self._enter("report")
            report = build_report(module, self.machine)
            check_times(report)
            report.to_json()
        typed = None
        if "npu" in self.levels:
            self._enter("npu")
            typed = Executable(module, self.machine, "typed")(*self.args)
            self._by_steps(typed, tile)
        if "bytes" in self.levels:
            self._enter("bytes")
            bytes_ = Executable(module, self.machine, "bytes")(*self.args)
            self._same(bytes_, typed) if typed is not None else self._by_steps(bytes_, tile)
        if "step" in self.levels:
            self._enter("step")
            stepped = StepProgram(module, self.machine)(*self.args)
            self._same(stepped, tile) if tile is not None else self._by_steps(stepped, typed)

    # -- judging -------------------------------------------------------------------------------------------

    def _against_jax(self, got: Sequence[Any]) -> None:
        equal = [same_bits(np.asarray(x), y) for x, y in zip(got, self.want, strict=True)]
        if all(equal):
            return
        self.verdict.strict = False
        self.verdict.open = 0
        for i, (x, y, allowed) in enumerate(zip(got, self.want, self._allowed(), strict=True)):
            if allowed is not None:
                self.verdict.open += int(np.isinf(allowed).sum())
            d = compare(x, y, allowed)
            if d.ratio <= 1:
                continue
            room = "equal" if allowed is None else f"within {allowed[d.element]:.3g}"
            said = (
                f"result {i} at {list(d.element)} is {d.got}, must be {room} of {d.want} "
                f"({d.count} of {y.size} differ)"
            )
            if self.verdict.apart or compare(x, self._apart(said)[i], allowed).ratio > 1:
                raise Mismatch(said)
            self.verdict.disputed = said

    def _allowed(self) -> list[np.ndarray | None]:
        """How far each element of each result may be off, infinity where that is open; None where it is exact."""
        if self.bounds is None:
            mine = self.stage
            self._enter("bounds")
            walk = GraphWalk(self.source, Cache(), Settings(likely=True, record=False))
            self.bounds = walk.run(self.args).result_bounds
            self._enter(mine)
        return [None if e is None else 2 * LIKELY * np.asarray(e, np.float64) for e in self.bounds]

    def _whole(self) -> list[np.ndarray]:
        want = jax.jit(self.fn).lower(*self.args).compile(compiler_options=REFERENCE)(*self.args)
        return [np.asarray(x) for x in jax.tree.leaves(want)]

    def _op_by_op(self) -> list[np.ndarray]:
        """What JAX gives where each op is compiled by itself, so that XLA has nothing to simplify."""
        with jax.disable_jit():
            return [np.asarray(x) for x in jax.tree.leaves(self.fn(*self.args))]

    def _apart(self, said: str) -> list[np.ndarray]:
        """The results op by op. Raises Mismatch with what was said where JAX cannot give them so."""
        if self.single is None:
            mine = self.stage
            self._enter("op by op")
            try:
                self.single = self._op_by_op()
            except Exception as error:
                raise Mismatch(said) from error
            finally:
                self._enter(mine)
        return self.single

    def _same(self, got: Sequence[Any], want: Sequence[Any] | None) -> None:
        if want is None:
            self._against_jax(got)
            return
        for i, (x, y) in enumerate(zip(got, want, strict=True)):
            if not same_bits(np.asarray(x), np.asarray(y)):
                d = compare(x, y, bits=True)
                if d.ratio > 0:
                    raise Mismatch(
                        f"result {i} at {list(d.element)} is {d.got}, the level before has {d.want} "
                        f"({d.count} of {np.size(y)} bits differ)"
                    )

    def _by_steps(self, got: Sequence[Any], want: Sequence[Any] | None) -> None:
        """Products of floats may differ, within the bounds of JAX's values."""
        try:
            self._same(got, want)
        except Mismatch:
            self.verdict.stepped = False
            self._against_jax(got)

    def _text(self, module: ModuleOp) -> None:
        if "text" not in self.levels:
            return
        self._enter("text")
        first = str(module)
        again = parse_module(make_context(), first, "program")
        verify_module(again)
        if str(again) != first:
            raise Mismatch("the text of a level reads back as something else")


def judge(program: Program, target: str, levels: Sequence[str], apart: bool = False) -> Verdict:
    """Runs a program at the levels asked for (see LEVELS) and judges its values. apart: against JAX op by op."""
    return Judge(program, target, levels, apart=apart).run()
