"""Programs that pack their weights, as files: what packing gives is in them, in the place of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.files.reading import ModelFile

DRAW = np.random.default_rng(0)
PARAMS = {"a": DRAW.standard_normal((64, 48)).astype("f4"), "b": DRAW.standard_normal(48).astype("f4")}
X = DRAW.standard_normal((8, 64)).astype("f4")


def forward(params: dict[str, Any], x: jax.Array) -> dict[str, jax.Array]:
    return {"y": jnp.tanh(x @ params["a"]) + params["b"]}


def same(first: Any, second: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


def packed(**more: Any) -> tw.Program:
    return tw.compile(forward, PARAMS, X, options=tw.Options(weights=("params",), **more))


@pytest.mark.parametrize("options", [{"precision": "mixed_float16"}, {"quantization": "w8a8-dynamic"}], ids=str)
def test_there_and_back(options: dict[str, Any], tmp_path: Path) -> None:
    program = packed(**options)
    path = tmp_path / "m.twm"
    tw.save(program, path, weights={"params": PARAMS})
    again = tw.load(path)
    assert same(again(x=X), program(PARAMS, X)) and same(again(x=X, mode="step"), program(PARAMS, X, mode="step"))
    assert again.report().microseconds == program.report().microseconds
    file = ModelFile(path)
    stored = sum(size for _, _, size in file.manifest.weights.values())
    assert stored < 0.7 * sum(array.nbytes for array in PARAMS.values())  # narrow, and not the weights themselves
    with pytest.raises(tw.ModelFileError, match="main is for ascend-910b1 alone"):
        tw.load(path, "ascend-310")


def test_beside_one_that_packs_nothing(tmp_path: Path) -> None:
    tw.save({"packed": packed(), "plain": tw.compile(forward, PARAMS, X)}, tmp_path / "m.twm",
            weights={"params": PARAMS})  # fmt: skip
    first, second = (tw.load(tmp_path / "m.twm", entry=name)(x=X) for name in ("packed", "plain"))
    np.testing.assert_allclose(first["y"], second["y"], rtol=1e-5, atol=1e-5)


def test_constants_are_packed_without_being_given(tmp_path: Path) -> None:
    table = PARAMS["a"]
    options = tw.Options(weights=(), quantization="w8a16")
    program = tw.compile(lambda x: x @ table, X, options=options, target="ascend-310p3")
    tw.save(program, tmp_path / "m.twm")
    assert same(tw.load(tmp_path / "m.twm")(X), program(X))


def test_flat_inputs(tmp_path: Path) -> None:
    (tmp_path / "f.tw").write_text("fn f(x: f32[8, 64], w: f32[64, 48]) -> f32[8, 48] {\n    return x @ w\n}\n")
    program = tw.compile(tmp_path / "f.tw", options=tw.Options(weights=("w",), precision="mixed_float16"))
    tw.save(program, tmp_path / "m.twm", weights={"w": PARAMS["a"]})
    assert same(tw.load(tmp_path / "m.twm")(X), program(X, PARAMS["a"]))


def test_sizes_of_an_open_program(tmp_path: Path) -> None:
    (n,) = jax.export.symbolic_shape("n")
    shaped = jax.ShapeDtypeStruct((n, 64), "float32")
    options = tw.Options(weights=("params",), precision="mixed_float16")
    program = tw.compile(forward, PARAMS, shaped, options=options).at(n=8)
    tw.save(program, tmp_path / "m.twm", weights={"params": PARAMS})
    assert same(tw.load(tmp_path / "m.twm")(x=X), program(PARAMS, X))


def test_mistakes(tmp_path: Path) -> None:
    program, path = packed(), tmp_path / "m.twm"
    with pytest.raises(tw.CompileError, match="forward packs params before it is saved: give its value"):
        program.save(path)
    with pytest.raises(tw.CompileError, match="has its weights packed for ascend-910b1: compile it"):
        program.save(path, weights={"params": PARAMS}, targets=["ascend-310"])
    with pytest.raises(tw.CompileError, match=r"params\['a'\] of forward must be f32\[64, 48\]"):
        program.save(path, weights={"params": {**PARAMS, "a": X}})
    with pytest.raises(tw.CompileError, match="no program has an argument 'y'"):
        program.save(path, weights={"params": PARAMS, "y": X})
    keyword = tw.compile(forward, PARAMS, x=X, options=tw.Options(weights=("params",)))
    with pytest.raises(tw.CompileError, match="save: x is given by keyword"):
        keyword.save(path, weights={"params": PARAMS})
    assert not path.exists()


@pytest.mark.parametrize("options", [{"precision": "mixed_float16"}, {"quantization": "w8a8-dynamic"}], ids=str)
def test_a_packed_program_is_verified_at_its_own_precision(options: dict[str, Any]) -> None:
    found = tw.verify(forward, PARAMS, X, program=packed(**options), quick=True, progress=False)
    assert found.ok, repr(found)
