"""Whether a model file computes what its source does: each kind of source, level by level, and what differs first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.files.against import FileVerification, verify_file
from tilewright.cli.inputs import random_inputs
from tilewright.cli.main import main
from tilewright.modelfile.archive import Archive, Member, write_archive
from tilewright.modelfile.manifest import MANIFEST, canonical, digest_of

DRAW = np.random.default_rng(0)
PARAMS = {"a": DRAW.standard_normal((64, 48)).astype("f4"), "b": DRAW.standard_normal(48).astype("f4")}
X = DRAW.standard_normal((8, 64)).astype("f4")


def forward(params: dict[str, Any], x: jax.Array) -> dict[str, jax.Array]:
    return {"y": jnp.tanh(x @ params["a"]) + params["b"], "z": x.sum()}


def saved(path: Path, **options: Any) -> Path:
    program = tw.compile(forward, PARAMS, X, options=tw.Options(**options))
    tw.save(program, path, weights={"params": PARAMS})
    return path


def rows(found: FileVerification) -> list[tuple[str, str, str, bool]]:
    return [(c.stage, c.level, c.memory, c.ok) for c in found.verification.checks]


def test_all_levels(tmp_path: Path) -> None:
    found = verify_file(saved(tmp_path / "m.twm"), forward, PARAMS, X)
    assert found.ok and not found.first and found.verification.reference == "forward in JAX"
    assert rows(found) == [
        ("source", "graph", "typed", True),
        ("file", "graph", "typed", True),
        ("file", "npu", "typed", True),
        ("file", "npu", "bytes", True),
    ]


@pytest.mark.parametrize("weights", [None, ("params",)], ids=["plain", "packed"])
def test_casts_that_the_file_says_are_allowed(weights: Any, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.twm", precision="mixed_float16", weights=weights)
    found = verify_file(path, forward, PARAMS, X)
    assert found.ok and found.verification.rounded == "graph-precision" and found.sqnr is not None
    assert 40 < found.sqnr < 90
    inside = tw.compile(half, PARAMS, X)  # rounds as much, and says nothing of it
    tw.save(inside, tmp_path / "n.twm", weights={"params": PARAMS})
    assert not verify_file(tmp_path / "n.twm", forward, PARAMS, X).ok


def half(params: dict[str, Any], x: jax.Array) -> dict[str, jax.Array]:
    made = forward({**params, "a": params["a"].astype(jnp.float16).astype(jnp.float32)}, x)
    return {**made, "y": made["y"]}


def test_quantized_programs_are_judged_by_sqnr_too(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.twm", quantization="w8a8-dynamic", weights=("params",))
    for least, ok in ((None, True), (25, True), (80, False)):
        found = verify_file(path, forward, PARAMS, X, min_sqnr=least)
        agreement = found.verification.quantization
        assert found.ok is ok and agreement is not None and agreement.ok is ok
        assert found.sqnr is not None and 25 < found.sqnr < 60
        assert all(row.ok for row in found.verification.checks) and not found.first


def test_an_sqnr_in_the_place_of_the_tolerance(tmp_path: Path) -> None:
    tw.save(tw.compile(half, PARAMS, X), tmp_path / "m.twm", weights={"params": PARAMS})
    assert verify_file(tmp_path / "m.twm", forward, PARAMS, X, min_sqnr=40).ok
    worse = verify_file(tmp_path / "m.twm", forward, PARAMS, X, min_sqnr=120)
    assert not worse.ok and worse.first.startswith("first difference: graph level")
    assert "below 120 dB" in worse.verification.checks[-1].note


def test_the_first_level_and_output_that_differ(tmp_path: Path) -> None:
    """Other weights differ from the graph level on; a wrong constant in the npu level, from there on."""
    other = {**PARAMS, "b": PARAMS["b"].copy()}
    other["b"][5] += 1
    path = saved(tmp_path / "m.twm")
    found = verify_file(path, forward, other, X)
    assert not found.ok
    assert found.first.startswith("first difference: graph level, result 0 ['y']: element [")
    assert "(8 elements differ)" in found.first
    changed(path, tmp_path / "n.twm", b"npu.vadd ", b"npu.vsub ")
    found = verify_file(tmp_path / "n.twm", forward, PARAMS, X)
    assert [ok for *_, ok in rows(found)] == [True, True, False, False]
    assert found.first.startswith("first difference: npu level, typed memory, result 0 ['y']")


def changed(path: Path, other: Path, old: bytes, new: bytes) -> None:
    """A file with other code at the npu level, whose manifest says so."""
    archive = Archive(path)
    members = {name: archive.read(name, 1 << 30) for name in archive.places}
    (name,) = (n for n in members if n.startswith("npu/"))
    assert old in members[name]
    members[name] = members[name].replace(old, new)
    manifest = json.loads(members.pop(MANIFEST))
    manifest["members"][name] = {"size": len(members[name]), "sha256": digest_of(members[name])}
    first = Member.of(MANIFEST, canonical(manifest))
    write_archive(other, [first, *(Member.of(n, c) for n, c in members.items())])


def test_open_sizes_are_those_of_the_file(tmp_path: Path) -> None:
    (n,) = jax.export.symbolic_shape("n")
    shaped = jax.ShapeDtypeStruct((n, 64), "float32")
    found = verify_file(saved(tmp_path / "m.twm"), forward, PARAMS, shaped, draw=random_inputs)
    assert found.ok
    with pytest.raises(tw.CompileError, match="argument x of forward has no values: give some"):
        verify_file(tmp_path / "m.twm", forward, PARAMS, shaped)


def test_other_files_and_languages(tmp_path: Path) -> None:
    text = "fn f(x: f32[8, 64]) -> f32[8, 64] {\n    return exp(x) + 1.0\n}\n"
    (tmp_path / "f.tw").write_text(text)
    (tmp_path / "g.tw").write_text(text.replace("1.0", "1.5"))
    for name in "fg":
        tw.compile(tmp_path / f"{name}.tw").save(tmp_path / f"{name}.twm")
    for source, right in (("f.tw", True), ("f.twm", True), ("g.tw", False), ("g.twm", False)):
        found = verify_file(tmp_path / "f.twm", str(tmp_path / source), draw=random_inputs)
        assert found.ok == right and found.verification.reference == str(tmp_path / source)
        assert right or "graph level, result 0" in found.first
    packed = saved(tmp_path / "p.twm", precision="mixed_float16", weights=("params",))
    assert verify_file(packed, str(saved(tmp_path / "m.twm")), draw=random_inputs).ok


@pytest.mark.parametrize(
    ("source", "args", "said"),
    [
        (forward, (PARAMS, X[:4]), r"x is f32\[8, 64\] in .*m.twm:main, and f32\[4, 64\] in forward"),
        (lambda params: params["a"], (PARAMS,), r"m.twm:main takes x, f32\[8, 64\], and <lambda> does not"),
        (lambda params, x, k: x * k, (PARAMS, X, X), r"<lambda> takes k, f32\[8, 64\], and .*:main does not"),
        (lambda params, x: x, (PARAMS, X), r"result 0 is f32\[8, 48\] in .*m.twm:main, and f32\[8, 64\] in"),
        (lambda params, x: forward(params, x)["y"], (PARAMS, X), "m.twm:main gives 2 results, and <lambda> 1"),
    ],
)
def test_other_signatures(source: Any, args: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(tw.CompileError, match=said):
        verify_file(saved(tmp_path / "m.twm"), source, *args)


MODEL = """
import jax, jax.numpy as jnp, numpy as np

