"""A service on modelled times: arrivals, a queue, batches by a policy, and devices that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..api.program import Program
from ..support.amounts import seconds_in
from ..support.files import FilePath
from ..support.sentences import suggestion
from .arrivals import Arrivals, ServingError
from .policies import BatchCost, BatchCosts, BatchPolicy, duration
from .replay import ServiceReplay, replay
from .stats import quantiles

MOST_DEVICES = 1 << 16
"""Devices of a service, at most."""

FIGURES = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "p99.9": "p999", "most": "most"}
"""Figures of latency as they are written, and the fields that have them."""


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the arrivals of requests to their results; percentiles are times that occurred."""

    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    most: float

    @staticmethod
    def of(seconds: np.ndarray) -> Latency:
        """Of times in seconds, f64[n], n > 0."""
        found = quantiles(seconds, ("p50", "p90", "p99", "p999"))
        said = {"mean": float(seconds.mean()), **found, "most": float(seconds.max())}
        return Latency(**{name: 1e3 * value for name, value in said.items()})


@dataclass(frozen=True)
class LatencyGoal:
    """What the latency of a service is not to exceed: a figure of it, and seconds."""

    figure: str
    seconds: float

    @staticmethod
    def of(text: str) -> LatencyGoal:
        """`p99=10ms`. Raises ServingError."""
        name, _, value = (word.strip() for word in text.partition("="))
        if name not in FIGURES:
            near = suggestion(name, FIGURES)
            raise ServingError(f"goal {text}: {name!r} is no figure of latency{near}; there are {', '.join(FIGURES)}")
        try:
            return LatencyGoal(name, seconds_in(value))
        except ValueError as error:
            raise ServingError(f"goal {text}: {error}") from None

    def __str__(self) -> str:
        return f"{self.figure}={duration(self.seconds)}"

    def met(self, row: PolicyRow) -> bool:
        """Whether a service keeps it."""
        return getattr(row.latency_ms, FIGURES[self.figure]) <= 1e3 * self.seconds


@dataclass(frozen=True)
class PolicyRow:
    """What a policy gives.

    Attributes:
        policy: As `BatchPolicy.of` reads it.
        served, rejected, late: Requests: with a result, turned away at a full queue, answered after their deadline.
        load: What devices would have to do for all that arrives, in full batches, as a share of what they can do: at 1
            and more the queue grows as long as requests come.
        throughput: Requests served per second, from the first arrival to the last result.
        latency_ms: From arrival to result.
        wait_ms: From arrival to the beginning of the batch, on the mean, in milliseconds.
        batch: Items of a batch, on the mean.
        batches: How many there were.
        utilisation: The share of the time in which devices worked.
        queue_mean, queue_most: Requests that wait: on the mean over the time, and the most.
        joules: For each request, with what devices draw that are idle.
        watts: Of all devices, on the mean over the time.
    """

    policy: str
    served: int
    rejected: int
    late: int
    load: float
    throughput: float
    latency_ms: Latency
    wait_ms: float
    batch: float
    batches: int
    utilisation: float
    queue_mean: float
    queue_most: int
    joules: float
    watts: float
    replay: ServiceReplay = field(repr=False, compare=False)

    @property
    def saturated(self) -> bool:
        """Whether more arrives than the devices can do: then latencies grow with the time that is simulated."""
        return self.load >= 1

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        fields = {name: value for name, value in vars(self).items() if name != "replay"}
        return {**fields, "latency_ms": asdict(self.latency_ms), "saturated": self.saturated}


