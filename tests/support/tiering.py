"""The two tiers: `make test` runs a fixed sample of every kind of test, `make test-all` that and a twentieth of all
cases with every example and in both memories, another twentieth for another `SEED`.

`TESTS=all` in the environment is this part, of which `PART` is the number; `TESTS=every` is every case. See
docs/testing.md.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import pytest
from durations import seconds_of
from hypothesis import settings

EVERY = os.environ.get("TESTS", "") == "every"
"""Whether every case runs."""

ALL = EVERY or os.environ.get("TESTS", "") == "all"
"""Whether this is the second tier: a case runs all of its examples, and in both memories."""

PARTS = 20
"""The second tier has one case in so many."""

PART = int(os.environ.get("PART", "0")) % PARTS
"""Which ones."""

FEWER = 8
"""One example of hypothesis in so many belongs to the first tier."""

BYTES_EVERY = 4
"""One program in so many runs in addressed memory, too, in the first tier: that takes nearly as long again as all else
of a test."""

LONGEST = 0.25
"""Processor seconds that the cases of a test take together in the first tier at most, as recorded, where it has several
cases."""

SLOW = 0.5
"""Processor seconds from which on a test, all of whose cases take longer, is left to the second tier."""

EACH_FILE = 2
VERY_SLOW = 2.0
"""So many tests of a file, the shortest ones, are in the first tier even where they take up to so many seconds: each
file is about something that no other is about."""

CAMPAIGNS = ("fuzz", "faults", "conformance", "surface")
"""Folders of the samples of campaigns, which are in the first tier whatever they take."""

OWN_LEVELS = ("backends", "fuzz")
"""Folders of tests that say themselves what runs by steps."""

FIRST_TIER = 680.0
"""Processor seconds that all tests of the first tier take together at most, as recorded: ten minutes on two processors,
without what ruff, basedpyright and lit take."""

Kind = TypeVar("Kind")
Memory = Literal["typed", "bytes"]
MEMORIES: tuple[Memory, ...] = ("typed", "bytes")
COMPILED_EVERY = 4
"""One case in so many runs its small programs as XLA compiles them; the others run them one instruction at a time, at
real addresses."""
PLACE = pytest.StashKey[int]()
"""Which case of its test an item is, of those of the first tier."""

_programs = itertools.count(0, BYTES_EVERY)
"""Counts the programs of the case that runs, from its place on."""


def begin(item: pytest.Item) -> None:
    """A case begins: its programs are counted from its place on."""
    global _programs
    _programs = itertools.count(item.stash[PLACE]) if PLACE in item.stash else itertools.count(0, BYTES_EVERY)


def lies_in(item: pytest.Item, folders: Sequence[str]) -> bool:
    """Whether a case is in one of these folders of `tests/`, wherever the tree itself is."""
    return not {*folders}.isdisjoint(item.nodeid.split("::")[0].split("/"))


def steps(item: pytest.Item) -> bool:
    """Whether a case runs small programs one instruction at a time, in place of XLA: not where it is asked for by name,
    or where XLA's code is what it is about."""
    if lies_in(item, OWN_LEVELS) or item.get_closest_marker("xla_code"):
        return False
    return (ALL or PLACE in item.stash) and number(item.nodeid) % COMPILED_EVERY != 0


def xla_code() -> pytest.MarkDecorator:
    """The case is about what XLA compiles."""
    return pytest.mark.xla_code


def next_memories() -> tuple[Memory, ...]:
    """The memories in which a case runs its next program. In the first tier, of a test's programs one in `BYTES_EVERY`
    runs in both, the first one of its first case among them; all others in typed memory alone. In the second tier, and
    where a case is asked for by name, all run in both."""
    return MEMORIES if next(_programs) % BYTES_EVERY == 0 else MEMORIES[:1]


