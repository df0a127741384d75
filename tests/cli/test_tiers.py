"""`tilewright tiers`: the table, the files, and one sentence for what a TOML file cannot mean."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.main import main

MODEL = """
import jax, jax.numpy as jnp, numpy as np
from tilewright import pruning

def forward(params, x):
    return jax.nn.relu(x @ params["up"]) @ params["down"]

def forward_inputs():
    rng = np.random.default_rng(0)
    (b,) = jax.export.symbolic_shape("b")
    params = {"up": rng.standard_normal((32, 64)) / 6, "down": rng.standard_normal((64, 16)) / 8}
    params = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    return params, jax.ShapeDtypeStruct((b, 32), "float32")

def batches():
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(24, 32)).astype("f4") for _ in range(2)]
    return inputs, [np.asarray(forward(forward_inputs()[0], x)).argmax(-1) for x in inputs]

def units():
    return {"hidden": pruning.Coupled([("['up']", 1), ("['down']", 0)])}

def retrain(params):
    return params

def breaks(params):
    raise RuntimeError("no time")

def no_units():
    return [1]
"""
SPEC = """
[data]
batches = "model.py:batches"

[pruning]
units = "model.py:units"
retrain = "model.py:retrain"

[tiers.cloud]
target = "ascend-910b1"
precision = "f32"
batch = 8

[tiers.device]
target = "ascend-310"
precision = "int8"
batch = 1
prune = 0.5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "tiers.toml").write_text(SPEC)
    return tmp_path


def test_the_table_and_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tiers", "model.py:forward", "--spec", "tiers.toml", "-o", "out"]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "forward, accuracy on the data"
    assert said[1].split()[:6] == ["tier", "target", "precision", "batch", "prune", "accuracy"]
    assert said[2].split()[:6] == ["cloud", "ascend-910b1", "f32", "8", "100", "+0"] and "ok: error" in said[2]
    assert "ok: SQNR" in said[3] and said[3].endswith("keeps hidden 32/64")
    assert main([*command, "--json", "--check", "off"]) == 0  # over its own files
    found = json.loads(capsys.readouterr().out)
    assert [tier["path"] for tier in found["tiers"]] == ["out/cloud.twm", "out/device.twm"]
    assert {tier["check"] for tier in found["tiers"]} == {"off"}
    assert tw.load("out/cloud.twm")(x=np.ones((8, 32), "f4")).shape == (8, 16)
    assert main(["verify", "out/cloud.twm", "--against", "model.py:forward"]) == 0
    assert main(["diff", "out/cloud.twm", "out/device.twm"]) == 1


def test_a_tier_that_cannot_be_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tiers.toml").write_text("[tiers.a]\nprecision = 'int8'\nbatch = 1\n[tiers.b]\nbatch = 2\n")
    assert main(["tiers", "model.py:forward", "--spec", "tiers.toml"]) == 1
    said = capsys.readouterr()
    problem = "its mode w8a8 needs data that its scales are found in: say batches or calibration in [data]"
    assert said.err.splitlines()[-1] == f"tilewright: error: tier a: {problem}"
    assert "not made" in said.out and [p.name for p in (folder / "tiers").iterdir()] == ["b.twm"]


