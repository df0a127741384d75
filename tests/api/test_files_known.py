"""What files have so that nothing has to be found again: reports, plans; and files of earlier versions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.files import reading
from tilewright.api.files.reading import ModelFile
from tilewright.api.files.reports import report_bytes, report_in
from tilewright.backends.report import Report
from tilewright.machine import Machine
from tilewright.modelfile.manifest import VERSION
from tilewright.support.typed_json import plain, typed

FROZEN = Path(__file__).parent.parent / "modelfile" / "frozen"
ARGS = [np.ones((200, 96), np.float32), np.ones((96, 160), np.float32)]


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.maximum(x @ w, 0), -1)


def test_reports_are_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded program says what it costs before its text is parsed: the same as when that is simulated again."""
    path = tmp_path / "m.twm"
    options = tw.Options(precision="mixed_float16", donate=0)
    program = tw.compile(lambda x, w: (layer(x, w), x + 1), *ARGS, options=options)
    program.save(path, targets=["ascend-310p3"])
    file = ModelFile(path)
    for chip in ("ascend-910b1", "ascend-310p3"):
        _, facts = file.entry(None)
        assert str(Path(__file__).parent) not in file.text(facts.npu[chip]) + file.text(facts.graph)
        stored = file.report(facts, chip)
        with monkeypatch.context() as patched:
            patched.setattr(reading, "module_in", None)
            assert tw.load(path, chip).report() == stored
            patched.undo()
            patched.setattr(ModelFile, "report", lambda *_: None)
            assert tw.load(path, chip).report() == stored
    assert stored is not None and {place.file for k in stored.kernels for place in k.sources} == {Path(__file__).name}


def test_stale_and_wrong_reports(tmp_path: Path) -> None:
    """A report by other rules is made again; one of another shape is refused."""
    report = tw.compile(layer, *ARGS).report()
    machine = Machine.load("ascend-910b1")
    content = report_bytes(report).decode()
    assert report_in(content, machine) is not None
    assert report_in(report_bytes(dataclasses.replace(report, judge="0" * 12)).decode(), machine) is None
    assert report_in(content, Machine.load("ascend-310")) is None
    facts = json.loads(content)
    for change in ({"microseconds": "1"}, {"kernels": {}}, {"more": 1}, {"counts": None}, {"kernels": [1]}):
        with pytest.raises(ValueError, match=r"is no|has no|has none|is of none"):
            report_in(json.dumps({**facts, **change}), machine)
    with pytest.raises(ValueError, match="a Report has no target"):
        report_in("{}", machine)
    assert typed(Report, json.loads(json.dumps(plain(report)))) == report


def test_plans_are_in_the_file(tmp_path: Path) -> None:
    """What was tuned is found again where the file is compiled with other options, by who does not have the knowledge
    base."""
    base = str(tmp_path / "plans.sqlite")
    tw.tune(layer, *ARGS, store=base, evaluations=300)
    tuned = tw.compile(layer, *ARGS, options=tw.Options(plans=base))
    assert tuned.report().known_plans
    tuned.save(tmp_path / "m.twm", targets=["ascend-310p3"])
    assert [*ModelFile(tmp_path / "m.twm").manifest.plans] == ["ascend-910b1"]
    other = tw.Options(plans=str(tmp_path / "empty.sqlite"), memory="bytes")
    again = tw.compile(tmp_path / "m.twm", options=other)
    assert again.report().known_plans == tuned.report().known_plans
    assert again.report().microseconds == tuned.report().microseconds
    none = tw.compile(tmp_path / "m.twm", options=tw.Options(plans="", memory="bytes"))
    assert none.report().known_plans == 0
    again.save(tmp_path / "n.twm")
    assert ModelFile(tmp_path / "n.twm").manifest.plans == ModelFile(tmp_path / "m.twm").manifest.plans


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_frozen_files(version: int) -> None:
    """Files of all versions of the format stay readable; they were written then, and are not made again."""
    path = FROZEN / f"version{version}.twm"
    file = ModelFile(path)
    file.check_whole()
    assert file.manifest.version == version and len(file.trusted_by([FROZEN / "trusted.pem"])) == 64
    x = np.linspace(-1, 1, 19 * 48, dtype=np.float32).reshape(19, 48)
    many = tw.load(path, entry="many", trusted=FROZEN / "trusted.pem", least_sequence=3)
    params = many.source.lower()[1].parameters.defaults["params"]
    assert {name: value.shape for name, value in params.items()} == {"w": (48, 32), "b": (32,)}
    for chip in (None, "ascend-310p3", "ascend-310"):
        program = tw.load(path, chip, "many")
        np.testing.assert_allclose(program(x=x), np.tanh(x @ params["w"] + params["b"]), rtol=2e-5, atol=2e-5)
        assert program.report().microseconds > 0
    assert tw.load(path, entry="one")(x=x[:1]).shape == (1, 32)


def test_what_version_2_has_more() -> None:
    """Open sizes, sizes that equal others, and products of integers."""
    path = FROZEN / "version2.twm"
    x = np.linspace(-1, 1, 19 * 48, dtype=np.float32).reshape(19, 48)
    for chip in (None, "ascend-310"):
        near = tw.load(path, chip, "many")(x=x)
        np.testing.assert_allclose(tw.load(path, chip, "int8")(x=x), near, atol=0.1)
        program = tw.load(path, chip, "open")
        for rows, others in ((5, 3), (4, 4), (30, 7)):
            both = [np.arange(8 * n, dtype=np.float32).reshape(n, 8) for n in (rows, others)]
            wanted = (both[0] + (rows == others)).sum(0) - both[1].sum(0)
            np.testing.assert_array_equal(program(*both), wanted)
        assert "stablehlo" in tw.load(path, chip, "one").to_stablehlo().decode(errors="replace").lower()
