"""Checks that have nothing to judge, and the options that a measured program is made with."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.inputs import random_inputs
from tilewright.cli.main import main

GLU = """
fn glu(x: f16[N, D], w: f16[D, F], v: f16[D, F], o: f16[F, D]) -> f16[N, D] {
    h = (x @ w) * (x @ v)
    return (h * h) @ o
}
"""

MODEL = """
import jax
import numpy as np

def forward(params, x):
    return jax.nn.relu(x @ params["a"]) @ params["b"]

def forward_inputs():
    r = np.random.default_rng(0)
    params = {n: r.normal(size=(64, 64)).astype("f4") / 8 for n in "ab"}
    return params, r.normal(size=(16, 64)).astype("f4")
"""


@pytest.fixture
def glu(tmp_path: Path) -> str:
    path = tmp_path / "glu.tw"
    path.write_text(GLU)
    return str(path)


SIZES = ["--shapes", "N=16,D=256,F=512"]


def test_inputs_do_not_overflow_by_themselves(glu: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", glu, *SIZES, "--check", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["outputs"]
    assert (found["inf"], found["nan"]) == (0, 0)


def test_a_check_of_results_that_are_not_finite_judges_nothing(
    glu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", glu, *SIZES, "--check", "--scale", "100"]) == 3
    out, err = capsys.readouterr()
    assert "nothing was judged" in out
    assert re.search(r"4096 numbers of the results are infinite or NaN: give smaller inputs", err)
    assert main(["run", glu, *SIZES, "--scale", "100"]) == 0


@pytest.mark.parametrize("scale", ["0", "-1", "inf", "nan", "x"])
def test_a_scale_is_a_finite_number_above_zero(
    glu: str, scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", glu, *SIZES, f"--scale={scale}"]) == 1
    assert "--scale" in capsys.readouterr().err


def test_random_matrices_are_divided_by_the_root_of_their_rows() -> None:
    x, w, b = random_inputs([((64, 256), "f32"), ((256, 64), "f32"), ((256,), "f32")], 2.0)
    for array, size in ((x, 2), (w, 2 / 16), (b, 2)):
        assert 0.8 * size < np.std(array) < 1.2 * size


def test_quantize_prints_the_options_of_the_time_that_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(MODEL)
    assert main(["quantize", "m.py:forward", "-o", "q.toml"]) == 0
    said = capsys.readouterr().out
    options = said.partition("use it with ")[2].strip()
    assert options == "--quant-config q.toml --weights params"
    assert main(["report", "m.py:forward", *shlex.split(options)]) == 0
    again = capsys.readouterr().out
    promised = re.search(r"[\d.]+ us on ", said)
    assert promised is not None and promised[0] in again


@pytest.mark.parametrize("options", [["--quant-config", "w8a16"], ["--precision", "mixed_float16"]])
def test_report_says_how_weights_are_converted_once(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(MODEL)
    hint = "each call converts the weights: --weights params packs them once"
    assert main(["report", "m.py:forward", *options]) == 0
    assert hint in capsys.readouterr().out
    assert main(["report", "m.py:forward", *options, "--weights", "params"]) == 0
    assert hint not in capsys.readouterr().out
