"""The timeline of a program as a Chrome trace: open it in ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from ..dialects.base import source_of
from ..machine import Machine
from .files import write_whole
from .simulator import Copy, HostCall, Kernel, KernelRun, Launch, Repeat, Scalars, Simulation, Step, simulate
from .simulator.section import PIPES

DEVICE, HOST = 1, 2
"""Process ids of the two groups of tracks."""

LAUNCH_EVENTS = 2000
"""Instructions shown of one launch."""

TRACE_EVENTS = 200_000
"""Instructions shown in all, shared among the launches."""

LEAST_EVENTS = 50
"""Instructions shown of one launch, however many launches there are."""

_KERNELS = 0

Json = dict[str, Any]


def write_trace(module: ModuleOp, machine: Machine, path: str | os.PathLike[str]) -> None:
    """Simulate the npu-level `module` on `machine` and write its timeline to `path`. Raises SimulationError.

    Each launch shows the pipes of its heaviest core (of a mix kernel, of the block's cores), after the launch
    overhead; a loop of the host program shows the passes that differ and sums up the rest. Times are in
    microseconds.
    """
    events = list(_Timeline(simulate(module, machine)).events())
    write_whole(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, separators=(",", ":")))


class _Timeline:
    """Lays the steps of a simulation out in time; `_now` is in microseconds."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        shown = sum(1 for _ in simulation.flat())
        self._limit = min(LAUNCH_EVENTS, max(LEAST_EVENTS, TRACE_EVENTS // max(shown, 1)))
        self._now = 0.0
        self._threads: dict[str, int] = {"kernels": _KERNELS}
        self._details: dict[int, list[Json]] = {}

    def events(self) -> Iterator[Json]:
        """All events, the names of the tracks last."""
        yield from self._steps(self._simulation.steps)
        for process, name in ((DEVICE, f"device: {self._simulation.machine.name}"), (HOST, "host")):
            yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        for name, thread in self._threads.items():
            yield {"ph": "M", "name": "thread_name", "pid": DEVICE, "tid": thread, "args": {"name": name}}
            yield {
                "ph": "M",
                "name": "thread_sort_index",
                "pid": DEVICE,
                "tid": thread,
                "args": {"sort_index": thread},
            }

    def _steps(self, steps: Sequence[Step | Repeat]) -> Iterator[Json]:
        for step in steps:
            if isinstance(step, Repeat):
                yield from self._repeat(step)
                continue
            if isinstance(step, HostCall):
                args: Json = {"op": step.name, "bytes": step.bytes, "source": step.source}
                yield _span(step.name, HOST, 0, self._now, self._now + step.microseconds, args)
            elif isinstance(step, Scalars):
                args = {"op": "npu.scalars", "operations": step.operations, "source": step.source}
                yield _span("numbers", HOST, 0, self._now, self._now + step.microseconds, args)
            elif isinstance(step, Copy):
                args = {"op": "npu.copy", "bytes": step.bytes, "source": step.source}
                yield _span("copy", DEVICE, _KERNELS, self._now, self._now + step.microseconds, args)
            else:
                yield from self._launch(step)
            self._now += step.microseconds

    def _repeat(self, repeat: Repeat) -> Iterator[Json]:
        """One pass in full, the others as one event."""
        begin = self._now
        yield from self._steps(repeat.steps)
        if repeat.times > 1:
            self._now = begin + repeat.microseconds
            after = begin + repeat.microseconds / repeat.times
            name = f"{repeat.times - 1} more passes like the last one"
            yield _span(name, DEVICE, _KERNELS, after, self._now, {"passes": repeat.times - 1})

    def _launch(self, step: Launch) -> Iterator[Json]:
        run = step.run
        args: Json = {
            "op": "npu.launch",
            "kind": step.kernel.kind,
            "cores": step.kernel.cores,
            "cycles": run.cycles,
            "hbm_bytes": run.hbm_bytes,
            "l2_bytes": run.l2_bytes,
            "source": step.source or step.kernel.source,
        }
        if run.throttled:
            args["throttled_by"] = run.throttled
        yield _span(step.kernel.name, DEVICE, _KERNELS, self._now, self._now + step.microseconds, args)
        start = self._now + step.kernel.launch_microseconds
        for detail in self._pipes(step.kernel, run):
            begin, end = (
                start + self._simulation.machine.cycles_to_microseconds(c) for c in detail["cycles"]
            )
            yield _span(detail["name"], DEVICE, detail["thread"], begin, end, detail["args"])

    def _pipes(self, kernel: Kernel, run: KernelRun) -> list[Json]:
        """Name, thread, cycles and args of what the heaviest core does; the same for all equal launches."""
        found = self._details.get(id(run))
        if found is not None:
            return found
        found = self._details[id(run)] = []
        for trace in kernel.trace(run, self._limit):
            for event in trace.events:
                op, cost = event.work.op, event.work.variants[event.variant]
                args: Json = {"op": op.name, "source": source_of(op), "bytes": cost.gm_bytes}
                found.append(
                    {
                        "name": op.name.removeprefix("npu."),
                        "thread": self._thread(f"{trace.core} {PIPES[event.work.pipe].value}"),
                        "cycles": (event.start, event.end),
                        "args": args,
                    }
                )
            if not trace.complete:
                shown = max((event.end for event in trace.events), default=0)
                name = f"not shown: instructions after the first {len(trace.events)}"
                found.append(
                    {
                        "name": name,
                        "thread": self._thread(f"{trace.core} (rest)"),
                        "cycles": (min(shown, trace.end), trace.end),
                        "args": {"shown": len(trace.events)},
                    }
                )
        return found

    def _thread(self, name: str) -> int:
        return self._threads.setdefault(name, len(self._threads))


def _span(name: str, process: int, thread: int, begin: float, end: float, args: Json) -> Json:
    begin, end = round(begin, 6), round(end, 6)
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": begin,
        "dur": round(end - begin, 6),
        "args": args,
    }
