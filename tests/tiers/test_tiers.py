"""One source as several model files: each is what its tier asks for, checked, and figures are those of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright import pruning, tiers
from tilewright.api.files.reading import ModelFile
from tilewright.compression.measures import sqnr

DRAW = np.random.default_rng(0)
PARAMS = {
    "up": DRAW.standard_normal((32, 64)).astype("f4") / 6,
    "down": DRAW.standard_normal((64, 16)).astype("f4") / 8,
    "bias": DRAW.standard_normal(16).astype("f4"),
}
BATCH = [DRAW.standard_normal((24, 32)).astype("f4") for _ in range(2)]
HIDDEN = pruning.Coupled([("['up']", 1), ("['down']", 0)])


def forward(params: dict[str, Any], x: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ params["up"]) @ params["down"] + params["bias"]


LABELS = [np.asarray(forward(PARAMS, x)).argmax(-1) for x in BATCH]


def shaped() -> jax.ShapeDtypeStruct:
    (n,) = jax.export.symbolic_shape("n")
    return jax.ShapeDtypeStruct((n, 32), "float32")


def drawn(specs: Any) -> list[np.ndarray]:
    return [np.random.default_rng(3).standard_normal(shape).astype("f4") for shape, _ in specs]


def built(folder: Path, asked: dict[str, Any], **more: Any) -> tiers.Tiers:
    given: dict[str, Any] = {"data": BATCH, "labels": LABELS, "draw": drawn, "progress": False}
    return tiers.build(forward, PARAMS, shaped(), tiers=asked, folder=folder, **(given | more))


THREE = {
    "cloud": {"target": "ascend-910b1", "precision": "f32", "batch": 8},
    "edge": {"target": "ascend-310p3", "precision": "f16", "batch": 2},
    "device": {"target": "ascend-310", "precision": "int8", "batch": 1, "prune": 0.5},
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tiers.Tiers]:
    folder = tmp_path_factory.mktemp("three") / "made"
    return folder, built(folder, THREE, pruning=tiers.Pruning({"hidden": HIDDEN}))


def test_files_are_what_the_table_says(three: tuple[Path, tiers.Tiers]) -> None:
    folder, found = three
    assert found.ok and sorted(p.name for p in folder.iterdir()) == ["cloud.twm", "device.twm", "edge.twm"]
    for tier in found.tiers:
        asked = THREE[tier.name]
        path = folder / f"{tier.name}.twm"
        program = tw.load(path)
        report = program.report()
        assert (program.target, tier.target, tier.items) == (asked["target"], asked["target"], asked["batch"])
        assert (report.microseconds, report.energy_joules) == (tier.microseconds, tier.joules)
        assert report.memory.arena_bytes == tier.device_bytes and path.stat().st_size == tier.file_bytes
        assert tier.check.startswith("ok: ") and program(x=BATCH[0][: asked["batch"]]).shape == (asked["batch"], 16)
        assert tier.to_json()["joules_per_sample"] == report.energy_joules / asked["batch"]
        assert ModelFile(path).manifest.metadata["tier"] == tier.name
    cloud, edge, device = found.tiers
    weights = sum(array.nbytes for array in PARAMS.values())
    assert cloud.weight_bytes == weights and edge.weight_bytes is not None and device.weight_bytes is not None
    assert edge.weight_bytes < 0.6 * weights and device.weight_bytes < 0.25 * weights
    assert device.note == "keeps hidden 32/64" and device.chosen["prune"] == "0.5"


def test_accuracy_is_of_what_each_tier_computes(three: tuple[Path, tiers.Tiers]) -> None:
    """It is the one that its own file has on the data, and changes are from the first tier."""
    _, found = three
    assert found.accuracy_metric == "accuracy" and found.tiers[0].accuracy == 100.0
    for tier in found.tiers:
        assert tier.path is not None and tier.items is not None and tier.accuracy is not None
        program, right = tw.load(tier.path), 0
        for x, labels in zip(BATCH, LABELS, strict=True):
            results = [program(x=x[i : i + tier.items]) for i in range(0, len(x), tier.items)]
            right += int((np.concatenate(results).argmax(-1) == labels).sum())
        assert tier.accuracy == pytest.approx(100 * right / 48, abs=100 / 48)
        assert tier.change == tier.accuracy - 100.0


def test_without_labels_accuracy_is_against_the_whole_source(tmp_path: Path) -> None:
    """That of a pruned net, too: not against the pruned net's own results in f32."""
    asked = {"whole": {"n": 24}, "less": {"n": 24, "prune": 0.5}}
    found = built(tmp_path, asked, labels=None, check="off", pruning=tiers.Pruning({"hidden": HIDDEN}))
    whole, less = found.tiers
    assert found.accuracy_metric == "sqnr" and whole.accuracy == float("inf") and whole.change is None
    assert less.path is not None and less.accuracy is not None
    program = tw.load(less.path)
    made = [np.asarray(program(x=x)) for x in BATCH]
    assert less.accuracy == pytest.approx(sqnr([forward(PARAMS, x) for x in BATCH], made), abs=0.01)
    assert less.accuracy < 30


