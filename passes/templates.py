"""One program for many sizes: a module with open dimensions is lowered once, and has numbers put in for each size.

A *template* is the npu level of a program whose dimensions are open, with what was assumed while it was lowered. Where
its constraints hold, its *instance* for given sizes is right: the places of tensors in device memory are expressions of
the sizes, and the order of the host's commands is the same for all. Kernels are checked for the smallest and the
largest sizes of the template, and for its example; the host program, its memory and its streams for all sizes at once.

A `Template` is that program with its range and its constraints. The `SymbolicTemplate` (symbolic_template.py) in it is
its module alone, prepared so that instances are made quickly; an `Instantiation` (instantiation.py) puts numbers in
without that, into any op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from ..dialects.affine import Symbol
from ..dialects.base import text
from ..dialects.module import target_of
from ..dialects.npu.host_program import DeviceTensorOp
from ..dialects.npu.structure import KernelOp
from ..dialects.sizes import Constraint, SizeError, Sizes
from ..machine import DEFAULT_TARGET, Machine
from ..support.collector import collector_paused
from .errors import PassError
from .npu.check import Finding, KernelSummary, check_kernel, check_program, tensor_types
from .npu.stacking import NoOpenPlan
from .pipeline import Stage, run_stage
from .symbolic_template import SymbolicTemplate

PLANNED = ("npu-plan-memory", "npu-schedule-host", "npu-join-launches")
"""Passes that run for all sizes at once where there is one plan of device memory for them, and for each where not."""

CHECK = "npu-check"
"""The pass in the place of which `check_template` runs."""


class NoTemplate(PassError):
    """A program that cannot be lowered for many sizes at once; it can for each."""


@dataclass(frozen=True)
class Template:
    """module: the npu level, with open dimensions. symbols: the range of sizes that it is for. example: the sizes for
    which choices were made. constraints: what else sizes have to fulfil. stages: what runs for each instance. checked:
    whether it is to be free of hazards. unplanned: why device memory is planned for each instance; empty where the
    module has the plan for all."""

    module: ModuleOp
    symbols: Mapping[str, Symbol]
    example: Sizes
    constraints: tuple[Constraint, ...]
    stages: tuple[Stage, ...] = ()
    checked: bool = True
    unplanned: str = ""

    @cached_property
    def symbolic(self) -> SymbolicTemplate:
        """What instances are made with. The module must not change any more."""
        return SymbolicTemplate(self.module, self.example)

    def in_range(self, sizes: Sizes) -> bool:
        """Whether these sizes are within the bounds of the symbols, whatever the constraints say."""
        return all(
            s.lower <= sizes[s.name] and (s.upper is None or sizes[s.name] <= s.upper)
            for s in self.symbols.values()
        )

    def holds(self, sizes: Sizes) -> bool:
        """Whether the template is right for these sizes."""
        return self.in_range(sizes) and all(c.met_by(sizes) for c in self.constraints)

    def instance(self, sizes: Sizes) -> ModuleOp:
        """The npu level at sizes that the template is right for. Raises PassError, as the passes of instances do."""
        with collector_paused():
            module = self.symbolic.at(sizes)
            for stage in self.stages:
                run_stage(stage, module)
        return module


def lower_template(
    module: ModuleOp,
    target: str | None,
    stages: Sequence[Stage],
    symbols: Mapping[str, Symbol],
    example: Sizes,
) -> Template:
    """Lowers a module with open dimensions, in place, within `assuming(example)`, which then has the constraints.

    Raises NoTemplate.
    """
    own = [s for s in stages if s.name not in (*PLANNED, CHECK)]
    planned = tuple(s for s in stages if s.name in PLANNED)
    found = Template(module, dict(symbols), dict(example), (), checked=any(s.name == CHECK for s in stages))
    try:
        for stage in own:
            run_stage(stage, module, target)
        for stage in planned:
            run_stage(stage, module)
    except NoOpenPlan as error:
        for op in module.walk():
            if isinstance(op, DeviceTensorOp):
                op.properties.pop("address", None)
        return replace(found, stages=planned, unplanned=str(error))
    except (PassError, SizeError, VerifyException) as error:
        raise NoTemplate(str(error)) from error
    return found


def check_template(template: Template, names: Sequence[str]) -> None:
    """Checks a template: its kernels at the ends of its range and for its example, and where it has the plan of device
    memory, the host program for all sizes; at each of these, too, where kernels write tensors in parts, which are
    other elements at each. Raises NoTemplate for hazards."""
    if not template.checked:
        return
    machine = Machine.load(target_of(template.module) or DEFAULT_TARGET)
    closed = {text(op.sym_name) for op in template.symbolic.closed if isinstance(op, KernelOp)}
    kernels: dict[str, KernelSummary] = {}
    for sizes in _corners(template, names):
        module = template.symbolic.at(sizes)
        for op in module.ops:
            if isinstance(op, KernelOp) and not (text(op.sym_name) in closed and text(op.sym_name) in kernels):
                kernels[text(op.sym_name)], findings = check_kernel(op, machine)
                _refuse(findings, f"at {dict(sizes)}")
        if not template.unplanned and any(summary.parts for summary in kernels.values()):
            _refuse(check_program(module, kernels, machine), f"at {dict(sizes)}")
    if not template.unplanned:
        opened = {
            name: replace(kernels[name], types=tensor_types(op))
            for op in template.module.ops
            if isinstance(op, KernelOp) and (name := text(op.sym_name)) in kernels
        }
        _refuse(check_program(template.module, opened, machine), "for all sizes")


def _refuse(findings: Sequence[Finding], where: str) -> None:
    if findings:
        raise NoTemplate(f"{where}: {findings[0]}")


def _corners(template: Template, names: Sequence[str]) -> list[Sizes]:
    """The example, and the ends of the range in all combinations, where the template is right for them. Sizes that are
    no symbols of it are equal to some that are."""
    ends = {s.name: (s.lower, s.upper or template.example[s.name]) for s in template.symbols.values()}
    chosen = product(*(dict.fromkeys(both) for both in ends.values()))
    found = [
        template.example,
        *({**template.example, **dict(zip(ends, each, strict=True))} for each in chosen),
    ]
    unique = {tuple(sizes[n] for n in names): sizes for sizes in found}
    own = [c for c in template.constraints if set(c.symbols) <= set(template.symbols.values())]
    return [sizes for sizes in unique.values() if all(c.met_by(sizes) for c in own)]
