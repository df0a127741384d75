"""What people give by mistake to `tilewright quantize` and to `--quant-config`: one sentence each, exit code 1, and no
file is left behind, whole or in part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiering import sampled

import tilewright as tw
from tilewright.cli.main import main
from tilewright.passes.errors import CompileError

MODEL = """
import jax, jax.numpy as jnp, numpy as np

def forward(params, x):
    return jax.nn.relu(x @ params['w1'] + params['b']) @ params['w2']

def forward_inputs():
    rng = np.random.default_rng(0)
    array = lambda *s: jnp.asarray(rng.standard_normal(s), jnp.float32)
    return {'w1': array(8, 6), 'b': array(6), 'w2': array(6, 4)}, array(3, 8)

def no_batches(): return []
def a_number(): return 3
def a_text(): return ["abc"]
def breaks(): raise RuntimeError("the disk is gone")
def metric_of_one(y): return 1.0
def metric_nan(y, labels): return float('nan')
def metric_text(y, labels): return 'good'
def metric_breaks(y, labels): return {}['top']
"""
GOOD = np.ones((2, 3, 8), np.float32)
LABELS = np.zeros((2, 3), int)


def changed(value: float) -> np.ndarray:
    made = GOOD.copy()
    made[1, 0, 0] = value
    return made


ARRAYS = {
    "good": {"x": GOOD},
    "labelled": {"x": GOOD, "labels": LABELS},
    "nothing": {},
    "no_batches": {"x": GOOD[:0]},
    "no_rows": {"x": GOOD[:, :0]},
    "nan": {"x": changed(np.nan)},
    "inf": {"x": changed(np.inf)},
    "narrow": {"x": GOOD[..., :7]},
    "whole": {"x": GOOD.astype(np.int32)},
    "rank0": {"x": np.float32(3)},
    "texts": {"x": np.array([["a", "b"]])},
    "objects": {"x": np.array([{"a": 1}], object)},
    "more_labels": {"x": GOOD, "labels": np.zeros((3, 3), int)},
    "wide_labels": {"x": GOOD, "labels": np.zeros((2, 5), int)},
    "large_labels": {"x": GOOD, "labels": LABELS + 4},
    "float_labels": {"x": GOOD, "labels": LABELS + 0.5},
    "empty_labels": {"x": GOOD, "labels": LABELS[:, :0]},
    "other_keys": {"params['w9']/stored": np.zeros((8, 6), np.int8)},
}

DATA = {
    "nothing.npz": "nothing.npz: has no arrays with batches",
    "no_batches.npz": "the data has no batches",
    "no_rows.npz": "batch 0 of the data: argument x of forward must be f32[3, 8], got f32[0, 8]",
    "nan.npz": "error: batch 1 of the data: x has NaN or infinity",
    "inf.npz": "error: batch 1 of the data: x has NaN or infinity",
    "narrow.npz": "must be f32[3, 8], got f32[3, 7]",
    "whole.npz": "must be f32[3, 8], got i32[3, 8]",
    "rank0.npz": "has no arrays with batches",
    "texts.npz": "got an array of",
    "objects.npz": "objects.npz: is no .npz file of arrays of numbers",
    "more_labels.npz": "its arrays have 2, 3 batches",
    "truncated.npz": "truncated.npz: is no .npz file of arrays of numbers",
    "damaged.npz": "damaged.npz: is damaged",
    "empty_file.npz": "empty_file.npz: is no .npz file of arrays of numbers",
    "text.npz": "text.npz: is no .npz file of arrays of numbers",
    "missing.npz": "missing.npz: No such file",
    "": "'': No such file or directory",
    ".": ".: Is a directory",
    "m.py": "m.py: say which function, as in m.py:forward",
    "m.py:nothere": "m.py has no function nothere",
    "m.py:no_batches": "the data has no batches",
    "m.py:a_number": "gives no list of batches, but a value of type int",
    "m.py:a_text": "got a value of type str",
    "m.py:breaks": "m.py:15: RuntimeError: the disk is gone",
}

METRICS = [
    ("good.npz", "accuracy", "the metric needs labels"),
    ("wide_labels.npz", "accuracy", "takes labels of the shape [3] for results of [3, 4], not [5]"),
    ("large_labels.npz", "accuracy", "whole numbers from 0 to 3"),
    ("large_labels.npz", "perplexity", "whole numbers from 0 to 3"),
    ("float_labels.npz", "perplexity", "whole numbers from 0 to 3"),
    ("empty_labels.npz", "perplexity", "the labels of batch 0 are empty"),
    ("good.npz", "taste", "there is no metric 'taste'"),
    ("labelled.npz", "m.py:metric_of_one", "metric_of_one must be a function of results and labels"),
    ("labelled.npz", "m.py:metric_nan", "metric_nan gives nan for batch 0; it must give a number"),
    ("labelled.npz", "m.py:metric_text", "gives 'good' for batch 0"),
    ("labelled.npz", "m.py:metric_breaks", "KeyError: 'top'"),
]

OPTIONS = [
    (["--mode", "w9"], "there is no mode 'w9'"),
    (["--mode", "f8"], "has no f8E4M3FN"),
    (["--mode", "bf16", "--target", "ascend-310"], "the cube of ascend-310 has no bf16"),
    (["--weights", "nothing"], "no argument is called 'nothing'"),
    (["--pin", "vision.*=w8a8"], "no product and no kernel fits the pin 'vision.*'"),
    (["--pin", "params*"], "write PATTERN=MODE"),
    (["--pin", "params*=w9"], "there is no mode 'w9'"),
    (["--recover", "magic"], "there is no recovery 'magic'"),
    (["--search", "f16"], "a search needs at least two different modes"),
    (["--search", "f16,w8a8", "--recover", "gptq"], "--recover is not for a search"),
    (["--search", "f16,w8a8", "--max-drop", "-1000"], "no configuration keeps sqnr within"),
    (["--max-drop", "nan"], "--max-drop nan: give a number"),
    (["--mode", "w8a8", "--max-drop", "3"], "--max-drop: the SQNR of the original is infinite"),
    (["--mode", "w8a8", "--metric", "cosine", "--max-drop", "-1"], "more than -1"),
    (["--mode", "w8a8", "--plot", "front.png"], "--plot draws the front of a search"),
    (["--search", "f16,w8a8", "--plot", "none/front.png"], "none/front.png: No such file"),
    (["-o", "none/quant.toml"], "none"),
    (["-o", "."], "Is a directory"),
    (["-o", "quant.npz"], "a configuration is a .toml file"),
]

FIRST = "[products.\"params['w1']\"]\nmode = 'w8a8'\n"
CONFIGURATIONS = {
    "an unknown product": ("[products.\"params['w9']\"]\nmode = 'f16'", "no product \"params['w9']\""),
    "an unknown pin": ("[pins]\n'vision*' = 'f16'", "fits the pin 'vision*'"),
    "a scale of 0": (FIRST + "input = {scale = 0.0}", "has the scale 0.0"),
    "a negative scale": (FIRST + "input = {scale = -1.0}", "has the scale -1.0"),
    "infinity": (FIRST + "input = {scale = inf}", "has the scale inf"),
    "NaN": (FIRST + "input = {scale = nan}", "has the scale nan"),
    "a scale that f32 does not hold": (FIRST + "input = {scale = 1e-50}", "has the scale 1e-50"),
    "a scale beyond f32": (FIRST + "input = {scale = 1e50}", "has the scale 1e+50"),
    "no scale": ("default = 'w8a8'", "needs the scale of its input"),
    "a text": (FIRST + "input = {scale = 'a'}", "is 'a', which it cannot be"),
    "a zero point beyond i8": (FIRST + "input = {scale = 1.0, zero = 128}", "which i8 does not store"),
    "a missing file of arrays": ("arrays = 'missing.npz'", "missing.npz: no such file"),
    "a truncated file of arrays": ("arrays = 'truncated.npz'", "truncated.npz is no .npz file"),
    "a damaged file of arrays": ("arrays = 'damaged.npz'", "damaged.npz is damaged"),
    "an empty file of arrays": ("arrays = 'empty_file.npz'", "empty_file.npz is no .npz file"),
    "wrong keys": ("arrays = 'other_keys.npz'", "which belongs to no product"),
    "bytes": (b"\xff\xfe\x00", "a configuration is TOML"),
}

STORED = np.zeros((8, 6), np.int8)
BESIDE = {
    "a balance of another shape": ({"balance": np.ones(3)}, "balance of positive numbers of the shape [8]"),
    "a balance of 0": ({"balance": np.zeros(8)}, "balance of positive numbers"),
    "a balance of texts": ({"balance": np.full(8, "x")}, "the array 'balance' of params['w1'] must be"),
    "a shift of NaN": ({"shift": np.full(6, np.nan)}, "the array 'shift' of params['w1'] must be of finite"),
    "weights without scales": ({"stored": STORED}, "it takes both"),
    "scales without weights": ({"scales": np.ones(6)}, "it takes both"),
    "scales of 0": ({"stored": STORED, "scales": np.zeros(6)}, "scales that are not positive"),
    "fractions": ({"stored": STORED + 0.5, "scales": np.ones(6)}, "must be whole numbers"),
    "weights out of range": ({"stored": STORED.astype(int) - 128, "scales": np.ones(6)}, "takes -127 to 127"),
    "something else": ({"colour": np.ones(6)}, "which belongs to no product"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    for name, arrays in ARRAYS.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)  # pyright: ignore[reportArgumentType]
    good = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "truncated.npz").write_bytes(good[: len(good) // 2])
    (tmp_path / "damaged.npz").write_bytes(good[:150] + bytes([good[150] ^ 255]) + good[151:])
    (tmp_path / "empty_file.npz").write_bytes(b"")
    (tmp_path / "text.npz").write_text("hello")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], folder: Path, *args: str) -> str:
    """What a failing call says, which leaves no file behind."""
    before = {*folder.iterdir()}
    assert main([*args]) == 1
    said = capsys.readouterr().err.strip()
    assert "\n" not in said and "internal error" not in said and "Traceback" not in said
    assert {p for p in {*folder.iterdir()} - before if p.name != "__pycache__"} == set()
    return said


@sampled(6)
@pytest.mark.parametrize("data", DATA)
def test_data(data: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert DATA[data] in refused(capsys, folder, "quantize", "m.py:forward", "--data", data)


@sampled(6)
@pytest.mark.parametrize(("data", "metric", "said"), METRICS)
def test_metrics(data: str, metric: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(
        capsys, folder, "quantize", "m.py:forward", "--data", data, "--metric", metric
    )  # fmt: skip


@sampled(6)
@pytest.mark.parametrize(("options", "said"), OPTIONS)
def test_options(options: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, folder, "quantize", "m.py:forward", *options)


@sampled(6)
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_configurations(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, said = CONFIGURATIONS[kind]
    (folder / "q.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    report = ("report", "m.py:forward", "--quant-config", "q.toml", "--weights", "params")
    assert said in refused(capsys, folder, *report)
    if kind != "no scale":  # which calibration finds
        assert said in refused(capsys, folder, "quantize", "m.py:forward", "--quant-config", "q.toml")


@sampled(6)
@pytest.mark.parametrize("kind", BESIDE)
def test_arrays_of_a_configuration(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays, said = BESIDE[kind]
    np.savez(folder / "q.npz", **{f"params['w1']/{k}": a for k, a in arrays.items()})  # pyright: ignore
    (folder / "q.toml").write_text(f"arrays = 'q.npz'\n{FIRST}input = {{scale = 0.5}}\n")
    report = ("report", "m.py:forward", "--quant-config", "q.toml", "--weights", "params")
    assert said in refused(capsys, folder, *report)


TEXTS = {
    "p.tw": "fn f(x: f32[4, 8], w: f32[8, 6] quant i8(scale={})) -> f32[4, 6] {{\n    return x @ w\n}}\n",
    "stablehlo.mlir": (
        "func.func @main(%a: tensor<2x!quant.uniform<i8:f32, {0}>>) -> tensor<2xf32> {{\n  %0 = "
        "stablehlo.uniform_dequantize %a : (tensor<2x!quant.uniform<i8:f32, {0}>>) -> tensor<2xf32>\n"
        "  return %0 : tensor<2xf32>\n}}\n"
    ),
    "graph.mlir": (
        "func.func @main(%a: tensor<2x!graph.quantized<i8:f32, {0}>>) -> tensor<2xf32> {{\n  %0 = "
        "graph.dequantize %a : (tensor<2x!graph.quantized<i8:f32, {0}>>) -> tensor<2xf32>\n"
        "  func.return %0 : tensor<2xf32>\n}}\n"
    ),
}


@pytest.mark.parametrize("scale", ["0.0", "-1.0", "1.0e400", "1.0e50", "1.0e-60", "inf", "nan"])
@pytest.mark.parametrize("name", TEXTS)
def test_scales_in_texts(name: str, scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(TEXTS[name].format(scale))
    assert main(["report", str(tmp_path / name)]) == 1
    said = capsys.readouterr().err
    assert said.count("error:") == 1 and "internal error" not in said and "Traceback" not in said
    assert "scale" in said or "number" in said or "literal" in said


def test_in_python(folder: Path) -> None:
    """The same mistakes in Python are CompileErrors of one sentence."""
    scope: dict = {}
    exec(MODEL, scope)
    params, x = scope["forward_inputs"]()

    def said(**options) -> str:
        with pytest.raises(CompileError) as error:
            tw.quantize(scope["forward"], params, x, progress=False, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "a list of batches, not a value of type int" in said(data=3)
    assert "takes labels of the shape [3]" in said(data=[x], labels=[np.zeros(5, int)], metric="accuracy")
    assert "there are 1 batches and labels of 2" in said(data=[x], labels=[LABELS[0]] * 2, metric="accuracy")
    assert "must be a function of results and labels" in said(
        metric=scope["metric_of_one"], labels=[LABELS[0]]
    )
    assert "gives nan for batch 0" in said(metric=scope["metric_nan"], labels=[LABELS[0]])
    for bad in (0.0, -1.0, float("inf"), float("nan"), 1e-50, "a"):
        with pytest.raises(CompileError, match="has the scale"):
            tw.QuantConfig(products={"w": tw.ProductChoice("w8a8", bad)})  # pyright: ignore
    with pytest.raises(CompileError, match="a mode of quantization is a name"):
        tw.QuantConfig(8)  # pyright: ignore
    with pytest.raises(CompileError, match=r"q\.npz: a configuration is a \.toml file"):
        tw.QuantConfig("f16").save(folder / "q.npz")


def test_a_configuration_that_cannot_be_written_leaves_the_old_one(folder: Path) -> None:
    """Of the two files neither is half written."""
    weights = tw.ProductChoice("w8a8", 0.5, stored=STORED, scales=np.ones(6, np.float32))
    config = tw.QuantConfig("f16", products={"params['w1']": weights})
    config.save(folder / "q.toml")
    old = (folder / "q.toml").read_text()
    (folder / "q.npz").unlink()
    (folder / "q.npz").mkdir()
    with pytest.raises(OSError, match="directory"):
        config.save(folder / "q.toml")
    assert (folder / "q.toml").read_text() == old
    assert not list(folder.glob(".*"))
