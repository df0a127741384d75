"""The mutants: changes are of every kind and one line long, each module has tests, and outcomes are told apart."""

from __future__ import annotations

import argparse
import ast
import json

import mutant_table
import pytest
import run_mutants
from mutant_edits import Edit, edits, edits_of
from mutant_table import ROOT, TABLE, covering, modules
from run_mutants import REASONS, Mutant, Outcome, drawn, summary
from tiering import sampled

SOURCE = '''
"""Words."""
import os

LIMIT: int = 3

def f(x: int, y: int = 2) -> None:
    """More words."""
    known = max(x, y + 1)
    for i in range(known):
        if not i or i < LIMIT:
            continue
        g(x, i)
    if x == y:
        raise ValueError(f"{x + y} is wrong")
    return None if y else 1.5

def g(x, y): return x - True
'''


def test_each_kind_of_change() -> None:
    found = edits(SOURCE)
    changes = {(e.kind, e.old, e.new) for e in found}
    assert {
        ("operator", "y + 1", "(y - 1)"),
        ("operator", "x - True", "(x + True)"),
        ("comparison", "i < LIMIT", "(i <= LIMIT)"),
        ("constant", "3", "4"),
        ("constant", "True", "False"),
        ("constant", "1.5", "4.0"),
        ("twin", "max(x, y + 1)", "min(x, y + 1)"),
        ("not dropped", "not i", "i"),
        ("and or", "not i or i < LIMIT", "(not i and i < LIMIT)"),
        ("arguments swapped", "g(x, i)", "g(i, x)"),
        ("branches swapped", "None if y else 1.5", "(1.5 if y else None)"),
        ("condition turned", "x == y", "(not (x == y))"),
        ("statement removed", "continue", "pass"),
        ("statement removed", 'raise ValueError(f"{x + y} is wrong")', "pass"),
        ("early return", "known = max(x, y + 1)", "return"),
    } <= changes
    for e in found:
        assert ast.dump(ast.parse(e.source)) != ast.dump(ast.parse(SOURCE))
        differ = [a != b for a, b in zip(e.source.splitlines(), SOURCE.splitlines(), strict=True)]
        assert differ.count(True) == 1 and differ[e.line - 1]
    assert not [
        e for e in found if "Words" in e.old or "int" in e.old or ("wrong" in e.old and e.new != "pass")
    ]


def test_a_change_over_several_lines_leaves_the_rest() -> None:
    (edit,) = (
        e
        for e in edits("x = [\n    1,\n    max(\n        é,\n        b,\n    ),\n    y,\n]\n")
        if e.kind == "twin"
    )
    assert edit.source == "x = [\n    1,\n    min(é, b),\n    y,\n]\n"


def test_a_seed_gives_the_same_mutants() -> None:
    few = drawn(20, 0, "passes/npu")
    assert few == drawn(20, 0, "passes/npu") and few != drawn(20, 1, "passes/npu")


def test_mutants_are_of_all_kinds_and_places() -> None:
    found = drawn(100, 0)
    assert len({(m.module, m.edit) for m in found}) == 100
    assert len({m.edit.kind for m in found}) >= 10
    areas = {"/".join(m.module.split("/")[:2]) for m in found}
    passes = {f"passes/{room}" for room in ("npu", "lower", "choose", "simplify")}
    assert areas >= {"backends/simulator", "dialects/npu", *passes}


def test_every_module_has_tests_that_exist() -> None:
    for tests in TABLE.values():
        for test in tests:
            path = ROOT / (test.replace("lit", "lit_tests", 1) if test.startswith("lit") else test)
            assert path.exists(), path
    for module in modules():
        assert covering(module)
    assert all(any(m.startswith(prefix) for m in modules()) for prefix in TABLE)


def test_every_reason_is_for_a_change_that_there_is() -> None:
    for reason in json.loads(REASONS.read_text()):
        changes = {(e.place, e.old, e.new) for e in edits_of(ROOT / reason["module"])}
        assert (reason["place"], reason["old"], reason["new"]) in changes, reason
        assert reason["reason"].endswith(".")


@sampled(2)
@pytest.mark.parametrize("line", ["import jax", "pass"])
def test_a_mutant_is_killed_or_survives(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against one test, which loads the module without JAX."""
    test = "tests/test_layers.py::test_no_jax_at_import"
    monkeypatch.setitem(mutant_table.TABLE, "dialects/", (test,))
    source = (ROOT / "dialects/dtypes.py").read_text()
    copy = run_mutants.Copy(argparse.Namespace(patience=300))
    try:
        edit = Edit("statement added", 1, "", line, f"{source}\n{line}\n")
        outcome = copy.judge(Mutant("dialects/dtypes.py", edit))
        assert (copy.root / "dialects/dtypes.py").read_text() == source
    finally:
        copy.remove()
    assert outcome.by == ("" if line == "pass" else test)


def test_what_survives_for_a_reason_does_not_count() -> None:
    one = Outcome("passes/npu/x.py", 1, "constant", "1", "2", by="a test")
    other = Outcome("passes/npu/x.py", 2, "constant", "1", "2", reason="It is only speed.")
    assert "1 of 1 killed: 100 %; 1 more survived for a reason" in summary([one, other])
    assert "1 of 2 killed: 50 %" in summary([one, Outcome("passes/npu/x.py", 3, "constant", "1", "2")])
