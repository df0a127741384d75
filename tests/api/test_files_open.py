"""Programs with open sizes as files: their versions come back as they were, and other sizes and chips are compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.files.reading import ModelFile
from tilewright.api.sizes import templates
from tilewright.cli.main import main

DRAW = np.random.default_rng(0)
PARAMS = {"w": DRAW.standard_normal((48, 32)).astype(np.float32), "b": np.ones(32, np.float32)}


def layer(params: dict[str, Any], x: jax.Array) -> dict[str, jax.Array]:
    y = jnp.tanh(x @ params["w"] + params["b"])
    return {"y": y, "mean": y.mean(0)}


def opened(target: str | None = None) -> Any:
    (b,) = jax.export.symbolic_shape("b", constraints=["b <= 512"])
    return tw.compile(layer, PARAMS, jax.ShapeDtypeStruct((b, 48), "float32"), target=target)


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 48)).astype(np.float32)


def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, path = opened(), tmp_path / "m.twm"
    for count in (1, 40):
        program(PARAMS, rows(count))
    program.save(path, targets=["ascend-310p3"], weights={"params": PARAMS})
    with monkeypatch.context() as patched:
        patched.setattr(templates, "lower_template", None)  # nothing is lowered
        again = tw.load(path)
        for count in (1, 33, 40, 48):
            found, wanted = again(x=rows(count)), program(PARAMS, rows(count))
            assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
            assert again.report(at={"b": count}).microseconds == program.report(at={"b": count}).microseconds
        other = tw.load(path, "ascend-310p3")
        np.testing.assert_allclose(other(x=rows(40))["y"], layer(PARAMS, rows(40))["y"], rtol=2e-5, atol=2e-5)
    for chip in ("ascend-910b1", "ascend-310"):  # other sizes; a chip that it has not
        new = tw.load(path, chip)
        for count in (2, 5, 100, 512):
            np.testing.assert_allclose(new(x=rows(count))["y"], layer(PARAMS, rows(count))["y"], rtol=2e-5, atol=2e-5)
    for x, said in ((rows(513), "must be at most 512"), (rows(4)[:, :8], "must be 48")):
        with pytest.raises(tw.CompileError, match=said):
            again(x=x)
    assert "npu.version" in again.ir() and "b >= 33 and b <= 64" in again.ir()
    assert again.input_types == program.input_types and again.constraints == program.constraints
    again.save(tmp_path / "n.twm")
    assert {*ModelFile(path).manifest.members} >= {*ModelFile(tmp_path / "n.twm").manifest.members} - {"graph"}


def test_options_and_verification(tmp_path: Path) -> None:
    path = tmp_path / "m.twm"
    opened().save(path)
    plain = tw.compile(path, options=tw.Options(without={"fusion"}))
    assert plain.report(at={"b": 40}).counts.kernels > tw.load(path).report(at={"b": 40}).counts.kernels
    assert tw.verify(str(path), PARAMS, rows(17), quick=True).ok
    with pytest.raises(tw.CompileError, match="params, x are missing"):
        tw.verify(str(path), quick=True)


def test_the_same_bytes_without_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        opened().save(tmp_path / f"{name}.twm")
    content = (tmp_path / "a.twm").read_bytes()
    assert content == (tmp_path / "b.twm").read_bytes() and str(Path(__file__).parent).encode() not in content


def test_stablehlo_and_tw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.mlir").write_text(
        "func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {\n  %0 = stablehlo.exponential %x : tensor<?x8xf32>\n"
        "  return %0 : tensor<?x8xf32>\n}\n"
    )
    (tmp_path / "f.tw").write_text("pub fn f(x: f32[n, 8]) -> f32[n, 8] {\n    return exp(x) + 1.0\n}\n")
    (tmp_path / "g.tw").write_text("import \"f.tw\" as f\nfn g(x: f32[n, 8]) -> f32[n, 8] {\n    return f.f(x)\n}\n")
    for source, size, more in (("f.mlir", "arg0_0", 0), ("f.tw", "n", 1), ("g.tw", "n", 1)):
        tw.compile(source).save("m.twm")
        again = tw.load("m.twm")
        for count in (3, 40) if source != "g.tw" else (64,):
            x = rows(count)[:, :8]
            np.testing.assert_allclose(again(x), np.exp(x) + more, rtol=1e-5)
        assert main(["report", "m.twm", "--at", f"{size}=64", "--json"]) == 0
        assert main(["run", "m.twm", "--at", f"{size}=64"]) == 0
        capsys.readouterr()
        assert main(["report", "m.twm"]) == 1
        assert f"has open sizes: {size}; say which" in capsys.readouterr().err
        assert main(["inspect", "m.twm"]) == 0
        assert f"f32[{size},8]" in capsys.readouterr().out
    with pytest.raises(tw.CompileError, match="main is not for n = 3: the file has no graph level"):
        again(rows(3)[:, :8])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"symbols": [["b", -1, 512]]}, "'b' is no open size"),
        ({"symbols": 5}, "has no symbols"),
        ({"constraints": ["b <"]}, "cannot be read"),
        ({"deciding": [[7, ["b"]]]}, "an input that it has not decides sizes"),
        ({"codes": [{"kind": "exe", "graph": "graph/main.stablehlo", "ranges": [], "constraints": [], "donated": []}]},
         "'exe' is no kind of program"),
        ({"codes": [{"graph": 5}]}, "has no graph"),
        ({"codes": [{"graph": "y"}]}, "is in 'y', which it has not"),
        ({"versions": []}, "has no versions"),
        ({"versions": {"ascend-910b1": [1]}}, "is no table"),
        ({"versions": {"ascend-910b1": [{"ranges": [[1]], "npu": None}]}}, "cannot be read"),
        ({"versions": {"ascend-910b1": [{"ranges": [[33, 48]], "npu": "x"}]}}, "is in 'x', which it has not"),
        ({"alone": {"ascend-910b1": [{"sizes": [1], "npu": 5}]}}, "has no npu"),
    ],
)
def test_hostile_manifests(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    from tilewright.modelfile.archive import Archive, Member, write_archive
    from tilewright.modelfile.manifest import MANIFEST, canonical

    opened().save(tmp_path / "m.twm")
    archive = Archive(tmp_path / "m.twm")
    members = {name: archive.read(name, 1 << 30) for name in archive.places}
    manifest = json.loads(members[MANIFEST])
    manifest["entries"]["main"]["open"] |= change
    members[MANIFEST] = canonical(manifest)
    write_archive(tmp_path / "n.twm", [Member.of(name, content) for name, content in members.items()])
    with pytest.raises(tw.ModelFileError, match=said):
        tw.load(tmp_path / "n.twm")


def test_functions_whose_members_would_have_one_name(tmp_path: Path) -> None:
    """`f` for one row, and `f_1`: another text, whose member is called otherwise."""
    open_, closed = opened(), tw.compile(lambda x: x * 3, np.ones(5, np.float32))
    open_.at(b=1)
    tw.save({"f": open_, "f_1": closed}, tmp_path / "m.twm")
    ModelFile(tmp_path / "m.twm").check_whole()
    np.testing.assert_array_equal(tw.load(tmp_path / "m.twm", entry="f_1")(np.ones(5, np.float32)), np.full(5, 3))
    found = tw.load(tmp_path / "m.twm", entry="f")(PARAMS, rows(1))
    np.testing.assert_array_equal(found["y"], open_(PARAMS, rows(1))["y"])
