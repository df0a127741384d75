"""`tilewright compile SOURCE --emit onnx`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tilewright.cli.main import main

SHAPES = ["--shapes", "f32[3,64]"]
MODEL = """
import jax.numpy as jnp
import numpy as np

def layer(x):
    return jnp.tanh(x @ jnp.asarray(np.arange(64 * 32).reshape(64, 32) / 999, "float32"))

def spectrum(x):
    return jnp.abs(jnp.fft.fft(x)) + jnp.abs(jnp.fft.fft(x * 2))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def emitted(*words: str) -> int:
    return main(["compile", *words, "--emit", "onnx"])


def evaluated(path: str) -> np.ndarray:
    onnx.checker.check_model(path, full_check=True)
    x = np.linspace(-1, 1, 3 * 64, dtype="f4").reshape(3, 64)
    evaluator = ReferenceEvaluator(path)
    (got,) = evaluator.run(None, {evaluator.input_names[0]: x})
    np.testing.assert_allclose(got, np.tanh(x @ (np.arange(64 * 32).reshape(64, 32) / 999)), rtol=1e-4, atol=1e-5)
    return got


def test_every_kind_of_source(capsys: pytest.CaptureFixture[str]) -> None:
    """A function, an .mlir file, a model file and an .onnx file, one made of the other."""
    assert emitted("model.py:layer", *SHAPES, "-o", "a.onnx") == 0
    assert main(["compile", "model.py:layer", *SHAPES, "--emit", "graph", "-o", "b.mlir"]) == 0
    assert emitted("b.mlir", "-o", "b.onnx") == 0
    assert main(["compile", "a.onnx", "-o", "c.twm"]) == 0
    assert emitted("c.twm:main", "-o", "c.onnx") == 0
    assert emitted("c.onnx", "-o", "d.onnx", "--opset", "21") == 0
    assert capsys.readouterr().out == ""
    for name in "abcd":
        evaluated(f"{name}.onnx")
    assert onnx.load("d.onnx").opset_import[0].version == 21


def test_weights_in_a_file_beside(capsys: pytest.CaptureFixture[str]) -> None:
    assert emitted("model.py:layer", *SHAPES, "-o", "a.onnx", "--external-data", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "source": "model.py:layer",
        "target": "ascend-910b1",
        "level": "onnx",
        "output": "a.onnx",
        "data": "a.onnx.data",
    }
    assert Path("a.onnx.data").stat().st_size == 64 * 32 * 4
    evaluated("a.onnx")
    assert emitted("a.onnx", "-o", "a.onnx") == 1
    assert "the command reads this file" in capsys.readouterr().err


def test_what_onnx_does_not_have_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.onnx").write_text("as it was")
    assert emitted("model.py:spectrum", *SHAPES, "-o", "a.onnx") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    fft = r"2 x 'stablehlo.fft' \(graph.host\) has elements of c64, which ONNX does not compute with \(first at .*"
    assert re.search(rf"{fft}model.py:9\)", said)
    assert Path("a.onnx").read_text() == "as it was"
    assert sorted(p.name for p in Path().iterdir() if p.suffix != ".py" and p.name != "__pycache__") == ["a.onnx"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--emit", "onnx"], "--emit onnx writes a file: name it, as in -o model.onnx"),
        (["--emit", "onnx", "-o", "-"], "--emit onnx writes a file: name it, as in -o model.onnx"),
        (["--emit", "onnx", "-o", "a.twm"], "--emit onnx writes a file: name it, as in -o model.onnx"),
        (["--emit", "onnx", "-o", "a.onnx", "--opset", "3"], "ONNX is written in opsets from 21 to 28, not 3"),
        (["--emit", "onnx", "-o", "no/a.onnx"], "no/a.onnx: No such file or directory"),
        (["--opset", "27"], "--opset is for ONNX models: give --emit onnx"),
        (["--external-data"], "--external-data is for ONNX models: give --emit onnx"),
    ],
)
def test_mistakes(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "model.py:layer", *SHAPES, *words]) == 1
    assert said in capsys.readouterr().err


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert emitted("model.py:layer", *SHAPES, "-o", "a.onnx") == 1
    assert "ONNX models need the package onnx: pip install 'tilewright[onnx]'" in capsys.readouterr().err