@dataclass(frozen=True)
class ServiceReport:
    """What `simulate` found: a row for each policy. arrivals: what was replayed; devices, queue: as they were given;
    goal: None where none was given."""

    rows: tuple[PolicyRow, ...]
    arrivals: Arrivals
    devices: int
    queue: int | None
    goal: LatencyGoal | None

    @cached_property
    def best(self) -> PolicyRow | None:
        """Of the policies that keep the goal, that which rejects the fewest requests, and of several the one that takes
        the fewest joules for each; None where none keeps it, and without a goal."""
        kept = [row for row in self.rows if self.goal is not None and self.goal.met(row)]
        return min(kept, key=lambda row: (row.rejected, row.joules, row.latency_ms.mean), default=None)

    @property
    def columns(self) -> tuple[list[str], list[list[str]]]:
        """What rows are shown by, and the cells of each."""
        late = any(row.late for row in self.rows)
        header = ["policy", "served", "rejected", *(["late"] if late else []), "1/s"]
        header += [*FIGURES, "batch", "busy", "J each", "W", ""]
        return header, [self._cells(row, late) for row in self.rows]

    def _cells(self, row: PolicyRow, late: bool) -> list[str]:
        marks = ["best"] if row is self.best else []
        marks += [f"overloaded: {row.load:.2f} of what can be done arrives"] if row.saturated else []
        return [
            row.policy,
            f"{row.served:,}",
            f"{row.rejected:,}",
            *([f"{row.late:,}"] if late else []),
            f"{row.throughput:,.1f}",
            *(f"{getattr(row.latency_ms, name):.4g}" for name in FIGURES.values()),
            f"{row.batch:.2f}",
            f"{row.utilisation:.1%}",
            f"{row.joules:.3g}",
            f"{row.watts:.1f}",
            ", ".join(marks),
        ]

    @property
    def title(self) -> str:
        """What was served."""
        devices = f"{self.devices} device{'s' * (self.devices != 1)}"
        room = "" if self.queue is None else f", a queue of {self.queue:,}"
        count = len(self.arrivals.seconds)
        said = f"{count:,} requests, {self.arrivals.rate:,.1f} per second ({self.arrivals.title}), {devices}{room}"
        return f"{said}; latency in ms"

    @property
    def verdict(self) -> str:
        """What became of the goal, in a sentence; empty without one."""
        if self.goal is None:
            return ""
        if self.best is None:
            return f"no policy keeps {self.goal}"
        return f"best within {self.goal}: {self.best.policy}"

    def __str__(self) -> str:
        header, rows = self.columns
        widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
        padded = [[cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in (header, *rows)]
        lines = ["  ".join(line).rstrip() for line in padded]
        return "\n".join([self.title, *lines, *([self.verdict] if self.goal else [])])

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "arrivals": {
                "title": self.arrivals.title,
                "count": len(self.arrivals.seconds),
                "rate": self.arrivals.rate,
            },
            "devices": self.devices,
            "queue": self.queue,
            "goal": None if self.goal is None else str(self.goal),
            "best": None if self.best is None else self.rows.index(self.best),
            "rows": [row.to_json() for row in self.rows],
        }

    def plot(self, path: FilePath) -> None:
        """Draws the length of the queue over time and the distribution of latency, a line for each policy, as .svg,
        .png, .pdf or .html. Raises ServingError without matplotlib or for another ending, and OSError."""
        from .plot import draw

        draw(self, path)


Programs = Program | Mapping[int, Program | BatchCost] | Mapping[str, "Program | Mapping[int, Program | BatchCost]"]
"""A program; or some, or what batches take, by batch size; or these by entry."""


def simulate(
    programs: Programs,
    arrivals: Arrivals | str,
    policies: Sequence[BatchPolicy | str],
    *,
    batch: str | None = None,
    at: Mapping[str, int] | None = None,
    devices: int = 1,
    queue: int | None = None,
    goal: LatencyGoal | str | None = None,
    progress: Callable[[str], None] = lambda said: None,
) -> ServiceReport:
    """Replays arrivals under each policy, on the microseconds and joules that reports of programs have.

    Nothing is run, and the same arguments give the same numbers. A batch takes what a call of the program takes alone,
    with arguments that are in device memory; devices do not share anything.

    Args:
        programs: A program; or programs, or `BatchCost`s, by batch size; or such by entry, where arrivals name entries.
        arrivals: Requests, or text as `Arrivals.of` reads it.
        policies: Policies, or text as `BatchPolicy.of` reads it.
        batch: The open size of a program that is its batch; it may be left out where the others are in `at`.
        at: The other open sizes.
        devices: Devices that serve one queue.
        queue: Requests that wait, at most; more are rejected. None: any number.
        goal: What latency is wanted, such as "p99=10ms".
        progress: Is told what begins.

    Raises:
        ServingError: Something of this does not go together, or cannot be read.
        CompileError, SimulationError: A program has no such sizes, or cannot be priced.
        OSError: A table cannot be read.
    """
    wanted = LatencyGoal.of(goal) if isinstance(goal, str) else goal
    read = [BatchPolicy.of(each) if isinstance(each, str) else each for each in policies]
    if not read:
        raise ServingError("there is no policy to simulate")
    if not 0 < devices <= MOST_DEVICES or (queue is not None and queue < 1):
        raise ServingError(f"a service has 1 to {MOST_DEVICES:,} devices, and room for a request that waits")
    found = Arrivals.of(arrivals) if isinstance(arrivals, str) else arrivals
    found = replace(found, seconds=found.seconds - found.seconds[0])  # f64 has no microseconds of the year
    costs = _costs(programs, found, batch, at)
    rows: list[PolicyRow] = []
    for policy in read:
        progress(f"serving {len(found.seconds):,} requests: {policy}")
        rows.append(_row(policy, replay(found, policy, costs, devices, queue), costs))
    return ServiceReport(tuple(rows), found, devices, queue, wanted)