def test_retrained_parameters_are_those_of_the_file(tmp_path: Path) -> None:
    def retrain(small: Any) -> Any:
        return {**small, "bias": small["bias"] + 1}

    how = tiers.Pruning({"hidden": HIDDEN}, retrain)
    found = built(tmp_path, {"less": {"n": 4, "prune": 0.25}}, pruning=how, labels=None)
    assert found.ok
    small = pruning.prune(PARAMS, HIDDEN, pruning.best(pruning.magnitude(PARAMS, HIDDEN), 48))
    wanted = forward(retrain(small), BATCH[0][:4])
    np.testing.assert_allclose(tw.load(tmp_path / "less.twm")(x=BATCH[0][:4]), wanted, rtol=1e-5, atol=1e-5)


def test_a_tier_that_cannot_be_made_leaves_the_others(tmp_path: Path) -> None:
    asked = {
        "large": {"target": "ascend-310", "batch": 1 << 30},
        "int8": {"precision": "int8", "batch": 1},
        "small": {"precision": "f16", "batch": 1},
    }
    found = built(tmp_path, asked, data=None, labels=None)
    large, int8, small = found.tiers
    assert not found.ok and not large.made
    assert "ascend-310 has 8589934592" in large.problem and "\n" not in large.problem
    assert int8.problem.startswith("its mode w8a8 needs data that its scales are found in")
    assert small.made and found.where == "the arguments" and small.change is None
    assert [p.name for p in tmp_path.iterdir()] == ["small.twm"]


