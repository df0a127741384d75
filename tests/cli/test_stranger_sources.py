"""Programs that a new user gets wrong, in .tw and in Python: one message each, with the place, exit code 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import tilewright as tw
from tilewright.cli.main import main

F = "fn f(x: f32[4]) -> f32[4] {{\n    return {}\n}}\n"
W = 'param w: {} = "{}"["{}"]\n'
CHAIN = " ".join(
    ["if n == 0 {\n        x = x + 1.0\n    }", *["else if n == 1 {\n        x = x * 2.0\n    }"] * 99]
)

TW = {
    "control character": (F.format("x \a"), "`\\u0007` is not used in .tw"),
    "space that breaks no line": (F.format("x\u00a0+ 1.0"), "`\\u00a0` is not used in .tw"),
    "curly quotes": (
        W.format("f32[4]", "w.npz", "w").replace('"', "\u201c"),
        "strings stand between double quotes",
    ),
    "a caret under tabs": (
        "fn f(x: f32[4]) -> f32[4] {\n\treturn xx\n}\n",
        "    return xx\n  |            ^^ ",
    ),
    "a caret under wide letters": (F.format("x + \u6f22\u5b57"), "^^^^ not defined"),
    "huge whole number": (F.format("x + " + "9" * 5000), "a number beyond 64 bits"),
    "huge number": (F.format("x + 1e999"), "help: infinity is written `inf`"),
    "number beyond f16": (
        "fn f(x: f16[4]) -> f16[4] {\n    return x * 1e6\n}\n",
        "1000000.0 does not fit f16\n --> bad.tw:2:12",
    ),
    "tower of powers": (F.format("x * 9 ** 9 ** 9 ** 9"), "a whole number beyond 64 bits"),
    "division by zero": (F.format("x * (1 % 0)"), "division by zero"),
    "nested lists": (F.format("[" * 200 + "1.0" + "]" * 200), "more than 60 brackets within each other"),
    "long chain of else if": (
        f"fn f(x: f32[4], n: i32[]) -> f32[4] {{\n    {CHAIN}\n    return x\n}}\n",
        "more than 60 `else if` after each other",
    ),
    "calls within calls": (
        "fn g0(x: f32[4]) -> f32[4] {\n    return x\n}\n"
        + "".join(f"fn g{i + 1}(x: f32[4]) -> f32[4] {{\n    return g{i}(x)\n}}\n" for i in range(400))
        + "pub fn f(x: f32[4]) -> f32[4] {\n    return g400(x)\n}\n",
        "nested too deeply",
    ),
    "recursion through another": (
        "fn g(x: f32[4]) -> f32[4] {\n    return f(x)\n}\npub " + F.format("g(x)"),
        "`f` calls itself",
    ),
    "imports itself": ('import "bad.tw" as b\npub ' + F.format("b.f(x)"), "bad.tw -> bad.tw"),
    "imports a folder": ('import "." as b\n' + F.format("x"), '"." is not a .tw file'),
    "a name of the language": (
        "fn sum(x: f32[4]) -> f32[4] {\n    return x\n}\n",
        "is a function of the language",
    ),
    "an element type for a name": (
        "fn f(f32: f32[4]) -> f32[4] {\n    return f32\n}\n",
        "and cannot be a name",
    ),
    "an element type of numpy": ("fn f(x: float32[4]) -> f32[4] {\n    return x\n}\n", "help: write `f32`"),
    "no type": ("fn f(x) -> f32[4] {\n    return x\n}\n", "help: a parameter has a type: `x: f32[N]`"),
    "no arrow": ("fn f(x: f32[4]) f32[4] {\n    return x\n}\n", "stands after an arrow: `-> f32[N]`"),
    "a method": (F.format("x.sum()"), "help: a function is called by its name: `sum(x)`"),
    "an if expression": (
        F.format("x if x > 0.0 else -x"),
        "to choose by element use `select(condition, x, y)`",
    ),
    "a choice between numbers": (
        "fn f(x: f32[4], p: i1[]) -> f32[4] {\n    return x * select(p, 1.0, 0.5)\n}\n",
        "help: give one: `1.0 as f32`",
    ),
    "an unused constant": ("const T: f32[3] = [0.5, 1.0]\n" + F.format("x"), "`T` should be f32[3]"),
    "an unused parameter": (W.format("f32[9]", "w.npz", "w") + F.format("x"), "`w` is stored as f32[16, 32]"),
    "text for weights": (
        W.format("i32[]", "w.npz", "s") + F.format("x"),
        "help: store it as an array of i32",
    ),
    "cut weights": (
        W.format("f32[2]", "cut.safetensors", "head") + F.format("x"),
        "is not a .safetensors file",
    ),
    "a folder of weights": (
        W.format("f32[2]", ".", "w") + F.format("x"),
        ". is neither a .safetensors nor an .npz",
    ),
    "scales that do not fit": (
        W.format("f32[16, 32] quant i8(scale=[0.5, 0.25], axis=1)", "w.npz", "w") + F.format("x"),
        "2 numbers for dimension 1, which has 32",
    ),
    "more elements than there are": (
        F.format("reshape(x, shape=[9223372036854775807, 2])"),
        "cannot reshape f32[4]",
    ),
    "a tensor that fits nowhere": (
        F.format("x + sum(zeros(shape=[100000, 100000, 100000], type=f32))"),
        "too large",
    ),
}
"""Program, and what is said of it."""

RANDOM = "def f_inputs():\n    return np.ones(3, np.float32)\n"
PYTHON = {
    "syntax": ("def f(x:\n    return x\n", "bad.py:1: SyntaxError: '(' was never closed"),
    "indentation": ("def f(x):\nreturn x\n", "bad.py:2: IndentationError: expected an indented block"),
    "coding": ("# -*- coding: nope -*-\n", "bad.py:1: SyntaxError: unknown encoding: nope"),
    "import": ("import torchh\n", "bad.py:1: ModuleNotFoundError: No module named 'torchh'"),
    "import of a name": (
        "from jax import nope\n",
        "bad.py:1: ImportError: cannot import name 'nope' from 'jax'",
    ),
    "exit": ("import sys\nsys.exit(3)\n", "bad.py:2: SystemExit: 3"),
    "endless": ("def g():\n    return g()\ng()\n", "bad.py:2: RecursionError"),
    "text": ("def f(x):\n    return 'a'\n", "bad.py:1: TypeError: function f at"),
    "an object": ("def f(x):\n    return object()\n", "which is not a valid JAX type"),
    "async": (
        "async def f(x):\n    return x\n",
        "f is an async function, which gives no arrays: write it without async",
    ),
    "state that changes its type": (
        "def f(x):\n    return jax.lax.scan(lambda c, t: (c.astype('float16'), t), x[0], x)\n",
        "has type float32[] but the corresponding output carry component has type float16[], so the dtypes do not",
    ),
    "a message of two lines": (
        "def f(x):\n    raise ValueError('not\\ntoday')\n",
        "bad.py:2: ValueError: not today",
    ),
    "a generator": ("def f(x):\n    yield x\n", "bad.py:1: TypeError: Expected a function, got a generator"),
    "a class": ("class f:\n    def __init__(self, x): pass\n", "bad.py: TypeError: function"),
    "a condition": ("def f(x):\n    return x if x[0] > 0 else -x\n", "bad.py:2: TracerBoolConversionError"),
    "numpy": ("def f(x):\n    return np.sin(x)\n", "bad.py:2: TracerArrayConversionError"),
    "a number of it": ("def f(x):\n    return int(x[0])\n", "bad.py:2: ConcretizationTypeError"),
    "a mask": ("def f(x):\n    return x[x > 0]\n", "bad.py:2: NonConcreteBooleanIndexError"),
    "shapes": (
        "def f(x):\n    return x @ jax.numpy.ones((4, 4))\n",
        "bad.py:2: TypeError: dot_general requires",
    ),
    "a derivative": (
        "@jax.custom_vjp\ndef f(x):\n    return x\n",
        "No VJP defined for custom_vjp function f",
    ),
    "an axis": (
        "def f(x):\n    return jax.lax.psum(x, 'i')\n",
        "bad.py:2: NameError: Found an unbound axis name: i",
    ),
    "an effect": (
        "from jax.experimental import io_callback\n"
        "def f(x):\n    return io_callback(lambda v: v, jax.ShapeDtypeStruct((3,), x.dtype), x, ordered=True)\n",
        "bad.py:3) orders effects, as io_callback and ordered debug prints do",
    ),
    "a callback": (
        "def g(x):\n    raise ValueError('inside')\n"
        "def f(x):\n    return jax.pure_callback(g, jax.ShapeDtypeStruct((3,), x.dtype), x)\n",
        "bad.py:2: ValueError: inside",
    ),
    "inputs that are none": (
        "def f(x):\n    return x\nf_inputs = 3\n",
        "must be a function without arguments",
    ),
    "inputs of something": (
        "def f(x):\n    return x\ndef f_inputs(seed): pass\n",
        "required argument: 'seed'",
    ),
    "inputs that fail": (
        "def f(x):\n    return x\ndef f_inputs():\n    return [][7]\n",
        "bad.py:4: IndexError",
    ),
    "text for inputs": (
        "def f(x):\n    return x\ndef f_inputs():\n    return 'abc'\n",
        "argument x of f is a str",
    ),
    "dates for inputs": (
        "def f(x):\n    return x\ndef f_inputs():\n    return np.array(['2020-01-01'], 'datetime64[D]')\n",
        "argument x of f is a ndarray of datetime64",
    ),
}
"""Module, without its imports of jax and numpy in the first line, and what is said of it."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "w.npz", w=np.ones((16, 32), np.float32), s=np.array("text"))
    save_file({"head": np.ones((32, 10), np.float32)}, tmp_path / "w.safetensors")
    whole = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(capsys: pytest.CaptureFixture[str], folder: Path, *args: str) -> str:
    """What a command that fails says; it leaves nothing behind."""
    before = set(folder.iterdir())
    assert main(list(args)) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "internal error" not in said.err
    assert "Traceback" not in said.err
    assert {p for p in folder.iterdir() if p.name != "__pycache__"} == before
    return said.err


