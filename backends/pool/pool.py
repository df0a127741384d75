"""A pool of device memory: allocations of any size at any time, moved or spilled to the host where memory is short.

    pool = Pool(1 << 30, machine.gm_align, "best-fit", carry=copy)
    x = pool.allocate(4 << 20)
    pool.use(x)                 # on the device from here on: x.offset is valid until the next call of the pool
    pool.free(x)

A request that finds no free block is met by compaction where enough memory is free, else by spilling what was used
least recently. The pool keeps the books only: it calls `carry` for each copy of bytes, in order, before the memory that
it empties is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from .best_fit import BestFitPlaces
from .buddy import BuddyPlaces
from .errors import PoolError, PoolFullError, RequestTooLargeError
from .places import Places, PoolBlock
from .statistics import PoolStatistics

POLICIES: dict[str, type[Places]] = {"best-fit": BestFitPlaces, "buddy": BuddyPlaces}
"""How a pool chooses places, by name."""


@dataclass(eq=False)
class Allocation:
    """So many bytes of a pool, which alone changes this: `offset` is from the pool's start, None while the bytes are
    on the host or after they were freed; `reserved` are the bytes that it takes on the device."""

    bytes: int
    offset: int | None
    reserved: int
    pinned: bool = False
    state: Literal["device", "host", "freed"] = "device"
    _pool: Pool | None = field(default=None, repr=False)


@dataclass(frozen=True)
class PoolCopy:
    """A copy of an allocation's bytes: a "move" on the device, a "spill" to the host, a "restore" from there. Offsets
    are bytes from the pool's start, None on the host."""

    kind: Literal["move", "spill", "restore"]
    allocation: Allocation
    source: int | None
    target: int | None
    bytes: int

    @property
    def overlaps(self) -> bool:
        """Whether it writes to bytes that it reads. They must then be copied from the first to the last."""
        if self.source is None or self.target is None:
            return False
        return abs(self.source - self.target) < self.bytes

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """Copies (source, target, bytes) on the device that do the same in this order, none of which overlaps itself:
        one, or for an overlapping move as many as the distance fits into the bytes. A move that overlaps goes
        towards the start of memory. Raises PoolError for a copy to or from the host."""
        if self.source is None or self.target is None:
            raise PoolError(f"a {self.kind} crosses the host link and has no pieces on the device")
        step = self.source - self.target if self.overlaps else self.bytes
        for at in range(0, self.bytes, step):
            yield self.source + at, self.target + at, min(step, self.bytes - at)


