"""One program for many sizes: a module with open dimensions is lowered once, and has numbers put in for each size.

A *template* is the npu level of a program whose dimensions are open, with what was assumed while it was lowered. Where
its constraints hold, its *instance* for given sizes is right; only the plan of device memory, the order of the host's
commands and the check of both are made for each instance. Kernels are checked for the smallest and the largest sizes
of the template, and for its example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from ..dialects.affine import Symbol
from ..dialects.module import target_of
from ..dialects.npu.structure import KernelOp
from ..dialects.sizes import Constraint, SizeError, Sizes
from ..machine import DEFAULT_TARGET, Machine
from .errors import PassError
from .instances import Instance
from .npu.check import check_kernel
from .pipeline import Stage, run_stage

OF_INSTANCES = ("npu-plan-memory", "npu-schedule-host", "npu-check")
"""Passes that run for each size."""


class NoTemplate(PassError):
    """A program that cannot be lowered for many sizes at once; it can for each."""


@dataclass(frozen=True)
class Template:
    """module: the npu level, kernels with open dimensions. symbols: the range of sizes that it is for. example: the
    sizes for which choices were made. constraints: what else sizes have to fulfil. stages: what runs for instances."""

    module: ModuleOp
    symbols: Mapping[str, Symbol]
    example: Sizes
    constraints: tuple[Constraint, ...]
    stages: tuple[Stage, ...]

    def holds(self, sizes: Sizes) -> bool:
        """Whether the template is right for these sizes."""
        within = all(
            s.lower <= sizes[s.name] and (s.upper is None or sizes[s.name] <= s.upper)
            for s in self.symbols.values()
        )
        return within and all(_holds(c, sizes) for c in self.constraints)

    def holds_within(self, sizes: Sizes) -> bool:
        """`holds`, where sizes that are equal to others follow from these."""
        return all(_holds(c, sizes) for c in self.constraints if set(c.symbols) <= set(self.symbols.values()))

    def instance(self, sizes: Sizes) -> ModuleOp:
        """The npu level at sizes that the template is right for. Raises PassError, as the passes of instances do."""
        module = Instance(sizes).of(self.module)
        for stage in self.stages:
            if stage.name != "npu-check":  # kernels are proven already
                run_stage(stage, module)
        return module


def _holds(constraint: Constraint, sizes: Sizes) -> bool:
    try:
        return constraint.holds(sizes)
    except SizeError:
        return False


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
    own = [s for s in stages if s.name not in OF_INSTANCES]
    try:
        for stage in own:
            run_stage(stage, module, target)
    except (PassError, SizeError, VerifyException) as error:
        raise NoTemplate(str(error)) from error
    found = Template(
        module,
        dict(symbols),
        dict(example),
        (),
        tuple(s for s in stages if s.name in OF_INSTANCES),
    )
    return found


def check_template(template: Template, names: Sequence[str]) -> None:
    """Checks the kernels of a template at the ends of its range, and for its example. Raises NoTemplate for hazards."""
    if not any(s.name == "npu-check" for s in template.stages):
        return
    machine = Machine.load(target_of(template.module) or DEFAULT_TARGET)
    for sizes in _corners(template, names):
        module = Instance(sizes).of(template.module)
        for op in module.ops:
            if isinstance(op, KernelOp):
                findings = check_kernel(op, machine)[1]
                if findings:
                    raise NoTemplate(f"at {dict(sizes)}: {findings[0]}")


def _corners(template: Template, names: Sequence[str]) -> list[Sizes]:
    """The example, and the ends of the range in all combinations, where the template is right for them. Sizes that are
    no symbols of it follow from the example."""
    ends = {s.name: (s.lower, template.example[s.name]) for s in template.symbols.values()}
    chosen = product(*(dict.fromkeys(both) for both in ends.values()))
    found = [
        template.example,
        *({**template.example, **dict(zip(ends, each, strict=True))} for each in chosen),
    ]
    unique = {tuple(sizes[n] for n in names): sizes for sizes in found}
    return [sizes for sizes in unique.values() if template.holds_within(sizes)]