@pytest.mark.parametrize("name", TW)
def test_tw(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, expected = TW[name]
    (folder / "bad.tw").write_text(text)
    said = complaint(capsys, folder, "compile", "bad.tw", "-o", "out.mlir")
    assert expected in said
    assert said.startswith("error: ")
    assert "bad.tw:" in said


@pytest.mark.parametrize("name", PYTHON)
def test_python(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, expected = PYTHON[name]
    head = "" if "coding" in text else "import jax, numpy as np; "
    if text.startswith(("def", "async", "class", "@")):
        shift, head = 1, "import jax, numpy as np\n"
        for line in range(9, 0, -1):
            expected = expected.replace(f"bad.py:{line}:", f"bad.py:{line + shift}:")
    inputs = [] if "f_inputs" in text else ["--shapes", "f32[3]"]
    (folder / "bad.py").write_text(head + text)
    said = complaint(capsys, folder, "run", "bad.py:f", *inputs)
    assert expected in said
    assert said.startswith("tilewright: error: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("run n.tw --shapes N=3,N=4", "--shapes says N=3 and N=4"),
        ("run n.tw --shapes N=99999999999", "a dimension is a whole number from 0 up"),
        ("run n.tw --shapes f32[2000000000]", "not enough memory"),
        (
            "report n.py:f --shapes f32[1000000000,1000000000]",
            "the program needs 8000000000000000000 bytes of device memory",
        ),
        ("report n.py:f --shapes float32[4]", "unknown element type 'float32' in --shapes; write f32"),
        ("report n.py:f --shapes F32[4]", "unknown element type 'F32' in --shapes; did you mean f32"),
        ("report n.py:f --shapes f32[4] --schedule cores=2,cores=3", "schedule: cores is given twice"),
        ("report n.py:f --shapes f32[4] --schedule a:ub=1;a:ub=2", "schedule: kernel a is given twice"),
        ("report n.py:f --shapes f32[4] --schedule tile=4x", "tile must be positive integers, as in 8x512"),
        ("run n.mlir --against n.py:g", "n.py:g does not take 1 input: missing a required argument: 'y'"),
        ("run dynamic.mlir", "dynamic.mlir has open sizes: arg0_0; say which, as in --at arg0_0=8"),
        ("run twice.mlir", "twice.mlir: 'builtin.module' Redefinition of symbol"),
        ("ops ADD", "StableHLO has no op ADD; did you mean add"),
    ],
)
def test_commands(
    command: str,
    expected: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "n.tw").write_text("fn f(x: f32[N]) -> f32[N] {\n    return x\n}\n")
    (folder / "n.py").write_text("def f(x):\n    return x + 1\n\ndef g(x, y):\n    return x\n")
    same = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  func.return %x : tensor<4xf32>\n}\n"
    (folder / "n.mlir").write_text(same)
    (folder / "twice.mlir").write_text(same * 2)
    (folder / "dynamic.mlir").write_text(same.replace("4x", "?x"))
    if "memory" in expected and "enough" in expected:

        def full(*_: object) -> None:
            raise MemoryError("Unable to allocate 7.45 GiB")

        monkeypatch.setattr("tilewright.cli.inputs.parse_shapes", full)
    said = complaint(capsys, folder, *command.split())
    assert expected in said
    assert said.count("\n") == 1 or said.startswith("error: ")


def test_a_file_called_jax(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What lies beside a model does not hide the libraries."""
    (folder / "jax.py").write_text("1 / 0\n")
    (folder / "model.py").write_text("import jax\n\n\ndef f(x):\n    return jax.nn.relu(x)\n")
    assert main(["run", "model.py:f", "--shapes", "f32[3]"]) == 0
    assert "f32[3]" in capsys.readouterr().out


def test_errors_of_the_package_have_public_names() -> None:
    for make in (lambda: tw.Schedule(base_m="x"), lambda: tw.Schedule.parse("q=1")):
        with pytest.raises(tw.CompileError, match="schedule: "):
            make()
    assert {"CompileError", "MachineError", "SimulationError"} <= set(tw.__all__)
    assert all(isinstance(getattr(tw, name), object) for name in tw.__all__)
