"""What the L2 cache holds: whole device tensors, least recently used first out.

Tensors that the plan of device memory puts at the same place displace each other.
"""

from __future__ import annotations

from collections import OrderedDict

from xdsl.ir import SSAValue

Snapshot = tuple[tuple[SSAValue, int], ...]
Place = range | None
"""The device addresses of a tensor, where they are planned."""


class L2:
    """Tensors resident in an L2 of `capacity` bytes, over the launches of a program."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: OrderedDict[SSAValue, int] = OrderedDict()
        self._places: dict[SSAValue, Place] = {}

    def missing(self, tensor: SSAValue, size: int, read: int) -> float:
        """The share of `read` bytes that comes from HBM, when a launch reads a tensor of `size` bytes.

        A tensor larger than the cache streams from HBM each time. Of a smaller one, bytes that are not
        resident come from HBM once, and from L2 when other cores or later tiles read them again.
        """
        if size > self.capacity:
            return 1.0
        if not read:
            return 0.0
        return min(size, read) * (1 - self._held.get(tensor, 0) / size) / read

    def touch(self, tensor: SSAValue, size: int, moved: int, place: Place = None) -> None:
        """Note that a launch moved `moved` bytes of a tensor of `size` bytes at `place`."""
        self._places[tensor] = place
        for other in [held for held in self._held if held is not tensor and self._overlap(held, place)]:
            del self._held[other]
        if size > self.capacity:
            self._held.clear()
            return
        kept = max(min(size, moved), self._held.pop(tensor, 0))
        while self._held and sum(self._held.values()) + kept > self.capacity:
            self._held.popitem(last=False)
        self._held[tensor] = kept

    def drop(self, tensor: SSAValue) -> None:
        """Note that the host wrote a tensor."""
        self._held.pop(tensor, None)

    def _overlap(self, held: SSAValue, place: Place) -> bool:
        known = self._places[held]
        return (
            known is not None and place is not None and known.start < place.stop and place.start < known.stop
        )

    def snapshot(self) -> Snapshot:
        """The contents, oldest first."""
        return tuple(self._held.items())

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot."""
        self._held = OrderedDict(snapshot)
