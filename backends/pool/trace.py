"""Runs a trace on a pool and compares what it used with the bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .bounds import RobsonBound, peak_of_live, robson_bound
from .errors import PoolFullError, RequestTooLargeError
from .events import PoolEvent
from .pool import Allocation, Pool
from .statistics import PoolStatistics


@dataclass(frozen=True)
class Replay:
    """What a pool made of a trace.

    statistics: at the end. peak_bytes: of the trace's live bytes, below which no allocator stays. robson: None where
    the pool moved or spilled anything, since that bound is about allocators that do not. refused: the numbers of
    allocations that did not fit, whose later events were left out. Fragmentation: means over all events.
    """

    statistics: PoolStatistics
    peak_bytes: int
    robson: RobsonBound | None
    refused: tuple[int, ...]
    internal_fragmentation: float
    external_fragmentation: float

    @property
    def overhead(self) -> float:
        """The watermark over the peak of live bytes; 1 is the best possible."""
        return self.statistics.watermark_bytes / self.peak_bytes if self.peak_bytes else 1.0


def replay(trace: Iterable[tuple[str, int, int]], pool: Pool) -> Replay:
    """Runs events (event, id, bytes) on a pool, which is best a new one. What cannot grow in place is allocated anew
    and then freed at its old place. Raises PoolError where the trace makes no sense."""
    events = [PoolEvent(*event) for event in trace]
    peak = peak_of_live(events)
    live: dict[int, Allocation] = {}
    refused: dict[int, None] = {}
    internal = external = 0.0
    for event in events:
        try:
            _step(event, live, pool)
        except (PoolFullError, RequestTooLargeError):
            refused[event.id] = None
            old = live.pop(event.id, None)
            if old is not None:
                pool.free(old)
        now = pool.statistics()
        internal += now.internal_fragmentation / len(events)
        external += now.external_fragmentation / len(events)
    end = pool.statistics()
    robson = None if end.moved_bytes or end.link_bytes else robson_bound(events, pool.alignment)
    return Replay(end, peak, robson, tuple(refused), internal, external)


def _step(event: PoolEvent, live: dict[int, Allocation], pool: Pool) -> None:
    if event.event == "allocate":
        live[event.id] = pool.allocate(event.bytes)
    elif event.id not in live:
        return  # it was refused before
    elif event.event == "free":
        pool.free(live.pop(event.id))
    elif event.event == "use":
        pool.use(live[event.id])
    elif not pool.grow(live[event.id], event.bytes):
        new = pool.allocate(event.bytes)
        pool.free(live[event.id])
        live[event.id] = new
