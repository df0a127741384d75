"""Base classes of the pipeline's passes: they check and record states, and settle the machine of a module."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from ..dialects.module import FOR_HIVM, set_target, target_of
from ..machine import DEFAULT_TARGET, Machine, MachineError
from .alternatives import check_names
from .errors import PassError
from .stages import stage_of
from .states import check_level, recording


@dataclass(frozen=True)
class LevelPass(ModulePass):
    """A pass of the pipeline: `apply` checks and records states, `run` rewrites the module."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites a module. Raises PassError where it lacks a state that the pass requires."""
        stage = stage_of(self.name)
        if stage is None:
            self.run(op)
        else:
            with recording(stage, op):
                self.run(op)

    def run(self, module: ModuleOp) -> None:
        """Rewrites a module that is in the states that the pass requires."""
        raise NotImplementedError


@dataclass(frozen=True)
class TargetPass(LevelPass):
    """A pass that depends on the machine. target: the name or path of one, for a module that does not say its own."""

    target: str | None = None

    def run(self, module: ModuleOp) -> None:
        check_level(module)
        self.run_for(module, settle_target(module, self.target, self.name))

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        """Rewrites a module for the machine that it says."""
        raise NotImplementedError


@dataclass(frozen=True)
class ChoosingPass(TargetPass):
    """A pass that considers alternatives. without: the names of those that it leaves out."""

    without: tuple[str, ...] = ()

    def run(self, module: ModuleOp) -> None:
        check_names(self.without)
        super().run(module)

    def may(self, name: str) -> bool:
        """Whether it considers the alternative of this name."""
        return name not in self.without


def settle_target(module: ModuleOp, target: str | None = None, asking: str = "") -> Machine:
    """The machine of a module, without what the vendor's IR cannot say where the module is made for that. A module that
    does not say it is marked with `target`, or the default one.

    Raises PassError where the module says another machine than `target`; `asking` names the pass that was given it.
    """
    try:
        said = target_of(module)
    except VerifyException as error:
        raise PassError(f"the program {error}") from error
    if said is None:
        machine = Machine.load(target or DEFAULT_TARGET)
        set_target(module, target or DEFAULT_TARGET)
        return _seen_by(module, machine)
    try:
        machine = Machine.load(said)
    except MachineError as error:
        raise PassError(f"the module's attribute tilewright.target: {error}") from error
    if target is not None and target != said and Machine.load(target) is not machine:
        by = f"{asking}: " if asking else ""
        raise PassError(
            f"{by}the module is for {said}, not for {target}: take the target away, or compile the source anew"
        )
    return _seen_by(module, machine)


def _seen_by(module: ModuleOp, machine: Machine) -> Machine:
    return machine.in_hivm if FOR_HIVM in module.attributes else machine
