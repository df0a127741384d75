"""The knowledge base: what is written is read, the better plan is kept, and no file does harm."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from plan_entries import ENTRY

from tilewright.knowledge.base import KnowledgeBase, KnowledgeError, KnowledgeWarning, read_lines


def test_what_is_written_is_read(tmp_path: Path) -> None:
    base = KnowledgeBase(tmp_path / "a" / "plans.sqlite")
    assert base.entries() == [] and base.stamp() == ""
    assert base.add([ENTRY, replace(ENTRY, joined=True)]) == 2
    assert base.find(ENTRY.kernel, ENTRY.price) == [ENTRY, replace(ENTRY, joined=True)]
    assert base.find(ENTRY.kernel, "0") == [] == base.find("1" * 64, ENTRY.price)
    assert base.family(ENTRY.family, ENTRY.price, ENTRY.goal, ENTRY.machine) == base.entries()
    assert KnowledgeBase(base.path).stamp() == "1"


def test_the_better_plan_is_kept(tmp_path: Path) -> None:
    base = KnowledgeBase(tmp_path / "plans.sqlite")
    base.add([ENTRY])
    for worse in (replace(ENTRY, microseconds=2.1), replace(ENTRY, microseconds=2.1, certified=True), ENTRY):
        assert base.add([worse]) == 0
        assert base.entries() == [ENTRY]
    proven = replace(ENTRY, certified=True)
    assert base.add([proven]) == 1 and base.entries() == [proven]
    better = replace(ENTRY, microseconds=1.9)
    assert base.add([better]) == 1 and base.entries() == [better]
    assert base.stamp() == "6"


def test_each_goal_has_its_best_plan(tmp_path: Path) -> None:
    """Of plans for energy the one with the least is kept, however long it takes; none that draws too much is better."""
    base = KnowledgeBase(tmp_path / "plans.sqlite")
    base.add([ENTRY])
    cool = replace(ENTRY, goal="energy", microseconds=4.0, joules=0.4)
    assert base.add([replace(cool, joules=0.5), cool, replace(cool, microseconds=1.0, joules=0.6)]) == 2
    assert base.find(ENTRY.kernel, ENTRY.price, "energy") == [cool] and base.find(ENTRY.kernel, ENTRY.price) == [ENTRY]
    limit = replace(ENTRY, goal="latency, 150000 W", microseconds=4.0, joules=0.5)
    assert base.add([limit, replace(limit, microseconds=2.0)]) == 1 and limit in base.entries()


def test_lines_read_back(tmp_path: Path) -> None:
    base, other = KnowledgeBase(tmp_path / "a.sqlite"), KnowledgeBase(tmp_path / "b.sqlite")
    base.add([ENTRY, replace(ENTRY, kernel="1" * 64, certified=True)])
    lines = [*base.export()]
    other.add(read_lines([*lines, ""], "lines"))
    assert other.entries() == base.entries() and [*other.export()] == lines
    assert other.remove(["1" * 64]) == 1 and other.entries() == [ENTRY]


@pytest.mark.parametrize(
    "change",
    [
        {"microseconds": "2"},
        {"microseconds": float("nan")},
        {"microseconds": 10**400},
        {"plan": 1},
        {"sizes": ["8"]},
        {"bound": -1.0},
        {"goal": "fast"},
    ],
)
def test_lines_that_are_no_entries(change: dict[str, object]) -> None:
    good = ENTRY.to_json()
    for bad in (json.dumps({**good, **change}), json.dumps({**good, "plan": None}), "[1]", "{", "1", "[" * 100_000):
        with pytest.raises(KnowledgeError, match="lines, line 2: "):
            list(read_lines([json.dumps(good), bad], "lines"))


def test_files_that_are_none_of_ours(tmp_path: Path) -> None:
    junk, other = tmp_path / "junk", tmp_path / "other.sqlite"
    junk.write_bytes(b"junk" * 1000)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE plans (x)")
    for path in (junk, other, tmp_path):
        before = path.read_bytes() if path.is_file() else b""
        base = KnowledgeBase(path)
        with pytest.warns(KnowledgeWarning, match="it is not used: ") as said:
            assert base.entries() == [] == base.find("0", "1")
        assert len(said) == 1
        with pytest.raises(KnowledgeError, match="cannot be written"):
            base.add([ENTRY])
        assert path.is_dir() or path.read_bytes() == before


def test_another_version_is_left_alone(tmp_path: Path) -> None:
    base = KnowledgeBase(tmp_path / "plans.sqlite")
    base.add([ENTRY])
    with sqlite3.connect(base.path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.warns(KnowledgeWarning, match="it is of version 99"):
        assert base.entries() == []
    with pytest.raises(KnowledgeError, match="version 99"):
        base.add([ENTRY])


def test_an_entry_that_cannot_be_read(tmp_path: Path) -> None:
    base = KnowledgeBase(tmp_path / "plans.sqlite")
    base.add([ENTRY, replace(ENTRY, kernel="1" * 64, name="sub")])
    with sqlite3.connect(base.path) as db:
        db.execute("UPDATE plans SET sizes = '[1' WHERE name = 'add'")
    with pytest.warns(KnowledgeWarning, match="an entry for 'add' cannot be read"):
        assert [e.name for e in base.entries()] == ["sub"]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_file_that_is_cut_off(tmp_path: Path, share: float) -> None:
    """Nothing but an entry that was there, or none, is read of it; nothing else goes wrong."""
    base = KnowledgeBase(tmp_path / "plans.sqlite")
    base.add(replace(ENTRY, kernel=f"{i:064x}") for i in range(100))
    content = base.path.read_bytes()
    base.path.write_bytes(content[: int(len(content) * share)])
    with pytest.warns(KnowledgeWarning):
        assert {e.name for e in KnowledgeBase(base.path).entries()} <= {"add"}


def test_a_write_that_is_interrupted_leaves_what_was_there(tmp_path: Path) -> None:
    base = KnowledgeBase(tmp_path / "plans.sqlite")
    base.add([ENTRY])
    with pytest.raises(ZeroDivisionError):
        base.add(replace(ENTRY, kernel=f"{i:064x}", microseconds=1 / (3 - i)) for i in range(5))
    code = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA cache_size = 1'); db.execute('BEGIN IMMEDIATE')\n"
        "db.execute('UPDATE plans SET microseconds = 0'); db.execute('DELETE FROM state')\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(base.path)]).returncode == 9
    assert base.entries() == [ENTRY] and base.stamp() == "1"
    assert base.add([replace(ENTRY, kernel="1" * 64)]) == 1


def test_several_writers(tmp_path: Path) -> None:
    """Eight processes write at once: all of it is there."""
    path = tmp_path / "plans.sqlite"
    code = (
        "import sys; from dataclasses import replace; sys.path.insert(0, sys.argv[3])\n"
        "from plan_entries import ENTRY; from tilewright.knowledge.base import KnowledgeBase\n"
        "for i in range(20):\n"
        "    KnowledgeBase(sys.argv[1]).add([replace(ENTRY, kernel=f'{int(sys.argv[2]) * 20 + i:064x}')])\n"
    )
    support = str(Path(__file__).resolve().parents[1] / "support")
    runs = [subprocess.Popen([sys.executable, "-c", code, str(path), str(i), support]) for i in range(8)]
    assert [run.wait() for run in runs] == [0] * 8
    base = KnowledgeBase(path)
    assert len(base.entries()) == 160 and base.stamp() == "160"
