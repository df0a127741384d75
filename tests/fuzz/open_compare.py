"""Holds a random program with open dimensions, which is compiled once, against JAX at several sizes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax import export
from visible import check_visible

import tilewright as tw
from tilewright.api.sizes.templates import SizedProgram
from tilewright.frontends import lower_function
from tilewright.passes.errors import FusionWarning
from tilewright.passes.npu.check import check
from tilewright.passes.templates import NoTemplate

from .compare import Judge, Mismatch, Verdict, check_times, compare
from .open_dims import Sizes
from .open_programs import OpenProgram

LEVELS = ("npu", "bytes", "report")
"""What can be asked for: values in typed and in addressed memory, and a report. npu-check always runs."""


@dataclass
class OpenVerdict(Verdict):
    """sizes: what was compared; ranged: at how many of them a version for a range was used; alone: why each range for
    which there is none has none; broken: at how many they broke what a version assumes; exported: what of it JAX with
    open sizes and JAX without disagree about, where we are with the former; at: the sizes of a failure."""

    sizes: int = 0
    ranged: int = 0
    alone: list[str] = field(default_factory=list)
    broken: int = 0
    exported: str = ""
    at: dict[str, int] = field(default_factory=dict)


class OpenJudge(Judge):
    """One program on one target, at each of its sizes."""

    program: OpenProgram
    verdict: OpenVerdict

    def __init__(self, program: OpenProgram, target: str, levels: Sequence[str], apart: bool = False):
        super().__init__(program, target, levels, apart=apart)
        self.verdict = OpenVerdict(apart=apart)

    def _run(self) -> None:
        self._enter("reference")
        self.fn = self.program.function(self.path)
        wanted: list[tuple[Sizes, list[Any], list[np.ndarray]]] = []
        for sizes in self.program.sizes:
            self.args = jax.tree.map(jax.numpy.asarray, self.program.arguments_at(sizes))
            wanted.append((sizes, self.args, self._op_by_op() if self.verdict.apart else self._whole()))
        if not self.levels:
            return
        self._enter("frontend")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FusionWarning)  # it is among the reasons
            self._compared(wanted)

    def _compared(self, wanted: Sequence[tuple[Sizes, list[Any], list[np.ndarray]]]) -> None:
        """Compares the program for all sizes with what is wanted at each."""
        opened = self._opened()
        if opened is None:
            return
        for sizes, self.args, self.want in wanted:
            self.verdict.at = dict(sizes)
            self.verdict.elements += sum(x.size for x in self.want)
            self.bounds, self.single = None, None
            self._at(opened, sizes)
            self.verdict.sizes += 1
        self.verdict.at = {}
        self.verdict.alone = [str(v) for v in opened.ranges.values() if isinstance(v, NoTemplate)]
        inside = next((reason for reason in self.verdict.alone if reason.startswith("internal error")), None)
        if inside is not None:
            self._enter("range")
            raise AssertionError(inside)
        self._enter("")

    def _opened(self) -> tw.DynamicProgram | None:
        """The program for all sizes; None where JAX itself gives none."""
        structs = self.program.structs()
        try:
            made = tw.compile(self.fn, *structs, target=self.target)
        except Exception:
            try:
                export.export(jax.jit(self.fn))(*structs)
            except Exception:  # JAX's own refusal
                self.verdict.refused = True
                return None
            raise
        assert isinstance(made, tw.DynamicProgram)
        return made

    def _at(self, opened: tw.DynamicProgram, sizes: Sizes) -> None:
        self._enter("compile")
        found = opened.sizes(*self.args)
        if found != sizes:
            raise Mismatch(f"the sizes are {sizes}, and the program finds {found}")
        version = opened.at(sizes)
        ranged = isinstance(version, SizedProgram)
        self.verdict.ranged += ranged
        self.verdict.broken += not ranged and any(
            not isinstance(v, NoTemplate) and not v.template.in_range(sizes)
            for v in opened.ranges.values()
        )
        module = version.module()
        self.verdict.host += sum(op.name == "npu.host_call" for op in module.walk())
        self.verdict.kernels += sum(op.name == "npu.kernel" for op in module.ops)
        self._enter("check")
        module.verify()
        check_visible(module)
        findings = check(module, self.machine)
        if findings:
            raise AssertionError(str(findings[0]))
        if "report" in self.levels:
            self._enter("report")
            report = version.report()
            check_times(report)
        flat, typed = version.flatten(self.args), None
        if "npu" in self.levels:
            self._enter("npu")
            typed = version.executable("typed")(*flat)
            self._shaped(typed)
            self._against_jax(typed)
        if "bytes" in self.levels:
            self._enter("bytes")
            self._same(version.executable("bytes")(*flat), typed)
        if "step" in self.levels:
            self._enter("step")
            self._by_steps(version.executable("step")(*flat), typed)

    def _shaped(self, got: Sequence[Any]) -> None:
        for i, (x, y) in enumerate(zip(got, self.want, strict=True)):
            if np.shape(x) != np.shape(y):
                raise Mismatch(f"result {i} has the shape {np.shape(x)}, and must have {np.shape(y)}")

    def _against_jax(self, got: Sequence[Any]) -> None:
        try:
            super()._against_jax(got)
        except Mismatch as error:
            if self.verdict.apart or not self._is_exported(got):
                raise
            self.verdict.exported = str(error)

    def _is_exported(self, got: Sequence[Any]) -> bool:
        """Whether results are what JAX computes where it is given open sizes: it may then see another program in the
        same function, as one that counts indices of u32 from the end."""
        mine = self.stage
        self._enter("export")
        made = export.export(jax.jit(self.fn))(*self.program.structs())
        want = [np.asarray(x) for x in jax.tree.leaves(made.call(*self.args))]
        self._enter(mine)
        return all(compare(x, y, e).ratio <= 1 for x, y, e in zip(got, want, self._allowed(), strict=True))

    def _allowed(self) -> list[np.ndarray | None]:
        if self.bounds is None:
            structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.args]
            self.source = lower_function(self.fn, structs).module
        return super()._allowed()


def judge_open(program: OpenProgram, target: str, levels: Sequence[str], apart: bool = False) -> OpenVerdict:
    """Runs a program at its sizes (see LEVELS) and judges its values. apart: against JAX op by op."""
    judge = OpenJudge(program, target, levels, apart)
    judge.run()
    return judge.verdict
