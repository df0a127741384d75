"""What the L2 cache holds: whole device tensors, least recently used first out.

Tensors that the plan of device memory puts at overlapping addresses displace each other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict

from xdsl.ir import SSAValue

Snapshot = tuple[tuple[SSAValue, int, range | None], ...]


class L2:
    """Tensors resident in an L2 of `capacity` bytes, over the launches of a program."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: OrderedDict[SSAValue, int] = OrderedDict()
        self._used = 0
        self._places: dict[SSAValue, range] = {}
        self._starts: list[int] = []
        self._at: dict[int, SSAValue] = {}

    def absent(self, tensor: SSAValue, size: int) -> float:
        """The share of a tensor of `size` bytes that is not resident."""
        if size > self.capacity or not size:
            return 1.0
        return 1 - self._held.get(tensor, 0) / size

    def touch(self, tensor: SSAValue, size: int, moved: int, place: range | None = None) -> None:
        """Note that a launch moved `moved` bytes of a tensor of `size` bytes at the addresses `place`."""
        if size > self.capacity:
            self.restore(())
            return
        kept = max(min(size, moved), self._held.get(tensor, 0))
        self.drop(tensor)
        if place is not None:
            self._displace(place)
        while self._used + kept > self.capacity:
            self.drop(next(iter(self._held)))
        self._hold(tensor, kept, place)

    def drop(self, tensor: SSAValue) -> None:
        """Forget a tensor: it was evicted, or the host wrote it."""
        self._used -= self._held.pop(tensor, 0)
        place = self._places.pop(tensor, None)
        if place is not None:
            del self._starts[bisect_left(self._starts, place.start)]
            del self._at[place.start]

    def snapshot(self) -> Snapshot:
        """The contents, oldest first."""
        return tuple((tensor, kept, self._places.get(tensor)) for tensor, kept in self._held.items())

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot."""
        for tensor in list(self._held):
            self.drop(tensor)
        for tensor, kept, place in snapshot:
            self._hold(tensor, kept, place)

    def _hold(self, tensor: SSAValue, kept: int, place: range | None) -> None:
        self._held[tensor] = kept
        self._used += kept
        if place is not None:
            self._places[tensor] = place
            insort(self._starts, place.start)
            self._at[place.start] = tensor

    def _displace(self, place: range) -> None:
        """Drop what overlaps `place`; tensors in the cache do not overlap each other."""
        after = bisect_left(self._starts, place.stop)
        while after:
            tensor = self._at[self._starts[after - 1]]
            if self._places[tensor].stop <= place.start:
                return
            self.drop(tensor)
            after -= 1
