"""Compiles a random program from its shapes, as users do, and says what fails and what takes long; compares the values
of programs that are small enough to run with JAX's."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.dialects.sizes import Sizes
from tilewright.frontends import lower_function
from tilewright.passes.errors import FusionWarning
from tilewright.passes.pipeline import run_stage
from tilewright.passes.templates import NoTemplate

from .compare import Judge, Verdict, check_times
from .generate import Program
from .open_programs import OpenProgram

LEVELS = ("compiled", "report", "npu")
"""What can be asked for: that it compiles, always, a report, and values."""

MOST_SECONDS = 5.0
"""Process time of a compilation above which it is a finding."""


class CompiledJudge(Judge):
    """One program on one target, through `tw.compile`."""

    def _run(self) -> None:
        self.fn = self.program.function(self.path)
        if not self.levels:
            self._reference(self.program.arguments())
            return
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", FusionWarning)
            compiled = list(self._compiled())
        for each in warned:
            if isinstance(each.message, FusionWarning):
                raise each.message
        for version, _ in compiled:
            self.verdict.kernels = sum(op.name == "npu.kernel" for op in version.module().ops)
            self.verdict.host = sum(op.name == "npu.host_call" for op in version.module().walk())
        if "report" in self.levels:
            self._enter("report")
            for version, _ in compiled:
                report = version.report()
                check_times(report)
        if "npu" in self.levels:
            for version, args in compiled:
                self._values(version, args)
        self._enter("")

    def _compiled(self) -> Iterator[tuple[tw.Program, list[Any]]]:
        """The program, or its versions for the sizes of calls, each with arguments."""
        options = tw.Options(**self.program.options)
        self._enter("compile")
        started = time.process_time()
        if isinstance(self.program, OpenProgram):
            opened = tw.compile(self.fn, *self.program.structs(), target=self.target, options=options)
            versions = [(self._at(opened, sizes), sizes) for sizes in self.program.sizes[:2]]
            made = [(version, self.program.arguments_at(sizes)) for version, sizes in versions]
        else:
            version = tw.compile(self.fn, *self.program.structs_of_inputs(), target=self.target, options=options)
            made = [(version, self.program.arguments() if "npu" in self.levels else [])]
        spent = time.process_time() - started
        self.verdict.seconds["process"] = spent
        if spent > MOST_SECONDS * len(made):
            self.verdict.kind, self.verdict.message = "slow", f"{spent:.1f} s of process time"
        yield from made

    def _at(self, opened: tw.Program, sizes: Sizes) -> tw.Program:
        """The version for given sizes. Raises AssertionError where its range failed inside the compiler, though the
        sizes alone can be compiled."""
        assert isinstance(opened, tw.DynamicProgram)
        version = opened.at(sizes)
        for reason in opened.ranges.values():
            if isinstance(reason, NoTemplate) and str(reason).startswith("internal error"):
                raise AssertionError(str(reason))
        return version

    def _values(self, version: tw.Program, args: Sequence[Any]) -> None:
        self._reference(args)
        self.bounds, self.single = None, None
        self.source = self._computed()
        self._enter("npu")
        got = version(*self.args)
        if self.program.options.get("quantization") is None:  # which has other values, and a campaign of its own
            self._against_jax([np.asarray(x) for x in jax.tree.leaves(got)])

    def _computed(self) -> ModuleOp:
        """The source, with Winograd's algorithm where the program is asked for it: its bounds are wider."""
        module = lower_function(self.fn, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.args]).module
        if "winograd" in self.program.options:
            stages = tw.Options(**self.program.options).stages()
            for stage in stages[: 1 + [s.name for s in stages].index("graph-winograd")]:
                run_stage(stage, module, self.target)
        return module

    def _reference(self, args: Sequence[Any]) -> None:
        self._enter("reference")
        self.args = jax.tree.map(jax.numpy.asarray, list(args))
        self.want = self._op_by_op() if self.verdict.apart else self._whole()
        self.verdict.elements += sum(x.size for x in self.want)


def judge_compiled(program: Program, target: str, levels: Sequence[str], apart: bool = False) -> Verdict:
    """Compiles a program, runs it where levels (see LEVELS) ask for that, and judges its values. apart: against JAX op
    by op."""
    return CompiledJudge(program, target, levels, apart=apart).run()
