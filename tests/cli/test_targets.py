"""Chips with figures of their own, and several chips side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.backends.legend import LEGEND
from tilewright.cli.main import main

MODEL = """
import jax
import numpy as np

def f(x, w):
    return jax.nn.relu(x @ w)

def f_inputs():
    return np.ones((64, 512), "f2"), np.ones((512, 1024), "f2")
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.py"
    path.write_text(MODEL)
    return f"{path}:f"


def microseconds(capsys: pytest.CaptureFixture[str], *given: str) -> float:
    assert main([*given, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["microseconds"]


def test_a_figure_is_set(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = microseconds(capsys, "report", model)
    slow = microseconds(capsys, "report", model, "--set", "memory.hbm_tb_per_s=0.1")
    assert slow > 1.2 * own
    twice = ["--set", "memory.hbm_tb_per_s=0.1", "--set", "clock_mhz = 900"]
    assert microseconds(capsys, "report", model, *twice) > slow
    chip = tmp_path / "chip.toml"
    chip.write_text('extends = "ascend-910b1"\n[memory]\nhbm_tb_per_s = 0.1\n')
    assert microseconds(capsys, "report", model, "--target", str(chip)) == slow
    assert (
        microseconds(capsys, "report", model, "--target", str(chip), "--set", "memory.hbm_tb_per_s=1.45")
        == own
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("memory.hbm_tb=1", "key 'memory.hbm_tb' is not known"),
        ("clock_mhz", "--set clock_mhz: write KEY=VALUE"),
        ("clock_mhz=", "write KEY=VALUE"),
        ("clock_mhz=fast", "--set clock_mhz=fast: "),
        ("clock_mhz=-1", "must be a positive number"),
    ],
)
def test_a_figure_that_is_none(model: str, given: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", model, "--set", given]) == 1
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_several_chips_side_by_side(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    chips = "ascend-910b1,ascend-310"
    assert main(["report", model, "--target", chips]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["chip", *chips.split(",")]
    assert main(["report", model, "--target", chips, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["reports"]
    assert [r["target"] for r in found] == chips.split(",")
    assert main(["run", model, "--target", chips]) == 1
    assert "several chips are for report" in capsys.readouterr().err
    assert main(["report", model, "--target", "ascend-910b1,ascend-31"]) == 1
    assert "did you mean" in capsys.readouterr().err


def test_a_legend_says_what_the_words_of_a_report_mean(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", model, "--legend"]) == 0
    table, _, below = capsys.readouterr().out.partition("\n\n")
    (head,) = (line for line in table.splitlines() if line.split()[:1] == ["kernel"])
    known = {w.strip() for words in LEGEND for w in words.split(",")}
    for word in head.replace("pipes, us", "pipes").split():
        assert word in known | {"kernel"}, word
    assert all(text in below for text in LEGEND.values())


def test_the_glossary_has_the_legend() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text()
    rows = [
        tuple(part.strip() for part in line.strip("|").split("|"))
        for line in page.splitlines()
        if line[:1] == "|"
    ]
    assert rows[2:] == list(LEGEND.items())
