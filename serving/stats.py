"""What a session has done so far."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..api.program import Program
from ..api.sizes.dynamic import DynamicProgram
from ..backends.pool import PoolStatistics
from ..backends.report import Report
from ..backends.simulator.errors import SimulationError

KEPT = 1 << 16
"""Of so many calls of an entry, the last ones, percentiles are."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
"""Percentiles, each a time that occurred: the least one that so large a share of all does not exceed."""


def quantiles(values: Iterable[float], names: Iterable[str] = ("p50", "p90", "p99")) -> dict[str, float]:
    """Percentiles of values by name; 0 where there are none."""
    found = values if isinstance(values, np.ndarray) else np.fromiter(values, np.float64)
    if not found.size:
        return dict.fromkeys(names, 0.0)
    at = np.quantile(found, [QUANTILES[name] for name in names], method="inverted_cdf")
    return dict(zip(names, at.tolist(), strict=True))


@dataclass(frozen=True)
class Seconds:
    """Times: mean and most of all calls, percentiles of the last ones."""

    mean: float
    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True)
class EntryStats:
    """An entry. calls: those that ended, errors: those of them that raised; wall: seconds from the beginning of a call
    to its results; waited: seconds in the queue before; microseconds, joules: modelled, of all calls that gave results
    together, None where the chip's model does not price the program."""

    calls: int
    errors: int
    wall: Seconds
    waited: Seconds
    microseconds: float | None
    joules: float | None


@dataclass(frozen=True)
class SessionStats:
    """A session so far. queue_length, queue_most: calls that wait now, and the most that did at one time; running:
    calls that run now; device_bytes: device memory of the programs without open sizes, weights of each included; pools:
    that of those with open sizes, by entry; weight_bytes: of the file, None without one; touched_bytes: of these, how
    many were read, in whole MiB."""

    entries: Mapping[str, EntryStats]
    queue_length: int
    queue_most: int
    running: int
    device_bytes: int
    pools: Mapping[str, PoolStatistics]
    weight_bytes: int | None
    touched_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        pools = {name: pool.to_dict() for name, pool in self.pools.items()}
        return {"schema": "tilewright.session/1", **asdict(self), "pools": pools}


class _Times:
    """Times of calls, in seconds."""

    def __init__(self) -> None:
        self.count, self.total, self.most = 0, 0.0, 0.0
        self.last: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)
        self.last.append(seconds)

    def summary(self) -> Seconds:
        return Seconds(mean=self.total / max(self.count, 1), **quantiles(self.last), most=self.most)


class EntryRecord:
    """Counts the calls of an entry."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._lock = threading.Lock()
        self._errors, self._wall, self._waited = 0, _Times(), _Times()
        self._sizes: Counter[tuple[tuple[str, int], ...]] = Counter()
        """Calls that gave results, by their sizes."""
        self._prices: dict[tuple[tuple[str, int], ...], Report | None] = {}

    def sizes(self, args: Any, kwargs: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """The open sizes of a call. Raises CompileError where the arguments do not fit."""
        program = self.program
        return tuple(program.sizes(*args, **kwargs).items()) if isinstance(program, DynamicProgram) else ()

    def add(self, waited: float, wall: float, sizes: tuple[tuple[str, int], ...] | None) -> None:
        """A call has ended. sizes: None where it raised."""
        with self._lock:
            self._waited.add(waited)
            self._wall.add(wall)
            if sizes is None:
                self._errors += 1
            else:
                self._sizes[sizes] += 1

    def summary(self) -> EntryStats:
        """The entry so far. Each combination of sizes is priced when this is first asked for after a call with it."""
        with self._lock:
            calls, errors = self._wall.count, self._errors
            wall, waited, sizes = self._wall.summary(), self._waited.summary(), [*self._sizes.items()]
        reports = [(self._price(key), count) for key, count in sizes]
        microseconds = joules = 0.0
        for report, count in reports:
            if report is None:
                return EntryStats(calls, errors, wall, waited, None, None)
            microseconds += report.microseconds * count
            joules += report.energy_joules * count
        return EntryStats(calls, errors, wall, waited, microseconds, joules)

    def _price(self, sizes: tuple[tuple[str, int], ...]) -> Report | None:
        """What a call takes by the model; None where that does not price it."""
        if sizes not in self._prices:
            try:
                self._prices[sizes] = self.program.report(dict(sizes) or None)
            except SimulationError:
                self._prices[sizes] = None
        return self._prices[sizes]


