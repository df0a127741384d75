"""`--donate`: which arguments the program may overwrite, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiering import sampled

from tilewright.cli.main import main

MODEL = """
import jax, jax.numpy as jnp

def step(p, m, g):
    m = 0.9 * m + g
    return p - 0.1 * m, m

def step_inputs():
    return tuple(jnp.full((37, 53), float(i + 1), jnp.float32) for i in range(3))

jitted = jax.jit(step, donate_argnums=(0, 1))
jitted_inputs = step_inputs
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "sgd.tw").write_text("fn sgd(p: f32[N], g: f32[N]) -> f32[N] {\n    return p - g * 0.1\n}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def donated(capsys: pytest.CaptureFixture[str], *args: str) -> int:
    """Bytes of the arguments that a program may use, as its report has them."""
    assert main(["report", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["memory"]["donated_bytes"]


def test_names_and_positions_give_memory(capsys: pytest.CaptureFixture[str]) -> None:
    none = donated(capsys, "model.py:step")
    both = donated(capsys, "model.py:step", "--donate", "p,m")
    assert none == 0
    assert both == donated(capsys, "model.py:step", "--donate", "0, 1") == donated(capsys, "model.py:jitted")
    assert (
        both
        == donated(capsys, "model.py:step", "--donate=-2,p")
        > donated(capsys, "model.py:step", "--donate", "p")
    )
    assert donated(capsys, "sgd.tw", "--shapes", "N=1000", "--donate", "p") >= 4000


@sampled(2)
@pytest.mark.parametrize(
    "command", ["run --check", "verify", "compile --emit npu", "reduce --check cost>0 --tests 3"]
)
@pytest.mark.parametrize("source", ["model.py:step --donate p,m", "model.py:jitted"])
def test_every_command_takes_it(command: str, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the example inputs are arrays of JAX, which a call deletes."""
    name, *options = command.split()
    assert main([name, *source.split(), *options]) == 0
    out = capsys.readouterr().out
    if name == "compile":
        assert out.count("{graph.donated}") == 2


def test_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "model.py:step", "--donate", "q"]) == 1
    assert "step has no argument 'q' to donate; it has p, m, g" in capsys.readouterr().err
    assert main(["verify", "sgd.tw", "--shapes", "N=8", "--donate", "2"]) == 1
    assert "sgd has no argument 2 to donate; it has 2" in capsys.readouterr().err


def test_what_is_of_no_use_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match=r"Some donated buffers of sgd were not usable: g"):
        assert main(["run", "sgd.tw", "--shapes", "N=8", "--donate", "p,g"]) == 0


def test_pins_reach_the_passes_of_stages_and_of_reduce(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "stages.py").write_text("from tilewright.passes.pipeline import PIPELINE as STAGES\n")
    refused = "split_m=500 leaves cores without work"
    (folder / "mm.py").write_text("def f(x):\n    return x @ x\n")
    pins = ["mm.py:f", "--shapes", "f32[64,64]", "--schedule", "split_m=500"]
    assert main(["verify", *pins, "--stages", "stages.py:STAGES"]) == 1
    assert refused in "".join(capsys.readouterr())
    assert main(["reduce", *pins, "--check", "crash", "--tests", "2"]) == 0
