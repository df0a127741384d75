"""Launches of one group that no barrier parts, side by side on parts of the cores: when each of them begins and ends.

Each core runs them in order. A launch begins when the cores that it takes are done with what is before it, and while
others run beside it, it has its share of the bandwidth alone: each stretch of time between two begins or ends goes at
the speed that it has with the cores that are then at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Beside:
    """A launch beside others.

    places: the places on the chip that it takes, (kind of core, number of a cube core or a share as large). cores: how
    many cores of the kind of which it takes most. microseconds: what it takes while so many cores of others are at
    work.
    """

    places: frozenset[tuple[str, int]]
    cores: int
    microseconds: Callable[[int], float]

    @cached_property
    def alone(self) -> float:
        """Microseconds that it takes with the bandwidth to itself."""
        return self.microseconds(0)


def ends(launches: Sequence[Beside]) -> list[tuple[float, float]]:
    """The (begin, end) of each of some launches, in microseconds from the first begin on.

    Together they take no longer than one after the other: the bandwidth that one leaves is used by the others.
    """
    left = [1.0] * len(launches)
    begins: dict[int, float] = {}
    found: dict[int, float] = {}
    now = 0.0
    while len(found) < len(launches):
        running: list[int] = []
        taken: set[tuple[str, int]] = set()
        for i, launch in enumerate(launches):
            if i not in found:
                if taken.isdisjoint(launch.places):
                    running.append(i)
                taken |= launch.places
        cores = sum(launches[i].cores for i in running)
        rests = {i: left[i] * launches[i].microseconds(cores - launches[i].cores) for i in running}
        first = min(rests.values())
        for i in running:
            begins.setdefault(i, now)
            left[i] *= 1 - first / rests[i] if rests[i] else 0.0
            if rests[i] <= first * (1 + 1e-9):
                found[i] = now + first
        now += first
    apart = sum(launch.alone for launch in launches)
    scale = min(1.0, apart / now) if now else 1.0
    return [(begins[i] * scale, found[i] * scale) for i in range(len(launches))]
