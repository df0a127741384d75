"""The tilewright command: its output, and how it complains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.common import CliError
from tilewright.cli.inputs import known_shapes, parse_shapes, random_inputs
from tilewright.cli.main import main
from tilewright.cli.outputs import write_output

MODEL = """
import jax.numpy as jnp
import numpy as np

def relu(x, w):
    print("hello from the model")
    return {"y": jnp.maximum(x @ w, 0)}

def relu_inputs():
    rng = np.random.default_rng(0)
    return rng.standard_normal((8, 16), np.float32), rng.standard_normal((16, 24), np.float32)

def single(x):
    return x + 1

def single_inputs():
    return np.ones((4, 4), np.float32)

def bare(x):
    return x * 2

def failing(x):
    return x

def failing_inputs():
    return 1 / 0

not_a_function = 3
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return str(path)


@pytest.fixture
def mlir(tmp_path: Path) -> str:
    path = tmp_path / "double.mlir"
    path.write_text(
        "func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {\n"
        "  %y = graph.add %x, %x : tensor<8x16xf32>\n  func.return %y : tensor<8x16xf32>\n}\n"
    )
    return str(path)


def output(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """stdout of a call that succeeds."""
    code = main(list(args))
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


def complaint(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one line that a failing call writes."""
    assert main(list(args)) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tilewright")]
    assert len(lines) == 1
    assert lines[0].startswith("tilewright: error: ")
    return lines[0]


def test_help_does_not_import_jax() -> None:
    script = (
        "import sys\nfrom tilewright.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit(any(m.split('.')[0] in ('jax', 'jaxlib', 'xdsl') for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "COMMAND" in done.stdout


def test_run_checks_both_memory_modes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = output(capsys, "run", f"{model}:relu", "--check")
    assert "['y']   f32[8,24]" in said
    assert "hello" not in said
    assert "both memory modes agree bit for bit" in said


def test_run_json_is_one_object(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(output(capsys, "run", f"{model}:single", "--check", "--json", "--memory", "bytes"))
    assert said["memory"] == "bytes"
    assert said["check"]["ok"]
    assert said["check"]["bitwise"]
    assert said["outputs"] == [
        {
            "name": "out",
            "type": "f32[4,4]",
            "shape": [4, 4],
            "dtype": "f32",
            "min": 2.0,
            "max": 2.0,
            "mean": 2.0,
            "inf": 0,
            "nan": 0,
        }
    ]


def test_a_failed_check_is_exit_code_1(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(self: object, memory: str) -> object:
        return lambda *xs: [np.asarray(x) + 5 for x in xs]

    monkeypatch.setattr("tilewright.api.program.Program.executable", too_much)
    assert main(["run", f"{model}:single", "--check"]) == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_report(model: str, mlir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "us on ascend-310" in output(capsys, "report", f"{model}:relu", "--target", "ascend-310")
    assert json.loads(output(capsys, "report", mlir, "--json"))["kernels"][0]["launches"] == 1


def test_each_kernel_has_its_launch_where_that_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--no-join`, also with passes of one's own: those that verify then runs lack npu-join-launches."""
    monkeypatch.chdir(tmp_path)
    Path("chain.py").write_text("def chain(x):\n    return (x @ x) @ x @ x\n")
    Path("own.py").write_text("from tilewright.passes.pipeline import PIPELINE as stages\n")
    args = ["chain.py:chain", "--shapes", "f32[64,64]"]
    joined, alone = (
        json.loads(output(capsys, "report", *args, "--json", *more))["counts"] for more in ((), ("--no-join",))
    )
    assert (joined["launches"], joined["joined"]) == (1, 2)
    assert (alone["launches"], alone["joined"]) == (3, 0)
    for own in ((), ("--stages", "own.py:stages")):
        for more in ((), ("--no-join",)):
            said = output(capsys, "verify", *args, *own, *more)
            assert ("npu-join-launches" in said) is not bool(more)


def test_strips(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--strips`: how much one takes, or `off`; anything else is one sentence."""
    (tmp_path / "square.py").write_text("import jax.numpy as jnp\n\n\ndef f(x):\n    return jnp.tanh(x @ x.T) @ x\n")
    monkeypatch.chdir(tmp_path)
    args = ["square.py:f", "--shapes", "f32[256,16]"]
    found = [
        json.loads(output(capsys, "report", *args, "--json", *more))["memory"]["arena_bytes"]
        for more in ((), ("--strips", "off"), ("--strips", "64K"))
    ]
    assert found[0] == found[1] > 256 * 256 * 4 > found[2]
    assert main(["report", *args, "--strips", "many"]) == 1
    assert "cannot read --strips many; write 4096, 512K, 64M or 2G" in capsys.readouterr().err


def test_verify_starts_at_the_level_of_the_source(
    mlir: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = ["graph", "tile", "npu typed", "npu bytes"]
    assert list(json.loads(output(capsys, "verify", mlir, "--json"))["levels"]) == levels
    for level, has in (("tile", levels[1:]), ("npu", levels[2:])):
        lower = str(tmp_path / f"{level}.mlir")
        output(capsys, "compile", mlir, "--emit", level, "-o", lower)
        said = json.loads(output(capsys, "verify", lower, "--json"))
        assert list(said["levels"]) == has
        assert said["ok"]


def test_trace_and_compile_write_whole_files(
    mlir: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    output(capsys, "trace", mlir, "-o", str(out / "trace.json"))
    assert json.loads((out / "trace.json").read_text())["traceEvents"]
    output(capsys, "compile", mlir, "-o", str(out / "npu.mlir"))
    assert (out / "npu.mlir").read_text() == output(capsys, "compile", mlir)
    assert sorted(p.name for p in out.iterdir()) == ["npu.mlir", "trace.json"]
    assert "no: No such file or directory" in complaint(
        capsys, "trace", mlir, "-o", str(tmp_path / "x" / "no")
    )


def test_inputs_from_shapes_and_files(
    model: str, mlir: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "f32[3,5]" in output(capsys, "run", f"{model}:bare", "--shapes", "f32[3,5]")
    np.savez(tmp_path / "in.npz", x=np.full((8, 16), 3, np.float32))
    said = json.loads(output(capsys, "run", mlir, "--inputs", str(tmp_path / "in.npz"), "--json"))
    assert said["outputs"][0]["max"] == 6.0
    np.savez(tmp_path / "in.npz", x=np.zeros((8, 15), np.float32))
    said = complaint(capsys, "run", mlir, "--inputs", str(tmp_path / "in.npz"))
    assert "input 0 of double.mlir must be f32[8, 16]" in said
    (tmp_path / "in.npz").write_text("no zip")
    assert "not an .npz file" in complaint(capsys, "run", mlir, "--inputs", str(tmp_path / "in.npz"))


def test_shapes() -> None:
    assert parse_shapes("f32[8,128], i32[4],f16[],bf16") == [
        ((8, 128), "f32"),
        ((4,), "i32"),
        ((), "f16"),
        ((), "bf16"),
    ]
    assert parse_shapes("f32[b,8*s],i32[max(b,2)]") == [(("b", "8 * s"), "f32"), (("max(b, 2)",), "i32")]
    assert known_shapes(parse_shapes("f32[b]")) is None
    no_dims = ("f32[a+]", "f32[_]", "f32[...]", "f32[2,]", "f32[0x8]", "f32[1_0]", "f32[-1]")
    for bad in ("", "f32[", "[3]", "f32[2]]", *no_dims):
        with pytest.raises(CliError):
            parse_shapes(bad)
    with pytest.raises(CliError, match="unknown element type 'f33'"):
        parse_shapes("f33[2]")


def test_random_inputs_are_the_same_every_time() -> None:
    specs = known_shapes(parse_shapes("f32[4],i8[100],i32[100],i1[9],bf16[3],ui4[5],c64[2]"))
    assert specs is not None
    first, second = random_inputs(specs), random_inputs(specs)
    for a, b, (shape, _) in zip(first, second, specs, strict=True):
        assert a.shape == shape
        assert a.tobytes() == b.tobytes()
    assert first[1].min() < 0
    assert first[2].min() >= 0
    assert first[2].max() < 10


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("none.py:f", "none.py: No such file or directory"),
        ("none.mlir", "none.mlir: No such file or directory"),
        ("notes.txt", "notes.txt: neither a Python function (model.py:fn) nor a .tw, .twm, .mlir or .onnx file"),
        ("model.py", "model.py: say which function, as in model.py:relu"),
        ("model.py:rellu", "model.py has no function rellu; did you mean relu?"),
        ("model.py:zzz", "model.py has no function zzz; it has relu, single, bare, failing"),
        ("model.py:not_a_function", "model.py: not_a_function is not a function"),
        ("model.py:bare", "model.py:bare has no example inputs: define bare_inputs() beside it"),
        ("model.py:failing", "model.py:26: ZeroDivisionError: division by zero"),
        ("broken.py:f", "broken.py:2: SyntaxError: "),
        ("raises.py:f", "raises.py:3: ValueError: first line"),
        ("exits.py:f", "exits.py:1: SystemExit: 3"),
        ("text.mlir", "text.mlir:1:"),
    ],
)
def test_wrong_sources(
    model: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    expected: str,
) -> None:
    folder = Path(model).parent
    monkeypatch.chdir(folder)
    (folder / "notes.txt").write_text("")
    (folder / "broken.py").write_text("x = 1\ndef f(:\n")
    (folder / "raises.py").write_text(
        "def g():\n    x = 1\n    raise ValueError('first line\\nsecond')\ng()\n"
    )
    (folder / "exits.py").write_text("raise SystemExit(3)\n")
    (folder / "text.mlir").write_text("some text\n")
    assert expected in complaint(capsys, "run", source)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--target", "ascend-9"], "unknown target 'ascend-9'"),
        (["--shapes", "f32[2]"], "does not take 1 input: missing a required argument: 'w'"),
        (["--shapes", "f32[2],f32[2],f32[2]"], "does not take 3 inputs: too many positional arguments"),
        (["--shapes", "f32[2,3],f32[2,3]"], "model.py:7: TypeError: dot_general"),
        (["--shapes", "f32[2", "--inputs", "x"], "give either --shapes or --inputs"),
        (["--inputs", "none.npz"], "none.npz: No such file or directory"),
        (["--memory", "bits"], "argument --memory: invalid choice: 'bits'"),
        (["--nothing"], "unrecognized arguments: --nothing"),
    ],
)
def test_wrong_arguments(
    model: str, capsys: pytest.CaptureFixture[str], args: list[str], expected: str
) -> None:
    assert expected in complaint(capsys, "run", f"{model}:relu", *args)


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert "invalid choice: 'rum'" in complaint(capsys, "rum")


def test_debug_raises(model: str) -> None:
    with pytest.raises(CliError) as caught:
        main(["run", f"{model}:failing", "--debug"])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(CliError, match=r"x\.txt: No space left on device"):
        write_output(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]
