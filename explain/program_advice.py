"""What is said of a whole program: of its kernels together, of copies, and of what runs on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xdsl.ir import Operation

from ..backends.report import HostOpReport, HostScalarsReport, KernelReport, Report
from ..backends.simulator import Copy, Launch, Simulation
from ..dialects.npu.structure import NpuYieldOp, ToDeviceOp
from ..support.sentences import counted
from .advice import SHARE, Advice, findings
from .units import data_size, duration, percent

LEAST = 5e-4
"""Microseconds from which on a time is spoken of: less is 0 ns."""

Json = dict[str, Any]


def advice(longest: Mapping[str, Launch], simulation: Simulation, report: Report) -> Json:
    """What is said, as plain data; each finding is {"rule", "what", "help"}.

    {"program": [finding], "kernels": {name: [finding]}, "copies": [finding],
     "host_ops": [[finding], in the report's order], "host_scalars": [finding]}
    """
    kernels = {k.name: k for k in report.kernels if k.kind != "copy"}
    copies = next((k for k in report.kernels if k.kind == "copy"), None)
    return {
        "program": _plain([*_launches(report), *_side_by_side(report), *_assumed(report)]),
        "kernels": {
            name: _plain(findings(launch, kernels[name], simulation.machine))
            for name, launch in longest.items()
        },
        "copies": _plain(_copies(simulation, copies)) if copies is not None else [],
        "host_ops": [_plain([_host_op(op)]) for op in report.host_ops],
        "host_scalars": _plain(_scalars(report.host_scalars)),
    }


def _plain(found: Sequence[Advice]) -> list[dict[str, str]]:
    return [vars(finding) for finding in found]


def _launches(report: Report) -> Iterator[Advice]:
    """How much of the time starts kernels and copies, once for all of them."""
    starting = sum(kernel.launch_microseconds for kernel in report.kernels)
    bound = sum(k.bound == "launch" and k.kind != "copy" for k in report.kernels)
    if starting <= SHARE * report.microseconds:
        return
    counts = report.counts
    what = (
        f"Launches: starting {counted(counts.launches, 'kernel launch', 'kernel launches')}"
        + (f" and {counted(counts.copies, 'copy', 'copies')}" if counts.copies else "")
        + f" takes {duration(starting)}, {percent(starting / report.microseconds)} of the program's time"
    )
    if bound:
        kernels = counted(counts.launched_kernels, "kernel", "kernels")
        what += f"; {bound} of {kernels} take{'s' if bound == 1 else ''} longer to start than to work"
    yield Advice(
        what,
        "fewer and longer launches: fuse neighbours, a larger batch, more work in each pass of a loop",
        "launch",
    )


def _side_by_side(report: Report) -> Iterator[Advice]:
    """Which queue is busiest, where several are."""
    if len(report.queues) < 2 or not report.microseconds:
        return
    queue = max(report.queues, key=lambda name: report.queues[name])
    idle = 1 - report.queues[queue] / report.microseconds
    if idle > SHARE:
        yield Advice(
            f"Queues: the busiest, {queue}, is idle {percent(idle)} of the time and waits for the others",
            "work that does not depend on the host, placed between a call and the use of its result, hides it",
            "queues",
        )


def _assumed(report: Report) -> Iterator[Advice]:
    """What the figures take for granted, and what failed."""
    if report.left_out is not None:
        yield Advice(f"Left out: {report.left_out}", "please report it", "left out")
    for loop in report.assumed_trips:
        yield Advice(f"Assumed: {loop} runs 1 pass, since its trip count is not known", "", "assumed")
    for branch in report.assumed_branches:
        yield Advice(f"Assumed: {branch} takes the branch that is longest", "", "assumed")


def _copies(simulation: Simulation, report: KernelReport) -> list[Advice]:
    """Why there are copies, the costliest reason first."""
    times: dict[str, float] = {}
    numbers: dict[str, int] = {}
    moved: dict[str, int] = {}
    for step, passes in simulation.flat():
        if isinstance(step, Copy):
            why = _reason(step.op)
            times[why] = times.get(why, 0.0) + step.microseconds * passes
            numbers[why] = numbers.get(why, 0) + passes
            moved[why] = moved.get(why, 0) + step.bytes * passes
    starting = (
        f"copies spend {percent(report.launch_microseconds / report.microseconds)} of their time starting"
    )
    return [
        Advice(
            f"{counted(numbers[why], 'copy', 'copies')} of {data_size(moved[why] / numbers[why])} "
            f"{_REASONS[why][0]}: {duration(times[why])}; {starting}",
            _REASONS[why][1],
            "copies",
        )
        for why in sorted(times, key=lambda why: -times[why])
    ]


def _reason(op: Operation) -> str:
    return "state" if isinstance(op, NpuYieldOp) else "number" if isinstance(op, ToDeviceOp) else "copy"


_REASONS = {
    "state": (
        "into the state of a loop or the result of a branch",
        "a state whose last use is in the op that makes the next one can be overwritten, without a copy",
    ),
    "number": ("from the host's numbers to device memory", ""),
    "copy": (
        "between tensors of device memory",
        "donate the argument that is updated, or let its last use be the update, and it is updated in place",
    ),
}
"""What copies are for, and what would avoid them."""


def _host_op(op: HostOpReport) -> Advice:
    """Where the time of a host op goes."""
    link = op.transfer_microseconds
    other = max(0.0, op.microseconds - link - op.compute_microseconds)
    what = f"On the host: {counted(op.calls, 'call', 'calls')}"
    parts = [
        (link, f"the link ({data_size(op.bytes)})"),
        (op.compute_microseconds, "computing"),
        (other, "calling"),
    ]
    spent = ", ".join(
        f"{duration(time)} {name}" for time, name in sorted(parts, key=lambda p: -p[0]) if time >= LEAST
    )
    help = (
        "the NPU has no instruction for it: fewer or smaller operands move less, and work that does not "
        "need its result runs beside it"
    )
    if op.name == "to host":
        help = "a trip count or condition that does not depend on device data needs no wait"
    return Advice(f"{what}, {spent}", help, "host")


def _scalars(report: HostScalarsReport) -> list[Advice]:
    if not report.operations:
        return []
    what = (
        f"{counted(report.operations, 'operation', 'operations')} on single numbers: "
        f"{duration(report.microseconds)}"
    )
    return [Advice(f"{what} of the program's own thread, beside the streams", "", "numbers")]
