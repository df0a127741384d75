"""Names of files that lead in a circle, are no UTF-8 or would be obeyed by a terminal, wherever a command takes one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.cli.main import main
from tilewright.support import files

PROGRAM = "fn f(x: f32[8]) -> f32[8] {\n    return relu(x)\n}\n"
PYTHON = "import numpy as np\n\n\ndef f(x):\n    return x + 1\n\n\ndef f_inputs():\n    return [np.ones(8, 'f4')]\n"
CIRCLE = "Too many levels of symbolic links"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a program of each kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ok.tw").write_text(PROGRAM)
    (tmp_path / "ok.py").write_text(PYTHON)
    (tmp_path / "ok.csv").write_text("id,lower,upper,size\na,0,2,100\n")
    return tmp_path


NAMED = {
    "a .tw program": ("report {}", ".tw"),
    "an .mlir program": ("report {}", ".mlir"),
    "a model": ("report {}", ".onnx"),
    "a Python file": ("report {}:f", ".py"),
    "another function": ("run ok.py:f --against {}:f", ".py"),
    "inputs": ("run ok.py:f --inputs {}", ".npz"),
    "a chip": ("report ok.tw --target {}", ".toml"),
    "a chip with another figure": ("report ok.tw --target {} --set clock_mhz=1000", ".toml"),
    "one of several chips": ("report ok.tw --target {},ascend-310", ".toml"),
    "data": ("quantize ok.py:f --data {} -o o.toml", ".npz"),
    "buffers": ("pack {}", ".csv"),
    "what is formatted": ("fmt {}", ".tw"),
    "what is debugged": ("debug {}", ".tw"),
    "records": ("calibrate {}", ".json"),
    "a page": ("explain ok.tw -o {}", ".html"),
    "a module": ("compile ok.tw -o {}", ".mlir"),
    "a trace": ("trace ok.tw -o {}", ".json"),
    "a plan": ("pack ok.csv -o {}", ".csv"),
    "a configuration": ("quantize ok.py:f --data d.npz -o {}", ".toml"),
    "a reproducer": ("verify ok.tw --bisect -o {}", ".mlir"),
}


@pytest.mark.parametrize("inside", [False, True], ids=["the file", "its folder"])
@pytest.mark.parametrize(("command", "ending"), NAMED.values(), ids=NAMED)
def test_links_in_a_circle(
    command: str, ending: str, inside: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"a/x{ending}" if inside else f"a{ending}"
    os.symlink("b" if inside else f"b{ending}", "a" if inside else name)
    os.symlink("a" if inside else name, "b" if inside else f"b{ending}")
    assert main([word.replace("{}", name) for word in command.split()]) == 1
    said = capsys.readouterr().err
    assert said == f"tilewright: error: {name}: {CIRCLE}\n"


def test_links_in_a_circle_from_python(folder: Path) -> None:
    os.symlink("a.html", "b.html")
    os.symlink("b.html", "a.html")
    with pytest.raises(OSError, match=CIRCLE):
        files.write_whole("a.html", "page")
    os.symlink("a.toml", "a.toml")
    with pytest.raises(tw.MachineError, match=f"a.toml: {CIRCLE}"):
        tw.Machine.load("a.toml")
    (folder / "own.toml").write_text('extends = "a.toml"\n')
    with pytest.raises(tw.MachineError, match=f"own.toml: key 'extends': .*a.toml: {CIRCLE}"):
        tw.Machine.load("own.toml")


def test_a_link_to_a_file_stays_one(folder: Path) -> None:
    """Also to one that is not there yet."""
    os.symlink("new.html", "link.html")
    files.write_whole("link.html", "page")
    assert os.readlink("link.html") == "new.html" and Path("new.html").read_text() == "page"


ODD = {
    "no UTF-8": b"bad\xff",
    "an escape sequence": b"esc\x1b[31m",
    "markup": b"[red]x",
    "accents": "\u00e9".encode(),
}


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_odd_names(name: bytes, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They can be used, and reach the terminal as text. A program is refused whose name cannot be shown."""
    page, cache, program = os.fsdecode(name + b".html"), os.fsdecode(name), os.fsdecode(name + b".tw")
    for command in (
        ["explain", "ok.tw", "-o", page],
        ["run", "ok.tw", "--cache", cache, "--check"],
        ["cache", cache],
        ["cache", cache, "--clear"],
    ):
        assert main(command) == 0
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err
    assert Path(page).read_text(encoding="utf-8")
    Path(program).write_text(PROGRAM)
    assert main(["report", program]) == (0 if program.isprintable() else 1)
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err and said.err.count("\n") <= 1
    assert main(["report", os.fsdecode(name + b"2.toml"), "--target", os.fsdecode(name + b"2.toml")]) == 1
    said = capsys.readouterr()
    assert "\x1b" not in said.err and "no such file" in said.err.lower()


def test_what_xla_says_of_too_little_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise ValueError("RESOURCE_EXHAUSTED: Out of memory allocating 4000000000 bytes.")

    monkeypatch.setattr("tilewright.cli.inputs.parse_shapes", full)
    assert main(["run", "ok.py:f", "--shapes", "f32[3]"]) == 1
    assert capsys.readouterr().err == (
        "tilewright: error: not enough memory: Out of memory allocating 4000000000 bytes.\n"
    )


def test_a_chip_that_there_is_not_with_another_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "ok.tw", "--target", "ascend-911", "--set", "clock_mhz=1000"]) == 1
    assert capsys.readouterr().err.startswith("tilewright: error: unknown target 'ascend-911': known are")
