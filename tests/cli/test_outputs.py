"""The files that commands write: checked before any work, never one that is read, and of several all or none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.cli import main as tilewright
from tilewright.cli import opt
from tilewright.cli.outputs import OutputFiles, all_or_none, write_output
from tilewright.support.files import open_plain, together, write_whole

ADD = (
    "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32>{ %0 = stablehlo.add %a, %a : tensor<4xf32>\n"
    "return %0 : tensor<4xf32> }\n"
)
MODEL = """
import jax.numpy as jnp, numpy as np
import beside

def fn(w, x):
    return x @ w * beside.FACTOR

def fn_inputs():
    return np.eye(4, dtype='f'), np.ones((2, 4), 'f')
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "add.mlir").write_text(ADD)
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text("FACTOR = 2.0\n")
    np.savez(tmp_path / "calib.npz", x=np.ones((3, 2, 4), "f"))
    np.savez(tmp_path / "in.npz", x=np.ones((4,), "f"))
    (tmp_path / "q.toml").write_text('default = "w8a8"\n')
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


READ = {
    "quantize m.py:fn --data calib.npz --recover smooth -o calib.toml": "calib.npz: the command reads this file",
    "quantize m.py:fn --data calib.npz --search f16,w8a8 --plot calib.npz": "a plot is a file of .svg, .png, .pdf",
    "quantize m.py:fn --search f16,w8a8 -o q.toml --quant-config q.toml": "q.toml: the command reads this file",
    "verify add.mlir --bisect --inputs in.npz -o in.mlir": "in.npz: the command reads this file",
    "reduce add.mlir --check crash --inputs in.npz -o in.mlir": "in.npz: the command reads this file",
    "reduce add.mlir --check crash -o out.npz": "out.npz: the command would write this file twice",
    "report m.py:fn --shapes f32[4,4],f32[b,4] --sweep b=1,2 --plot x.txt": "--plot x.txt: a plot is a file of",
    "quantize m.py:fn --data calib.npz --search f16,w8a8 --plot x.txt": "--plot x.txt: a plot is a file of",
    "report m.py:fn --shapes f32[4,4],f32[b,4] --sweep b=1,2 --plot none/x.svg": "none/x.svg: No such file",
    "compile add.mlir -o none/x.mlir": "none/x.mlir: No such file or directory",
}


@pytest.mark.parametrize("command", READ)
def test_outputs_are_checked_before_any_work(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*_: object) -> int:
        raise AssertionError("work began")

    before = contents(folder)
    monkeypatch.setattr("tilewright.cli.commands.programs.COMMANDS", {command.split()[0]: work})
    assert tilewright.main(command.split()) == 1
    assert READ[command] in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize("command", ["compile m.py:fn -o beside.py", "trace m.py:fn -o ./beside.py"])
def test_what_is_read_on_the_way_is_not_written(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module that the source imports."""
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    before = contents(folder)
    assert tilewright.main(command.split()) == 1
    assert "beside.py: the command reads this file; write the output to another" in capsys.readouterr().err
    assert contents(folder) == before


def test_a_chip_that_a_pass_reads_is_not_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = folder / "chip.toml"
    chip.write_text('extends = "ascend-910b1"\nname = "mine"\n')
    passes = f'graph-fuse{{target="{chip}"}}'
    assert opt.main(["add.mlir", "-p", passes, "-o", "chip.toml"]) == 1
    assert "chip.toml: the command reads this file" in capsys.readouterr().err
    assert chip.read_text().startswith("extends")


# -- all or none ---------------------------------------------------------------------------------------------


def full_after(count: int, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """So many files fit onto the disk; a draft that does not, or cannot take its place, is an error."""
    done = 0
    real: Callable[..., Any] = getattr(Path, where) if where == "open" else os.replace

    def write(*args: Any, **named: Any) -> Any:
        nonlocal done
        done += Path(args[0]).name.startswith(".tilewright")
        if done == count + 1:
            done += 1
            raise OSError(28, "No space left on device")
        return real(*args, **named)

    monkeypatch.setattr(Path if where == "open" else os, where, write)


def write_all(paths: list[Path]) -> None:
    with together():
        for path in paths:
            write_whole(path, "new")


@pytest.mark.parametrize("where", ["open", "replace"])
@pytest.mark.parametrize("old", [False, True])
def test_of_several_files_all_or_none(
    where: str, old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [tmp_path / n for n in ("a", "b", "c")]
    if old:
        for path in names:
            path.write_text("old")
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        full_after(2, patch, where)
        with pytest.raises(OSError, match="No space left") as caught:
            write_all(names)
    assert caught.value.filename == str(names[2])
    assert contents(tmp_path) == before
    write_all(names)
    assert contents(tmp_path) == dict.fromkeys("abc", b"new")


@pytest.mark.parametrize("files", [1, 2])
def test_a_full_disk_leaves_nothing_of_a_command(
    files: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder)
    full_after(files - 1, monkeypatch, "open")
    command = "quantize m.py:fn --data calib.npz --recover smooth -o made.toml"
    assert tilewright.main(command.split()) == 1
    assert f"made.{'npz' if files == 1 else 'toml'}: No space left on device" in capsys.readouterr().err
    assert contents(folder) == before


def test_only_known_files_are_written(folder: Path) -> None:
    known = OutputFiles(["a.txt", "-"], ["b.*.txt"])
    known.check()
    with known.writing(), all_or_none():
        write_output("./a.txt", "x")
        write_output(Path("b.1.txt"), "y")
        with pytest.raises(AssertionError, match=r"c\.txt is not known to be written"):
            write_output("c.txt", "z")
    assert {"a.txt", "b.1.txt"} <= {*contents(folder)} and not (folder / "c.txt").exists()


def test_a_long_name_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250 + ".txt")
    write_whole(path, "all")
    assert path.read_text() == "all"


# -- pipes and devices ---------------------------------------------------------------------------------------


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a pipe, not a file"):
        open_plain(pipe)
    with pytest.raises(OSError, match="a device, not a file"):
        open_plain("/dev/zero")
    with pytest.raises(IsADirectoryError):
        open_plain(tmp_path)


def test_pipes_that_are_named_inside_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody would ever write to them."""
    for name in ("p.tw", "p.npz", "p.safetensors", "p.md", "p.toml"):
        os.mkfifo(folder / name)
    (folder / "imports.tw").write_text('import "p.tw" as p\n\npub fn f(x: f32[4]) -> f32[4] {\n    return x\n}\n')
    weights = 'param w: f32[4] = "{}"["w"]\n\npub fn f(x: f32[4]) -> f32[4] {{\n    return x + w\n}}\n'
    (folder / "arrays.tw").write_text(weights.format("p.npz"))
    (folder / "tensors.tw").write_text(weights.format("p.safetensors"))
    (folder / "q.toml").write_text('default = "w8a8"\narrays = "p.npz"\n')
    (folder / "chip.toml").write_text('extends = "p.toml"\n')
    (folder / "records.json").write_text("[]")
    for command in (
        "report imports.tw",
        "report arrays.tw",
        "report tensors.tw",
        "report m.py:fn --quant-config q.toml --weights w",
        "report add.mlir --target chip.toml",
        "calibrate records.json --page p.md",
    ):
        assert tilewright.main(command.split()) == 1, command
        said = capsys.readouterr().err
        assert "internal error" not in said
        assert "a pipe" in said or "not a file" in said, (command, said)
