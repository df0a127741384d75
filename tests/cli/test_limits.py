"""Numbers, nesting, names and streams of the oddest kind: one sentence, and nothing that a terminal would obey."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.common import finite
from tilewright.cli.main import main
from tilewright.passes.errors import PassError
from tilewright.support.sentences import visible

MODEL = """
import jax, numpy as np

def f(x):
    return jax.nn.softmax(x @ x)

def f_inputs():
    return (np.ones((8, 8), 'f'),)
"""
DIGITS = "9" * 5000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(list(args)) == 1
    said = capsys.readouterr().err
    assert "internal error" not in said and "Traceback" not in said
    assert said.isprintable() or said.count("\n") == 1
    assert len(said) < 1000
    return said


CHIPS = {
    "cores": (
        "[cores]\ncube = 100000000000\nvector = 200000000000\n",
        "key 'cores.cube' must be at most 65536",
    ),
    "digits": (f"clock_mhz = {DIGITS}\n", "not TOML"),
    "an integer that is no float": (
        f"clock_mhz = {'9' * 400}\n",
        "key 'clock_mhz' must be a positive number",
    ),
    "a tiny number": ("clock_mhz = 1e-320\n", "key 'clock_mhz' must be a positive number"),
    "infinity": ("clock_mhz = inf\n", "key 'clock_mhz' must be a positive number"),
    "nesting": (f"x = {'[' * 5000}{']' * 5000}\n", "not TOML: it is nested too deeply"),
    "an escape sequence": ('name = "a\\u001b[31mred"\n', "key 'name' has characters that cannot be shown"),
}


@pytest.mark.parametrize("name", CHIPS)
def test_chips(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, said = CHIPS[name]
    before, bracket, tables = text.partition("[cores]")
    (folder / "chip.toml").write_text(f'extends = "ascend-910b1"\n{before}{bracket}{tables}')
    assert said in refused(capsys, "report", "m.py:f", "--target", "chip.toml")


COMMANDS = {
    f"report m.py:f --shapes f32[b,b] --sweep b=1..{DIGITS}": "too many digits",
    f"report m.py:f --shapes f32[b,b] --at b={DIGITS}": "too many digits",
    f"report m.py:f --shapes f32[{DIGITS}]": "",
    f"report m.py:f --strips {DIGITS}": "",
    f"reduce m.py:f --check crash --tests {DIGITS}": "",
    f"report m.py:f --memory-limit {DIGITS}": "",
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.replace(DIGITS, "N"))
def test_numbers_of_options(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMANDS[command] in refused(capsys, *command.split())


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, f"[{DIGITS}]"])
def test_nested_files(content: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "records.json").write_text(content)
    assert "records.json: not JSON" in refused(capsys, "calibrate", "records.json")
    (folder / "q.toml").write_text(f"x = {content}")
    assert "q.toml" in refused(capsys, "report", "m.py:f", "--quant-config", "q.toml")


@pytest.mark.parametrize("module", ["main report -", "main fmt -", "main pack -", "opt -"])
def test_a_closed_stdin(module: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m tilewright.cli.{module} <&-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("standard input is closed, and - reads it\n")


def test_a_name_that_is_no_utf8(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    try:
        (folder / name).write_text(MODEL)
    except OSError:
        pytest.fail("the file system takes no such name")
    command = [sys.executable, "-m", "tilewright.cli.main", "run", f"{name}:f"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert b"internal error" not in done.stderr and b"Traceback" not in done.stderr
    assert done.returncode == 1 and b"cannot be shown: rename the file" in done.stderr


def test_jit_that_is_switched_off(folder: Path) -> None:
    command = [sys.executable, "-m", "tilewright.cli.main", "run", "m.py:f", "--memory", "step"]
    env = {**os.environ, "JAX_DISABLE_JIT": "1"}
    assert subprocess.run(command, capture_output=True, check=False, env=env).returncode == 0


def test_text_that_a_terminal_would_obey() -> None:
    assert visible("a\x1b[31mb\x07\udcff\u202e\n\tc") == "a\\x1b[31mb\\x07\\udcff\\u202e\n\tc"


def test_json_has_neither_infinity_nor_nan() -> None:
    value: dict[str, Any] = {
        "a": [1.5, float("inf"), {"b": float("nan")}],
        "c": (-float("inf"), "x", None, 3),
    }
    assert (
        json.dumps(finite(value), allow_nan=False)
        == '{"a": [1.5, null, {"b": null}], "c": [null, "x", null, 3]}'
    )


OPTIONS = [
    {"check": 5},
    {"fuse": "no"},
    {"donate": 2.5},
    {"donate": [None]},
    {"donate": True},
    {"weights": 3},
    {"weights": [3]},
    {"oracle": None},
    {"pool_bytes": -1},
    {"pool_bytes": "many"},
    {"strips": True},
    {"memory": np.ones(3)},
    {"donate": np.ones(3)},
    {"donate": 10**5000},
    {"weights": np.ones(3)},
    {"memory_limit": 10**5000},
    {"memory": 10**5000},
    {"winograd": 2},
    {"winograd": None},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: next(iter(o)))
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(tw.CompileError, match=f"options: {next(iter(options))} must be"):
        tw.Options(**options)


@pytest.mark.parametrize("name", ["program", "stages", "progress", "bisect", "quick"])
@pytest.mark.parametrize("given", [5, "x"])
def test_what_verify_takes(name: str, given: Any) -> None:
    with pytest.raises(tw.CompileError, match=f"tw.verify: {name} must be .*, not {given!r}"):
        tw.verify(lambda x: x + 1, np.ones(4, "f"), **{name: given})


def test_a_pin_is_no_larger_than_memory() -> None:
    with pytest.raises(PassError, match="base_m must be a positive integer, not <int>"):
        tw.Schedule(base_m=10**5000)


def test_against_is_a_function() -> None:
    with pytest.raises(tw.CompileError, match="against must be a JAX function, not 5"):
        tw.verify(lambda x: x + 1, np.ones(4, "f"), against=5)  # pyright: ignore[reportArgumentType]
