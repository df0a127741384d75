"""What reports say of quantized programs: each kernel's types, and the modes that a configuration chose."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw

from .nets import array

rng = np.random.default_rng(5)
PARAMS = {"w1": array(rng, 64, 96), "w2": array(rng, 96, 48), "w3": array(rng, 48, 32)}
X = jnp.asarray(rng.standard_normal((40, 64)), jnp.float32)


def net(params, x):
    return jnp.tanh(jnp.tanh(x @ params["w1"]) @ params["w2"]) @ params["w3"]


CONFIG = tw.QuantConfig("w8a8-dynamic", {"params['w2']": "f16", "params['w3']": "origin"})


@pytest.mark.parametrize("weights", [None, "params"])
def test_kernels_say_types_names_and_modes(weights: str | None) -> None:
    options = tw.Options(quantization=CONFIG, weights=weights)
    report = tw.compile(net, PARAMS, X, options=options).report()
    found = {name: (k.precision, mode) for k in report.kernels for name, mode in k.modes.items()}
    assert found == {
        "params['w1']": ("i8 -> i32", "w8a8-dynamic"),
        "params['w2']": ("f16 -> f32", "f16"),
        "params['w3']": ("f32 -> f32", "origin"),
    }
    products = [k for k in report.kernels if k.macs]
    assert len(products) == 3 and all(len(k.modes) == 1 for k in products)
    assert not any(k.modes for k in report.kernels if not k.macs)  # what quantizes is no product
    line = net.__code__.co_firstlineno + 1
    assert all(k.source == f"{__file__}:{line}" for k in products)  # not where scales are multiplied
    assert "i8 -> i32 (w8a8-dynamic)" in report.table(200)
    assert sum(row.macs for row in report.by_precision) == sum(k.macs for k in report.kernels)


def test_kernels_that_are_shared_have_all_names() -> None:
    params = {"a": array(rng, 64, 64), "b": array(rng, 64, 64)}

    def twice(params, x):
        return jnp.tanh(jnp.tanh(x @ params["a"]) @ params["b"])

    options = tw.Options(quantization="origin")
    report = tw.compile(twice, params, X, options=options).report()
    (shared,) = [k for k in report.kernels if k.modes]
    assert shared.launches == 2
    assert shared.modes == {"params['a']": "origin", "params['b']": "origin"}


def test_pinned_tiles_and_casts_are_seen_too() -> None:
    def plain(x, w):
        return jax.nn.relu(x @ w)

    for precision, wanted in (("origin", "f32 -> f32"), ("mixed_float16", "f16 -> f32")):
        options = tw.Options(precision=precision, schedule=tw.Schedule(base_m=16))
        report = tw.compile(plain, X, PARAMS["w1"], options=options).report()
        assert [k.precision for k in report.kernels if k.macs] == [wanted]
        assert not any(k.modes for k in report.kernels)
