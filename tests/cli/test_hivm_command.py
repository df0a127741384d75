"""`tilewright export --hivm`: what it writes, refuses and says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.api.hivm import export_module
from tilewright.backends.hivm import tools
from tilewright.backends.hivm.stub import host_program
from tilewright.cli import main as tilewright

MODEL = """
import jax, jax.numpy as jnp, numpy as np

def exp(x):
    return jnp.exp(x)

def several(x):
    return jnp.sort(x), jnp.exp(x) + 1

def exp_inputs():
    return (np.ones((4, 16), 'f'),)

several_inputs = exp_inputs
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "kernels").mkdir()
    return tmp_path


def command(line: str) -> int:
    return tilewright.main(["export", *line.split()])


def test_kernels_host_and_readme(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("m.py:exp --hivm kernels") == 0
    assert sorted(p.name for p in (folder / "kernels").iterdir()) == ["README.md", "exp_0.hivm.mlir", "host.c"]
    assert "wrote 1 kernel, host.c" in capsys.readouterr().out
    readme = (folder / "kernels" / "README.md").read_text()
    assert "| `exp_0` | AIV | 1 | input0 f32[4,16], output0 f32[4,16] |" in readme
    assert "hacc-append-device-spec{target=Ascend910B1}" in readme


def test_all_kernels_or_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("m.py:several --hivm kernels") == 1
    assert list((folder / "kernels").iterdir()) == []
    assert "'npu.vsort'" in capsys.readouterr().err
    assert command("m.py:several --hivm kernels --partial --json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["refused"]) == ["sort_0"]
    assert {Path(k["file"]).name for k in found["kernels"]} == {
        p.name for p in (folder / "kernels").iterdir() if p.suffix == ".mlir"
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("m.py:exp --hivm nowhere/deeper", "nowhere/deeper: No such file"),
        ("m.py:exp --hivm m.py", "m.py: Not a directory"),
        ("m.py:exp --hivm kernels --target ascend-310", "HIVM is written for ascend-910b1"),
        ("m.py:exp", "--hivm"),
    ],
)
def test_mistakes_are_one_sentence(
    line: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = command(line)
    except SystemExit as exit_:
        code = exit_.code
    assert code != 0
    assert said in capsys.readouterr().err
    assert list((folder / "kernels").iterdir()) == []


def test_source_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The program is in the file that one of its kernels would become."""
    text = "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n  %0 = stablehlo.exponential %a : tensor<8xf32>\n"
    source = folder / "kernels" / "exp_0.hivm.mlir"
    source.write_text(text + "  return %0 : tensor<8xf32>\n}\n")
    before = source.read_text()
    assert command(f"{source} --hivm kernels") == 1
    assert "the command reads this file" in capsys.readouterr().err
    assert source.read_text() == before


def test_check_without_the_extra(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    assert command("m.py:exp --hivm kernels --check") == 1
    assert "tilewright: error: the vendor's compiler is not installed" in capsys.readouterr().err
    assert list((folder / "kernels").iterdir()) == []


def test_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ascendnpuir")
    assert command("m.py:exp --hivm kernels --check --json") == 0
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["ok"] and check["reached"] and not check["changed"]


# -- the host program ----------------------------------------------------------------------------------------------

ACL = Path(__file__).parents[1] / "support" / "acl"


@pytest.mark.parametrize("name", ["vector", "mix", "atomic"])
def test_host_program_runs_on_a_stand_in_of_acl(name: str, tmp_path: Path) -> None:
    """Compiled with the headers of tests/support/acl, whose device says what it is asked to launch."""
    from hivm_texts import npu_module

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (kernel,) = export_module(npu_module(name)).kernels.values()
    source = tmp_path / "host.c"
    source.write_text(host_program([kernel]))
    program = tmp_path / "host"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ACL}"]
    subprocess.run([compiler, *flags, str(source), str(ACL / "acl.c"), "-o", str(program)], check=True)
    files = [a for a in kernel.arguments if a.role != "workspace"]
    paths = [tmp_path / f"{a.name}.bin" for a in files]
    for argument, path in zip(files, paths, strict=True):
        if argument.role in ("input", "updated"):
            width = {"f32": 4, "f16": 2, "i1": 1}[argument.dtype]
            count = argument.shape[0] * (argument.shape[1] if len(argument.shape) > 1 else 1)
            path.write_bytes(os.urandom(count * width))
    call = [str(program), "kernel.o", kernel.name, *map(str, paths)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = f"{kernel.name} on {kernel.blocks} blocks with {len(kernel.arguments) + (kernel.kind == 'MIX')} arguments"
    assert said in done.stdout
    assert paths[-1].stat().st_size > 0
    if files[-1].role == "updated":
        paths[-1].unlink()
        lacking = subprocess.run(call, capture_output=True, text=True, check=False)
        assert lacking.returncode and "output0.bin: needs 240 bytes" in lacking.stderr
    short = subprocess.run(call[:-1], capture_output=True, text=True, check=False)
    assert short.returncode == 2 and f"takes {len(files)} files" in short.stderr
    other = subprocess.run([*call[:2], "nothing", *call[3:]], capture_output=True, text=True, check=False)
    assert other.returncode == 2 and "usage" in other.stderr
