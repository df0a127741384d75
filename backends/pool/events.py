"""Traces of a pool: what was allocated, freed, used and grown, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .errors import PoolError

EVENTS = ("allocate", "free", "use", "grow")


class PoolEvent(NamedTuple):
    """An event, the number of the allocation that it is about, and the bytes that are wanted (allocate, grow)."""

    event: str
    id: int
    bytes: int = 0


def sizes(trace: Sequence[PoolEvent]) -> Iterator[tuple[int, int]]:
    """For each event the bytes of its allocation before and after. Raises PoolError where the trace makes no sense."""
    live: dict[int, int] = {}
    for number, (event, id, wanted) in enumerate(trace):
        before = live.get(id, 0)
        if event not in EVENTS:
            raise PoolError(f"event {number} of the trace is {event!r}, not one of {', '.join(EVENTS)}")
        if (event == "allocate") == (id in live):
            state = "is live already" if id in live else "is not live"
            raise PoolError(f"event {number} of the trace is {event} of allocation {id}, which {state}")
        if event in ("allocate", "grow"):
            if wanted < max(before, 1):
                raise PoolError(
                    f"event {number} of the trace is {event} of allocation {id} to {wanted} bytes, "
                    f"which takes {max(before, 1)} at least"
                )
            live[id] = wanted
        elif event == "free":
            del live[id]
        yield before, live.get(id, 0)
