"""Triton kernels through another Python: the protocol, by scripts that stand for it, and what is made of its answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.api import triton_kernels
from tilewright.api.triton_kernels import hivm_of_kernel, parse_triton
from tilewright.cli import main as tilewright

ADAPTED = Path(__file__).with_name("scale.adapter.mlir")
"""What the adapter makes of a kernel `scale(x, o, n, a, B)`: o = a x, in blocks of 64."""

KERNEL = "import triton\n\n@triton.jit\ndef scale(x, o, n, a, B): ...\n"
LAUNCH = "grid=(3,), n=150, a=0.5, B=64"

Interpreter = Callable[[str], str]


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interpreter:
    """Makes a program in place of the other Python, from the body of a script of this one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text(KERNEL)

    def made(body: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return made


def answering(found: object) -> str:
    return f"json.load(sys.stdin); print({json.dumps(json.dumps(found))})"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os.kill(os.getpid(), 11)", "python crashes with signal 11 while it reads k.py"),
        ("sys.exit('no module named encodings')", "fails with exit code 1: no module named encodings"),
        ("time.sleep(60)", "python hangs: it was stopped after 0.5 seconds"),
        ("print('Hello')", "python gives no answer, but 'Hello"),
        ("print('[1, 2]')", "python gives no answer, but"),
        (answering({"text": 3}), "without a text and names of arguments"),
        (answering({"error": "triton-ascend of python is 3.1.0"}), "triton-ascend of python is 3.1.0"),
        ("sys.stdout.buffer.write(bytes([255, 254]))", "cannot be run"),
    ],
)
def test_what_the_other_python_may_do_is_one_sentence(
    interpreter: Interpreter, body: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_kernels, "SECONDS", 0.5 if "sleep" in body else 60.0)
    with pytest.raises(tw.CompileError) as found:
        hivm_of_kernel(Path("k.py"), "scale", LAUNCH, python=interpreter(body))
    assert said in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--triton-python nowhere/python", "nowhere/python cannot be run: No such file"),
        ("", "say which by --triton-python or TILEWRIGHT_TRITON_PYTHON"),
        ("--launch grid=1", "take --launch away"),
        ("--triton-python python --target ascend-310", "not for ascend-310"),
    ],
)
def test_command_without_it(
    interpreter: Interpreter, more: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(triton_kernels.PYTHON, raising=False)
    assert tilewright.main(["report", "k.py:scale", "--triton", LAUNCH, *more.split()]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("launch", "said"),
    [("grid=(3,), 150", "write n=150"), ("x=*f12, n=3", "no type of a pointer"), ("grid=(0,)", "one to three")],
)
def test_launch_is_read(launch: str, said: str, interpreter: Interpreter) -> None:
    with pytest.raises(tw.CompileError, match=said):
        hivm_of_kernel(Path("k.py"), "scale", launch, python=interpreter("pass"))


def test_types_and_numbers_are_told_apart() -> None:
    found = parse_triton("grid=(4, 2), x=*f16, n=10, o = *bf16, a=0.5")
    assert found.pointers == {"x": "*fp16", "o": "*bf16"}
    assert (found.terms.grid, dict(found.terms.numbers)) == ((4, 2), {"n": 10, "a": 0.5})


def test_python_without_the_package_says_so(interpreter: Interpreter) -> None:
    """The real script, in a Python that has no triton-ascend: this one."""
    interpreter("pass")
    with pytest.raises(tw.CompileError, match="has no triton-ascend"):
        hivm_of_kernel(Path("k.py"), "scale", LAUNCH, python=sys.executable)


def test_kernel_runs(interpreter: Interpreter) -> None:
    """From the adapter's text, which is stored, to values: the vendor's compiler gives addresses and flags."""
    pytest.importorskip("ascendnpuir")
    request = "sent = json.load(sys.stdin)\nassert sent['values']['B'] == 64 and sent['types']['a'] == 'fp32'\n"
    answer = {"version": "3.2.0", "text": ADAPTED.read_text(), "arguments": ["x", "o", "n", "a"]}
    python = interpreter(request + f"print({json.dumps(json.dumps(answer))})")
    text = hivm_of_kernel(Path("k.py"), "scale", LAUNCH, python=python)
    assert text.decode().endswith("\n// launch: grid=(3,), 150, 0.5\n")
    x = np.linspace(-1, 1, 192, dtype="f4")
    program = tw.compile(text, options=tw.Options(memory="step"))
    given = [x[: shape[0]] for shape, _ in program.inputs]
    np.testing.assert_array_equal(np.asarray(program(*given))[:150], x[:150] / 2)


def test_adapter_text_that_the_compiler_refuses(interpreter: Interpreter) -> None:
    pytest.importorskip("ascendnpuir")
    python = interpreter(answering({"version": "3.2.0", "text": "module {", "arguments": []}))
    with pytest.raises(tw.CompileError, match=r"bishengir-compile .* addresses and flags"):
        hivm_of_kernel(Path("k.py"), "scale", LAUNCH, python=python)
