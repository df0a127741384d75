"""`--cache` keeps programs and XLA's executables for later processes; `tilewright cache` lists and removes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.cli.main import main

MODEL = """
import jax

def layer(x, w):
    return jax.nn.relu(x @ w)
"""


def ran(*arguments: str, folder: Path, **environment: str) -> str:
    """What a process of its own prints, which has no cache of JAX's own."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMP", "TILEWRIGHT"))
    }
    command = [sys.executable, "-m", "tilewright", *arguments]
    found = subprocess.run(
        command, cwd=folder, env=kept | environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0 and not found.stderr, found.stderr
    return found.stdout


def test_a_second_process_takes_what_the_first_one_kept(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    call = ["run", "model.py:layer", "--shapes", "f32[b,16],f32[16,8]", "--at", "b=60"]
    first = ran(*call, "--cache", "kept", folder=tmp_path)
    files = {p: p.read_bytes() for p in (tmp_path / "kept").rglob("*") if p.is_file()}
    assert {p.parent.name for p in files} == {"programs", "xla"}
    assert ran(*call, folder=tmp_path, TILEWRIGHT_CACHE="kept") == first
    assert {p: p.read_bytes() for p in (tmp_path / "kept").rglob("*") if p.is_file()} == files
    found = json.loads(ran("cache", "kept", "--json", folder=tmp_path))
    (entry,) = found["entries"]
    assert (entry["program"], entry["sizes"], entry["target"]) == ("layer", "b = 33 to 64", "ascend-910b1")
    assert found["executables"]["files"] > 0 and not found["cleared"]


def test_what_is_kept_is_listed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    call = ["report", "model.py:layer", "--shapes", "f32[32,16],f32[16,8]", "--cache", "kept"]
    assert main(call) == 0 and main(["cache", "kept"]) == 0
    assert "kept: 1 program, " in capsys.readouterr().out
    (tmp_path / "kept" / "mine").touch()
    assert main(["cache", "kept", "--clear"]) == 0
    assert "removed 1 program and 0 executables" in capsys.readouterr().out
    assert [p.name for p in (tmp_path / "kept").rglob("*") if p.is_file()] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cache"], "which directory? give it, or set TILEWRIGHT_CACHE"),
        (["cache", "no"], "no: there is no such directory"),
    ],
)
def test_a_directory_has_to_be_there(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
