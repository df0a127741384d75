"""What each test takes: recorded in the tree, so that long tests start first and the first tier stays as short as it
is meant to be.

`DURATIONS=1 pytest -n 2` records the tests that it runs (`make durations`): processor seconds of the worker and its
children, where nothing is compiled yet. What takes less than `LEAST` is not kept.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("durations.json")
"""{file: {test: processor seconds}}."""

LEAST = 0.05
"""Processor seconds: a test that is not recorded takes less, or is new."""

RECORDING = os.environ.get("DURATIONS", "") == "1"


@cache
def recorded() -> dict[str, float]:
    """Processor seconds by the name of a test."""
    if not RECORDED.exists():
        return {}
    files: dict[str, dict[str, float]] = json.loads(RECORDED.read_text())
    return {f"{file}::{test}": seconds for file, tests in files.items() for test, seconds in tests.items()}


def seconds_of(test: str) -> float:
    """Processor seconds that a test takes, by its name."""
    return recorded().get(test, LEAST)


def long_ones_first(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """The same tests, those of a file together: so many equal parts of them side by side, and in each of them the files
    that take longest first. Each worker begins with a part, and takes over from another when it is done."""
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.nodeid.split("::")[0]].append(item)
    cost = {file: sum(seconds_of(x.nodeid) for x in tests) for file, tests in files.items()}
    parts: list[list[pytest.Item]] = [[] for _ in range(max(workers, 1))]
    total = [0.0] * len(parts)
    for file in sorted(files, key=lambda file: (-cost[file], file)):
        least = total.index(min(total))
        parts[least] += files[file]
        total[least] += cost[file]
    return [item for part in parts for item in part]


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Recorder:
    """Notes what each test takes, and writes it where the session ends: each worker what it ran."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.json"
        self.taken: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = _spent()
        found = yield
        self.taken[item.nodeid] = _spent() - before
        return found

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.taken))


def merge(folder: Path) -> None:
    """Puts what workers recorded into the tree; tests that they did not run keep what was known of them."""
    known = dict(recorded())
    for path in sorted(folder.glob("*.json")):
        known |= json.loads(path.read_text())
        path.unlink()
    files: dict[str, dict[str, float]] = defaultdict(dict)
    for test, seconds in sorted(known.items()):
        if seconds > LEAST:
            file, _, name = test.partition("::")
            files[file][name] = round(seconds, 2)
    RECORDED.write_text(json.dumps(files, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    merge(Path(__file__).resolve().parents[2] / "build" / "durations")
