"""Programs as text of HIVM, the vendor's IR: a module for each kernel, and what the vendor's tools say of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from ..backends.hivm import HivmKernel, NotInHivm, export_kernel, kernels_of
from ..backends.hivm.checking import KernelCheck, check_kernel
from ..backends.hivm.tools import VendorTools
from ..dialects.base import text
from ..dialects.module import FOR_HIVM, machine_of
from ..machine import Machine
from ..passes.errors import CompileError
from ..passes.npu.check import removable_flags

TARGETS = {
    "ascend-910b1": "Ascend910B1",
    "ascend-910b3": "Ascend910B3",
    "ascend-910b4": "Ascend910B4",
}
"""What the vendor calls the chips of the family that the export is for."""


@dataclass
class HivmExport:
    """The kernels of a program as HIVM. kernels: by name; refused: of the others, why, a sentence each."""

    kernels: dict[str, HivmKernel] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def _settled(module: ModuleOp) -> tuple[Machine, str]:
    """The machine of a module and the vendor's name of it. Raises CompileError for other chips, and for a module that
    is not in HIVM's forms."""
    machine = machine_of(module)
    if machine is None or machine.name not in TARGETS:
        name = "no chip" if machine is None else machine.name
        raise CompileError(f"HIVM is written for {', '.join(TARGETS)}; the program is for {name}")
    if FOR_HIVM not in module.attributes:
        raise CompileError(
            "the program's kernels are not in forms that HIVM has: compile it with Options(hivm=True)"
        )
    return machine, TARGETS[machine.name]


def export_module(module: ModuleOp) -> HivmExport:
    """The kernels of a program at the npu level as HIVM. Raises CompileError."""
    machine, target = _settled(module)
    found = HivmExport()
    for kernel in kernels_of(module):
        try:
            made = export_kernel(kernel, machine, target)
            found.kernels[made.name] = made
        except NotInHivm as error:
            found.refused[error.kernel] = str(error)
    return found


def check_module(module: ModuleOp, export: HivmExport, tools: VendorTools) -> Iterator[KernelCheck]:
    """What the vendor's tools say of each kernel of an export, one after the other."""
    machine, target = _settled(module)
    for kernel in kernels_of(module):
        made = export.kernels.get(text(kernel.sym_name))
        if made is not None:
            slotted = export_kernel(kernel, machine, target, slotted=True)
            yield check_kernel(made, slotted, tools, not removable_flags(kernel, machine))
