"""Configurations as text, and what people give by mistake."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw
from tilewright.passes.errors import CompileError, PassError
from tilewright.quantization.search import search

from .nets import NETS


def test_a_configuration_survives_its_file(tmp_path) -> None:
    arrays = {"stored": np.arange(6, dtype=np.int8).reshape(2, 3), "scales": np.float32([1, 2, 3])}
    product = tw.ProductChoice("w4a8", 0.125, -3, **arrays)
    config = tw.QuantConfig(
        "f16", {"params['a']*": "w8a8"}, {"params['w']": product, "b": tw.ProductChoice("f16")}
    )
    config.save(tmp_path / "q.toml")
    read = tw.QuantConfig.load(tmp_path / "q.toml")
    assert (read.default, read.pins, read.products.keys()) == (
        config.default,
        config.pins,
        config.products.keys(),
    )
    found = read.products["params['w']"]
    assert (found.mode, found.scale, found.zero) == ("w4a8", 0.125, -3)
    assert all(np.array_equal(getattr(found, k), v) for k, v in arrays.items())
    assert read.mode_of("params['a'][0]") == "w8a8" and read.mode_of("c") == "f16"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default = 'w9a9'", "there is no mode 'w9a9'"),
        ("default = 3", "default of the configuration is 3"),
        ("colour = 'red'", "the configuration has 'colour'"),
        ("[products.x]\ninput = {scale = 1.0}", "products.x has no mode"),
        ("[products.x]\nmode = 'w8a8'\ninput = {scale = 0.0}", "has the scale 0.0"),
        ("[products.x]\nmode = 'w8a8'\ninput = {scale = inf}", "has the scale inf"),
        ("this is no toml", "quantization: Expected"),
        ("arrays = 'nothing.npz'", "nothing.npz"),
    ],
)
def test_mistakes_in_a_file(tmp_path, text: str, said: str) -> None:
    (tmp_path / "q.toml").write_text(text)
    with pytest.raises(PassError, match=r"q\.toml") as error:
        tw.QuantConfig.load(tmp_path / "q.toml")
    assert said in str(error.value) and "\n" not in str(error.value)


def test_mistakes_of_a_caller() -> None:
    net, params, x = NETS["mlp"](5)

    def refused(match: str, **options) -> None:
        with pytest.raises(CompileError, match=match):
            tw.quantize(net, params, x, progress=False, **options)

    refused("the data has no batches", data=[])
    refused("batch 1 of the data: x has NaN or infinity", data=[x, x.at[0, 0].set(jnp.nan)])
    refused("batch 0 of the data: argument x of net must be", data=[x[:, :-1]])
    refused("batch 0 of the data has 3 arguments", data=[(x, x, x)])
    refused(
        "no product .params..w9",
        config=tw.QuantConfig(products={"params['w9']": tw.ProductChoice("f16")}),
    )
    refused("no product and no kernel fits the pin 'vision", config=tw.QuantConfig("f16", {"vision.*": "w8a8"}))
    refused("there is no recovery 'magic'", recover="magic")
    refused("there is no metric 'taste'", metric="taste")
    refused("the metric needs labels", metric="accuracy")
    for target in (n for n in tw.Machine.names() if n != "ascend-950pr"):
        for mode, name in (("f8", "f8E4M3FN"), ("f8-e5m2", "f8E5M2")):
            refused(f"has the mode {mode}, and the cube of {target} has no {name}", config=mode, target=target)
    refused("no argument is called 'weights'", weights="weights")
    with pytest.raises(CompileError, match="needs the scale of its input"):
        tw.compile(net, params, x, options=tw.Options(quantization="w8a8"))
    with pytest.raises(CompileError, match="quantization must be"):
        tw.Options(quantization=8)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("mode", "most"), [("w8a16", 127), ("w4a16", 7)])
def test_stored_weights_of_a_configuration_are_multiplied(mode: str, most: int) -> None:
    """In the place of those that the program is given, from one end of what the mode stores to the other."""
    rng = np.random.default_rng(3)
    stored, scales = rng.integers(-most, most + 1, (16, 6)), (2.0 ** rng.integers(-6, 0, 6)).astype("f4")
    stored[0, 0], stored[1, 1] = -most, most

    def compiled(given: np.ndarray) -> tw.Program:
        product = tw.ProductChoice(mode, stored=given, scales=scales)
        options = tw.Options(quantization=tw.QuantConfig(products={"w": product}), weights="w")
        return tw.compile(lambda x, w: x @ w, x, jnp.ones((16, 6), jnp.float16), options=options)

    x = jnp.asarray(rng.integers(-4, 5, (3, 16)), jnp.float16)
    got = compiled(stored)(x, jnp.ones((16, 6), jnp.float16))
    np.testing.assert_allclose(got, np.asarray(x, "f4") @ (stored * scales), rtol=2e-3)
    for beyond in (-most - 1, most + 1):
        with pytest.raises(CompileError, match=rf"{beyond}.*; its mode takes -{most} to {most}$"):
            compiled(np.where(stored == np.sign(beyond) * most, beyond, stored))


@sampled(8)
@pytest.mark.parametrize(
    "recover", ["equalize", "smooth", "awq", "gptq", "round", "bias", ("smooth", "gptq", "bias")]
)
def test_recovery(recover) -> None:
    """No step makes the outputs much worse, and each program stays equal to its twin."""
    net, params, x = NETS["convs" if recover in ("equalize", "gptq", "round", "bias") else "mlp"](9)
    mode = (
        "w8a8" if recover in ("equalize", "smooth") else "w4a8"
    )  # they give ranges to weights, which need the bits
    plain = tw.quantize(net, params, x, config=mode, progress=False)
    made = tw.quantize(net, params, x, config=mode, recover=recover, progress=False)
    assert made.table.sqnr > plain.table.sqnr - 3
    assert np.array_equal(made.program(params, x), made.function(params, x))


def test_a_search_finds_a_front() -> None:
    net, params, x = NETS["mlp"](9)
    modes, pins = ("f16", "w8a8", "w4a8"), {"params['w2']": "f16"}
    found = search(net, params, x, modes=modes, max_drop=60, pins=pins, progress=False)
    assert found.best is not None and found.best in found.points and found.front
    assert found.best.config.mode_of("params['w2']") == "f16"
    assert len(found.sensitivity) == 2
    program = tw.compile(net, params, x, options=tw.Options(quantization=found.best.config, weights="params"))
    assert program.report().microseconds == pytest.approx(found.best.microseconds)
