"""What the first tier runs: each test, each value where cases cover them, and both memories in one program of four."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path

import durations
import pytest
import tiering

CASES = """
import durations
import pytest
from tiering import covering, later, sampled

@covering()
@pytest.mark.parametrize("a", [1, 2, 3])
@pytest.mark.parametrize("b", "wxyz")
def test_covered(a, b): ...

@covering(2)
@pytest.mark.parametrize("a", [1, 2, 3])
@pytest.mark.parametrize("b", "wxyz")
def test_covered_in_part(a, b): ...

@sampled(5)
@pytest.mark.parametrize("a", range(12))
def test_sampled(a): ...

@later()
def test_of_minutes(): ...

def test_plain(): ...
"""


@pytest.fixture
def items(tmp_path: Path, request: pytest.FixtureRequest) -> list[pytest.Item]:
    path = tmp_path / "some_cases.py"
    path.write_text(textwrap.dedent(CASES))
    module = pytest.Module.from_parent(request.session, path=path)
    return list(itertools.chain.from_iterable(request.session.genitems(node) for node in module.collect()))


def test_each_test_has_its_share(items: list[pytest.Item]) -> None:
    kept = [x.name for x in tiering.first_tier(items)]
    covered = [x.split("[")[1] for x in kept if x.startswith("test_covered[")]
    assert len(covered) == 4
    assert {x for name in covered for x in name[:-1].split("-")} == {*"123", *"wxyz"}
    in_part = [x.split("[")[1][:-1].split("-") for x in kept if x.startswith("test_covered_in_part[")]
    assert len({*itertools.chain(*in_part)}) == 4, "two cases have two values each"
    assert sum(x.startswith("test_sampled[") for x in kept) == 3
    assert "test_plain" in kept and "test_of_minutes" not in kept


def test_one_program_in_four_runs_in_both_memories(items: list[pytest.Item], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiering, "_programs", None)  # those of this test are set back behind it
    cases = [x for x in tiering.first_tier(items) if x.name.startswith("test_covered[")]
    both = []
    for case in cases:
        tiering.begin(case)
        both.append([len(tiering.next_memories()) == 2 for _ in range(8)])
    assert all(sum(of_case) == 2 for of_case in both)
    assert [of_case[0] for of_case in both].count(True) == 1
    fresh = next(x for x in items if x.name == "test_of_minutes")
    tiering.begin(fresh)
    assert [tiering.next_memories() for _ in range(3)] == [tiering.MEMORIES] * 3


def test_the_parts_have_every_case_once(items: list[pytest.Item]) -> None:
    parts = [[x.name for x in tiering.second_tier(items, part)] for part in range(tiering.PARTS)]
    assert sorted(name for part in parts for name in part) == sorted(x.name for x in items)
    assert sum(map(bool, parts)) > tiering.PARTS // 2


def test_long_cases_are_left_to_the_second_tier(items: list[pytest.Item], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a test's cases the shortest ones, and one at least; none where each takes long."""
    taken = {"test_sampled": tiering.SLOW, "test_covered_in_part": 2 * tiering.VERY_SLOW}

    def seconds_of(test: str) -> float:
        return taken.get(test.split("::")[-1].split("[")[0], tiering.LONGEST / 4)

    monkeypatch.setattr(tiering, "seconds_of", seconds_of)
    kept = [x.name.split("[")[0] for x in tiering.first_tier(items)]
    assert kept.count("test_sampled") == 1 and kept.count("test_covered") == 4
    assert "test_covered_in_part" not in kept


def test_long_files_start_first(items: list[pytest.Item], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "seconds_of", lambda test: 1.0)
    halves = durations.long_ones_first(items, 2)
    assert sorted(x.nodeid for x in halves) == sorted(x.nodeid for x in items)


def test_durations_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "RECORDED", tmp_path / "durations.json")
    (tmp_path / "durations.json").write_text('{"a.py": {"old": 3, "again": 5}}')
    durations.recorded.cache_clear()
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "gw0.json").write_text('{"a.py::again": 1.234, "b.py::C::x": 2, "b.py::quick": 0.01}')
    durations.merge(tmp_path / "found")
    durations.recorded.cache_clear()
    known = {"a.py::old": 3, "a.py::again": 1.23, "b.py::C::x": 2}
    assert durations.recorded() == known
    durations.recorded.cache_clear()
    monkeypatch.undo()


def test_the_first_tier_takes_ten_minutes(request: pytest.FixtureRequest) -> None:
    """The tests of this session, as recorded. A new one counts `LEAST`."""
    total = sum(tiering.seconds_of(x.nodeid) for x in tiering.first_tier(request.session.items))
    assert total <= tiering.FIRST_TIER, f"the first tier takes {total:.0f} processor seconds: move cases to the second"
