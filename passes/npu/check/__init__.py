"""npu-check: proves that a program of the npu level is free of hazards, or says where it is not.

    check(module, machine) -> findings, none for a safe program

A kernel is compiled once into flat nodes (model.py). static.py looks at addresses and bounds, clocks.py at the
order of instructions, device.py at what the cores of a launch store, host.py at what the tensors of the host program
hold, streams.py at the order of its commands, barriers.py at launches without one between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from ....dialects.npu.legality import violations
from ....dialects.npu.places import arena_of, frame_of
from ....dialects.npu.structure import KernelOp
from ....machine import Machine
from ...base import TargetPass
from ...calls import callers_first
from ..plan_memory import reached
from .barriers import check_barriers, check_cores
from .device import KernelSummary, summarise, tensor_types
from .explain import explained
from .finding import BLAME, Bytes, Finding, Hazards, plain
from .host import HostFunctionCheck, constants_apart
from .host_calls import check_host_calls
from .minimal import FlagPair, removable
from .model import CheckedKernel
from .order import frames_of
from .ranges import around
from .static import check_section
from .streams import check_streams


@dataclass(frozen=True)
class NpuCheckPass(TargetPass):
    """Raises Hazards with all that it finds; changes nothing."""

    name = "npu-check"

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        found = check(module, machine)
        if found:
            raise Hazards(found)


def check(module: ModuleOp, machine: Machine, full: bool = False) -> list[Finding]:
    """Every hazard of a module; `full` follows all iterations of every loop. Raises PassError where an index
    cannot be followed."""
    out: list[Finding] = []
    kernels: dict[str, KernelSummary] = {}
    for op in module.ops:
        if isinstance(op, KernelOp):
            summary, found = check_kernel(op, machine, full)
            kernels[summary.kernel.name] = summary
            out += found
    return out + check_program(module, kernels, machine)


def check_program(module: ModuleOp, kernels: dict[str, KernelSummary], machine: Machine) -> list[Finding]:
    """The hazards of a module's functions, which launch `kernels`."""
    out: list[Finding] = []
    functions = callers_first(module)
    planned = [f for f in functions if arena_of(f) is not None or frame_of(f) is not None]
    arenas = {f: bytes_ for f in planned if (bytes_ := arena_of(f)) is not None}
    entries, arena = list(arenas), around([(0, bytes_) for bytes_ in arenas.values()] or [(0, 0)])[1]
    frames = frames_of(planned)
    for entry in entries:
        out += constants_apart([entry, *reached(entry, planned)])
    for func in planned:
        out += HostFunctionCheck(func, kernels, frames, arena, machine).run()
    out += check_host_calls(module)
    return [*out, *check_streams(functions), *check_barriers(functions), *check_cores(module, machine)]


def check_kernel(op: KernelOp, machine: Machine, full: bool = False) -> tuple[KernelSummary, list[Finding]]:
    """What a kernel does to its tensors, and its hazards."""
    kernel = CheckedKernel(op, machine)
    out: list[Finding] = []
    for found in violations(op, machine):
        out.append(Finding("wrong-machine", f"{{first}} {plain(found.problem)}", found.op, kernel=kernel.name))
    for section in kernel.sections:
        out += check_section(kernel, section, machine)
    summary = summarise(kernel)
    out += summary.findings
    kernel.counts[kernel.unit] = 1
    tracked = summary.tracked
    for start in kernel.starts(summary.read_and_written):
        found, needs = explained(kernel, tracked, full, start)
        out += found
        summary.needs |= needs
    return summary, out


def removable_flags(op: KernelOp, machine: Machine) -> list[FlagPair]:
    """Flags of a safe kernel without any one of which it is still safe."""
    kernel = CheckedKernel(op, machine)
    return removable(kernel, summarise(kernel).tracked)


__all__ = [
    "BLAME",
    "Bytes",
    "Finding",
    "FlagPair",
    "Hazards",
    "KernelSummary",
    "NpuCheckPass",
    "check",
    "check_kernel",
    "check_program",
    "removable_flags",
    "tensor_types",
]