def _costs(programs: Any, arrivals: Arrivals, batch: str | None, at: Mapping[str, int] | None) -> list[BatchCosts]:
    """What batches take of each entry that arrivals name. Raises ServingError."""
    names = arrivals.names
    by_entry = isinstance(programs, Mapping) and any(isinstance(name, str) for name in programs)
    if not by_entry:
        if names != ("",):
            raise ServingError(f"{arrivals.title} names the entry {names[0]!r}, and the program has no name")
        return [BatchCosts.of(programs, batch, at)]
    if names == ("",) and len(programs) == 1:
        names = tuple(programs)
    for name in names:
        if name not in programs:
            known = ", ".join(map(str, programs))
            said = f"{arrivals.title} has the entry {name!r}{suggestion(name, map(str, programs))}"
            if not name:
                said = f"{arrivals.title} has no column entry, which says what a request calls"
            raise ServingError(f"{said}; there are {known}")
    return [BatchCosts.of(programs[name], batch, at, name) for name in names]


def _row(policy: BatchPolicy, found: ServiceReplay, costs: Sequence[BatchCosts]) -> PolicyRow:
    """The figures of a policy."""
    arrivals, served = found.arrivals, found.served
    times, starts, ends = arrivals.seconds[served], found.starts[served], found.ends[served]
    count, span = int(served.sum()), found.span
    moments, lengths = found.queue_lengths()
    idle = max(each.idle_watts for each in costs) * max(found.devices * span - found.busy, 0.0)
    joules = found.joules + idle
    deadlines = arrivals.deadlines[served]
    if policy.deadline is not None:
        deadlines = np.where(np.isinf(deadlines), policy.deadline, deadlines)
    return PolicyRow(
        policy=str(policy),
        served=count,
        rejected=len(served) - count,
        late=int((ends - times > deadlines).sum()),
        load=_load(policy, arrivals, costs, found.devices),
        throughput=count / span if span else 0.0,
        latency_ms=Latency.of(ends - times),
        wait_ms=1e3 * float((starts - times).mean()),
        batch=float(found.batch_items.mean()),
        batches=len(found.batch_items),
        utilisation=found.busy / (found.devices * span) if span else 0.0,
        queue_mean=float((np.diff(moments) * lengths[:-1]).sum() / span) if span else 0.0,
        queue_most=int(lengths.max()),
        joules=joules / count,
        watts=joules / span if span else 0.0,
        replay=found,
    )


def _load(policy: BatchPolicy, arrivals: Arrivals, costs: Sequence[BatchCosts], devices: int) -> float:
    """Seconds of work that arrives in a second, in full batches, for each device. 0 where all arrives at once."""
    span = float(arrivals.seconds[-1] - arrivals.seconds[0])
    if not span:
        return 0.0
    items = np.bincount(arrivals.entries, arrivals.sizes, len(costs))
    work = 0.0
    for count, each in zip(items, costs, strict=True):
        size = each.padding(policy)(policy.batch)
        work += count / policy.batch * each.of_size(size).microseconds * 1e-6
    return float(work * (1 - 1 / len(arrivals.seconds)) / (span * devices))
