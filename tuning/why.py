"""Why a plan of a kernel is better than another one: what differs between them, and which bottleneck went away.

A launch by itself takes the time until its cores have begun, the time that its busiest pipe works, and the time in
which that pipe waits: `LaunchParts`, whose sum it is. Both plans are lowered and simulated. The part that fell by most
is the bottleneck that went away; what holds the kernel now is what its report says binds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xdsl.utils.exceptions import VerifyException

from ..backends.costs import report_of
from ..backends.report import KernelReport
from ..backends.simulator import HBM, L2_CACHE, Launch, SimulationError, simulate
from ..dialects import make_context
from ..dialects.npu import Pipe
from ..dialects.schedule_text import parse_schedule
from ..dialects.text import TextParser
from ..machine import Machine
from ..passes.choose.launches import launches_of
from ..passes.errors import PassError
from ..support.sentences import counted
from .alone import LaunchQuestion, fusion_of, lowered
from .kernel_search import BETTER, Outcome, Side

LEAST = 5e-3
"""Microseconds that a part must have fallen by: less is 0.00 us in what is printed."""

WORK: dict[str, str] = {
    Pipe.S: "the issuing of instructions",
    Pipe.M: "the computing of products",
    Pipe.V: "the arithmetic of the vector cores",
    Pipe.MTE1: "the copying from l1 to l0",
    Pipe.MTE2: "the loading from device memory",
    Pipe.MTE3: "the storing to device memory",
    Pipe.FIX: "the writing out of l0c",
}
"""What pipes do; of a pipe that a chip has besides, its name says it."""

MOVED: dict[str, tuple[str, str]] = {
    Pipe.MTE2: ("read", "loads"),
    Pipe.MTE3: ("write", "stores"),
    Pipe.FIX: ("write", "stores"),
}
"""Pipes to or from device memory: the bytes of a report that they move, and what a kernel does with these."""

FEW_AXES = 3
"""Numbers for so many axes are printed together."""

WORDS = {"inner": "inner loop", "lhs": "load of the left operand", "rhs": "load of the right operand"}
"""Choices and fields that are called otherwise in text."""


@dataclass(frozen=True)
class LaunchParts:
    """A launch by itself, in microseconds. start: until its cores have begun; busiest: the pipe that works most, empty
    where none does, and work: how long it does; waiting: how long it does not, while the cores run. cores: how many
    begin; report: all figures of the kernel."""

    start: float
    busiest: str
    work: float
    waiting: float
    cores: int
    report: KernelReport

    @property
    def microseconds(self) -> float:
        """All of them: what the launch takes."""
        return self.start + self.work + self.waiting


def parts_of_launch(question: LaunchQuestion) -> LaunchParts:
    """The parts of a launch. Raises PassError, VerifyException and SimulationError where it cannot run, or is not one
    launch."""
    module = lowered(question)
    simulation = simulate(module, Machine.load(question.target))
    launches = [step for step, _ in simulation.flat() if isinstance(step, Launch)]
    if len(launches) != 1:
        raise PassError(f"its schedule makes {len(launches)} launches of it")
    (launch,) = launches
    report = next(k for k in report_of(simulation, module).kernels if k.name == launch.kernel.name)
    busiest = max(report.pipes, key=lambda pipe: report.pipes[pipe], default="")
    running = report.microseconds - report.launch_microseconds
    work = min(report.pipes.get(busiest, 0.0), running)
    return LaunchParts(report.launch_microseconds, busiest, work, running - work, report.cores, report)


def explained(module: str, taken: str, target: str, outcome: Outcome) -> str:
    """Why the plans that were found of a kernel are better than the one that it had, or why it keeps that, by the
    simulator, in sentences. module, taken: the kernel and the schedule that it had, as text."""
    try:
        before = parts_of_launch(LaunchQuestion(module, taken, target))
    except UNABLE as error:
        return f"cannot be simulated by itself: {error}"
    better: dict[str, Side] = {}
    for side in outcome.sides:
        if side.gained > 0 and side.best.plan != taken:
            better.setdefault(side.best.plan, side)
    if not better:
        return f"{_unchanged(outcome)}; {held_by(before)}"
    found: list[str] = []
    for plan, side in better.items():
        try:
            gone = what_went_away(before, parts_of_launch(LaunchQuestion(module, plan, target)), side)
        except UNABLE as error:
            gone = f"cannot be simulated by itself: {error}"
        found.append(f"{_AS_STAGE * side.joined}{differences(module, taken, plan, target)}: {gone}")
    return ". ".join(found)


UNABLE = (PassError, SimulationError, VerifyException)
"""What is raised for a launch that cannot run."""

_AS_STAGE = "As a stage of a launch of several: "


def _unchanged(outcome: Outcome) -> str:
    """What is known of a kernel of which no better plan is."""
    if any(side.gained > 0 for side in outcome.sides):
        return "the plan that was found before is taken"
    if all(side.certified for side in outcome.sides):
        return "proven: no plan is better"
    evaluations = sum(side.evaluations for side in outcome.sides)
    if not evaluations:
        return outcome.how
    return f"no better plan was found in {evaluations:,} evaluations"


# -- what differs --------------------------------------------------------------------------------------------


def differences(module: str, before: str, after: str, target: str) -> str:
    """What differs between two schedules of a kernel: `rows 128 instead of 64, cores 4 x 6 instead of 2 x 12`, in the
    choices of its space where that has both, and else in the fields of schedules."""
    first, second = (_choices(module, each, target) for each in (before, after))
    by_axis = first is None or second is None or first == second
    if first is None or second is None or first == second:
        first, second = (parse_schedule(each).chosen() for each in (before, after))
    names = [*second, *(name for name in first if name not in second)]
    changed = (name for name in names if first.get(name) != second.get(name))
    return ", ".join(said for name in changed for said in _changed(name, first.get(name), second.get(name), by_axis))


def _changed(name: str, before: Any, after: Any, by_axis: bool) -> Iterator[str]:
    """`rows 128 instead of 64`; of a field that has numbers for many axes those that changed."""
    if by_axis and isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after) > FEW_AXES:
        for axis, (first, second) in enumerate(zip(before, after, strict=True)):
            if first != second:
                yield f"{_named(name)} {_shown(second)} instead of {_shown(first)} along axis {axis}"
        return
    yield f"{_named(name)} {_shown(after)} instead of {_shown(before)}"


def _choices(module: str, schedule: str, target: str) -> dict[str, Any] | None:
    """What a schedule says of each choice of the kernel's space; None where the space has the schedule not, or has one
    choice, which is the schedule as such."""
    machine, taken = Machine.load(target), parse_schedule(schedule)
    (plan,) = launches_of(fusion_of(TextParser(make_context(), module).parse_module()), machine)
    kernel = plan.kernel(plan.stem, None if type(taken) is plan.choices else type(taken)())
    try:
        space = kernel.space(plan.stem)
    except PassError:
        return None
    numbers = space.numbers(taken)
    if numbers is None or [c.name for c in space.space.choices] == ["schedule"]:
        return None
    return space.space.values(numbers)


def _named(name: str) -> str:
    """What text calls a choice or a field: `tile along axis 0` for tile_0."""
    kind, _, axis = name.partition("_")
    return f"{kind} along axis {axis}" if axis.isdecimal() else WORDS.get(name, name.replace("_", " "))


def _shown(value: Any) -> str:
    """A value of a choice: `4 x 6`."""
    if isinstance(value, tuple):
        return " x ".join(map(_shown, value)) or "none"
    return "none" if value is None else str(value)


# -- what went away ------------------------------------------------------------------------------------------


def what_went_away(before: LaunchParts, after: LaunchParts, side: Side) -> str:
    """Which part fell by most, what grew for it, and what holds the kernel now."""
    start = {} if side.joined else {"start": before.start - after.start}
    fell = {**start, "work": before.work - after.work, "waiting": before.waiting - after.waiting}
    most = max(fell, key=lambda part: fell[part])
    total = sum(fell.values())
    if total < (1 - BETTER) * before.microseconds:
        return f"the simulator sees no gain; {held_by(after, side.joined)}"
    if fell[most] < LEAST:
        return f"less than {2 * LEAST:.2f} us are gained; {held_by(after, side.joined)}"
    said = "; ".join([_PARTS[most](before, after), *_grown(fell, most)])
    return f"{said}; now {held_by(after, side.joined)}"


def _grown(fell: dict[str, float], most: str) -> Iterator[str]:
    """What takes longer for it."""
    names = {"start": "the start of cores", "work": "the busiest pipe", "waiting": "waiting"}
    for part, less in fell.items():
        if part != most and less <= -LEAST:
            yield f"{names[part]} takes {-less:.2f} us more"


def _less_start(before: LaunchParts, after: LaunchParts) -> str:
    less = before.start - after.start
    return f"starts {_cores(after)} instead of {before.cores}, {less:.2f} us less until they begin"


def _cores(parts: LaunchParts) -> str:
    return counted(parts.cores, "core", "cores")


def _less_work(before: LaunchParts, after: LaunchParts) -> str:
    pipe = before.busiest
    said = f"{pipe} was busy {before.work:.2f} us and is {after.report.pipes.get(pipe, 0.0):.2f}"
    if pipe in MOVED:
        key, does = MOVED[pipe]
        first, second = before.report.bytes[key], after.report.bytes[key]
        if second < first:
            return f"the kernel {does} {_size(second)} instead of {_size(first)}, {said}"
    if after.cores > before.cores:
        return f"{_cores(after)} share the work instead of {before.cores}, {said}"
    return said


def _less_waiting(before: LaunchParts, after: LaunchParts) -> str:
    said = f"waits {after.waiting:.2f} us instead of {before.waiting:.2f}"
    pipes = before.report.pipes
    others = {p: us - after.report.pipes.get(p, 0.0) for p, us in pipes.items() if p != before.busiest}
    pipe = max(others, key=lambda p: others[p], default="")
    if pipe and others[pipe] >= LEAST:
        said += f", of other pipes {pipe} was busy {pipes[pipe]:.2f} us and is {pipes[pipe] - others[pipe]:.2f}"
    return said


_PARTS = {"start": _less_start, "work": _less_work, "waiting": _less_waiting}


def held_by(parts: LaunchParts, joined: bool = False) -> str:
    """What holds a kernel: its start, a bandwidth, its busiest pipe, or waiting, whichever its report says. joined: as
    a stage of a launch of several, whose start does not count."""
    bound, pipe = parts.report.bound, parts.busiest
    total = parts.work + parts.waiting if joined else parts.microseconds
    if bound == "launch" and not joined:
        return f"the start of its cores ({parts.start:.2f} of {total:.2f} us) holds it"
    if bound in (HBM, L2_CACHE):
        return f"the bandwidth of {bound} ({_size(parts.report.bytes[bound.lower()])} in {total:.2f} us) holds it"
    if parts.waiting > parts.work:
        return f"waiting ({parts.waiting:.2f} of {total:.2f} us, of the busiest pipe, {pipe}) holds it"
    behind = f" behind {bound.removeprefix(f'{pipe} ').strip('()')}" if bound.startswith(f"{pipe} ") else ""
    what = WORK.get(pipe, f"the work of {pipe}")
    return f"{what}{behind} ({pipe} {parts.work:.2f} of {total:.2f} us) holds it"


def _size(amount: int) -> str:
    return f"{amount / 1e6:.2f} MB"