MISTAKES = [
    ("", "tiers.toml: it has no tiers: write a table for each"),
    ("tiers = 5", "tiers.toml: it has no tiers"),
    ("[tiers]\na = 5", "tiers.toml: tiers.a must be a table, not 5"),
    ("[tiers.a", "tiers.toml: it is no TOML: "),
    ("[teirs.a]\nbatch = 1", "teirs: there is no such key; there are tiers, data, pruning; did you mean tiers?"),
    ("[tiers.a]\nbatch = 1\n[data]\nbatch = 'x'", "data.batch: there is no such key; .* did you mean batches?"),
    ("[tiers.a]\nbatch = 1\n[data]\nbatches = 5", "data.batches must be a text, not 5"),
    ("[tiers.a]\nbatch = 1\n[data]\nbatches = 'none.npz'", "none.npz: No such file or directory"),
    ("[tiers.a]\nbatch = 1\n[data]\nbatches = 'model.py:none'", "model.py has no function none"),
    ("[tiers.a]\nbatch = 1\n[data]\naccuracy = 'top1'", "without data there is nothing to compare with"),
    ("[tiers.a]\nbatch = 1\nprune = 0.5", "tiers.a: prune needs to know what can be removed: say units in"),
    ("[tiers.a]\nbatch = 1\n[pruning]\nmultiple = 8", "pruning.units is missing"),
    ("[tiers.a]\nbatch = 1\n[pruning]\nmultiple = 'x'", "pruning.multiple must be a whole number, not 'x'"),
    ("[tiers.a]\nbatch = 1\n[pruning]\nunits = 'model.py:no_units'", "pruning.units gives a dict of tw.pruning's"),
    ("[tiers.a]\nbatch = -1", "tiers.a: batch is -1, and is at least 1"),
    ("[tiers.a]\nbatch = 1\nbatches = 2", "tiers.a: there is no choice 'batches'; .* did you mean batch?"),
    ("[tiers.a]\nbatch = 1\ntarget = 'ascend-31'", "tiers.a: target=ascend-31: unknown target 'ascend-31'"),
    ("[tiers.a]\nbatch = [1]", r"tiers.a: batch=\[1\]: batch takes whole numbers"),
    ("[tiers.a]\nbatch = 1\nwithout = {x = 1}", "tiers.a: without="),
    ("[tiers.a]\nbatch = 1979-05-27", "tiers.a: batch=datetime.date"),
    ("[tiers.'a/b']\nbatch = 1", "tiers.a/b: a tier is called by letters, digits, _ and -"),
    ("[tiers.'']\nbatch = 1", "tiers.: a tier is called by letters"),
    ("x = " + "[" * 5000, "tiers.toml: it is no TOML: it is nested too deeply"),
    ("[tiers.a]\nbatch = " + "9" * 5000, "tiers.toml: it is no TOML: "),
]


@pytest.mark.parametrize(("spec", "said"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str], spec: str, said: str) -> None:
    (folder / "tiers.toml").write_text(spec)
    assert main(["tiers", "model.py:forward", "--spec", "tiers.toml", "-o", "out"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line), line
    assert line.startswith("tilewright: error: ") and not (folder / "out").exists()


def test_places(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that the command reads, and nothing of others, is overwritten."""
    (folder / "tiers.toml").write_text("[tiers.a]\nbatch = 1\n")
    (folder / "file").write_text("")
    (folder / "out").mkdir()
    (folder / "out" / "a.twm").write_text("mine")
    for more, said in (
        (["--spec", "none.toml"], "none.toml: No such file or directory"),
        (["--spec", "tiers.toml", "-o", "none/out"], "none/out: No such file or directory"),
        (["--spec", "tiers.toml", "-o", "file"], "file: Not a directory"),
        (["--spec", "tiers.toml", "-o", "out"], "out/a.twm: it is there and is no model file: name another folder"),
        (["--spec", "tiers.toml", "--check", "some"], "invalid choice: 'some'"),
        (["--spec", "model.py"], "model.py: it is no TOML"),
        ([], "the following arguments are required: --spec"),
    ):
        assert main(["tiers", "model.py:forward", *more]) == 1
        assert said in capsys.readouterr().err
    assert (folder / "out" / "a.twm").read_text() == "mine"
    (folder / "big.toml").write_text("#" * (1 << 21))
    assert main(["tiers", "model.py:forward", "--spec", "big.toml"]) == 1
    assert "big.toml: it has 2,097,152 bytes, and 1,048,576 at most are read" in capsys.readouterr().err


def test_a_function_of_the_user_that_fails_names_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tiers.toml").write_text(SPEC.replace("model.py:retrain", "model.py:breaks"))
    assert main(["tiers", "model.py:forward", "--spec", "tiers.toml", "--check", "off"]) == 1
    assert "RuntimeError: no time" in capsys.readouterr().err
