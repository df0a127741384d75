"""The timeline of a program as a Chrome trace: open it in ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from ..dialects.base import source_of
from ..dialects.npu.streams import HOST as HOST_CALLS
from ..dialects.npu.streams import PROGRAM, QUEUES
from ..machine import Machine
from .files import write_whole
from .simulator import (
    HostCall,
    Kernel,
    KernelRun,
    Launch,
    Placed,
    Rest,
    Scalars,
    Simulation,
    Transfer,
    first_passes,
    simulate,
    track,
)

DEVICE, HOST = 1, 2
"""Process ids of the two groups of tracks."""

LAUNCH_EVENTS = 2000
"""Instructions shown of one launch."""

TRACE_EVENTS = 200_000
"""Instructions shown in all, shared among the launches."""

LEAST_EVENTS = 50
"""Instructions shown of one launch, however many launches there are."""

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
    """Lays the steps of a simulation out in time. Queues come first, then pipes."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        shown = sum(1 for _ in simulation.flat())
        self._limit = min(LAUNCH_EVENTS, max(LEAST_EVENTS, TRACE_EVENTS // max(shown, 1)))
        self._queues: dict[str, int] = {}
        self._threads: dict[str, int] = {}
        self._details: dict[int, list[Json]] = {}

    def events(self) -> Iterator[Json]:
        """All events, the names of the tracks last."""
        for placed in first_passes(self._simulation.steps):
            yield from self._step(placed)
        for process, name in ((DEVICE, f"device: {self._simulation.machine.name}"), (HOST, "host")):
            yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        tracks = [(HOST if q in (HOST_CALLS, PROGRAM) else DEVICE, t, q) for q, t in self._queues.items()]
        tracks += [(DEVICE, thread, name) for name, thread in self._threads.items()]
        for process, thread, name in tracks:
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}
            sort: Json = {"sort_index": thread}
            yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": sort}

    def _step(self, placed: Placed | Rest) -> Iterator[Json]:
        """A command; what comes after the first pass of a loop is one event on each queue."""
        begin, end = placed.begin, placed.end
        if isinstance(placed, Rest):
            if end > begin:
                name = f"{placed.passes} more passes like the last one"
                yield self._on(placed.queue, name, begin, end, {"passes": placed.passes})
            return
        step = placed.step
        if isinstance(step, Launch):
            yield from self._launch(step, begin, end)
        elif isinstance(step, Scalars):
            args: Json = {"op": "npu.scalars", "operations": step.operations, "source": step.source}
            yield self._on(PROGRAM, "numbers", begin, end, args)
        elif isinstance(step, HostCall):
            args = {"op": step.op.name, "elements": step.elements, "source": step.source}
            yield self._on(track(step), step.name, begin, end, args)
        else:
            name = step.name if isinstance(step, Transfer) else "copy"
            args = {"op": step.op.name, "bytes": step.bytes, "source": step.source}
            yield self._on(track(step), name, begin, end, args)

    def _on(self, queue: str, name: str, begin: float, end: float, args: Json) -> Json:
        """A span on the track of a queue."""
        self._queues.setdefault(queue, QUEUES.index(queue))
        process = HOST if queue in (HOST_CALLS, PROGRAM) else DEVICE
        return _span(name, process, QUEUES.index(queue), begin, end, args)

    def _launch(self, step: Launch, begin: float, end: float) -> Iterator[Json]:
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
        yield self._on(track(step), step.kernel.name, begin, end, args)
        start = begin + step.kernel.launch_microseconds
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
                        "thread": self._thread(f"{trace.core} {op.PIPE}"),
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
        return self._threads.setdefault(name, len(QUEUES) + len(self._threads))


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
