"""The two tiers: `make test` runs a fixed sample of every kind of test, `make test-all` everything.

`TESTS=all` in the environment is the second tier. See docs/testing.md.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from hypothesis import settings

ALL = os.environ.get("TESTS", "") == "all"
"""Whether this is `make test-all`."""

FEWER = 4
"""One example of hypothesis in so many belongs to the first tier."""

Test = TypeVar("Test", bound=Callable[..., None])


def examples(count: int) -> settings:
    """So many examples of hypothesis; in the first tier a quarter of them, and two at least: the first one is the
    simplest there is."""
    return settings(max_examples=count if ALL else min(count, max(2, -(-count // FEWER))))


def sampled(every: int) -> pytest.MarkDecorator:
    """In the first tier, of a test's cases one in so many runs, and one at least. Which ones follows from their
    names."""
    return pytest.mark.sampled(every)


def chosen(name: str, every: int) -> bool:
    """Whether a test belongs to a sample of one in so many."""
    return number(name) % every == 0


def number(name: str) -> int:
    """A number that a name stands for, as good as random."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def first_tier(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests of the first tier, in their order."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            groups.setdefault(item.nodeid.split("[")[0], []).append(item)
    dropped: set[pytest.Item] = set()
    for group in groups.values():
        marker = group[0].get_closest_marker("sampled")
        assert marker is not None
        kept = [x for x in group if chosen(x.nodeid, marker.args[0])]
        first = min(group, key=lambda x: number(x.nodeid))
        dropped.update(set(group) - {*kept, first})
    return [x for x in items if x not in dropped]
