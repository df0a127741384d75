"""The plan of device memory in numbers: how much of it is in use over time, and what it is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..backends.report import MemoryReport
from ..dialects.source_places import without_folder
from .units import data_size

Json = dict[str, Any]


def packing_plan(memory: MemoryReport, tensors: Sequence[Json]) -> Json:
    """{"in_use": [[microseconds, bytes], ...], "sentences": [[what, more], ...]}: the steps of the bytes that tensors
    take which are needed at a time, as the corners of a line, and what the report says of the plan. tensors: as
    timeline.device_memory gives them, those that are laid out."""
    return {"in_use": in_use(tensors), "sentences": [list(pair) for pair in _sentences(memory)]}


def in_use(tensors: Sequence[Json]) -> list[tuple[float, int]]:
    """The corners of a line that steps through the bytes in use."""
    changes: Counter[float] = Counter()
    for tensor in tensors:
        changes[tensor["begin"]] += tensor["bytes"]
        changes[tensor["end"]] -= tensor["bytes"]
    corners: list[tuple[float, int]] = []
    now = 0
    for at in sorted(changes):
        if changes[at] or not corners:
            corners += [(at, now), (at, now + changes[at])]
            now += changes[at]
    return corners


def _sentences(memory: MemoryReport) -> list[tuple[str, str]]:
    if not memory.arena_bytes:
        return []
    said = f"Device memory: {data_size(memory.arena_bytes)} planned, {data_size(memory.live_bytes)} needed at one time"
    more = (
        f"fragmentation {100 * memory.fragmentation:.1f}%; no plan takes less for this order of launches, "
        f"and most is needed {memory.at}"
    )
    found = [(said, more)]
    if memory.consumers:
        largest = "; ".join(
            f"{t.name}, {data_size(t.bytes)}" + (f" ({without_folder(t.source)})" if t.source else "")
            for t in memory.consumers
        )
        found.append(("The largest then", largest))
    return found
