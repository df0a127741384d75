"""Programs with open dimensions from the command line: `--at`, `--where`, open `--shapes`, and `--sweep`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from tiering import sampled

from tilewright.cli.commands.sweep import parse_sweep, spaced
from tilewright.cli.common import CliError
from tilewright.cli.inputs import parse_dimensions
from tilewright.cli.main import main

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "schemas" / "cli.json").read_text())
MODEL = """
import jax, jax.numpy as jnp
import tilewright as tw

def layer(x, w):
    return jnp.maximum(x @ w, 0)

def noisy(d):
    return d["a"] + jax.random.uniform(d["key"])

def noisy_inputs():
    (b,) = jax.export.symbolic_shape("b", constraints=["b <= 64"])
    return [{"a": jax.ShapeDtypeStruct((b, 4), "float32"), "key": jax.ShapeDtypeStruct((), jax.random.key(0).dtype)}]

def positive(x):
    return tw.compress(x > 0, x)

def halves(x):
    return x.reshape(-1, 2).sum(1)

def wave(x):
    return jnp.sin(x)

either = tw.variants([("mod(n, 2) == 0", halves), (None, wave)], dims="n")
"""
RESHAPED = """
func.func @main(%x: tensor<?xf32>, %n: tensor<2xi32>) -> tensor<?x?xf32> {
  %0 = stablehlo.dynamic_reshape %x, %n : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
"""
MARKED = """
func.func @main(%x: tensor<8x3xf32>, %n: tensor<i32>) -> tensor<?x3xf32, #stablehlo.bounds<8, ?>> {
  %0 = stablehlo.set_dimension_size %x, %n, dim = 0
    : (tensor<8x3xf32>, tensor<i32>) -> tensor<?x3xf32, #stablehlo.bounds<8, ?>>
  return %0 : tensor<?x3xf32, #stablehlo.bounds<8, ?>>
}
"""
LAYER = "model.py:layer --shapes f32[b,8*s],f32[8*s,4]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "named.tw").write_text("pub fn named(x: f32[T, N]) -> f32[T, N] {\n    return x * 2.0\n}\n")
    scaled = "pub fn scaled(x: f32[T, N]) -> f32[T, N] {\n    return softmax(x) / sqrt(N) + mean(x, axis=0)\n}\n"
    (tmp_path / "scaled.tw").write_text(scaled)
    (tmp_path / "shaped.mlir").write_text(RESHAPED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], command: str) -> str:
    """What a command that works prints."""
    assert main(command.split()) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@sampled(4)
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (f"run {LAYER} --at b=3,s=2 --check", "f32[3,4]"),
        (f"verify {LAYER} --at b=3,s=2", "both memory modes agree"),
        (f"report {LAYER} --where s<=4,mod(b,2)==0 --at b=4,s=2", "contract_0"),
        (f"compile {LAYER} --at b=3,s=2 --emit graph", "tensor<3x16xf32>"),
        (f"compile {LAYER} --at b=3,s=2 --emit tw", "f32[3, 16]"),
        (f"trace {LAYER} --at b=3,s=2", "wrote trace.json"),
        (f"explain {LAYER} --at b=3,s=2", "wrote report.html"),
        (f"quantize {LAYER} --at b=3,s=2", "wrote quant.toml"),
        ("run model.py:noisy --at b=5 --check", "f32[5,4]"),
        ("run model.py:either --shapes f32[n] --at n=6 --check", "f32[3]"),
        ("run named.tw --at T=3,N=4 --check", "f32[3,4]"),
        ("run named.tw --shapes T=?,N=4 --at T=3", "f32[3,4]"),
        ("verify named.tw --shapes T=2..5,N=4 --at T=5", "both memory modes agree"),
        ("report named.tw --shapes T=?,N=4 --at T=50", "named"),
        ("run scaled.tw --shapes T=1..2048,N=4 --at T=50 --check", "f32[50,4]"),
        ("verify scaled.tw --at T=50,N=33", "both memory modes agree"),
        ("explain scaled.tw --at T=50,N=33", "wrote report.html"),
        ("explain scaled.tw --at T=50,N=33 --json", '"extent": 33'),
        ("compile scaled.tw --emit npu", "npu.version @T33to64_N33to64"),
        ("run named.tw --shapes f32[t,8] --at t=2", "f32[2,8]"),
        ("reduce named.tw --at T=3,N=4 --check cost>0 --tests 2", "wrote reduced.mlir"),
        ("run shaped.mlir --at arg0_0=6,arg1_0=2,arg1_1=3 --check", "f32[2,3]"),
        ("verify shaped.mlir --at arg0_0=6,arg1_0=2,arg1_1=3", "both memory modes agree"),
        ("run named.tw --shapes T=0..4,N=3 --at T=0 --check", "both memory modes agree"),
    ],
)
def test_every_command_takes_sizes(command: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown in said(capsys, command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"run {LAYER}", "layer has open sizes: b, s; say which, as in --at b=8,s=8"),
        (f"verify {LAYER}", "layer has open sizes: b, s; say which, as in --at b=8,s=8"),
        (f"run {LAYER} --at b=3", "layer: give the sizes s (it has b, s)"),
        (f"run {LAYER} --at b=3,s=2,t=1", "layer has no size 't': its sizes are b, s"),
        (f"run {LAYER} --at b=x", "cannot read 'b=x' in --at; write b=4,s=128"),
        (f"run {LAYER} --at b=1,b=2,s=1", "--at says b=1 and b=2"),
        (f"run {LAYER} --at b=0,s=2", "layer: b is 0, and must be at least 1"),
        (f"run {LAYER} --at b=-2,s=2", "layer: b is -2, and must be at least 1"),
        (f"run {LAYER} --where s<=4 --at b=1,s=5", "layer: s is 5, and must be at most 4"),
        (f"run {LAYER} --where s<=b --at b=1,s=5", "layer: s <= b does not hold for s = 5, b = 1"),
        (f"run {LAYER} --where q<=4 --at b=1,s=5", "--where: there is no symbol q, which 'q' has; there are b, s"),
        (f"run {LAYER} --where s --at b=1,s=5", "--where: 's' is no constraint: write it as in s <= 2048 or "
         "mod(s, 8) == 0"),
        (f"run {LAYER} --where s<= --at b=1,s=5", "cannot read --where s<=; write 's <= 2048, mod(s, 8) == 0'"),
        (f"run {LAYER} --where s<=4,s>=5 --at b=1,s=5", "--where: the symbol s has no value from 5 to 4"),
        ("run model.py:layer --shapes f32[2,8],f32[8,4] --where b<=2", "--where b<=2: --shapes f32[2,8],f32[8,4] has "
         "no symbols"),
        ("run model.py:noisy --where b<=2 --at b=1", "--where b<=2: it is about the symbols in --shapes, as in "
         "--shapes 'f32[b,8*s]'"),
        ("run model.py:noisy --at b=65", "noisy: b is 65, and must be at most 64"),
        ("run model.py:layer --shapes f32[2,8],f32[8,4] --at b=2", "layer has no open sizes, which --at b=2 is for: "
         "open some, as in --shapes 'f32[b,128]'"),
        ("verify model.py:layer --shapes f32[2,8],f32[8,4] --at b=2", "layer has no open sizes, which --at b=2 is "
         "for: open some, as in --shapes 'f32[b,128]'"),
        ("run model.py:layer --shapes f32[b,4]", "model.py:layer does not take 1 input: missing a required argument: "
         "'w'"),
        ("run shaped.mlir --shapes f32[n],i32[2] --at n=6", "--shapes f32[n],i32[2]: open dimensions of an .mlir "
         "program are those that it writes as ?"),
        ("run shaped.mlir --at arg0_0=6,arg1_0=2,arg1_1=4", "shaped.mlir: number of output elements (8) doesn't match "
         "expected number of elements (6)"),
        ("run shaped.mlir --at arg0_0=6,arg1_0=2,arg1_1=-3", "shaped.mlir: arg1_1 is -3, and must be at least 0"),
        ("run named.tw --shapes T=5..4,N=3 --at T=2", "--shapes T=5..4: there is no size from 5 to 4"),
        ("run named.tw --shapes T=?,T=3 --at T=2", "--shapes says T=? and T=3"),
        ("run named.tw --shapes T=2..4,N=3 --at T=5", "named: T is 5, and must be at most 4"),
        (f"report {LAYER} --plot a.svg", "--plot draws what --sweep finds: give --sweep s=1..2048"),
        (f"report {LAYER} --at b=1 --sweep q=1,2", "--sweep q=1,2: layer has no size q; its sizes are b, s"),
        (f"report {LAYER} --at b=1,s=2 --sweep s=1,2", "s is in --at and in --sweep: give it once"),
        (f"report {LAYER} --sweep s=1,2", "layer has open sizes: b, s; say which, as in --at b=8"),
        (f"report {LAYER} --at b=1 --sweep s=0,2", "layer: s is 0, and must be at least 1"),
        (f"report {LAYER} --at b=1 --sweep s=1,2 --plot a.txt", "--plot a.txt: a plot is a file of .svg, .png, .pdf"),
        (f"report {LAYER} --at b=1,s=2 --pool-bytes 1M", "--pool-bytes is for --pool: give both"),
        (f"report {LAYER} --at b=1,s=2 --pool --pool-bytes 1Q", "cannot read --pool-bytes 1Q; write 4096, 512K, 64M "
         "or 2G"),
        (f"report {LAYER} --at b=1,s=200 --pool --pool-bytes 8K", "layer at b = 1, s = 200: a request of 25600 bytes "
         "is larger than the pool of 8192 bytes"),
        ("report model.py:layer --shapes f32[2,8],f32[8,4] --pool", "layer has no open sizes, which --pool is for: its "
         "plan of device memory is static; open some, as in --shapes 'f32[b,128]'"),
        ("report model.py:layer --shapes f32[2,8],f32[8,4] --sweep b=1", "layer has no open sizes, which --sweep b=1 "
         "is for: open some, as in --shapes 'f32[b,128]'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 1
    assert capsys.readouterr().err == f"tilewright: error: {message}\n"


def test_a_dimension_that_is_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("run named.tw --shapes T=? --at T=4".split()) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: the dimension `N` is not known")
    assert error.endswith("= help: give inputs, or `--shapes N=8`\n")


def test_a_sweep_of_a_tw_function(capsys: pytest.CaptureFixture[str]) -> None:
    _, head, *rows = said(capsys, "report scaled.tw --at N=40 --sweep T=2,50,64,1000").splitlines()
    assert head.split()[0] == "T"
    assert [row.split()[0] for row in rows] == ["2", "50", "64", "1000"]


def test_a_sweep_is_a_table(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    command = f"report {LAYER} --at b=4 --sweep s=2,64,256 --plot sweep.svg"
    first, head, *rows, last = said(capsys, command).splitlines()
    assert first == "layer for ascend-910b1, b = 4; *: other kernels than in the line above"
    assert head.split() == ["s", "us", "device", "bytes", "joules", "kernels", "launches"]
    assert [row.split()[0] for row in rows] == ["2", "64", "256"]
    assert last == "wrote sweep.svg"
    assert "<svg" in (folder / "sweep.svg").read_text()[:2000]


def test_a_sweep_as_json_says_where_kernels_change(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = json.loads(said(capsys, f"report {LAYER} --at b=4 --sweep s=1,2,1024 --json"))
    jsonschema.validate(found, {"$ref": "#/$defs/sweep", "$defs": SCHEMA["$defs"]})
    assert (found["symbol"], found["at"]) == ("s", {"b": 4})
    rows = found["rows"]
    assert [row["value"] for row in rows] == [1, 2, 1024]
    assert [row["changed"] for row in rows] == [
        False,
        *(a["kernels"] != b["kernels"] for a, b in pairwise(rows)),
    ]
    assert rows[2]["changed"]
    report = json.loads(said(capsys, f"report {LAYER} --at b=4,s=1024 --json"))
    assert rows[2]["microseconds"] == report["microseconds"]
    assert rows[2]["arena_bytes"] == report["memory"]["arena_bytes"]
    assert rows[2]["energy_joules"] == report["energy_joules"]


@pytest.mark.parametrize("policy", ["best-fit", "buddy"])
def test_the_pool_of_a_sweep(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"report {LAYER} --at b=4 --sweep s=3,64,9 --pool {policy} --pool-bytes 1M"
    found: dict[str, Any] = json.loads(said(capsys, f"{command} --json"))
    jsonschema.validate(found, {"$ref": "#/$defs/sweep", "$defs": SCHEMA["$defs"]})
    pool = found["pool"]
    assert (pool["calls"], pool["policy"], pool["capacity_bytes"]) == (3, policy, 1 << 20)
    largest = 4 * 512 * 4 + 512 * 4 * 4 + 4 * 4 * 4  # inputs and result at s = 64
    assert pool["peak_bytes"] == largest + found["rows"][1]["arena_bytes"] - 4 * 512 * 4 - 512 * 4 * 4
    lines = said(capsys, command).splitlines()
    assert lines[5].startswith(f"{policy} pool of 1,048,576 bytes")
    assert lines[-1].startswith(f"3 calls; watermark {pool['overhead']:.3f} times the peak of live bytes; 0.0 us")


def test_the_pool_of_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = json.loads(said(capsys, f"report {LAYER} --at b=4,s=9 --pool --json"))
    jsonschema.validate(found, {"$ref": "#/$defs/report", "$defs": SCHEMA["$defs"]})
    assert found["pool"]["calls"] == 1 and found["memory"]["arena_bytes"] > 0
    text = said(capsys, f"report {LAYER} --at b=4,s=9 --pool")
    assert "contract_0" in text and text.splitlines()[-1].startswith("1 call; watermark ")


def test_the_values_of_a_sweep() -> None:
    assert parse_sweep("s=1,2, 4,2") == ("s", [1, 2, 4])
    assert parse_sweep("s=3..6") == ("s", [3, 4, 5, 6])
    assert parse_sweep("s=64..256:64") == ("s", [64, 128, 192, 256])
    assert parse_sweep("arg0_1 = 7") == ("arg0_1", [7])
    values = spaced(1, 2048)
    assert (values[0], values[-1]) == (1, 2048)
    assert 12 <= len(values) <= 16
    assert values == sorted(set(values))
    ratios = [b / a for a, b in pairwise(values[5:])]
    assert max(ratios) < 1.25 * min(ratios)
    assert spaced(0, 100)[:2] == [0, 1]
    for text, message in {
        "s": "cannot read --sweep s; write s=1,2,4,8, s=1..2048 or s=64..2048:64",
        "s=1,,2": "cannot read --sweep s=1,,2; write s=1,2,4,8, s=1..2048 or s=64..2048:64",
        "s=-1..4": "cannot read --sweep s=-1..4; write s=1,2,4,8, s=1..2048 or s=64..2048:64",
        "s=5..4": "--sweep s=5..4: there is no size from 5 to 4",
        "s=1..9:0": "--sweep s=1..9:0: the step is at least 1",
        "s=1..9999:1": "--sweep s=1..9999:1: 9,999 values, of which each is compiled; the most is 4,096",
    }.items():
        with pytest.raises(CliError) as error:
            parse_sweep(text)
        assert str(error.value) == message


def test_the_dimensions_of_a_tw_function() -> None:
    assert parse_dimensions("N=8, T=?,S=1..2048") == {"N": 8, "T": (0, None), "S": (1, 2048)}
    assert parse_dimensions("f32[8]") is None


def test_compile_without_sizes_prints_the_choice(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "model.py:layer", "--shapes", "f32[b,8*s],f32[8*s,4]"]) == 0
    said = capsys.readouterr().out
    assert "npu.dispatch %x, %w" in said and "npu.version @b33to64_s33to64" in said
    assert main(["compile", "model.py:layer", "--shapes", "f32[b,8*s],f32[8*s,4]", "--emit", "tile"]) == 1
    assert "has open sizes: b, s; say which" in capsys.readouterr().err


def test_results_have_the_sizes_that_data_decides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "marked.mlir").write_text(MARKED)
    np.savez(folder / "in.npz", x=np.ones((8, 3), np.float32), n=np.int32(5))
    (out,) = json.loads(said(capsys, "run marked.mlir --inputs in.npz --check --json"))["outputs"]
    assert (out["type"], out["shape"]) == ("f32[5,3]", [5, 3])
    np.savez(folder / "in.npz", x=np.asarray([1, -1, 2, -2, 3], np.float32))
    assert "f32[3]" in said(capsys, "run model.py:positive --inputs in.npz --check")
    assert said(capsys, "compile model.py:positive --shapes f32[5] --emit tile").count("graph.extents") == 1
