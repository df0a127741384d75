"""The example package, installed beside Tilewright: every command knows what it adds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to put on PYTHONPATH; the copy of the example in it takes what its build leaves behind."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "Output"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    said = subprocess.run(
        [*pip, "--target", folder / "site", folder / "source"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    return folder / "site"


SCRIPT = """
import contextlib, io, json, sys
from tilewright.cli import main, opt
from tilewright.cli.optimizer.driver import drive
from tilewright.cli.dispatch import dispatch
results = []
for tool, *args in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = (drive if tool == "opt" else dispatch)(args)
    results.append([code, said.getvalue()])
print(json.dumps(results))
"""
"""Runs several commands in one process, which loads JAX once."""


def run(installed: Path, *commands: list[str]) -> list[tuple[int, str]]:
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return [(code, said) for code, said in json.loads(made.stdout)]


def test_every_command_knows_it(installed: Path, tmp_path: Path) -> None:
    chip, page = ["--target", "acme-1"], str(tmp_path / "page.html")
    commands = [
        ["tilewright", "machines", "acme-1", "--json"],
        ["tilewright", "run", "model.py:decode", *chip, "--check"],
        ["tilewright", "run", "model.py:decode", "--check"],
        ["tilewright", "compile", "model.py:decode", *chip],
        ["tilewright", "report", "model.py:decode", *chip, "--json"],
        ["tilewright", "verify", "model.py:gate", *chip],
        ["tilewright", "explain", "model.py:decode", *chip, "-o", page],
        ["tilewright", "ops", "acme_prefix_xor", "acme_mish", *chip, "--json"],
        ["tilewright", "report", "gate.chain", *chip, "--json"],
        ["tilewright", "run", "model.py:decode", *chip, "--json"],
        ["tilewright", "run", "model.py:decode", *chip, "--json", "--memory", "step"],
        ["tilewright", "report", "model.py:gate", *chip, "--without", "acme-halves,pooled"],
    ]
    results = run(installed, *commands)
    assert [code for code, _ in results] == [0] * len(commands)
    machine, checked, expanded, npu, report, verified, _, ops, chain, typed, stepped, _ = (said for _, said in results)
    figures = {f["key"]: f["file"] for f in json.loads(machine)["machines"][0]["figures"]}
    assert figures["spaces.px"] == "acme-1" and figures["cores.vector"] == "house-910"
    assert figures["l2_bytes" if "l2_bytes" in figures else "memory.l2_bytes"] == "ascend-910b1"
    assert "both memory modes agree" in checked and "both memory modes agree" in expanded
    assert "acme.vprefix_xor" in npu and ', px>' in npu and 'target = "PX"' in npu
    kernels = [k["name"] for k in json.loads(report)["kernels"]]
    assert "prefix_xor_0" in " ".join(kernels)
    assert npu.count("acme.vprefix_xor") == 1, "a pattern of the plugin makes one of two"
    assert "acme-expand" in verified
    assert "acme.vprefix_xor" in Path(page).read_text(encoding="utf-8")
    support = {op["name"]: op["support"] for op in json.loads(ops)["ops"]}
    assert support["custom_call @acme_prefix_xor"]["i32"]["engines"] == ["PX"]
    assert set(support["custom_call @acme_prefix_xor"]) == {"i32", "ui32"}
    assert support["custom_call @acme_mish"]["f16"]["engines"] == ["vector"]
    assert "mish" in chain
    assert json.loads(stepped)["outputs"] == json.loads(typed)["outputs"]


def test_the_driver_knows_it(installed: Path) -> None:
    lit = EXAMPLE / "lit"
    split = ["--split-input-file", "--verify-diagnostics", "--parsing-diagnostics"]
    expanded, kept, syntax, refused, merged, listed = run(
        installed,
        ["opt", str(lit / "expand.mlir"), "-p", "acme-expand{target=ascend-910b1}"],
        ["opt", str(lit / "expand.mlir"), "-p", "acme-expand{target=acme-1}"],
        ["opt", str(lit / "acme.mlir")],
        ["opt", str(lit / "invalid.mlir"), *split],
        ["opt", str(lit / "merge.mlir"), "-p", "graph-simplify{only=acme-merge-prefix-xors}"],
        ["opt", "--list-alternatives"],
    )
    assert expanded[1].count("graph.xor") == 2 and "acme." not in expanded[1]
    assert "acme.prefix_xor" in kept[1]
    assert "acme-halves" in listed[1]
    assert merged[1].count("acme.prefix_xor") == merged[1].count("graph.xor") == 1
    for op in ("acme.tile_copy_px", "acme.tile_prefix_xor", "acme.copy_px", "acme.vprefix_xor", "graph.mish"):
        assert op in syntax[1]
    assert "'acme.prefix_xor' takes i32 or ui32, not f32" in refused[1]
    assert "'acme.copy_px' copies ub to px, not ub to ub" in refused[1]
