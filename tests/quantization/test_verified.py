"""What verification says of quantized programs: equality with the twin, and the SQNR against the original."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw
from tilewright.cli.main import main
from tilewright.cli.output import print_verification, verification_dict
from tilewright.verification.agreement import SQNR_MARGIN, agreement, cosine, sqnr

from .nets import NETS

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "cli.json").read_text())
INTEGERS = ("w8a8", "w8a8-dynamic", "w4a8", "w4a8-dynamic")


@sampled(8)
@pytest.mark.parametrize("mode", [*INTEGERS, "w8a16", "w4a16-g4", "f16", "origin"])
def test_the_twin_and_the_original_are_both_named(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    net, params, x = NETS["mlp"](11)
    made = tw.quantize(net, params, x, config=mode, progress=False)
    found = tw.verify(
        net, params, x, options=tw.Options(quantization=made.config), quick=True, progress=False
    )
    assert found.ok and found.verdict == "ok"
    assert found.reference == "its quantized twin in JAX"
    said = found.quantization
    assert said is not None and said.ok
    if mode in INTEGERS:
        assert said.equal == said.numbers == np.prod(made.program(params, x).shape)
        assert all(c.open == 0 for c in found.checks if c.stage == "run")
    wanted = [np.asarray(jax.jit(net)(params, x))]
    ours = [np.asarray(made.program(params, x))]
    assert said.sqnr == pytest.approx(sqnr(wanted, ours)) and said.cosine == pytest.approx(cosine(wanted, ours))
    assert said.twin_sqnr == pytest.approx(made.table.sqnr, abs=0.5) or said.twin_sqnr > 90
    print_verification(found)
    printed = capsys.readouterr().out
    assert "of the quantized twin in JAX" in printed
    assert f"against the original: SQNR {said.sqnr:.1f} dB, cosine {said.cosine:.6f}" in printed
    assert f"SQNR {said.sqnr:.1f} dB" in repr(found) and "SQNR" in found._repr_html_()
    verdict = json.loads(json.dumps(verification_dict(found)))
    assert verdict["quantization"]["equal"] == said.equal and verdict["quantization"]["ok"] is True


def test_a_plain_program_says_nothing_of_quantization() -> None:
    net, params, x = NETS["mlp"](11)
    found = tw.verify(net, params, x, quick=True, progress=False)
    assert found.quantization is None and verification_dict(found)["quantization"] is None
    with pytest.raises(tw.CompileError, match="min_sqnr is a number of decibels, of a program that options"):
        tw.verify(net, params, x, min_sqnr=20, progress=False)


def test_every_pass_is_judged_against_the_twin() -> None:
    net, params, x = NETS["heads"](4)
    options = tw.Options(quantization="w8a8-dynamic", weights="params")
    found = tw.verify(net, params, x, options=options, progress=False)
    assert found.ok and found.quantization is not None
    assert {"graph-quantized", "tile-to-npu", "run"} <= {c.stage for c in found.checks}


def test_a_packed_program_is_verified_whole() -> None:
    net, params, x = NETS["mlp"](2)
    made = tw.quantize(net, params, x, config="w8a8", weights="params", progress=False)
    found = tw.verify(net, params, x, program=made.program, quick=True, progress=False)
    assert found.ok and found.quantization is not None
    assert found.quantization.equal == found.quantization.numbers


def test_a_program_without_a_function_is_compared_with_its_own_floats() -> None:
    net, params, x = NETS["mlp"](2)
    text = str(jax.jit(net).lower(params, x).compiler_ir("stablehlo"))
    flat = jax.tree.leaves((params, x))
    options = tw.Options(quantization="w8a8-dynamic")
    found = tw.verify(text, *flat, options=options, quick=True, progress=False)
    same = tw.verify(net, params, x, options=options, quick=True, progress=False)
    assert found.quantization is not None and same.quantization is not None
    assert found.quantization.sqnr == pytest.approx(same.quantization.sqnr, abs=1e-3)
    named = tw.verify(
        text, *flat, options=options, quick=True, progress=False,
        against=lambda b, w, v, x: net({"b1": b, "w1": w, "w2": v}, x),
    )  # fmt: skip
    assert named.quantization is not None
    assert named.quantization.sqnr == pytest.approx(same.quantization.sqnr, abs=1e-3)


def test_what_is_asked_for_is_a_bound() -> None:
    net, params, x = NETS["mlp"](11)
    options = tw.Options(quantization="w4a8-dynamic")
    first = tw.verify(net, params, x, options=options, quick=True, progress=False).quantization
    assert first is not None
    for least, ok in ((first.sqnr - 1, True), (first.sqnr + 1, False)):
        found = tw.verify(net, params, x, options=options, quick=True, progress=False, min_sqnr=least)
        assert found.ok is ok and found.verdict == ("ok" if ok else "FAILED")
        assert found.quantization is not None
        assert ("It DIFFERS: at least" in found.quantization.sentences()[1]) is not ok


def test_a_bound_that_cannot_be_measured_is_refused() -> None:
    net, params, x = NETS["mlp"](11)
    options = tw.Options(quantization="w8a8-dynamic")
    with pytest.raises(tw.CompileError, match="and passes of your own are run"):
        tw.verify(net, params, x, options=options, stages=options.stages(), min_sqnr=9, progress=False)

    def on_the_host(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.linalg.cholesky(jnp.eye(8) + x @ w)

    w = np.zeros((4, 8), np.float32)
    with pytest.raises(tw.CompileError, match="and it calls the host"):
        tw.verify(on_the_host, w, np.zeros((8, 4), np.float32), options=options, min_sqnr=9, progress=False)
    found = tw.verify(
        on_the_host, w, np.zeros((8, 4), np.float32), options=options, quick=True, progress=False
    )
    assert found.ok and found.quantization is None and "own graph level" in found.reference


def test_noise_beyond_the_twins_is_a_mistake() -> None:
    rng = np.random.default_rng(1)
    original = rng.standard_normal((40, 30)).astype(np.float32)
    twin = original + np.float32(0.01) * rng.standard_normal(original.shape).astype(np.float32)

    def off(noise: float) -> np.ndarray:
        return twin + np.float32(noise) * rng.standard_normal(twin.shape).astype(np.float32)

    same = agreement([twin], [twin], [original])
    assert same.ok and same.equal == same.numbers == 1200 and same.largest == 0
    assert same.sqnr == same.twin_sqnr == pytest.approx(40, abs=0.5)
    near, far = agreement([off(0.003)], [twin], [original]), agreement([off(0.02)], [twin], [original])
    assert near.ok and near.sqnr > near.bound == near.twin_sqnr - SQNR_MARGIN
    assert not far.ok and f"at least {far.bound:.1f} dB" in far.sentences()[1]
    assert far.equal < 1200 and far.largest == pytest.approx(
        float(np.abs(off(0.02) - twin).max() / np.abs(twin).max()), rel=0.5
    )


def test_places_and_masks_are_counted_and_are_no_noise() -> None:
    floats, places = np.float32([1, np.nan, 3]), np.int32([4, 5])
    found = agreement([floats, places], [floats, np.int32([4, 6])], [floats, np.int32([9, 9])])
    assert (found.numbers, found.equal) == (5, 4)
    assert found.largest == pytest.approx(1 / 6)
    only = agreement([places], [places], [np.int32([4, 5])])
    assert only.ok and only.sqnr == float("inf")
    assert only.to_dict()["sqnr"] is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(
        "import jax, jax.numpy as jnp, numpy as np\n"
        "def net(w, x):\n"
        "    return jnp.tanh(x @ w)\n"
        "def net_inputs():\n"
        "    rng = np.random.default_rng(0)\n"
        "    return [rng.standard_normal(s).astype('float32') for s in ((64, 32), (16, 64))]\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_say_both(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--quant-config", "w8a8-dynamic"]
    for command in (["verify", "model.py:net"], ["run", "model.py:net", "--check", "--weights", "w"]):
        assert main([*command, *config]) == 0
        said = capsys.readouterr().out
        assert "all 512 numbers equal those of the quantized twin in JAX" in said
        assert "against the original: SQNR " in said and "cosine 0.99" in said
    assert main(["verify", "model.py:net", *config, "--min-sqnr", "90", "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, {"$ref": "#/$defs/verify", "$defs": SCHEMA["$defs"]})
    assert value["verdict"] == "FAILED" and value["quantization"]["least"] == 90
    assert main(["run", "model.py:net", "--check", *config, "--json"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), {"$ref": "#/$defs/run", "$defs": SCHEMA["$defs"]})
    assert main(["verify", "model.py:net", "--min-sqnr", "9"]) == 1
    assert "--min-sqnr is for programs that --quant-config quantizes" in capsys.readouterr().err
