"""Input of the roughest kind and Ctrl-C: one sentence and the right exit code, from both tools; no file is lost."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiering import sampled

from tilewright.cli import interrupt, main, opt

ADD = (
    "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32>{ %0 = stablehlo.add %a, %a : tensor<4xf32>\n"
    "return %0 : tensor<4xf32> }\n"
)
GRAPH = "func.func @main(%a: tensor<{0}xf32>) {{\n  %0 = {1} %a : tensor<{0}xf32>\n  func.return\n}}\n"
TOOLS = {"tilewright-opt": opt.main, "tilewright": lambda args: main.main(["report", *args])}
WIDE = f"{2**40}x{2**40}"


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest) -> str:
    return request.param


def complaint(capsys: pytest.CaptureFixture[str], tool: str, *args: str) -> str:
    """The first line that a failing call writes to stderr."""
    assert TOOLS[tool](list(args)) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "internal error" not in said
    return said.splitlines()[0]


ROUGH = {
    "2^63": (GRAPH.format(2**63, "graph.neg"), "dimension 9223372036854775808 does not fit into 64 bits"),
    "2^63 of StableHLO": (GRAPH.format(2**63, "stablehlo.negate"), "invalid dimension"),
    "2^80 elements": (GRAPH.format(WIDE, "graph.neg"), f"no memory holds {2**80} elements"),
    "2^80 of StableHLO": (
        ADD.replace("4xf32", f"{WIDE}xf32"),
        f"no memory holds {2**80} elements",
    ),
    "2^80 of a buffer": (
        f"%b = npu.alloc : () -> !npu.buffer<{WIDE}xf32, ub>\n",
        f"no memory holds {2**80} elements",
    ),
    "digits of a property": (
        f"%b = npu.alloc {{address = {'9' * 5000}}} : () -> !npu.buffer<4xf32, ub>\n",
        "the number has too many digits",
    ),
    "a string without an end": (
        f'module attributes {{a = "{"a" * 200_000}}} {{}}\n',
        "the string that begins here has no closing quote",
    ),
    "a string with an escape that is none": (
        f'module attributes {{a = "{"a" * 60}\\q"}} {{}}\n',
        "the string that begins here has no closing quote on its line, or an escape that there is not",
    ),
    "a file that begins with it": ('"' + "a" * 60, "the string that begins here has no closing quote"),
    "a module of two blocks": ("module {\n^a:\n^b:\n}\n", "a module has one block, not 2"),
    "a use before the value": (
        "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = graph.neg %1 : tensor<4xf32>\n"
        "  %1 = graph.exp %a : tensor<4xf32>\n  func.return %0 : tensor<4xf32>\n}\n",
        "'graph.neg' uses a value of 'graph.exp' before it is computed",
    ),
    "a use around the value": (
        "%c = arith.constant 1 : index\n"
        "%1 = scf.for %i = %c to %c step %c iter_args(%x = %c) -> (index) {\n"
        "  %2 = arith.addi %x, %1 : index\n  scf.yield %2 : index\n}\n",
        "'arith.addi' uses a value of 'scf.for' before it is computed",
    ),
    "3,000 modules": ("module {\n" * 3000 + "}\n" * 3000, "nested too deeply"),
    "3,000 arrays": (f"module attributes {{a = {'[' * 3000}{']' * 3000}}} {{}}\n", "nested too deeply"),
    "100,000 modules of StableHLO": (
        "module {" * 100_000 + ADD + "}" * 100_000,
        "regions are nested more than 4000 deep",
    ),
}


@pytest.mark.parametrize("name", ROUGH)
def test_rough_text(name: str, tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, expected = ROUGH[name]
    path = tmp_path / "rough.mlir"
    path.write_text(text)
    said = complaint(capsys, tool, str(path))
    assert "rough.mlir" in said
    assert expected in said


def test_modules_within_each_other_are_read(tmp_path: Path) -> None:
    path = tmp_path / "deep.mlir"
    path.write_text("module {\n" * 50 + "}\n" * 50)
    assert opt.main([str(path), "-o", "-"]) == 0


def test_a_pipe_or_a_device_is_no_file(tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody would ever write to the pipe, and the device never ends."""
    pipe = tmp_path / "pipe.mlir"
    os.mkfifo(pipe)
    assert f"{pipe}: a pipe, not a file; redirect it to stdin" in complaint(capsys, tool, str(pipe))
    assert "/dev/zero: a device, not a file" in complaint(capsys, tool, "/dev/zero")
    if tool == "tilewright":
        for args in (["--target", str(pipe)], ["--inputs", str(pipe)]):
            assert f"{pipe}: a pipe" in complaint(capsys, tool, str(tmp_path / "x.mlir"), *args)
        os.mkfifo(tmp_path / "pipe.tw")
        assert main.main(["fmt", str(tmp_path / "pipe.tw")]) == 1
        assert "pipe.tw: a pipe" in capsys.readouterr().err


# -- stdin and stdout ----------------------------------------------------------------------------------------


def stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_a_dash_is_stdin_and_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stdin(monkeypatch, ADD)
    assert opt.main(["-", "-o", "-"]) == 0
    assert "graph.add" in capsys.readouterr().out
    stdin(monkeypatch, "%x = graph.nothing : f32\n")
    assert opt.main(["-"]) == 1
    assert capsys.readouterr().err.startswith("stdin:1:6: error: ")
    for command, shown in (
        ("compile", "builtin.module"),
        ("trace", '{"traceEvents"'),
        ("explain", "<!doctype html>"),
    ):
        stdin(monkeypatch, ADD)
        assert main.main([command, "-", "-o", "-"]) == 0
        assert capsys.readouterr().out.lower().startswith(shown.lower())
    stdin(monkeypatch, ADD)
    assert main.main(["run", "-", "--check"]) == 0
    assert capsys.readouterr().out.startswith("stdin for ascend-910b1")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["verify", "x.mlir", "--bisect", "-o", "-"],
            "verify writes more than one file: give the name of one",
        ),
        (["reduce", "x.mlir", "--check", "crash", "-o", "-"], "reduce writes more than one file"),
        (["trace", "x.mlir", "-o", "-", "--json"], "-o - and --json would both write to stdout"),
    ],
)
def test_stdout_takes_one_output(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(args) == 1
    assert said in capsys.readouterr().err


def test_a_shell_s_pipe_is_read(tmp_path: Path) -> None:
    """`tilewright-opt <(command)`."""
    read, write = os.pipe()
    os.write(write, ADD.encode())
    os.close(write)
    try:
        assert opt.main([f"/dev/fd/{read}", "-o", str(tmp_path / "out.mlir")]) == 0
    finally:
        os.close(read)
    assert "graph.add" in (tmp_path / "out.mlir").read_text()


@pytest.mark.parametrize("name", ["in.mlir", "link.mlir", "hard.mlir", "folder/../in.mlir"])
def test_the_input_is_not_overwritten(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.mlir"
    path.write_text(ADD)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.mlir").symlink_to(path)
    os.link(path, tmp_path / "hard.mlir")
    out = str(tmp_path / name)
    for call in (
        opt.main,
        lambda args: main.main(["compile", *args]),
        lambda args: main.main(["trace", *args]),
    ):
        assert call([str(path), "-o", out]) == 1
        said = capsys.readouterr().err
        assert said.endswith(f"error: {out}: the command reads this file; write the output to another one\n")
    command = [sys.executable, "-m", "tilewright.cli.opt", "-", "-o", out]
    with path.open() as stream:
        assert subprocess.run(command, stdin=stream, capture_output=True, check=False).returncode == 1
    assert path.read_text() == ADD


def test_a_reproducer_does_not_overwrite_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "small.before-graph-fuse.mlir"
    source.write_text(ADD)
    assert main.main(["verify", str(source), "--bisect", "-o", str(tmp_path / "small.mlir")]) == 1
    assert f"{source}: the command reads this file" in capsys.readouterr().err


# -- Ctrl-C --------------------------------------------------------------------------------------------------

STARTED = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from tilewright.cli.{0} import main; print(flush=True); sys.exit(main())"
)
"""A tool that says when Python itself has started; SIGINT as a terminal leaves it. JAX allows no fork for that."""


@pytest.mark.parametrize("module", ["opt", "main"])
def test_little_is_imported_before_interrupts_are_handled(module: str) -> None:
    code = f"import sys; before = set(sys.modules); import tilewright.cli.{module}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    ours = {"tilewright", "tilewright.cli", f"tilewright.cli.{module}", "tilewright.cli.interrupt"}
    assert loaded <= ours


@sampled(2)
@pytest.mark.parametrize("module", ["opt", "main"])
def test_interrupted_in_the_first_second(module: str, tmp_path: Path) -> None:
    """At any time, within imports too, of which some in C print what stops them."""
    path = tmp_path / "add.mlir"
    path.write_text(ADD)
    args = (
        [str(path), "-p", "graph-fuse,graph-schedule,graph-to-tile,tile-to-npu"]
        if module == "opt"
        else ["report", str(path)]
    )
    handled = 0
    for i in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", STARTED.format(module), *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05 + 0.12 * i)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
        if process.returncode == -signal.SIGINT:  # in the last moments of Python, with the work done
            assert out
            assert not said
        elif process.returncode:
            assert (process.returncode, said) == (130, b"")
            handled += 1
    assert handled


def test_what_an_interrupted_import_raises_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy turns the interrupt into an ImportError; a library may swallow it."""

    def converted() -> int:
        monkeypatch.setattr(interrupt, "_pressed", True)
        raise ImportError("not loaded")

    assert interrupt.guarded(converted, whole_process=False) == 130
    monkeypatch.setattr(interrupt, "_pressed", False)

    def swallowed() -> int:
        monkeypatch.setattr(interrupt, "_pressed", True)
        return 0

    assert interrupt.guarded(swallowed, whole_process=False) == 130
    monkeypatch.setattr(interrupt, "_pressed", False)
    with pytest.raises(ImportError):
        interrupt.guarded(lambda: int(__import__("no_such_module")), whole_process=False)
