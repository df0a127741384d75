"""What a new user does wrong: every mistake is one message that says what and where, with exit code 1; and nothing
that exists is damaged."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import tilewright as tw
from tilewright.cli.common import short_warnings
from tilewright.cli.main import main
from tilewright.support.files import write_whole

MLP = """# a perceptron
param w: f32[16, 32] = "w.npz"["w0"]
param v: f32[32, 10] = "w.safetensors"["head"]

pub fn mlp(x: f32[N, 16]) -> f32[N, 10] {
    return softmax(relu(x @ w) @ v)
}
"""
MODEL = """
import jax

def mlp(x, w):
    return jax.nn.relu(x @ w)
"""
NOISE = bytes(range(256)) * 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stranger")
    rng = np.random.default_rng(0)
    np.savez(path / "w.npz", w0=rng.standard_normal((16, 32)).astype(np.float32))
    save_file({"head": rng.standard_normal((32, 10)).astype(np.float32)}, path / "w.safetensors")
    (path / "mlp.tw").write_text(MLP)
    (path / "model.py").write_text(MODEL)
    (path / "weights.tw").write_text(MLP.replace("w.npz", "ww.npz").replace('"head"', '"Head"'))
    for suffix in ("tw", "py", "mlir", "mlirbc", "npz", "safetensors", "toml", "json"):
        (path / f"noise.{suffix}").write_bytes(NOISE)
        (path / f"empty.{suffix}").write_bytes(b"")
        (path / f"folder.{suffix}").mkdir()
    (path / "python.mlir").write_text(f"# a model\n{MODEL}")
    (path / "readme.mlir").write_text("# A title\n")
    (path / "json.mlir").write_text('{"a": 1}\n')
    (path / "unclosed.toml").write_text("x = [")
    (path / "long.tw").write_text(f"fn f(x: f32[4]) -> f32[4] {{\n    return x{' + x' * 4000} + y\n}}\n")
    return path


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


N4 = "mlp.tw --shapes N=4"
SHAPES = "write f32[8,128],i32[4]; for the dimensions of a .tw function N=8,M=64"

MISTAKES = {
    "run mlp.tw:": "mlp.tw:: write mlp.tw:fn, or mlp.tw for its only public function",
    "run mlp.tw": "mlp has open sizes: N; say which, as in --at N=8",
    "run mlp.tw --shapes N=x": f"cannot read 'N=x' in --shapes; {SHAPES}",
    "run model.py:mlp --shapes N=3": f"--shapes N=3: only .tw functions have dimensions with names; {SHAPES}",
    "run mlp.tw --shapes N=4,M=-2": f"cannot read 'M=-2' in --shapes; {SHAPES}",
    f"run {N4} --jsn": "unrecognized arguments: --jsn; did you mean --json",
    f"compile {N4} -o ./mlp.tw": "./mlp.tw: the command reads this file; write the output to another one",
    "report model.py:mlp -o model.py": "unrecognized arguments: -o model.py (see tilewright report --help)",
    "trace model.py:mlp --shapes f32[4,16],f32[16,3] -o model.py": "model.py: the command reads this file",
    f"reduce {N4} --check cost>0 -o w.mlir --inputs w.npz": "w.npz: the command reads this file",
    f"report {N4} --schedule contract_0:": "schedule: nothing is pinned of contract_0, as in contract_0:cores=4",
    "run mlp.tw --shapes f32[4,16": "cannot read 'f32[4' in --shapes",
    "run mlp.tw --shapes ,": "--shapes is empty",
    "run mlp.tw --shapes 4x16xf32": "cannot read '4x16xf32' in --shapes; write f32[8,128]",
    "run mlp.tw --shapes f33[4]": "unknown element type 'f33' in --shapes; did you mean f32",
    "run mlp.tw --shapes f32[4,16],f32[3]": "`mlp` takes 1 input, got 2",
    "run model.py:mlp --shapes f32[4]": "model.py:mlp does not take 1 input: missing a required argument: 'w'",
    "run model.py:mpl": "model.py has no function mpl; did you mean mlp?",
    "run weights.tw --shapes N=4": "there is no file ww.npz",
    "run noise.tw": "noise.tw: not a text file in UTF-8",
    "run noise.py:f": "noise.py: not a Python file: ",
    "run noise.mlir": "noise.mlir: neither text nor MLIR bytecode",
    "run noise.mlirbc": "noise.mlirbc: neither text nor MLIR bytecode",
    "run empty.tw": "empty.tw has no function",
    "run empty.py:f": "empty.py has no function f",
    "run empty.mlir": "empty.mlir: there is nothing in it",
    "run readme.mlir": "readme.mlir:1:1: expected a name after '#'",
    "run json.mlir": "json.mlir:1:1: expected an operation, found '{'",
    "run folder.tw": "folder.tw: Is a directory",
    "run folder.py:f": "folder.py: Is a directory",
    "run folder.mlir": "folder.mlir: Is a directory",
    "run none.tw": "none.tw: No such file or directory",
    "run model.py:mlp --inputs noise.npz": "noise.npz: not an .npz file of arrays",
    "run model.py:mlp --inputs empty.npz": "empty.npz: not an .npz file of arrays",
    "run model.py:mlp --inputs folder.npz": "folder.npz: Is a directory",
    f"report {N4} --target ascend-910": "unknown target 'ascend-910': known are ascend-310",
    f"report {N4} --target none.toml": "none.toml: no such file",
    f"report {N4} --target folder.toml": "folder.toml: not a file",
    f"report {N4} --target noise.toml": "noise.toml: not a text file in UTF-8",
    f"report {N4} --target unclosed.toml": "unclosed.toml: not TOML: ",
    f"report {N4} --target empty.toml": "empty.toml: key 'name' is missing",
    f"report {N4} --schedule base_m=x": "schedule: base_m must be a positive integer, not 'x'",
    f"report {N4} --set clock=1000": "--set: key 'clock' is not known; did you mean clock_mhz?",
    f"report {N4} --set clock_mhz=-1": "--set: key 'clock_mhz' must be a positive number",
    f"report {N4} --set clock_mhz=1 --set clock_mhz=2": "--set gives clock_mhz twice",
    "explain-overflow model.py": "model.py: explain-overflow reads an .mlir text of Triton-Ascend's adapter",
    "report ": "SOURCE is empty; write model.py:fn",
    "run python.mlir": "python.mlir is Python: give a function of it, as in model.py:fn",
    f"trace {N4} -o none/trace.json": "none/trace.json: No such file or directory",
    f"trace {N4} -o folder.json": "folder.json: Is a directory",
    f"explain {N4} -o none/x.html": "none/x.html: No such file or directory",
    f"compile {N4} -o ": "the name of the output file is empty",
    f"compile {N4} -o mlp.tw/x": "mlp.tw/x: Not a directory",
    f"compile {N4} --emit tww": "invalid choice: 'tww' (choose from graph, tile, npu, tw); did you mean tw?",
    f"verify {N4} --stages model.py:mlp": "mlp gives the stages without arguments: missing a required argument",
    f"verify {N4} --stages noise.py:x": "noise.py: not a Python file",
    f"reduce {N4} --check cost>0 -o none/x": "none/x: No such file or directory",
    f"reduce {N4} --check slow": "--check must be wrong, crash, hazard or cost>MICROSECONDS, not 'slow'",
    f"vrify {N4}": "did you mean verify?",
    "calibrate noise.json": "noise.json: not JSON",
    "calibrate empty.json": "empty.json: not JSON",
    "calibrate folder.json": "folder.json: Is a directory",
    "calibrate none.json": "none.json: No such file or directory",
    "machines ascend-910b": "unknown target 'ascend-910b': known are",
    "ops addd": "StableHLO has no op addd; did you mean add",
    "completion tcsh": "invalid choice: 'tcsh' (choose from bash, zsh, fish)",
    "fmt model.py": "model.py: not a .tw file",
    "fmt noise.tw": "noise.tw: not a text file in UTF-8",
    "fmt folder.tw": "folder.tw: Is a directory",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_message(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([w for w in command.split(" ") if w] if command[-1] != " " else [*command.split(), ""]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert MISTAKES[command] in said.err
    assert "Traceback" not in said.err and "internal error" not in said.err
    first = said.err.splitlines()[0]
    assert first.startswith(("error: ", "tilewright: error: "))
    assert len(said.err.splitlines()) == 1 or first.startswith("error: ")
    assert said.err.isprintable() or set(said.err) - set("\n") == {c for c in said.err if c.isprintable()}


def test_misspelt_weights(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "weights.tw", "--shapes", "N=4"])
    said = capsys.readouterr().err
    assert "help: did you mean `w.npz`?" in said
    assert "help: did you mean `head`?" in said


def test_pins_below_the_level_where_tiles_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", *N4.split(), "-o", "npu.mlir"]) == 0
    for command in ("report", "verify"):
        assert main([command, "npu.mlir", "--schedule", "base_m=16"]) == 1
        said = capsys.readouterr().err
        assert said == (
            "tilewright: error: schedule: the program is written at the npu level, where tiles are chosen already\n"
        )


def test_a_warning_is_one_line() -> None:
    with short_warnings("tilewright"):
        said = warnings.formatwarning("of two\nlines", UserWarning, "model.py", 3)
    assert said == "tilewright: warning: of two lines\n"


def test_of_a_long_line_the_part_around_the_error_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "long.tw"]) == 1
    assert max(map(len, capsys.readouterr().err.splitlines())) < 500


@pytest.mark.parametrize("change", ["crlf", "bom"])
def test_files_of_other_systems(folder: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / f"{change}.tw"
    path.write_bytes(
        MLP.replace("\n", "\r\n").encode() if change == "crlf" else b"\xef\xbb\xbf" + MLP.encode()
    )
    assert main(["report", path.name, "--shapes", "N=4"]) == 0
    assert main(["fmt", path.name]) == 0
    assert path.read_text() == MLP


def test_names_in_any_script(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "größe.tw").write_text("fn 和(größe: f32[4], é: f32[4]) -> f32[4] {\n    return größe + é\n}\n")
    assert main(["run", "größe.tw", "--check"]) == 0
    assert main(["compile", "größe.tw", "--emit", "tw"]) == 0
    assert "fn größe(" in capsys.readouterr().out
    assert main(["compile", "größe.tw", "--emit", "graph", "-o", "größe.mlir"]) == 0
    assert main(["run", "größe.mlir"]) == 0


# -- output --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["trace", "compile", "explain"])
def test_what_is_no_plain_file_stays_what_it_is(folder: Path, command: str) -> None:
    """A pipe is written to; a link goes on pointing to its file, which keeps its mode."""
    pipe = folder / f"{command}.pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [sys.executable, "-c", f"print(len(open({str(pipe)!r}).read()))"], stdout=-1
    ) as reader:
        assert main([command, *N4.split(), "-o", str(pipe)]) == 0
        assert reader.stdout is not None
        assert int(reader.stdout.read()) > 100
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    kept, link = folder / f"{command}.kept", folder / f"{command}.link"
    kept.write_text("old")
    kept.chmod(0o640)
    link.symlink_to(kept.name)
    assert main([command, *N4.split(), "-o", str(link)]) == 0
    assert link.is_symlink()
    assert kept.stat().st_size > 100
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640


def test_an_error_names_the_file_and_not_its_draft(folder: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(folder / "none" / "x", "")
    assert caught.value.filename == str(folder / "none" / "x")


@pytest.mark.parametrize("closed", [">&-", ">/dev/full"])
def test_output_that_goes_nowhere(closed: str) -> None:
    command = f"{sys.executable} -m tilewright.cli.main machines {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
    assert done.returncode == (0 if closed == ">&-" else 1)


def test_a_reader_that_leaves(folder: Path) -> None:
    """The code of a failed command is 1 also where nobody reads what it says."""
    (folder / "bad.tw").write_text("x = 1\n" * 40)
    command = (
        f"{sys.executable} -m tilewright.cli.main fmt bad.tw 2>&1 >/dev/null | :; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1"]


# -- fmt -----------------------------------------------------------------------------------------------------


def test_fmt_goes_on_after_a_bad_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "wide.tw").write_text("fn f(x:f32[2])->f32[2]{return x}\n")
    (folder / "wrong.tw").write_text("fn f(x:f32[2])->f32[2]{return x +}\n")
    files = ["noise.tw", "wrong.tw", "wide.tw"]
    assert main(["fmt", "--check", "--json", *files]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [f["changed"] for f in said["files"]] == [False, False, True]
    assert said["files"][0]["problem"] == "noise.tw: not a text file in UTF-8"
    (diagnostic,) = said["files"][1]["diagnostics"]
    assert (diagnostic["line"], diagnostic["column"], diagnostic["file"]) == (1, 34, "wrong.tw")
    assert main(["fmt", *files]) == 1
    assert (folder / "wide.tw").read_text() == "fn f(x: f32[2]) -> f32[2] {\n    return x\n}\n"


def test_fmt_of_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for extra in ([], ["--json"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"const  N=3\r\n")))
        assert main(["fmt", "-", *extra]) == 0
        said = capsys.readouterr().out
        assert (json.loads(said)["files"][0]["text"] if extra else said) == "const N = 3\n"


# -- from Python ---------------------------------------------------------------------------------------------

X = np.ones((4, 16), np.float32)
OBJECT = "give an array, a number or a jax.ShapeDtypeStruct"


@pytest.mark.parametrize(
    ("source", "args", "expected"),
    [
        ("mlp.tw", ("hello",), f"argument 0 of mlp is a str: {OBJECT}"),
        ("mlp.tw", ([1, 2],), "argument 0 of mlp must be an array, got a value of type list"),
        ("mlp.tw", (None,), "argument 0 of mlp must be an array, got None"),
        ("mlp.tw", ({"x": X},), "argument 0 of mlp must be an array, got a value of type dict"),
        ("mlp.tw", (np.array(["a"]),), f"argument 0 of mlp is a ndarray of <U1: {OBJECT}"),
        ("mlp.tw", (X, X), "`mlp` takes 1 input, got 2"),
        (lambda x: x, ({"a": [X, object()]},), rf"argument x\['a'\]\[1\] of <lambda> is a object: {OBJECT}"),
        ("model.py:mlp", (X,), "give the function itself; only the command line looks for it in a file"),
        ("folder.tw", (), "folder.tw: Is a directory"),
        ("folder.mlir", (), "folder.mlir: Is a directory"),
        ("none.mlirbc", (), "none.mlirbc: no such file"),
        ("", (), "the program: there is nothing in it"),
        ("# mine\npub fn f(x: f32[2]) -> f32[2] { return x }", (), r"is \.tw text: save it as a file"),
        (None, (), "cannot compile None: give a function"),
    ],
)
def test_wrong_sources_and_arguments(source: object, args: tuple[object, ...], expected: str) -> None:
    with pytest.raises(tw.CompileError, match=expected):
        tw.compile(source, *args)


@pytest.mark.parametrize(
    ("arg", "expected"),
    [
        ("a", "got a value of type str"),
        (jax.ShapeDtypeStruct((4, 16), np.float32), "got a jax.ShapeDtypeStruct, which has no values"),
        (X[:2], r"got f32\[2, 16\]"),
    ],
)
def test_wrong_calls(arg: object, expected: str) -> None:
    program = tw.compile(lambda x: x + 1, X)
    text = tw.compile("mlp.tw", X)
    for call in (program, text, lambda x: tw.verify("mlp.tw", x, program=text)):
        with pytest.raises(tw.CompileError, match=expected):
            call(arg)
    with pytest.raises(tw.CompileError, match="got a value of type dict"):
        text({"x": X})


def test_calls_of_another_structure() -> None:
    program = tw.compile(lambda d, y: d["a"] + y, {"a": X}, X)
    with pytest.raises(tw.CompileError, match="<lambda> takes 2 arguments, called with 1: argument y is missing"):
        program({"a": X})
    with pytest.raises(tw.CompileError, match="argument d of <lambda> lacks 'a' and has 'b', which it was compiled"):
        program({"b": X}, X)


def test_wrong_options() -> None:
    for pins in ({"tile": 3}, {"grid": 8}, {"base_m": (16, 16)}):
        with pytest.raises(tw.CompileError, match=f"schedule: {next(iter(pins))} must be a "):
            tw.Schedule(**pins)
    for options in ({"memory": "fast"}, {"host": "maybe"}, {"schedule": "base_m=3"}, {"schedule": {"k": 3}}):
        with pytest.raises(tw.CompileError, match=f"options: {next(iter(options))} must be "):
            tw.Options(**options)
    with pytest.raises(tw.CompileError, match=r"options must be tw\.Options, not dict"):
        tw.compile(lambda x: x, X, options={"memory": "bytes"})
    for target in (3, ("ascend-310",)):
        with pytest.raises(tw.MachineError, match="a target is the name of a chip or a path"):
            tw.compile(lambda x: x, X, target=target)


def test_a_program_does_not_keep_its_example_arguments() -> None:
    import gc
    import weakref

    class Array(np.ndarray):
        pass

    x = np.ones((4, 4), np.float32).view(Array)
    alive = weakref.ref(x)
    program = tw.compile(lambda v: v + 1, x)
    del x
    gc.collect()
    assert alive() is None
    assert program.levels
