"""ONNX models on the command line."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.cli.main import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A layer with an open batch, as a file."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="/fc/MatMul"),
        helper.make_node("Add", ["h", "b"], ["a"], name="/fc/Add"),
        helper.make_node("Relu", ["a"], ["y"], name="/act/Relu"),
    ]
    weights = [
        numpy_helper.from_array(rng.normal(size=(64, 32)).astype("f4"), "w"),
        numpy_helper.from_array(rng.normal(size=(32,)).astype("f4"), "b"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])
    made = helper.make_model(
        helper.make_graph(nodes, "layer", [x], [y], weights),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    path = tmp_path / "layer.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_report_names_nodes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(model), "--at", "batch=8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sources = {source for kernel in found["kernels"] for source in kernel["sources"]}
    assert sources == {f"{model}:{name}" for name in ("/fc/MatMul", "/fc/Add", "/act/Relu")}
    assert {kernel["source"] for kernel in found["kernels"]} <= sources
    assert main(["report", str(model), "--at", "batch=8"]) == 0
    assert "layer.onnx:/fc/MatMul, /fc/Add, /act/Relu" in capsys.readouterr().out


def test_run_and_verify_compare_with_another_implementation(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(model), "--at", "batch=3", "--check"]) == 0
    assert "largest error against onnx" in capsys.readouterr().out
    assert main(["verify", str(model), "--shapes", "f32[5,64]"]) == 0
    said = capsys.readouterr().out
    assert "both memory modes agree, but for the order in which products are added up" in said


@pytest.mark.parametrize(
    "options", [[], ["--weights-as-arguments"], ["--weights-as-arguments", "--weights=weights"]]
)
def test_weights(options: list[str], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "--at", "batch=3", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)["outputs"][0]
    assert found["type"] == "f32[3,32]"
    assert main(["run", str(model), "--at", "batch=3", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["outputs"][0]
    assert np.isclose(found["mean"], plain["mean"], rtol=1e-5)


def test_a_quantized_model_takes_what_was_promised(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the options that `quantize` prints; products are called as their nodes."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=np.random.default_rng(0).normal(size=(2, 8, 64)).astype("f4"))
    assert main(["quantize", str(model), "--at", "batch=8", "--data", "data.npz", "-o", "q.toml"]) == 0
    said = capsys.readouterr().out
    assert '[products."/fc/MatMul"]' in Path("q.toml").read_text()
    options = shlex.split(said.partition("use it with ")[2])
    assert options == ["--quant-config", "q.toml", "--weights", ""]
    assert main(["report", str(model), "--at", "batch=8", *options]) == 0
    figure = re.search(r"^([\d.]+ us) on ascend", capsys.readouterr().out, re.M)
    assert figure is not None and f"\n{figure[1]} on ascend" in said


def test_a_model_as_tw_has_its_weights_as_inputs(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "layer.tw"
    assert main(["compile", str(model), "--at", "batch=2", "--emit", "tw", "-o", str(written)]) == 0
    text = written.read_text()
    assert "weights_w: f32[64, 32]" in text
    assert text.count("\n") < 12
    capsys.readouterr()
    assert main(["report", str(written)]) == 0


def test_quantize(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(1).normal(size=(4, 8, 64)).astype("f4"))
    config = tmp_path / "int8.toml"
    data = str(tmp_path / "data.npz")
    given = [str(model), "--shapes", "f32[8,64]"]
    assert main(["quantize", *given, "--data", data, "--mode", "w8a8", "-o", str(config)]) == 0
    capsys.readouterr()
    assert main(["report", *given, "--quant-config", str(config), "--json"]) == 0
    assert "i8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "none.onnx"], "none.onnx: No such file"),
        (["report", "{model}"], "open sizes: batch"),
        (
            ["report", "{model}", "--shapes", "f32[8,63]"],
            "input x of {model} must be f32[batch,64], got f32[8,63]",
        ),
        (
            ["report", "{model}", "--shapes", "batch=8"],
            "--shapes batch=8: an .onnx model names its open dimensions itself; say --at batch=8",
        ),
        (["report", "model.py:f", "--weights-as-arguments"], "model.py"),
    ],
)
def test_mistakes(
    arguments: list[str],
    said: str,
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(model.parent)
    assert main([a.format(model=model) for a in arguments]) == 1
    error = capsys.readouterr().err
    assert said.format(model=model) in error
    assert error.count("\n") == 1
