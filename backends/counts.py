"""How many kernels, launches and other commands a program has: what every summary of it says."""

from __future__ import annotations

from dataclasses import dataclass

from ..support.sentences import counted
from .simulator import Copy, HostCall, Launch, Simulation, Transfer


@dataclass(frozen=True)
class Counts:
    """kernels: that the program has, copies are none; launched_kernels: those of them that a run launches; launches: of
    kernels, in one run; joined: how often a kernel runs in the launch of the one before it; copies: within device
    memory; host_calls: calls of the host, and waits for a number."""

    kernels: int
    launched_kernels: int
    launches: int
    joined: int
    copies: int
    host_calls: int

    def __str__(self) -> str:
        """`5 launches of 2 kernels, 1 copy`; what there is none of is left out, except launches."""
        said = f"{counted(self.launches, 'launch', 'launches')} of {kernels_text(self.launched_kernels)}"
        if self.launched_kernels < self.kernels:
            said += f" ({self.kernels - self.launched_kernels} more not launched)"
        if self.copies:
            said += f", {counted(self.copies, 'copy', 'copies')}"
        if self.host_calls:
            said += f", {counted(self.host_calls, 'host call', 'host calls')}"
        return said


def kernels_text(kernels: int) -> str:
    """`1 kernel`, `2 kernels`."""
    return counted(kernels, "kernel", "kernels")


def counts_of(simulation: Simulation) -> Counts:
    """Counts the commands of a simulated program, loops with all their passes."""
    launched: set[str] = set()
    launches = joined = copies = host_calls = 0
    for step, times in simulation.flat():
        if isinstance(step, Launch):
            launched.add(step.kernel.name)
            joined += times if step.joined else 0
            launches += 0 if step.joined else times
        elif isinstance(step, Copy):
            copies += times
        elif isinstance(step, HostCall) or (isinstance(step, Transfer) and step.control):
            host_calls += times
    return Counts(len(simulation.kernels), len(launched), launches, joined, copies, host_calls)
