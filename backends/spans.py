"""The host program in time as named spans, one for each command: what the trace and the explain page both show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .simulator import (
    Copy,
    HostCall,
    Launch,
    Placed,
    Rest,
    Scalars,
    Simulation,
    Transfer,
    Work,
    lay_out,
    track,
)

COMMANDS = 3000
"""Commands up to which further passes through loops are shown one by one."""

Kind = Literal["kernel", "copy", "transfer", "host call", "numbers", "passes"]


@dataclass(frozen=True)
class Span:
    """A command on its queue, or what the queue does in `passes` further passes through a loop (then 0 elsewhere).

    Times are in microseconds from the first command; the first `overhead` of them start the command. `placed` is what
    the simulator has of it.
    """

    queue: str
    name: str
    kind: Kind
    begin: float
    end: float
    overhead: float
    passes: int
    placed: Placed | Rest


def program_spans(simulation: Simulation) -> list[Span]:
    """The commands of a program. Loops show as many passes as COMMANDS allows; the rest are one span a queue."""
    found: list[Span] = []
    for placed in lay_out(simulation.steps, COMMANDS):
        begin, end = placed.begin, placed.end
        if isinstance(placed, Placed):
            name, kind, overhead = _described(placed.step, simulation)
            found.append(Span(track(placed.step), name, kind, begin, end, overhead, 0, placed))
        elif end > begin:
            name = f"{placed.passes:,} more {'pass' if placed.passes == 1 else 'passes'} like the last one"
            found.append(Span(placed.queue, name, "passes", begin, end, 0.0, placed.passes, placed))
    return found


def _described(step: Work, simulation: Simulation) -> tuple[str, Kind, float]:
    """The name and kind of a command, and the microseconds that starting it takes."""
    if isinstance(step, Launch):
        return step.kernel.name, "kernel", step.overhead
    if isinstance(step, Copy):
        return "copy", "copy", step.microseconds - simulation.machine.cycles_to_microseconds(step.cycles)
    if isinstance(step, HostCall):
        return step.name, "host call", simulation.machine.host.call_us
    if isinstance(step, Transfer):
        return step.name, "transfer", step.microseconds - step.link_microseconds
    assert isinstance(step, Scalars)
    return "numbers", "numbers", 0.0
