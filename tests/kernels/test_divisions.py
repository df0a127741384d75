"""How tiles are shared by cores: for all numbers of cores at once as for each by itself."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from tilewright.kernels.builder import divide_grid, shared_tiles


@given(st.lists(st.integers(1, 6) | st.integers(1, 5000), max_size=3), st.integers(1, 48))
def test_all_numbers_of_cores_at_once(counts: list[int], most: int) -> None:
    tiles, used = shared_tiles(counts, most)
    for cores in range(1, most + 1):
        divided = divide_grid(counts, cores)
        assert (tiles[cores - 1], used[cores - 1]) == (prod(n for _, n in divided), prod(n for n, _ in divided))