def test_a_wrong_program_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of the device that computes something else is found by the check, and not where nothing is checked."""
    from tilewright.verification import results

    monkeypatch.setattr(results.Check, "ok", property(lambda self: self.stage != "run"))
    assert not built(tmp_path, {"a": {"n": 2}}).ok and not [*tmp_path.iterdir()]
    found = built(tmp_path, {"a": {"n": 2}}, check="off")
    assert found.ok and found.tiers[0].check == "off"


def test_a_file_that_gives_other_bits_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.tiers import building

    def other(program: tw.Program, path: Path, *, weights: dict[str, Any], **more: Any) -> None:
        tw.save(program, path, weights={"params": {**weights["params"], "bias": PARAMS["bias"] + 1}}, **more)

    monkeypatch.setattr(building, "save", other)
    found = built(tmp_path, {"a": {"n": 2}})
    assert "a.twm: the file gives other bits than the program" in found.tiers[0].problem
    assert not [*tmp_path.iterdir()]


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.twm").write_bytes(b"mine")
    with pytest.raises(tw.CompileError, match=r"a.twm: it is there and is no model file: name another folder"):
        built(tmp_path, {"a": {"n": 2}})
    assert (tmp_path / "a.twm").read_bytes() == b"mine"
    (tmp_path / "a.twm").unlink()
    for _ in range(2):  # its own are
        assert built(tmp_path, {"a": {"n": 2}}, check="off").ok


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "there are no tiers"),
        ({"../a": {"n": 1}}, r"tiers.../a: a tier is called by letters, digits, _ and -"),
        ({"a": {"n": 1}, "A": {"n": 2}}, "tiers.A: a would be the same file on some computers"),
        ({"a": {"n": 1, "presicion": "f16"}}, "tiers.a: there is no choice 'presicion'; .*did you mean precision"),
        ({"a": {"n": -3}}, "tiers.a: n is -3, and is at least 1"),
        ({"a": {"batch": 0}}, "tiers.a: batch is 0, and is at least 1"),
        ({"a": {"n": 1.5}}, "tiers.a: n=1.5: n takes whole numbers"),
        ({"a": {"n": True}}, "tiers.a: n=True: n takes whole numbers"),
        ({"a": {"n": 1, "batch": 2}}, "tiers.a: n and batch both say n"),
        ({"a": {"precision": "f32"}}, "tiers.a: forward has open sizes that nothing says: n"),
        ({"a": {"n": 1, "target": "ascend-9"}}, "tiers.a: target=ascend-9: unknown target 'ascend-9'"),
        ({"a": {"n": 1, "target": 5}}, "tiers.a: target=5: "),
        ({"a": {"n": 1, "precision": "f17"}}, "tiers.a: precision=f17: precision takes f32, f16"),
        ({"a": {"n": 1, "precision": ["f16"]}}, r"tiers.a: precision=\['f16'\]"),
        ({"a": {"n": 1, "prune": 1}}, "tiers.a: prune is a share from 0 on and below 1, not 1"),
        ({"a": {"n": 1, "prune": "half"}}, "tiers.a: prune is a share from 0 on and below 1, not 'half'"),
        ({"a": {"n": 1, "prune": 0.5}}, r"tiers.a: prune needs to know what can be removed"),
    ],
)
def test_mistakes(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(tw.CompileError, match=said):
        built(tmp_path / "made", asked)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("precision", ["f16", "int8"])
def test_each_pass_is_checked_too(precision: str, tmp_path: Path) -> None:
    said: list[str] = []
    found = built(
        tmp_path, {"a": {"n": 2, "precision": precision}}, check="full", progress=lambda what, *_: said.append(what)
    )
    assert found.tiers[0].check.startswith("ok: ")
    assert "making a: graph-to-tile" in said


def test_what_is_too_large_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.verification import work

    monkeypatch.setattr(work, "MOST_WORK", 10)
    found = built(tmp_path, {"a": {"n": 2}})
    assert found.ok and found.tiers[0].check.startswith("not checked: forward is not verified: its ops compute some")


def test_weights_without_values(tmp_path: Path) -> None:
    """They are arguments of the file, not what was drawn for them; integers cannot be made of them."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), PARAMS)
    asked = {"whole": {"n": 2}, "half": {"n": 2, "precision": "f16"}, "int8": {"n": 2, "precision": "int8"}}
    found = tiers.build(forward, shapes, shaped(), tiers=asked, folder=tmp_path, data=BATCH, draw=drawn, progress=False)
    whole, half, int8 = found.tiers
    assert whole.check.startswith("ok") and half.check.startswith("ok")
    assert whole.weight_bytes == half.weight_bytes == 0
    assert half.note == "params has no values: each call makes them narrower"
    assert int8.problem == "params has no values, which integers are made of: give arrays"
    wanted = forward(PARAMS, BATCH[0][:2])
    np.testing.assert_allclose(tw.load(tmp_path / "whole.twm")(PARAMS, BATCH[0][:2]), wanted, rtol=1e-5, atol=1e-5)


def test_closed_sizes_have_no_batch(tmp_path: Path) -> None:
    with pytest.raises(tw.CompileError, match=r"tiers\.a: forward has no open sizes, which batch is for"):
        tiers.build(forward, PARAMS, BATCH[0], tiers={"a": {"batch": 2}}, folder=tmp_path, progress=False)
    with pytest.raises(tw.CompileError, match="check must be one of quick, full, off, not 'no'"):
        built(tmp_path, {"a": {"n": 1}}, check="no")
    with pytest.raises(tw.CompileError, match="without data there is nothing to compare with"):
        built(tmp_path, {"a": {"n": 1}}, data=None, accuracy="accuracy")


def test_constants_are_packed(tmp_path: Path) -> None:
    """Of a function without parameters, as ONNX models are."""
    table = jnp.asarray(PARAMS["up"])
    found = tiers.build(lambda x: x @ table, shaped(), tiers={"a": {"n": 4, "precision": "f16"}}, folder=tmp_path,
                        draw=drawn, progress=False)  # fmt: skip
    (tier,) = found.tiers
    assert tier.made and tier.weight_bytes == PARAMS["up"].nbytes // 2 and tier.check.startswith("ok")
