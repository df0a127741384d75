"""A .tw program against the JAX function that the user names, and what the output says where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw
from tilewright.cli.main import main

RNN = """fn rnn(x: f32[T, B, I], wx: f32[I, H], wh: f32[H, H]) -> f32[B, H] {
    h = zeros(shape=[B, H], type=f32)
    for t in 0..T {
        h = tanh(x[t] @ wx + h @ wh)
    }
    return h
}
"""
TWIN = """
import jax.numpy as jnp

def rnn(x, wx, wh):
    h = jnp.zeros((x.shape[1], wh.shape[0]), jnp.float32)
    for t in range(x.shape[0]):
        h = jnp.tanh(x[t] @ wx + h @ wh)
    return h

def wrong(x, wx, wh):
    return rnn(x, wx, wh) * 1.01

def other(x, wx, wh):
    return rnn(x, wx, wh)[0], x

def fails(x, wx, wh):
    return x @ jnp.ones((17, 17))
"""
SIZES = ["--shapes", "T=3,B=2,I=5,H=4"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rnn.tw").write_text(RNN)
    (tmp_path / "twin.py").write_text(TWIN)
    return tmp_path


@sampled(2)
@pytest.mark.parametrize("command", [["verify"], ["run"]], ids=" ".join)
@pytest.mark.parametrize("twin", ["rnn", "wrong"])
def test_against_a_twin(command: list[str], twin: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*command, "rnn.tw", *SIZES, "--against", f"twin.py:{twin}", "--json"])
    found = json.loads(capsys.readouterr().out)
    found = found.get("check", found)
    assert code == (twin == "wrong")
    assert found["ok"] == (twin == "rnn")
    assert found["reference"] == f"{twin} in JAX"
    assert found["passes"][0]["ok"] == found["ok"]  # the program itself differs, before any pass


def test_bisection_names_the_frontend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "rnn.tw", *SIZES, "--against", "twin.py:wrong", "--bisect"]) == 1
    said = capsys.readouterr().out
    assert "largest error against wrong in JAX" in said
    assert "first bad pass: frontend (wrong value)" in said


def test_without_a_twin_the_output_says_what_it_compares_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "rnn.tw", *SIZES, "--check"]) == 0
    assert "largest error against its own graph level" in capsys.readouterr().out
    assert main(["compile", "rnn.tw", *SIZES, "--emit", "tile", "-o", "tile.mlir"]) == 0
    assert main(["run", "tile.mlir", "--check"]) == 0
    assert "largest error against its own tile level" in capsys.readouterr().out


def test_a_users_process_has_xla_on_all_cores() -> None:
    """XLA then makes one function of a loop over few bytes, in which it would round products otherwise."""
    command = [sys.executable, "-m", "tilewright.cli.main", "run", "rnn.tw", *SIZES, "--check"]
    users = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(command, env=users, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "both memory modes agree" in done.stdout


@pytest.mark.parametrize(
    ("twin", "expected"),
    [
        ("twin.py:other", "other gives f32[4], f32[3, 2, 5]; to compare with, rnn needs f32[2, 4]"),
        ("twin.py:fails", "twin.py:17: TypeError: dot_general requires contracting dimensions"),
        ("twin.py:rn", "twin.py has no function rn; did you mean rnn"),
        ("rnn.tw", "rnn.tw: --against needs a Python function, FILE.py:FN"),
        ("none.py:f", "none.py: No such file or directory"),
    ],
)
def test_twins_that_cannot_be_compared_with(
    twin: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "rnn.tw", *SIZES, "--against", twin]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line


def test_from_python() -> None:
    args = [np.ones(s, np.float32) for s in [(3, 2, 5), (5, 4), (4, 4)]]

    def twin(x: jax.Array, wx: jax.Array, wh: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, v: (jnp.tanh(v @ wx + h @ wh), None), jnp.zeros((2, 4)), x)[0]

    found = tw.verify("rnn.tw", *args, against=twin, quick=True)
    assert found.ok and found.reference == "twin in JAX"
    assert not tw.verify("rnn.tw", *args, against=lambda *a: -twin(*a), quick=True).ok
