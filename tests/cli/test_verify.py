"""`tilewright verify --bisect` and `tilewright reduce`: files, exit codes, JSON and complaints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.main import main

MODEL = """
import jax.numpy as jnp
import numpy as np

def layer(x, y):
    z = jnp.exp(x * 0.5)
    return (z - y) * 3

def layer_inputs():
    rng = np.random.default_rng(0)
    return rng.standard_normal((20, 30), np.float32), rng.standard_normal((20, 30), np.float32)
"""

WRONG = """
from dataclasses import dataclass, replace
from xdsl.passes import ModulePass
from tilewright.passes.pipeline import PIPELINE, make_pass

REAL = next(s for s in PIPELINE if s.name == "graph-to-tile")

@dataclass(frozen=True)
class Wrong(ModulePass):
    name = "graph-to-tile"
    target: str | None = None

    def apply(self, ctx, op):
        make_pass(REAL, self.target).apply(ctx, op)
        for o in op.walk():
            if o.name == "tile.sub":
                o.operands = o.operands[::-1]

def stages():
    return [replace(s, implementation=Wrong) if s is REAL else s for s in PIPELINE]

NOTHING = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "wrong.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_bisect_writes_a_reproducer_that_replays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["verify", "model.py:layer", "--bisect", "--stages", "wrong.py:stages", "-o", "small.mlir"]
    assert main(args) == 1
    said = capsys.readouterr().out
    assert "first bad pass: graph-to-tile (wrong value)" in said
    assert "op: graph.sub at " in said
    assert "model.py:7 in kernel @" in said
    assert "reproducer: small.mlir (1 op)" in said
    files = {"small.mlir", "small.npz", "small.before-graph-to-tile.mlir", "model.py", "wrong.py"}
    assert {p.name for p in folder.iterdir() if p.is_file()} == files
    (replay,) = [line.removeprefix("replay: ") for line in said.splitlines() if line.startswith("replay: ")]
    command = shlex.split(replay)
    assert command[0] == "tilewright"
    assert main(command[1:]) == 1
    assert "DIFFERS" in capsys.readouterr().out
    assert main([*command[1:2], "small.before-graph-to-tile.mlir", *command[3:]]) == 1
    capsys.readouterr()
    assert main(command[1 : command.index("--stages")]) == 0


def test_bisect_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["verify", "model.py:layer", "--bisect", "--stages", "wrong.py:stages", "--json"]
    assert main(args) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    culprit = said["culprit"]
    assert (culprit["pass"], culprit["op"], culprit["kind"]) == ("graph-to-tile", "graph.sub", "wrong value")
    assert culprit["tile"]["sizes"]
    assert len(culprit["element"]) == 2
    assert culprit["reproducer"]["ops"] == 1
    assert Path(culprit["reproducer"]["file"]).is_file()
    passes = ["graph-simplify", "graph-strips", "graph-hoist", "graph-partition", "graph-fuse", "graph-schedule"]
    passes += ["graph-to-tile"]
    assert [p["pass"] for p in said["passes"]] == passes


def test_bisect_of_a_correct_program_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "model.py:layer", "--bisect"]) == 0
    assert "run" in capsys.readouterr().out
    assert not list(folder.glob("*.mlir"))


def test_verify_tells_of_a_pass_that_crashes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "wrong.py").write_text(
        WRONG.replace("o.operands = o.operands[::-1]", "raise RuntimeError('no')")
    )
    assert main(["verify", "model.py:layer", "--stages", "wrong.py:stages"]) == 1
    assert "RuntimeError: no" in capsys.readouterr().out


def test_reduce(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["reduce", "model.py:layer", "--check", "wrong", "--stages", "wrong.py:stages", "-o", "r.mlir"]
    assert main(args) == 0
    assert "reduced to 1 in" in capsys.readouterr().out
    assert "graph.sub" in (folder / "r.mlir").read_text()
    with np.load(folder / "r.npz") as arrays:
        assert [arrays[n].size for n in arrays.files] == [1, 1]
    replay = ["verify", "r.mlir", "--inputs", "r.npz", "--stages", "wrong.py:stages"]
    assert main(replay) == 1
    capsys.readouterr()
    assert main(["reduce", "r.mlir", "--command", "grep -q graph.sub {}", "--json", "-o", "again.mlir"]) == 0
    assert json.loads(capsys.readouterr().out)["ops"] == 1


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["reduce", "model.py:layer"], "give either --check or --command"),
        (["reduce", "model.py:layer", "--check", "slow"], "--check must be wrong, crash, hazard or cost>"),
        (["reduce", "model.py:layer", "--check", "wrong"], "the check does not hold for the program itself"),
        (
            ["reduce", "model.py:layer", "--check", "cost>9e9"],
            "the check does not hold for the program itself",
        ),
        (["reduce", "model.py:layer", "--command", "true"], "--command needs {} where the file's name goes"),
        (["reduce", "model.py:layer", "--command", "nowhere {}"], "nowhere: No such file or directory"),
        (["reduce", "model.py:layer", "--command", "true {}", "--tests", "0"], "--tests must be at least 1"),
        (["verify", "model.py:layer", "--stages", "wrong.py"], "wrong.py: --stages needs FILE.py:NAME"),
        (["verify", "model.py:layer", "--stages", "no.py:x"], "no.py: No such file or directory"),
        (
            ["verify", "model.py:layer", "--stages", "wrong.py:NOTHING"],
            "NOTHING is no sequence of pipeline stages",
        ),
        (["verify", "model.py:layer", "--stages", "wrong.py:x"], "x is no sequence of pipeline stages"),
        (
            ["reduce", "model.py:layer", "--command", "true {}", "-o", "no/r.mlir"],
            "No such file or directory",
        ),
    ],
)
def test_complaints_are_one_line_and_leave_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], args: list[str], expected: str
) -> None:
    assert main(args) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("tilewright: error: ")
    assert expected in lines[0]
    assert {p.name for p in folder.iterdir() if p.is_file()} == {"model.py", "wrong.py"}