class Pool:
    """`capacity_bytes` of device memory in blocks that begin at multiples of `alignment` bytes.

    policy: "best-fit" or "buddy". moves: whether a request may compact the pool. spills: whether it may send
    allocations to the host. carry: is told of each copy; it must neither raise nor call the pool. Raises PoolError.
    """

    def __init__(
        self,
        capacity_bytes: int,
        alignment: int,
        policy: str = "best-fit",
        *,
        moves: bool = True,
        spills: bool = True,
        carry: Callable[[PoolCopy], None] | None = None,
    ) -> None:
        for name, value in (("capacity", capacity_bytes), ("alignment", alignment)):
            if not _is_whole(value) or value < 1:
                raise PoolError(f"the {name} of a pool is a positive number of bytes, not {value!r}")
        if capacity_bytes < alignment:
            raise PoolError(
                f"a pool of {capacity_bytes} bytes has no block of its alignment, {alignment} bytes"
            )
        if policy not in POLICIES:
            raise PoolError(f"a pool's policy is {' or '.join(POLICIES)}, not {policy!r}")
        self.capacity_bytes, self.alignment, self.policy = capacity_bytes, alignment, policy
        self.moves, self.spills = moves, spills
        self._carry = carry
        self._places = POLICIES[policy](capacity_bytes // alignment)
        self._movable: dict[Allocation, None] = {}
        """Allocations on the device that are not pinned, the least recently used first."""
        self._pinned: dict[Allocation, None] = {}
        self._live_bytes = self._host_bytes = self._peak_bytes = self._watermark = 0
        self._allocations = self._failures = self._defragmentations = self._moved_bytes = 0
        self._spills = self._spilled_bytes = self._restores = self._restored_bytes = 0

    # -- calls -------------------------------------------------------------------------------------------------

    def allocate(self, bytes: int, *, pinned: bool = False) -> Allocation:
        """A new allocation, pinned if it may neither move nor be spilled. Raises RequestTooLargeError where the empty
        pool has no room for it, PoolFullError where the pool has none now, PoolError for no positive number."""
        units = self._units_of(bytes)
        allocation = Allocation(bytes, None, units * self.alignment, pinned, "device", self)
        self._settle(allocation, self._room(bytes, units, ()))
        self._allocations += 1
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Gives an allocation back, from the device or the host. Raises PoolError if that was done before."""
        self._check(allocation, "free")
        if allocation.state == "host":
            self._host_bytes -= allocation.bytes
        else:
            self._lift(allocation)
        allocation.state, allocation.offset = "freed", None

    def use(self, *allocations: Allocation) -> None:
        """Brings allocations to the device, all at once, and notes that they were used now, in this order. Raises
        PoolFullError where they do not fit together; those that did fit stay."""
        for allocation in allocations:
            self._check(allocation, "use")
        for allocation in allocations:
            if allocation.state == "host":
                at = self._room(allocation.bytes, allocation.reserved // self.alignment, allocations)
                self._host_bytes -= allocation.bytes
                self._settle(allocation, at)
                self._restores += 1
                self._restored_bytes += allocation.bytes
                self._tell(PoolCopy("restore", allocation, None, allocation.offset, allocation.bytes))
            elif not allocation.pinned:
                del self._movable[allocation]
                self._movable[allocation] = None

    def grow(self, allocation: Allocation, bytes: int) -> bool:
        """Whether an allocation now has `bytes` at the same place: where its block has so many or free memory follows.
        Where not, nothing has changed but that it was used. Raises PoolError, as `allocate` and `use` do, and for
        fewer bytes than it has."""
        self._check(allocation, "grow")
        units = self._units_of(bytes)
        if bytes < allocation.bytes:
            raise PoolError(f"an allocation of {allocation.bytes} bytes does not grow to {bytes}")
        self.use(allocation)
        had = allocation.reserved // self.alignment
        if units > had and not self._places.extend(self._at(allocation), had, units):
            return False
        self._live_bytes += bytes - allocation.bytes
        allocation.bytes, allocation.reserved = bytes, units * self.alignment
        self._note_peaks(allocation)
        return True

    def pin(self, allocation: Allocation) -> None:
        """Brings an allocation to the device, where it neither moves nor is spilled until `unpin`. Raises PoolError."""
        self.use(allocation)
        if not allocation.pinned:
            del self._movable[allocation]
            self._pinned[allocation] = None
            allocation.pinned = True

    def unpin(self, allocation: Allocation) -> None:
        """Lets an allocation move and be spilled again. It was used last. Raises PoolError if it is not pinned."""
        self._check(allocation, "unpin")
        if not allocation.pinned:
            raise PoolError("unpin takes a pinned allocation, and this one is not")
        del self._pinned[allocation]
        self._movable[allocation] = None
        allocation.pinned = False

    def defragment(self) -> list[PoolCopy]:
        """Moves allocations so that free memory is in one block (best-fit) or in few (buddy); the moves, in the order
        in which they are safe: none writes to bytes of an allocation that is still to be moved, but to its own
        (`PoolCopy.overlaps`). They cost `sum(m.bytes for m in moves)` bytes, and are none where the largest free block
        would not get larger. With pinned allocations the result is good, not the best: that is bin packing."""
        return self._compact()

    def allocations(self) -> list[Allocation]:
        """All that is on the device, in the order of addresses."""
        return sorted((*self._movable, *self._pinned), key=self._at)

    def statistics(self) -> PoolStatistics:
        """What the pool holds now and has done so far."""
        unit = self.alignment
        return PoolStatistics(
            policy=self.policy,
            capacity_bytes=self.capacity_bytes,
            alignment=unit,
            live_allocations=len(self._movable) + len(self._pinned),
            live_bytes=self._live_bytes,
            reserved_bytes=(self._places.capacity - self._places.free) * unit,
            free_bytes=self._places.free * unit,
            largest_free_bytes=self._places.largest_free * unit,
            host_bytes=self._host_bytes,
            peak_bytes=self._peak_bytes,
            watermark_bytes=self._watermark,
            allocations=self._allocations,
            failures=self._failures,
            defragmentations=self._defragmentations,
            moved_bytes=self._moved_bytes,
            spills=self._spills,
            spilled_bytes=self._spilled_bytes,
            restores=self._restores,
            restored_bytes=self._restored_bytes,
        )

    # -- room --------------------------------------------------------------------------------------------------

    def _room(self, bytes: int, units: int, kept: Collection[Allocation]) -> int:
        """The first of `units` that are taken now, after compaction and spills where needed; `kept` is not spilled.
        Device copies are tried first, since the link to the host is slower by far."""
        at = self._places.take(units)
        if at is None and self._pinned and self._around_pinned() < units:
            self._refuse(bytes)
        while at is None:
            if self.moves and self._places.free >= units and self._compact(units):
                at = self._places.take(units)
                break
            victim = next((a for a in self._movable if a not in kept), None) if self.spills else None
            if victim is None:
                self._refuse(bytes)
            self._spill(victim)
            at = self._places.take(units)
        if at is None:
            raise AssertionError("a compaction made less room than it promised")
        return at

    def _around_pinned(self) -> int:
        """The largest free block, in units, if only pinned allocations were there."""
        pinned = [self._placed(a) for a in sorted(self._pinned, key=self._at)]
        return type(self._places).holding(self._places.capacity, pinned).largest_free

    def _refuse(self, bytes: int) -> NoReturn:
        """Raises PoolFullError for a request."""
        self._failures += 1
        unit, places = self.alignment, self._places
        held = sum(a.reserved for a in self._pinned)
        raise PoolFullError(
            f"a request of {bytes} bytes does not fit into the pool of {self.capacity_bytes} bytes: "
            f"{places.free * unit} bytes are free, {places.largest_free * unit} of them in one block, "
            f"and {held} bytes are pinned"
        )

    def _compact(self, enough: int | None = None) -> list[PoolCopy]:
        """Moves what makes a free block of `enough` units, or all for a larger one than there is; nothing where that
        is impossible."""
        order = self.allocations()
        plan = self._places.compacted([self._placed(a) for a in order], enough)
        least = self._places.largest_free + 1 if enough is None else enough
        if not plan.moves or plan.after.largest_free < least:
            return []
        unit = self.alignment
        self._places = plan.after
        self._defragmentations += 1
        found = []
        for number, source, target in plan.moves:
            allocation = order[number]
            allocation.offset = target * unit
            self._note_peaks(allocation)
            self._moved_bytes += allocation.bytes
            found.append(PoolCopy("move", allocation, source * unit, target * unit, allocation.bytes))
        for move in found:
            self._tell(move)
        return found

    def _spill(self, victim: Allocation) -> None:
        source = victim.offset
        self._lift(victim)
        victim.state, victim.offset = "host", None
        self._host_bytes += victim.bytes
        self._spills += 1
        self._spilled_bytes += victim.bytes
        self._tell(PoolCopy("spill", victim, source, None, victim.bytes))

    # -- books -------------------------------------------------------------------------------------------------

    def _settle(self, allocation: Allocation, at: int) -> None:
        """Notes that an allocation is on the device, at some unit."""
        allocation.state, allocation.offset = "device", at * self.alignment
        (self._pinned if allocation.pinned else self._movable)[allocation] = None
        self._live_bytes += allocation.bytes
        self._note_peaks(allocation)

    def _lift(self, allocation: Allocation) -> None:
        """Notes that an allocation is on the device no longer."""
        self._places.release(self._at(allocation), allocation.reserved // self.alignment)
        del (self._pinned if allocation.pinned else self._movable)[allocation]
        self._live_bytes -= allocation.bytes

    def _note_peaks(self, allocation: Allocation) -> None:
        end = self._at(allocation) * self.alignment + allocation.reserved
        self._watermark = max(self._watermark, end)
        self._peak_bytes = max(self._peak_bytes, self._live_bytes)

    def _placed(self, allocation: Allocation) -> PoolBlock:
        return PoolBlock(self._at(allocation), allocation.reserved // self.alignment, allocation.pinned)

    def _at(self, allocation: Allocation) -> int:
        """The unit at which an allocation on the device begins."""
        if allocation.offset is None:
            raise AssertionError("only allocations on the device have a place")
        return allocation.offset // self.alignment

    def _tell(self, copy: PoolCopy) -> None:
        if self._carry is not None:
            self._carry(copy)

    def _units_of(self, bytes: int) -> int:
        """The units that a request takes. Raises PoolError."""
        if not _is_whole(bytes) or bytes < 1:
            raise PoolError(f"a request is for a positive number of bytes, not {bytes!r}")
        units = self._places.rounded(-(-bytes // self.alignment))
        if units > self._places.largest_possible:
            self._failures += 1
            largest = self._places.largest_possible * self.alignment
            if bytes > self.capacity_bytes:
                said = f"is larger than the pool of {self.capacity_bytes} bytes"
            else:
                said = (
                    f"takes a block of {units * self.alignment} bytes, but the largest one of the pool of "
                    f"{self.capacity_bytes} bytes has {largest}"
                )
            raise RequestTooLargeError(f"a request of {bytes} bytes {said}")
        return units

    def _check(self, allocation: Allocation, call: str) -> None:
        """Raises PoolError unless an allocation is alive and of this pool."""
        if not isinstance(allocation, Allocation):
            raise PoolError(f"{call} takes an allocation of the pool, not {allocation!r}")
        if allocation._pool is not self:
            raise PoolError(f"{call} takes an allocation of this pool, and this one is of another")
        if allocation.state == "freed":
            raise PoolError(
                f"{call} takes a live allocation, and this one of {allocation.bytes} bytes was freed"
            )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
