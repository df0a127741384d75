"""A queue and its devices, event by event: an arrival, the end of a batch, or a request that has waited long enough."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

import numpy as np

from ..support.collector import collector_paused
from .arrivals import Arrivals, ServingError
from .policies import BatchCosts, BatchPolicy


@dataclass(frozen=True, eq=False)
class ServiceReplay:
    """What became of requests under a policy.

    Attributes:
        arrivals: The requests.
        starts, ends: When the batch of each began and ended, in seconds, f64[n]; nan for those that were rejected.
        batch_ends, batch_items, batch_entries: Of each batch when it ended, its items and its entry, in the order in
            which they began.
        busy: Seconds of all batches together.
        joules: Of all batches together.
        devices: How many there are.
    """

    arrivals: Arrivals
    starts: np.ndarray
    ends: np.ndarray
    batch_ends: np.ndarray
    batch_items: np.ndarray
    batch_entries: np.ndarray
    busy: float
    joules: float
    devices: int

    @property
    def served(self) -> np.ndarray:
        """Which requests were not rejected, bool[n]."""
        return ~np.isnan(self.ends)

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the end of the last batch."""
        return float(self.batch_ends.max() - self.arrivals.seconds[0])

    def queue_lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Times, ascending, and how many requests wait from each on."""
        served = self.served
        moments = np.concatenate([self.arrivals.seconds[served], self.starts[served]])
        steps = np.repeat([1, -1], served.sum())
        order = np.argsort(moments, kind="stable")
        times, lengths = moments[order], np.cumsum(steps[order])
        last = np.append(np.diff(times) > 0, True)  # of those at one time, what is there at the end
        return times[last], lengths[last]


class WaitingLine:
    """Requests of one entry that wait, of which the oldest comes first."""

    def __init__(self, times: Sequence[float], sizes: Sequence[int], costs: BatchCosts, policy: BatchPolicy) -> None:
        """times: when requests arrive, in seconds; sizes: their items."""
        self.keys, self.sizes, self.costs, self.most = times, sizes, costs, policy.batch
        self.padded = costs.padding(policy)
        self.oldest: deque[int] = deque()
        """Requests in the order of their arrival, the first of which waits."""
        self.items = 0
        """Items of all that wait."""
        self.known: dict[int, tuple[float, float]] = {}

    def push(self, request: int) -> None:
        """A request arrives."""
        self.oldest.append(request)
        self.items += self.sizes[request]

    @property
    def first(self) -> tuple[float, int]:
        """Of several lines, that comes first in which this is the least."""
        return self.keys[self.oldest[0]], self.oldest[0]

    def take(self) -> tuple[list[int], int]:
        """The requests of the next batch, and how many items these are."""
        oldest, sizes, most, taken, items = self.oldest, self.sizes, self.most, list[int](), 0
        while oldest and items + sizes[oldest[0]] <= most:
            request = oldest.popleft()
            items += sizes[request]
            taken.append(request)
        self.items -= items
        return taken, items

    def cost(self, items: int) -> tuple[float, float]:
        """What a batch takes: seconds and joules."""
        if items not in self.known:
            found = self.costs.of_size(self.padded(items))
            self.known[items] = found.microseconds * 1e-6, found.joules
        return self.known[items]


class UrgentLine(WaitingLine):
    """Requests of one entry that wait, of which that with the earliest deadline comes first."""

    def __init__(
        self,
        deadlines: Sequence[float],
        sizes: Sequence[int],
        costs: BatchCosts,
        policy: BatchPolicy,
    ) -> None:
        """deadlines: when requests have to be answered, in seconds."""
        super().__init__(deadlines, sizes, costs, policy)
        self.urgent: list[tuple[float, int]] = []
        self.begun: set[int] = set()
        """Requests that are in `oldest` and wait no more."""

    def push(self, request: int) -> None:
        super().push(request)
        heappush(self.urgent, (self.keys[request], request))

    @property
    def first(self) -> tuple[float, int]:
        return self.urgent[0]

    def take(self) -> tuple[list[int], int]:
        taken: list[int] = []
        items = 0
        while self.urgent and items + self.sizes[self.urgent[0][1]] <= self.most:
            request = heappop(self.urgent)[1]
            items += self.sizes[request]
            taken.append(request)
        self.items -= items
        self.begun.update(taken)
        while self.oldest and self.oldest[0] in self.begun:
            self.begun.discard(self.oldest.popleft())
        return taken, items


@collector_paused()
def replay(
    arrivals: Arrivals, policy: BatchPolicy, costs: Sequence[BatchCosts], devices: int, room: int | None
) -> ServiceReplay:
    """Serves requests, of all entries by the same devices. costs: of each entry; room: requests that wait at most, None
    for any number: one that arrives at a full queue is rejected. At one time ends of batches come before arrivals.

    Takes O(n log n) for n requests, and for each batch a look at each entry. Raises ServingError where a request has
    more items than a batch, or batches that wait to be full do not fit in the queue.
    """
    count, most, wait = len(arrivals.seconds), policy.batch, policy.wait
    _check(arrivals, policy, room)
    times, sizes, entries = arrivals.seconds.tolist(), arrivals.sizes.tolist(), arrivals.entries.tolist()
    if policy.deadline is None:
        lines = [WaitingLine(times, sizes, each, policy) for each in costs]
    else:
        after = np.where(np.isinf(arrivals.deadlines), policy.deadline, arrivals.deadlines)
        due_times = (arrivals.seconds + after).tolist()
        lines = [UrgentLine(due_times, sizes, each, policy) for each in costs]
    full = count if room is None else room
    starts, ends = [math.nan] * count, [math.nan] * count
    batches: list[tuple[float, int, int]] = []
    free = [-math.inf] * devices
    """When devices end what they do, as a heap."""
    busy = joules = 0.0
    now, waiting, arrived = -math.inf, 0, 0
    while True:
        now = max(now, free[0])
        while arrived < count and times[arrived] <= now:
            if waiting < full:
                lines[entries[arrived]].push(arrived)
                waiting += 1
            elif times[arrived] == now:
                break  # there is room once a batch begins
            arrived += 1
        if arrived == count and wait == math.inf:
            wait = 0.0  # nothing comes that could fill a batch
        chosen, which, moment = None, 0, times[arrived] if arrived < count else math.inf
        for i, line in enumerate(lines if waiting else ()):
            if line.oldest:
                due = times[line.oldest[0]] + wait
                if line.items < most and due > now:
                    moment = min(moment, due)
                elif chosen is None or line.first < chosen.first:
                    chosen, which = line, i
        if chosen is None:
            if moment == math.inf:
                break
            arrived += moment == now  # it finds a full queue, of which nothing begins
            now = moment
            continue
        requests, items = chosen.take()
        seconds, energy = chosen.cost(items)
        end = now + seconds
        for request in requests:
            starts[request], ends[request] = now, end
        waiting -= len(requests)
        busy += seconds
        joules += energy
        batches.append((end, items, which))
        heapreplace(free, end)
    closed, items_of, entry_of = (np.array(column) for column in zip(*batches, strict=True))
    return ServiceReplay(
        arrivals, np.array(starts), np.array(ends), closed, items_of, entry_of, busy, joules, devices
    )


def _check(arrivals: Arrivals, policy: BatchPolicy, room: int | None) -> None:
    """Raises ServingError."""
    largest = int(arrivals.sizes.max())
    if largest > policy.batch:
        number = int(np.argmax(arrivals.sizes)) + 1
        raise ServingError(f"{policy}: request {number} of {arrivals.title} has {largest} items, more than a batch")
    if room is not None and room < policy.batch and policy.wait == math.inf:
        raise ServingError(f"{policy}: a queue of {room} never fills a batch of {policy.batch}")
