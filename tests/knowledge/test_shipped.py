"""Whose plans a compilation takes: those of the user's own file, and behind them those that Tilewright comes with."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from plan_entries import ENTRY

import tilewright as tw
from tilewright.api.plans import own_path
from tilewright.cli.main import main
from tilewright.dialects.schedule_text import parse_schedule
from tilewright.kernels.price import VERSION
from tilewright.knowledge import shipped
from tilewright.knowledge.base import Entry, KnowledgeBase, KnowledgeWarning, read_lines
from tilewright.knowledge.shipped import FOLDER, ShippedPlans
from tilewright.machine import Machine


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, -1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A computer where nobody has said which plans are to be taken."""
    monkeypatch.delenv("TILEWRIGHT_PLANS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def shipping(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for plans that Tilewright comes with."""
    folder = home / "shipped"
    folder.mkdir()
    monkeypatch.setattr(shipped, "FOLDER", folder)
    read_again()
    return folder


@pytest.fixture(autouse=True)
def again() -> object:
    yield
    read_again()


def read_again() -> None:
    """Has the files be read when something is asked for next."""
    shipped._lines.cache_clear()  # pyright: ignore[reportPrivateUsage]


def test_where_a_user_s_plans_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_path() == home / "tilewright" / "plans.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")  # the specification: such a path is ignored
    monkeypatch.setenv("HOME", str(home))
    assert own_path() == home / ".local" / "share" / "tilewright" / "plans.sqlite"


def test_what_was_tuned_is_taken_by_itself(shipping: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = jax.ShapeDtypeStruct((128, 1024), "float16")
    tuned = tw.tune(softmax, x, evaluations=500)
    assert tuned.store is not None and tuned.store.path == own_path() and own_path().is_file()
    report = tw.compile(softmax, x).report()
    assert report.microseconds == tuned.report.after
    assert report.known_plans == 1
    assert tw.compile(softmax, x, options=tw.Options(plans="")).report().microseconds == tuned.report.before
    assert main(["kb", "list"]) == 0 and "reduce" in capsys.readouterr().out
    tw.tune(softmax, x, search="random", evaluations=20, store="")  # none is kept
    assert len(KnowledgeBase(own_path()).entries()) == 2


def test_plans_that_come_with_it_stand_behind_a_user_s(shipping: Path) -> None:
    x = jax.ShapeDtypeStruct((128, 1024), "float16")
    path = shipping / "found.sqlite"
    tuned = tw.tune(softmax, x, evaluations=500, store=path)
    lines = [*KnowledgeBase(path).export()]
    (shipping / "ascend-910b1.jsonl").write_text("".join(f"{line}\n" for line in lines))
    read_again()
    assert tuned.report.after < tuned.report.before
    assert tw.compile(softmax, x).report().microseconds == tuned.report.after
    assert tw.compile(softmax, x, options=tw.Options(plans="")).report().microseconds == tuned.report.before
    # what the user has of the kernel is all that counts
    slow = [replace(e, plan="#graph.vector_schedule<tile = [4096, 4096], grid = [1, 1], ub = 2>") for e in read(lines)]
    KnowledgeBase(own_path()).add(slow)
    with pytest.warns(KnowledgeWarning, match="a plan is left out"):
        assert tw.compile(softmax, x).report().known_plans == 0


def read(lines: list[str]) -> list[Entry]:
    return [*read_lines(lines, "lines")]


@pytest.mark.parametrize("text", ["{", "[1]\n", '{"kernel": 3}\n', "\x00"])
def test_a_damaged_file_is_left_out_with_one_line(shipping: Path, text: str) -> None:
    (shipping / f"{ENTRY.machine}.jsonl").write_text(text)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert ShippedPlans().find(ENTRY.kernel, ENTRY.price) == []
        assert ShippedPlans().find(ENTRY.kernel, ENTRY.price, "energy") == []
    assert len(said) == 1 and "they are not used: " in str(said[0].message)


def test_a_damaged_line_is_left_out_with_one_line(shipping: Path) -> None:
    line = json.dumps({**ENTRY.to_json(), "microseconds": "soon"})
    (shipping / f"{ENTRY.machine}.jsonl").write_text(f"{line}\n")
    with pytest.warns(KnowledgeWarning, match="some are not used: kernel 000000000000, line 1: .* no time") as said:
        assert ShippedPlans().find(ENTRY.kernel, ENTRY.price) == []
    assert len(said) == 1


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_plans_that_come_with_it(path: Path) -> None:
    """All of them can be read, are for a chip that there is and for today's price, and better or proven."""
    entries = read(path.read_text().splitlines())
    assert len(entries) > 20 and {e.machine for e in entries} == {path.stem} <= {*Machine.names()}
    assert {e.price for e in entries} == {VERSION}
    for entry in entries:
        parse_schedule(entry.plan)
        assert entry.certified or entry.microseconds < entry.before


def test_they_are_found(home: Path) -> None:
    """The fingerprints are those of today's compiler: benchmarks/shipped_plans.py makes the files anew."""
    x, g = (jax.ShapeDtypeStruct(s, "float16") for s in ((512, 2048), (2048,)))

    def rms_norm(x: jax.Array, g: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * g

    found = [len(_found(rms_norm, chip, x, g)) for chip in ("ascend-910b1", "ascend-310")]
    assert min(found) >= 1


def _found(fn: object, chip: str, *args: jax.ShapeDtypeStruct) -> list[Entry]:
    """What is shipped of the kernels of a program."""
    from tilewright.passes.plans import fingerprints_asked

    with fingerprints_asked() as names:
        tw.compile(fn, *args, target=chip)
    return [e for key in names.values() for e in ShippedPlans().find(key, VERSION)]