def examples(count: int) -> settings:
    """So many examples of hypothesis; in the first tier an eighth of them, and two at least: the first one is the
    simplest there is."""
    return settings(max_examples=count if ALL else min(count, max(2, -(-count // FEWER))))


def sampled(every: int) -> pytest.MarkDecorator:
    """In the first tier, of a test's cases one in so many runs, and one at least. Which ones follows from their
    names."""
    return pytest.mark.sampled(every)


def covering(most: int | None = None) -> pytest.MarkDecorator:
    """In the first tier, of the cases of a test with several parameters so many that each value of each of them is in
    one: a kernel of each name, each dtype and each target, not all of their products. most: the first so many of these
    where each takes long; each adds the most values that the ones before it have not."""
    return pytest.mark.covering(most)


def whole() -> pytest.MarkDecorator:
    """In the first tier with all cases that it has there, however long they take: they kill mutants that no other test
    does, or hold a rule of the whole tree."""
    return pytest.mark.whole


def later() -> pytest.MarkDecorator:
    """In the second tier alone: a test, or a case of one, that takes more than half a minute, where smaller ones look
    at the same in the first."""
    return pytest.mark.later


def some(kinds: Sequence[Kind], part: int, parts: int) -> Sequence[Kind]:
    """In the first tier, part number `part` of `parts` of a list, every so manieth; all of it in the second. A test
    that takes each part at least once sees each kind."""
    return kinds if ALL else kinds[part % parts :: parts]


def number(name: str) -> int:
    """A number that a name stands for, as good as random."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def first_tier(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests of the first tier, in their order."""
    items = list(items)
    groups: dict[str, list[pytest.Item]] = {}
    for item in (x for x in items if not x.get_closest_marker("later")):
        groups.setdefault(item.nodeid.split("[")[0], []).append(item)
    kept: set[pytest.Item] = set()
    chosen_of: dict[str, list[pytest.Item]] = {}
    for name, group in groups.items():
        if covers := [m for x in group if (m := x.get_closest_marker("covering"))]:
            chosen = _covering(group)[: covers[0].args[0]]
        elif any(x.get_closest_marker("sampled") for x in group):
            chosen = _sample(group)
        else:
            chosen = group
        chosen_of[name] = chosen
    for name in dict.fromkeys(_short_enough(chosen_of)):
        chosen = chosen_of[name]
        kept.update(chosen if any(x.get_closest_marker("whole") for x in chosen) else _short(chosen))
        for place, item in enumerate(sorted(kept.intersection(groups[name]), key=lambda x: number(x.nodeid))):
            item.stash[PLACE] = place
    return [x for x in items if x in kept]


def second_tier(items: Iterable[pytest.Item], part: int) -> list[pytest.Item]:
    """Part number `part` of `PARTS` of all tests, in their order. Which ones follows from their names, so that runs of
    all parts have every case."""
    return [x for x in items if number(x.nodeid) // COMPILED_EVERY % PARTS == part]


def _short_enough(tests: Mapping[str, Sequence[pytest.Item]]) -> Iterator[str]:
    """The tests of which some case is short enough, and the samples of campaigns."""
    files: dict[str, list[tuple[float, int, str]]] = {}
    for name, cases in tests.items():
        seconds = min(seconds_of(x.nodeid) for x in cases)
        files.setdefault(name.split("::")[0], []).append((seconds, number(name), name))
        if lies_in(cases[0], CAMPAIGNS) or any(x.get_closest_marker("whole") for x in cases):
            yield name
    for found in files.values():
        for place, (seconds, _, name) in enumerate(sorted(found)):
            if seconds <= (VERY_SLOW if place < EACH_FILE else SLOW):
                yield name


def _short(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """As many of a test's cases as take `LONGEST` together, the shortest ones first, and one at least."""
    kept: list[pytest.Item] = []
    total = 0.0
    for case in sorted(cases, key=lambda x: (seconds_of(x.nodeid), number(x.nodeid))):
        total += seconds_of(case.nodeid)
        if kept and total > LONGEST:
            break
        kept.append(case)
    return kept


def _sample(group: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The cases of a test that are not marked, and of the marked ones one in so many, rounded up."""
    marked = [(x, x.get_closest_marker("sampled")) for x in group]
    every = {x: marker.args[0] for x, marker in marked if marker}
    chosen = sorted(every, key=lambda x: number(x.nodeid))[: -(-len(every) // max(every.values()))]
    return [*(x for x in group if x not in every), *chosen]


def _covering(group: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Cases that have each value of each parameter, and as many pairs of values as so few cases can. Which ones
    follows from their names."""
    left = sorted(group, key=lambda x: number(x.nodeid))
    singles = {x: values_of(x) for x in left}
    pairs = {x: set(itertools.combinations(sorted(singles[x]), 2)) for x in left}
    missing, apart = set().union(*singles.values()), set().union(*pairs.values())
    kept: list[pytest.Item] = []
    while missing:
        best = max(left, key=lambda x: (len(singles[x] & missing), len(pairs[x] & apart)))
        kept.append(best)
        left.remove(best)
        missing -= singles[best]
        apart -= pairs[best]
    return kept


def values_of(item: pytest.Item) -> set[tuple[str, int]]:
    """The parameters of a case, each with which value it has: a decorator gives one object to all of its cases."""
    given: dict[str, object] = getattr(item, "callspec").params  # noqa: B009
    return {(name, id(value)) for name, value in given.items()}
