"""The timeline of a program as a Chrome trace: open it in ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..dialects.base import source_of
from ..dialects.npu.streams import HOST as HOST_CALLS
from ..dialects.npu.streams import PROGRAM, QUEUES
from ..dialects.npu.structure import LaunchOp
from ..support.files import write_whole
from .counts import counts_of
from .simulator import HostCall, KernelRun, Launch, Placed, Rest, Scalars, Simulation, TimedKernel
from .spans import Span, program_spans

DEVICE, HOST = 1, 2
"""Process ids of the two groups of tracks."""

LAUNCH_EVENTS = 2000
"""Instructions shown of one launch."""

TRACE_EVENTS = 200_000
"""Instructions shown in all, shared among the launches."""

LEAST_EVENTS = 50
"""Instructions shown of one launch, however many launches there are."""

Json = dict[str, Any]


def write_trace(simulation: Simulation, path: str | os.PathLike[str]) -> None:
    """Writes the timeline of a simulated program to `path`, as `trace_text` gives it. Raises OSError."""
    write_whole(path, trace_text(simulation))


def trace_text(simulation: Simulation) -> str:
    """The timeline of a simulated program, as JSON that Chrome and Perfetto show.

    Each launch shows the pipes of its heaviest core (of a mix kernel, of the block's cores), after the launch
    overhead; the commands are those of `program_spans`. Times are in microseconds. `otherData` counts kernels, their
    launches, and commands of other kinds, as the report does.
    """
    trace: Json = {
        "traceEvents": list(_Timeline(simulation).events()),
        "displayTimeUnit": "ns",
        "otherData": {"target": simulation.machine.name, **asdict(counts_of(simulation))},
    }
    return json.dumps(trace, separators=(",", ":"))


class _Timeline:
    """Lays the steps of a simulation out in time. Queues come first, then pipes."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._spans = program_spans(simulation)
        launches = sum(span.kind == "kernel" for span in self._spans)
        self._limit = min(LAUNCH_EVENTS, max(LEAST_EVENTS, TRACE_EVENTS // max(launches, 1)))
        self._queues: dict[str, int] = {}
        self._threads: dict[str, int] = {}
        self._details: dict[int, list[Json]] = {}

    def events(self) -> Iterator[Json]:
        """All events, the names of the tracks last."""
        for span in self._spans:
            yield self._on(span, _args(span))
            if isinstance(span.placed, Placed) and isinstance(span.placed.step, Launch):
                yield from self._launch(span.placed.step, span.begin)
        for process, name in ((DEVICE, f"device: {self._simulation.machine.name}"), (HOST, "host")):
            yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        tracks = [(HOST if q in (HOST_CALLS, PROGRAM) else DEVICE, t, q) for q, t in self._queues.items()]
        tracks += [(DEVICE, thread, name) for name, thread in self._threads.items()]
        for process, thread, name in tracks:
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}
            sort: Json = {"sort_index": thread}
            yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": sort}

    def _on(self, span: Span, args: Json) -> Json:
        """A span on the track of its queue."""
        number = self._queues.setdefault(span.queue, QUEUES.index(span.queue))
        process = HOST if span.queue in (HOST_CALLS, PROGRAM) else DEVICE
        return _event(span.name, process, number, span.begin, span.end, args)

    def _launch(self, step: Launch, begin: float) -> Iterator[Json]:
        """What a launch does on the pipes of a core, after its overhead; closer together where it loads before that, or
        others run beside it."""
        start, machine = begin + step.overhead, self._simulation.machine
        taken = machine.cycles_to_microseconds(step.run.cycles)
        shown = 1 - step.saved / taken if step.saved else 1.0
        for detail in self._pipes(step.kernel, step.run):
            begin, end = (start + shown * machine.cycles_to_microseconds(c) for c in detail["cycles"])
            yield _event(detail["name"], DEVICE, detail["thread"], begin, end, detail["args"])

    def _pipes(self, kernel: TimedKernel, run: KernelRun) -> list[Json]:
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


def _args(span: Span) -> Json:
    """What is said of a command beside its time."""
    if isinstance(span.placed, Rest):
        return {"passes": span.passes}
    step = span.placed.step
    args: Json = {"op": step.op.name, "source": step.source}
    if isinstance(step, Launch):
        run = step.run
        args |= {
            "op": "npu.launch",
            "kind": step.kernel.kind,
            "cores": step.kernel.cores,
            "cycles": run.cycles,
            "hbm_bytes": run.hbm_bytes,
            "l2_bytes": run.l2_bytes,
            "launch_microseconds": span.overhead,
            "joined": step.joined,
            "first_core": step.op.begins_on if isinstance(step.op, LaunchOp) else 0,
            "saved_microseconds": step.saved,
            "source": step.source or step.kernel.source,
        }
        if run.throttled:
            args["throttled_by"] = run.throttled
    elif isinstance(step, Scalars):
        args |= {"op": "npu.scalars", "operations": step.operations}
    elif isinstance(step, HostCall):
        args["elements"] = step.elements
    else:
        args["bytes"] = step.bytes
    return args


def _event(name: str, process: int, thread: int, begin: float, end: float, args: Json) -> Json:
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
