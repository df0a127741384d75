"""What of a model file is for any chip and tool: StableHLO, how products are quantized, what open sizes leave out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.files.against import verify_file
from tilewright.cli.main import main
from tilewright.modelfile.archive import Archive, ModelFileError

DRAW = np.random.default_rng(5)
PARAMS = {"a": DRAW.standard_normal((64, 32)).astype("f4"), "b": DRAW.standard_normal(32).astype("f4")}
X = DRAW.standard_normal((8, 64)).astype("f4")


def forward(params: dict[str, Any], x: jax.Array) -> dict[str, jax.Array]:
    return {"y": jnp.tanh(x @ params["a"]) + params["b"]}


def closed(x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ jnp.asarray(PARAMS["a"])) + PARAMS["b"]


def entry_of(path: Path) -> dict[str, Any]:
    return json.loads(Archive(path).read("manifest.json", 1 << 20))["entries"]["main"]


def open_(*names: str, fn: Any, width: int = 64, **options: Any) -> Any:
    sizes = jax.export.symbolic_shape(", ".join(names))
    types = [jax.ShapeDtypeStruct((n, width), np.float32) for n in sizes]
    return tw.compile(fn, *types, options=tw.Options(**options))


# -- StableHLO -----------------------------------------------------------------------------------------------


def test_the_artifact_is_the_program(tmp_path: Path) -> None:
    """It is in the file, the same from run to run, and from a loaded program; what it says has the same values."""
    program = tw.compile(closed, X)
    program.save(tmp_path / "m.twm")
    member = entry_of(tmp_path / "m.twm")["stablehlo"]
    artifact = Archive(tmp_path / "m.twm").read(member, 1 << 20)
    assert artifact == program.to_stablehlo() == tw.compile(closed, X).to_stablehlo()
    for chip in (None, "ascend-310"):
        loaded = tw.load(tmp_path / "m.twm", chip)
        assert loaded.to_stablehlo() == artifact
    again = tw.compile(artifact)
    np.testing.assert_array_equal(again(X), program(X))
    assert again.to_stablehlo() == artifact
    tw.load(tmp_path / "m.twm").save(tmp_path / "n.twm")
    assert (tmp_path / "n.twm").read_bytes() == (tmp_path / "m.twm").read_bytes()
    assert str(Path(__file__).parent).encode() not in artifact


def test_all_inputs_are_in_it() -> None:
    program = tw.compile(lambda x, unused, y: x - y, X, X[0], X)
    again = tw.compile(program.to_stablehlo())
    assert again.input_types == ("f32[8, 64]", "f32[64]", "f32[8, 64]")
    np.testing.assert_array_equal(again(X, X[0], 2 * X), -X)


def test_few_constants_or_as_it_is_told(tmp_path: Path) -> None:
    table = DRAW.standard_normal((256, 128)).astype("f4")
    large, small = tw.compile(lambda x: x @ table, np.ones((2, 256), "f4")), tw.compile(closed, X)
    for program, told, there in ((large, None, False), (large, True, True), (small, None, True), (small, False, False)):
        program.save(tmp_path / "m.twm", stablehlo=told)
        assert bool(entry_of(tmp_path / "m.twm").get("stablehlo")) is there


def test_programs_of_nothing_such(tmp_path: Path) -> None:
    (tmp_path / "f.tw").write_text("fn f(x: f32[4, 4]) -> f32[4, 4] { return exp(x) }\n")
    program = tw.compile(str(tmp_path / "f.tw"))
    left_out = tw.compile(jax.jit(lambda x, y: x).lower(X, X))
    program.save(tmp_path / "m.twm")
    left_out.save(tmp_path / "l.twm")
    assert "stablehlo" not in entry_of(tmp_path / "m.twm") and "stablehlo" not in entry_of(tmp_path / "l.twm")
    for made, why in ((program, "f comes from no StableHLO"), (left_out, "JAX has left out inputs that nothing uses")):
        with pytest.raises(tw.CompileError, match=why):
            made.to_stablehlo()
        with pytest.raises(tw.CompileError, match=r"^save: main"):
            made.save(tmp_path / "no.twm", stablehlo=True)
    assert not (tmp_path / "no.twm").exists()


def test_open_sizes_and_a_version_of_them(tmp_path: Path) -> None:
    program = open_("n", fn=lambda x: jnp.tanh(x) * x.shape[0])
    program.save(tmp_path / "m.twm")
    loaded = tw.load(tmp_path / "m.twm")
    assert loaded.to_stablehlo() == program.to_stablehlo()
    for made in (program.at(n=8), loaded.at(n=8), tw.compile(program.to_stablehlo()).at({"arg0_0": 8})):
        np.testing.assert_array_equal(tw.compile(made.to_stablehlo())(X), program(X))


def test_emitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "m.mlir"
    source.write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %y = stablehlo.tanh %x : tensor<4xf32>\n"
        "  return %y : tensor<4xf32>\n}\n"
    )
    assert main(["compile", str(source), "--emit", "stablehlo"]) == 0
    assert "stablehlo.tanh %arg0 : tensor<4xf32>" in capsys.readouterr().out
    made = tmp_path / "m.mlirbc"
    assert main(["compile", str(source), "--emit", "stablehlo", "-o", str(made)]) == 0
    assert made.read_bytes() == tw.compile(str(source)).to_stablehlo()
    file = str(tmp_path / "m.twm")
    assert main(["compile", str(source), "-o", file, "--no-stablehlo"]) == 0
    assert main(["inspect", file]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["main", "f32[4]", "ascend-910b1", "graph"]
    assert main(["compile", str(source), "-o", str(made), "--stablehlo"]) == 1
    assert "--stablehlo is for model files" in capsys.readouterr().err


# -- quantized products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, ("params",)], ids=["plain", "packed"])
@pytest.mark.parametrize("mode", ["w8a8-dynamic", "w4a16-g32", "w8a8-dynamic-sparse"])
def test_a_file_says_how_it_is_quantized(mode: str, weights: Any, tmp_path: Path) -> None:
    program = tw.compile(forward, PARAMS, X, options=tw.Options(quantization=mode, weights=weights))
    tw.save(program, tmp_path / "m.twm", weights={"params": PARAMS})
    found = verify_file(tmp_path / "m.twm", forward, PARAMS, X)
    agreement = found.verification.quantization
    assert found.ok and agreement is not None and agreement.ok and found.sqnr == agreement.sqnr
    assert not verify_file(tmp_path / "m.twm", forward, PARAMS, X, min_sqnr=60).ok
    other = {**PARAMS, "b": PARAMS["b"] + 1}
    assert not verify_file(tmp_path / "m.twm", forward, other, X).ok
    loaded = tw.load(tmp_path / "m.twm")
    np.testing.assert_array_equal(loaded(x=X)["y"], program(PARAMS, X)["y"])
    tw.save(loaded, tmp_path / "n.twm", weights=None if weights else {"params": PARAMS})
    assert (tmp_path / "n.twm").read_bytes() == (tmp_path / "m.twm").read_bytes()


@pytest.mark.parametrize("recover", ["", "bias", "gptq", "smooth"])
def test_what_calibration_found_is_for_other_chips(recover: str, tmp_path: Path) -> None:
    """Scales and arrays of a configuration are in the file: another chip computes what it would from the source."""
    data = [(DRAW.standard_normal((8, 64)).astype("f4"),) for _ in range(3)]
    config = tw.quantize(closed, X, data=data, recover=recover or (), progress=False).config
    options = tw.Options(quantization=config)
    tw.compile(closed, X, options=options).save(tmp_path / "m.twm")
    other = tw.compile(closed, X, target="ascend-310", options=options)
    loaded = tw.load(tmp_path / "m.twm", "ascend-310")
    np.testing.assert_array_equal(loaded(X), other(X))
    assert loaded.report().microseconds == other.report().microseconds
    assert verify_file(tmp_path / "m.twm", closed, X).ok
    assert tw.verify(str(tmp_path / "m.twm"), X, quick=True).quantization is not None


def test_open_sizes_are_quantized_for_other_chips(tmp_path: Path) -> None:
    program = open_("n", fn=closed, quantization="w8a8-dynamic")
    program(X)
    program.save(tmp_path / "m.twm")
    for chip in (None, "ascend-310"):
        loaded = tw.load(tmp_path / "m.twm", chip)
        own = open_("n", fn=closed, quantization="w8a8-dynamic") if chip is None else tw.compile(
            closed, jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 64"), np.float32), target=chip,
            options=tw.Options(quantization="w8a8-dynamic"))  # fmt: skip
        for rows in (1, 3, 8):
            np.testing.assert_array_equal(loaded(X[:rows]), own(X[:rows]))


def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    from tilewright.api.files.options import options_in

    for said in ({"table": {"default": "w9"}, "arrays": {}}, {"table": {}, "arrays": {"p": {}}}, {"table": []}, []):
        with pytest.raises((tw.CompileError, KeyError, TypeError, ValueError)):
            options_in({"quantization": said}, lambda key: pytest.fail(key))


# -- open sizes ----------------------------------------------------------------------------------------------


def apart(x: jax.Array, y: jax.Array) -> jax.Array:
    return (x + y).sum(0) if x.shape[0] == y.shape[0] else x.sum(0) - y.sum(0)


def of_three(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    found = apart(x, y)
    return found * 2 if y.shape[0] == z.shape[0] else found + z.sum(0)


def twice(x: jax.Array, y: jax.Array) -> jax.Array:
    return x.sum(0) * y.sum(0) if x.shape[0] == 2 * y.shape[0] + 1 else x.sum(0) - y.sum(0)


@pytest.mark.parametrize(
    ("fn", "sizes"),
    [
        (apart, [(3, 5), (4, 4), (1, 1), (1, 4), (20, 20)]),
        (of_three, [(2, 3, 4), (3, 3, 4), (3, 4, 4), (4, 4, 4), (4, 3, 4), (1, 1, 1)]),
        (twice, [(5, 2), (4, 2), (3, 1), (9, 4)]),
    ],
    ids=["equal", "three", "twice"],
)
def test_sizes_that_equal_others(fn: Any, sizes: Any, tmp_path: Path) -> None:
    """What a function is where one size is another one is in the file, for all chips; it is saved anew."""
    program = open_(*"abc"[: len(sizes[0])], fn=fn, width=8)
    program.save(tmp_path / "m.twm")
    tw.load(tmp_path / "m.twm").save(tmp_path / "n.twm")
    assert (tmp_path / "n.twm").read_bytes() == (tmp_path / "m.twm").read_bytes()
    for path, chip in ((tmp_path / "m.twm", None), (tmp_path / "n.twm", "ascend-310")):
        loaded = tw.load(path, chip)
        for each in sizes:
            arrays = [DRAW.integers(-8, 9, (n, 8)).astype("f4") for n in each]
            np.testing.assert_array_equal(loaded(*arrays), fn(*map(jnp.asarray, arrays)))


def test_programs_for_single_sizes_are_saved_anew(tmp_path: Path) -> None:
    """A loaded program is saved with all that its file has, whatever was called of it."""
    program = open_("a", "b", fn=apart, width=8)
    for a, b in ((4, 4), (7, 7), (40, 3), (1, 1)):
        program.at(a=a, b=b)
    program.save(tmp_path / "m.twm")
    before = entry_of(tmp_path / "m.twm")["open"]
    loaded = tw.load(tmp_path / "m.twm")
    loaded.save(tmp_path / "n.twm")
    assert (tmp_path / "n.twm").read_bytes() == (tmp_path / "m.twm").read_bytes()
    loaded.at(a=100, b=3)
    loaded.save(tmp_path / "n.twm", targets=["ascend-310"])
    after = entry_of(tmp_path / "n.twm")["open"]
    (chip,) = before["alone"]
    assert [row["sizes"] for row in before["alone"][chip]] == [[1, 1], [4, 4], [7, 7]]
    for each in (chip, "ascend-310"):
        assert [row["sizes"] for row in after["alone"][each]] == [[1, 1], [4, 4], [7, 7]]
        assert [row["ranges"] for row in after["versions"][each]] == [
            [list(r) for r in key] for key in sorted(loaded.ranges)
        ]
    assert len(after["versions"][chip]) == len(before["versions"][chip]) + 1
    assert not any("reason" in row for row in after["versions"][chip] if row["ranges"][0] != row["ranges"][1])


def test_files_for_their_chips_alone(tmp_path: Path) -> None:
    config = tw.Options(quantization="w8a8-dynamic")
    for program in (tw.compile(closed, X, options=config), open_("n", fn=closed)):
        program(X)
        program.save(tmp_path / "m.twm")
        program.save(tmp_path / "n.twm", portable=False, targets=["ascend-310"])
        both = [Archive(tmp_path / name).places for name in ("m.twm", "n.twm")]
        assert [any(name.startswith("graph/") for name in places) for places in both] == [True, False]
        np.testing.assert_array_equal(tw.load(tmp_path / "n.twm")(X), program(X))
        with pytest.raises((tw.CompileError, ModelFileError), match=r"no graph level"):
            tw.load(tmp_path / "n.twm", "ascend-310p3")(X)
