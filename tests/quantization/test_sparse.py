"""Modes that keep two of four weights: as the dense mode on masked weights, bit for bit, and what is kept."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples, later, sampled

import tilewright as tw
from tilewright.compression.masks import two_of_four
from tilewright.dialects.npu import MmadOp
from tilewright.passes.errors import PassError

SIZES = st.integers(1, 6).map(lambda n: 8 * n)


def net(params: Any, x: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ params["w1"] * params["g"] + params["b"]) @ params["w2"]


def parameters(rng: np.random.Generator, k: int, m: int, n: int) -> Any:
    """Weights with equal and zero numbers among each four."""
    params = {
        "w1": rng.integers(-2, 3, (k, m)),
        "w2": rng.standard_normal((m, n)),
        "b": rng.standard_normal(m),
    }
    params["g"] = rng.standard_normal(m)
    return {name: jnp.asarray(p, jnp.float32) for name, p in params.items()}


def masked(params: Any) -> Any:
    return {n: jnp.where(two_of_four(p, 0), p, 0) if p.ndim == 2 else p for n, p in params.items()}


def dense(config: tw.QuantConfig) -> tw.QuantConfig:
    """The same configuration, not sparse."""
    products = {
        n: tw.ProductChoice(c.mode.removesuffix("-sparse"), c.scale, c.zero)
        for n, c in config.products.items()
    }
    return tw.QuantConfig(config.default.removesuffix("-sparse"), {}, products)


@examples(2)
@given(
    mode=st.sampled_from(["w8a8", "w8a8-dynamic", "w8a16"]),
    sizes=st.tuples(SIZES, SIZES, st.integers(1, 20)),
    rows=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_it_computes_what_masked_weights_do(
    mode: str, sizes: tuple[int, int, int], rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    params, x = parameters(rng, *sizes), jnp.asarray(rng.standard_normal((rows, sizes[0])), jnp.float32)
    made = tw.quantize(net, params, x, config=f"{mode}-sparse", progress=False)
    outputs = np.asarray(made.program(params, x))
    of_masked = tw.Options(quantization=dense(made.config), weights="params")
    np.testing.assert_array_equal(outputs, tw.compile(net, params, x, options=of_masked)(masked(params), x))
    np.testing.assert_array_equal(outputs, made.program(made.program.pack(params), x))
    in_bytes = tw.Options(memory="bytes", quantization=made.config, weights="params")
    np.testing.assert_array_equal(outputs, tw.compile(net, params, x, options=in_bytes)(params, x))
    twin = np.asarray(jax.jit(made.function)(params, x))
    assert np.mean(np.abs(outputs - twin) <= 1e-3 * np.abs(twin).max()) >= 0.999
    products = [op for op in made.program.module().walk() if isinstance(op, MmadOp)]
    assert len(products) >= 2 and all(op.index is not None for op in products)


def test_what_is_kept() -> None:
    """Half of the weights, an eighth of positions; both are the products' inputs."""
    rng = np.random.default_rng(0)
    params, x = parameters(rng, 64, 48, 24), jnp.asarray(rng.standard_normal((8, 64)), jnp.float32)
    made = tw.quantize(net, params, x, config="w8a8-sparse", progress=False)
    assert [r.weight_bytes for r in made.table.rows] == [64 * 48 * 5 // 8 + 4 * 48, 48 * 24 * 5 // 8 + 4 * 24]
    packed = [shape for shape, dtype in made.program.rest.inputs if dtype == "i8"]
    assert sorted(packed) == sorted([(48, 32), (48, 8), (24, 24), (24, 6)])


LAYOUTS = st.sampled_from([("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NCHW", "OIHW", "NHWC")])


@examples(2)
@given(
    mode=st.sampled_from(["w8a8", "w8a8-dynamic", "w8a16"]),
    layouts=LAYOUTS,
    features=st.tuples(st.sampled_from([8, 24, 72, 520]), st.integers(1, 40)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_convolutions_compute_what_masked_weights_do(
    mode: str,
    layouts: tuple[str, str, str],
    features: tuple[int, int],
    window: tuple[int, int],
    stride: int,
    dilation: int,
    seed: int,
) -> None:
    """Two of four input features are kept at each place of a window."""
    rng, (given, made_of) = np.random.default_rng(seed), features
    sizes = {"N": 2, "C": given, "I": given, "O": made_of}
    image = [sizes.get(d, 7) for d in layouts[0]]
    taps = dict(zip("HW", window, strict=True))
    kernel = rng.integers(-3, 4, [sizes.get(d, taps.get(d, 0)) for d in layouts[1]])
    params = {"k": jnp.asarray(kernel, jnp.float32)}
    x = jnp.asarray(rng.standard_normal(image), jnp.float32)

    def conv(params: Any, x: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, params["k"], (stride, stride), "SAME", rhs_dilation=(dilation, dilation), dimension_numbers=layouts
        )

    made = tw.quantize(conv, params, x, config=f"{mode}-sparse", progress=False)
    outputs = np.asarray(made.program(params, x))
    where = layouts[1].index("I")
    kept = {"k": jnp.where(two_of_four(params["k"], where), params["k"], 0)}
    of_masked = tw.Options(quantization=dense(made.config), weights="params")
    np.testing.assert_array_equal(outputs, tw.compile(conv, params, x, options=of_masked)(kept, x))
    np.testing.assert_array_equal(outputs, made.program(made.program.pack(params), x))
    in_bytes = tw.Options(memory="bytes", quantization=made.config, weights="params")
    np.testing.assert_array_equal(outputs, tw.compile(conv, params, x, options=in_bytes)(params, x))
    products = [op for op in made.program.module().walk() if isinstance(op, MmadOp)]
    assert products and all(op.index is not None for op in products)
    assert [r.weight_bytes for r in made.table.rows] == [kernel.size * 5 // 8 + 4 * made_of]


def test_what_stays_dense() -> None:
    """Sums of no whole bytes of positions, and convolutions of groups."""
    rng = np.random.default_rng(1)
    params = {"k": jnp.asarray(rng.standard_normal((3, 3, 12, 16)), jnp.float32)}
    params["g"] = jnp.asarray(rng.standard_normal((1, 1, 8, 4)), jnp.float32)
    params["w"] = jnp.asarray(rng.standard_normal((36, 5)), jnp.float32)

    def conv(params: Any, x: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, params["k"], (1, 1), "VALID", dimension_numbers=numbers)
        y = jax.lax.conv_general_dilated(
            y, params["g"], (1, 1), "VALID", dimension_numbers=numbers, feature_group_count=2
        )
        return y.reshape(len(y), -1) @ params["w"]

    x = jnp.asarray(rng.standard_normal((2, 5, 5, 12)), jnp.float32)
    sparse, whole = (tw.quantize(conv, params, x, config=m, progress=False) for m in ("w8a8-sparse", "w8a8"))
    np.testing.assert_array_equal(sparse.program(params, x), whole.program(params, x))
    assert [r.weight_bytes for r in sparse.table.rows] == [r.weight_bytes for r in whole.table.rows]


@later()
def test_weights_that_are_zero_have_no_gradient() -> None:
    rng = np.random.default_rng(2)
    params, x = parameters(rng, 16, 24, 4), jnp.asarray(rng.standard_normal((32, 16)), jnp.float32)
    made = tw.quantize(net, params, x, config="w8a8-sparse", progress=False)
    grads = jax.grad(lambda p: jnp.sum(jnp.square(made.function(p, x))))(params)
    mask = np.asarray(two_of_four(params["w2"], 0))
    assert not np.asarray(grads["w2"])[~mask].any() and np.asarray(grads["w2"])[mask].any()


@sampled(6)
@pytest.mark.parametrize("recover", ["smooth", "awq", "bias", "gptq", "round"])
def test_what_recovers(recover: str) -> None:
    """Balances take part in what is kept; the rounding of sparse weights stays as it is."""
    rng = np.random.default_rng(3)
    params = parameters(rng, 64, 32, 8)
    x = jnp.asarray(rng.standard_normal((64, 64)) * np.exp(rng.standard_normal(64)), jnp.float32)
    plain, made = (
        tw.quantize(net, params, x, config="w8a8-sparse", recover=r, progress=False) for r in ((), recover)
    )
    if recover in ("gptq", "round"):
        assert all(c.stored is None for c in made.config.products.values())
        np.testing.assert_array_equal(made.program(params, x), plain.program(params, x))
    else:
        assert made.table.sqnr > plain.table.sqnr


def test_mistakes() -> None:
    rng = np.random.default_rng(4)
    params, x = parameters(rng, 16, 8, 4), jnp.asarray(rng.standard_normal((4, 16)), jnp.float32)
    with pytest.raises(
        tw.CompileError, match=r"the cube of ascend-310 has no products of sparse weights: take w8a8$"
    ):
        tw.quantize(net, params, x, config="w8a8-sparse", target="ascend-310", progress=False)
    with pytest.raises(
        PassError, match="there is no mode 'w4a8-sparse' of quantization; did you mean 'w8a8-sparse'"
    ):
        tw.QuantConfig("w4a8-sparse")
    stored = {"stored": np.ones((16, 8), np.int8), "scales": np.ones(8, np.float32)}
    config = tw.QuantConfig("origin", {}, {"params['w1']": tw.ProductChoice("w8a8-sparse", 0.5, **stored)})
    with pytest.raises(
        tw.CompileError, match="stored weights of which two of four are zero, and the configuration"
    ):
        tw.compile(net, params, x, options=tw.Options(quantization=config))