def forward(params, x):
    return {"y": jnp.tanh(x @ params["a"]) + params["b"], "z": x.sum()}

def wrong(params, x):
    return {**forward(params, x), "z": x.mean()}

def open_forward(params, x):
    return forward(params, x)

def open_forward_inputs():
    (n,) = jax.export.symbolic_shape("n")
    arrays = np.load("params.npz")
    return {"a": arrays["a"], "b": arrays["b"]}, jax.ShapeDtypeStruct((n, 64), "float32")
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer_file.py").write_text(MODEL)
    np.savez("params.npz", **PARAMS)
    saved(tmp_path / "m.twm")
    saved(tmp_path / "half.twm", precision="mixed_float16")
    for file in ("m.twm", "half.twm"):
        for source in ("layer_file.py:forward", "layer_file.py:open_forward", "layer_file:forward", "m.twm"):
            assert main(["verify", file, "--against", source]) == 0, source
            assert "SQNR of the file against" in capsys.readouterr().out
        assert main(["verify", file]) == 0  # with the casts that it says
        capsys.readouterr()
    assert main(["verify", "m.twm", "--against", "layer_file.py:wrong", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["first_difference"].startswith("first difference: graph level, result 1 ['z']: is ")
    assert not found["ok"] and found["sqnr"] < 100
    for more, said in (
        (["--precision", "float16"], "m.twm: --against compares a model file as it is: take options of the compiler"),
        (["--bisect"], "take --bisect away"),
        (["--shapes", "f32[64,48],f32[48],f32[9,64]"], "m.twm:main must be f32[64, 48]"),
    ):
        code = main(["verify", "m.twm", "--against", "layer_file.py:forward", *more])
        assert code == 1
        assert said in capsys.readouterr().err or "--shapes" in more


def test_files_with_open_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused until it is said which sizes: a file of the program for these is compared."""
    path, fixed = tmp_path / "open.twm", tmp_path / "fixed.twm"
    (n,) = jax.export.symbolic_shape("n")
    made = tw.compile(lambda x: x * 2 + 1, jax.ShapeDtypeStruct((n, 16), "float32"))
    made.at(n=4)
    made.save(path)
    assert main(["verify", str(path), "--against", str(path)]) == 1
    assert f"{path}: main has open sizes: compare a file" in capsys.readouterr().err
    assert main(["compile", str(path), "--at", "n=4", "-o", str(fixed)]) == 0
    assert main(["verify", str(fixed), "--against", str(fixed)]) == 0
