"""`tilewright autotune` and `--config`: the table, the file, the same program again, and one sentence for mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiering import sampled

from tilewright.cli.main import main

MODEL = """
import jax, jax.numpy as jnp, numpy as np

def layer(x, w):
    return jnp.maximum(x @ w, 0)

def forward(params, x):
    return jax.nn.relu(x @ params['w1']) @ params['w2']

def forward_inputs():
    rng = np.random.default_rng(0)
    (n,) = jax.export.symbolic_shape("n")
    params = {k: jnp.asarray(rng.standard_normal((32, 32)) / 6, jnp.float32) for k in ('w1', 'w2')}
    return params, jax.ShapeDtypeStruct((n, 32), "float32")

def batches():
    rng = np.random.default_rng(1)
    return [rng.normal(size=(8, 32)).astype("f4") for _ in range(2)], [rng.integers(0, 32, 8) for _ in range(2)]

def breaks(x):
    return x.reshape(7, 7)
"""
OPEN = ["--shapes", "f32[b,32],f32[32,32]"]
CLOSED = ["--shapes", "f32[4,32],f32[32,32]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def tuned(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["autotune", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def reported(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["report", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_table_and_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = ["--space", "batch=1,8", "precision=f32,int8", "--metric", "throughput"]
    assert main(["autotune", "model.py:layer", *OPEN, *space]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "layer, items along b in a call; *: best throughput, +: on the front"
    assert said[1].split()[:4] == ["batch", "precision", "us", "items/s"]
    rows = [line.split() for line in said[2:6]]
    assert [r[r.index(n) : r.index(n) + 2] for r, n in zip(rows, "1188", strict=True)] == [
        ["1", "f32"], ["1", "int8"], ["8", "f32"], ["8", "int8"],
    ]  # fmt: skip
    assert [line[2] for line in said[2:6]].count("*") == 1
    assert said[3].endswith("packs w once; its accuracy was not measured")
    assert said[-2].startswith("best throughput: batch=8, precision=")
    assert said[-1] == f"wrote best_config.json: use it with --shapes '{OPEN[1]}' --config best_config.json"
    kept = json.loads((folder / "best_config.json").read_text())
    assert kept["source"] == "model.py:layer" and kept["sizes"] == {"b": 8} and kept["metric"] == "throughput"
    again = reported(capsys, "model.py:layer", *OPEN, "--config", "best_config.json")
    assert 8 / again["microseconds"] * 1e6 == kept["value"] == kept["figures"]["throughput"]
    assert again["energy_joules"] / 8 == kept["figures"]["energy"]
    assert again["memory"]["arena_bytes"] == kept["figures"]["memory"]


def test_int8_on_data_comes_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same accuracy as `quantize` says, and the same program by `--config`, whatever the command."""
    data = ["--data", "model.py:batches", "--quality", "cosine"]
    space = ["--space", "n=2,8", "precision=f32,f16,int8", "--metric", "memory", "-o", "small.json"]
    found = tuned(capsys, "model.py:forward", *data, *space)
    assert found["accuracy_metric"] == "cosine" and found["batch"] == "n" and found["output"] == "small.json"
    best = found["rows"][found["best"]]
    assert best["chosen"] == {"n": "2", "precision": "int8"} and best["front"] and not best["problem"]
    args = ["model.py:forward", "--at", "n=8", "--data", "model.py:batches", "--metric", "cosine", "--json"]
    assert main(["quantize", *args]) == 0
    table = json.loads(capsys.readouterr().out)["table"]
    accuracies = [r["accuracy"] for r in found["rows"]]
    assert accuracies[2] == accuracies[5] == table["after"] and accuracies[0] > accuracies[1] > accuracies[2]
    again = reported(capsys, "model.py:forward", "--config", "small.json")
    assert again["microseconds"] == best["latency"] and again["memory"]["arena_bytes"] == best["memory"]
    use = ["--at", "n=8", "--quant-config", "quant.toml", "--weights", "params"]
    other = reported(capsys, "model.py:forward", *use)
    assert other["kernels"] and other["memory"]["arena_bytes"] >= best["memory"]
    for command in (["verify"], ["run", "--check"], ["compile", "-o", "out.mlir"], ["trace", "-o", "t.json"]):
        assert main([command[0], "model.py:forward", "--config", "small.json", *command[1:]]) == 0, command
        capsys.readouterr()
    assert main(["tune", "model.py:forward", "--config", "small.json", "--evaluations", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["before_us"] == best["latency"]
    limited = ["--space", "n=2", "precision=f16,int8", "--max-drop", "1e-9", "-o", "none.json"]
    assert main(["autotune", "model.py:forward", *data, *limited]) == 1
    said = capsys.readouterr()
    assert "error: no configuration keeps the limits: cosine drops by" in said.err and "more than 1e-09" in said.out
    assert not (folder / "none.json").exists()


def test_values_of_weights_stay_with_open_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the inputs of a function have, whichever way the sizes are said."""
    assert main(["autotune", "model.py:forward", "--space", "n=3", "-o", "three.json"]) == 0
    capsys.readouterr()
    outputs: list[Any] = []
    for said in (["--at", "n=3"], ["--config", "three.json"]):
        assert main(["run", "model.py:forward", *said, "--json"]) == 0
        outputs.append(json.loads(capsys.readouterr().out)["outputs"])
    assert outputs[0] == outputs[1] and outputs[0][0]["shape"] == [3, 32] and abs(outputs[0][0]["max"]) < 8


def test_options_and_targets_come_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = ["--space", "target=ascend-310", "without=fusion+join", "strips=off", "memory_limit=1G", "weights=w"]
    fixed = ["--precision", "mixed_float16", "--schedule", "base_m=16", "--donate", "0"]
    found = tuned(capsys, "model.py:layer", *CLOSED, *space, *fixed)
    (row,) = found["rows"]
    again = reported(capsys, "model.py:layer", *CLOSED, "--config", "best_config.json")
    assert again["target"] == "ascend-310" and again["microseconds"] == row["latency"]
    assert again["memory"]["limit_bytes"] == 1 << 30
    said = {"--without": "fusion,join", "--strips": "off", "--memory-limit": "1G", "--weights": "w"}
    switches = [word for pair in said.items() for word in pair]
    direct = reported(capsys, "model.py:layer", *CLOSED, *switches, *fixed, "--target", "ascend-310")
    assert direct == again


CONFLICTS = [
    (["--at", "b=4"], "--at: --config c.json says that, too: leave one of them out"),
    (["--target", "ascend-310"], "--target: --config c.json says that, too"),
    (["--set", "memory.hbm_tb_per_s=2"], "--set: --config c.json says that, too"),
    (["--precision", "origin"], "--precision: --config c.json says that, too"),
    (["--prec", "float16"], "--precision: --config c.json says that, too"),
    (["--without", "pooled"], "--without: --config c.json says that, too"),
    (["--no-join"], "--no-join: --config c.json says that, too"),
    (["--sweep", "b=1,2"], "--config c.json is for the sizes b=2 alone, and --sweep b=1,2 is for open ones"),
    (["--pool"], "--config c.json is for the sizes b=2 alone, and --pool is for open ones"),
    (["--config", "c.toml"], "--config c.toml: a .toml file of `tilewright quantize` is for --quant-config"),
    (["--config", "none.json"], "none.json: No such file or directory"),
    (["--config", "model.py"], "model.py: no JSON"),
    (["--shapes", "f32[s,32],f32[32,32]"], "--config c.json: layer has no size b: its sizes are s"),
    (CLOSED, "layer has no open sizes, which --config c.json is for"),
]


def test_what_is_beside_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = ["--space", "b=2", "precision=f16", "without=join", "-o", "c.json"]
    assert main(["autotune", "model.py:layer", *OPEN, *space]) == 0
    plain = reported(capsys_read(capsys), "model.py:layer", *OPEN, "--config", "c.json", "--host", "forbid")
    assert plain["target"] == "ascend-910b1"  # what the file does not say may be said
    for beside, said in CONFLICTS:
        assert main(["report", "model.py:layer", *OPEN, "--config", "c.json", *beside]) == 1, beside
        err = capsys.readouterr().err.splitlines()
        assert err[-1].startswith(f"tilewright: error: {said}"), (beside, err)
    for command in ("autotune", "quantize"):
        more = ["--space", "b=1"] if command == "autotune" else []
        assert main([command, "model.py:layer", *OPEN, "--config", "c.json", *more]) == 1
        assert f"{command} chooses a configuration" in capsys.readouterr().err
    assert main(["trace", "model.py:layer", *OPEN, "--config", "c.json", "-o", "c.json"]) == 1
    assert "c.json: the command reads this file" in capsys.readouterr().err


def capsys_read(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    """Without what was said so far."""
    capsys.readouterr()
    return capsys


def test_a_file_of_another_program_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = ["--space", "precision=int8", "-o", "c.json"]
    assert main(["autotune", "model.py:layer", *CLOSED, *space]) == 0
    (folder / "other.py").write_text("def scaled(x, v):\n    return x @ v\n")
    assert main(["report", "other.py:scaled", *CLOSED, "--config", "c.json"]) == 1
    assert "no argument is called 'w'; they are x, v" in capsys.readouterr().err


MISTAKES = [
    ([], "the following arguments are required: --space"),
    (["--space", "batch"], "cannot read --space batch; write NAME=VALUE,VALUE as in batch=1,4,8"),
    (["--space", "b="], "--space b=: b has no values"),
    (["--space", "b=1,,2"], "--space b=1,,2: a value is empty"),
    (["--space", "b=1", "b=2"], "--space says b twice: give all of its values at once"),
    (["--space", "b=1", "--space", "b=2"], "--space says b twice"),
    (["--space", "c=1"], "space: there is no name 'c'; names are b, batch, target, precision"),
    (["--space", "precision=f16"], "layer has open sizes that nothing says: b; give them values in the space"),
    (["--space", "b=1", "--at", "b=2"], "space: b says b, which is given for all configurations"),
    (["--space", "b=1", "precision=f32", "--precision", "float16"], "precision, which is given for all"),
    (["--space", "b=1", "--metric", "speed"], "invalid choice: 'speed'"),
    (["--space", "b=1", "--power-limit", "1"], "power_limit: ascend-910b1 draws 66 W when idle"),
    (["--space", "b=1", "--power-limit", "nan"], "power_limit: 'nan' is no power of more than 0 W"),
    (["--space", "b=1", "--max-drop", "1"], "--max-drop is about accuracy, which is measured on --data"),
    (["--space", "b=1", "--max-drop", "1", "--data", "d.npz"], "--max-drop: the SQNR of the original is infinite"),
    (["--space", "b=1", "--quality", "accuracy"], "--quality accuracy is measured on --data: give some"),
    (["--space", "b=1", "--data", "d.npz"], "d.npz: No such file or directory"),
    (["--space", "b=1", "--set", "memory.hbm_tb_per_s=2"], "--set: a configuration names its chip"),
    (["--space", "b=1", "-o", "model.py"], "model.py: the command reads this file"),
    (["--space", "b=1", "-o", "none/c.json"], "none/c.json: No such file or directory"),
    (["--space", "b=0"], "no configuration can be compiled: layer: b is 0, and must be at least 1"),
]


@sampled(2)
@pytest.mark.parametrize(("given", "said"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str) -> None:
    assert main(["autotune", "model.py:layer", *OPEN, *given]) == 1
    err = capsys.readouterr().err.splitlines()
    assert said in err[-1] and err[-1].startswith("tilewright: error: ")
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == ["model.py"]


def test_a_function_that_fails_names_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["autotune", "model.py:breaks", "--shapes", "f32[4]", "--space", "precision=f16"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "no configuration can be compiled: TypeError: " in said and "reshape" in said
