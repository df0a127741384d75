"""Memory by ranges holds what memory by bytes holds."""

from __future__ import annotations

import random

import pytest
from pieces import Part, Pieces, cut, joined


def spelled(parts: tuple[Part, ...]) -> list[tuple[int, int]]:
    """Each byte's content and number."""
    return [(what, first + i) for what, first, count in parts for i in range(count)]


@pytest.mark.parametrize("seed", range(60))
def test_pieces_are_bytes(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(1, 40)
    memory, wanted = Pieces(size, 7), [(7, i) for i in range(size)]
    for _ in range(30):
        at = rng.randint(0, size)
        count = rng.randint(0, size - at)
        if rng.random() < 0.5:
            first = rng.randint(0, count)
            parts = ((rng.randint(0, 3), rng.randint(0, 5), first), (9, 2, count - first))
        else:
            parts = memory.read(rng.randint(0, size - count), count)
        memory.write(at, parts)
        wanted[at : at + count] = spelled(parts)
        low = rng.randint(0, size)
        high = rng.randint(low, size)
        read = memory.read(low, high - low)
        assert spelled(read) == wanted[low:high]
        assert joined(read) == read, "equal bytes have equal parts"
        stops = sorted(rng.randint(0, high - low) for _ in range(3)) + [high - low]
        assert [b for p in cut(read, stops) for b in spelled(p)] == wanted[low:high]
