"""Each mode on small nets: the compiled program in both memories against its twin in JAX, and the twin's gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from tiering import covering, sampled

import tilewright as tw

from .nets import NETS

MODES = (
    "w8a8",
    "w8a8-dynamic",
    "w8a16",
    "w4a16-g4",
    "w4a4",
    "w4a8",
    "w4a8-dynamic",
    "f16",
    "origin",
    "f8",
    "f8-e5m2",
    "f8-dynamic",
)
INTEGERS = ("w8a8", "w8a8-dynamic", "w4a8", "w4a8-dynamic")
LEAST = {"w8a8": 22, "w8a8-dynamic": 22, "w8a16": 25, "w4a16-g4": 8, "w4a8": 6, "w4a8-dynamic": 6, "f16": 45}
LEAST |= {"w4a4": 2, "f8": 16, "f8-e5m2": 10, "f8-dynamic": 16}
"""The least SQNR in dB that a mode has on any of these nets."""

TARGETS = dict.fromkeys(("f8", "f8-e5m2", "f8-dynamic"), "ascend-950pr")
"""The machines of modes that the default one does not have."""


def leaves(x):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(x)]


@covering(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", NETS)
def test_the_program_computes_what_its_twin_does(kind: str, mode: str) -> None:
    seed = (MODES.index(mode) * 7 + 3 * len(kind)) % 23
    net, params, x = NETS[kind](seed, "float16" if seed % 3 == 0 and mode != "w4a16-g4" else "float32")
    made = tw.quantize(net, params, x, config=mode, target=TARGETS.get(mode), progress=False)
    wanted = leaves(jax.jit(made.function)(params, x))
    options = tw.Options(memory="bytes", quantization=made.config, weights="params")
    outputs = leaves(made.program(params, x))
    in_bytes = leaves(tw.compile(net, params, x, target=TARGETS.get(mode), options=options)(params, x))
    for a, b, c in zip(outputs, in_bytes, wanted, strict=True):
        assert a.tobytes() == b.tobytes()
        largest = np.abs(c.astype(np.float64)).max(initial=1e-6)
        near = np.abs(a.astype(np.float64) - c.astype(np.float64)) <= 1e-3 * largest
        assert near.mean() >= 0.999
    if mode != "origin":
        assert made.table.sqnr > LEAST[mode]


@sampled(3)
@pytest.mark.parametrize("mode", TARGETS)
def test_8_bit_floats_are_multiplied_and_kept_as_they_are_stored(mode: str) -> None:
    net, params, x = NETS["mlp"](3)
    made = tw.quantize(net, params, x, config=mode, target=TARGETS[mode], progress=False)
    program = made.program
    kinds = {str(op.operands[0].type) for op in program.module("npu").walk() if op.name == "npu.mmad"}
    name = "f8E5M2" if mode == "f8-e5m2" else "f8E4M3FN"
    assert kinds and all(f"x{name}, l0a" in kind for kind in kinds)
    kept = [np.prod(shape) for shape, dtype in program.rest.inputs if dtype == name]
    assert sum(kept) == params["w1"].size + params["w2"].size
    assert not program.report().host_ops
    # sums leave the cube times the factors of their features, and those of f8 as what is stored, begun as their bias
    ops = [*program.module("npu").walk()]
    scaled = [op for op in ops if op.name == "npu.fixpipe" and op.scales is not None]  # pyright: ignore[reportAttributeAccessIssue]
    biased = [op for op in ops if op.name == "npu.mmad" and op.bias is not None]  # pyright: ignore[reportAttributeAccessIssue]
    assert (len(scaled), len(biased)) == {"f8": (2, 1), "f8-e5m2": (1, 0), "f8-dynamic": (0, 0)}[mode]


@pytest.mark.parametrize(("rows", "k"), [(5, 37), (1, 1), (3, 64)])
def test_rows_have_scales_of_their_own_in_8_bit_floats(rows: int, k: int) -> None:
    """Against numpy, with rows of very different sizes, and one of zeros."""
    rng = np.random.default_rng(11)
    w = rng.standard_normal((k, 6)).astype(np.float32)
    x = (rng.standard_normal((rows, k)) * 10.0 ** rng.integers(-6, 7, (rows, 1))).astype(np.float32)
    x[1:2] = 0

    def stored(a: np.ndarray, axis: int) -> np.ndarray:
        scale = np.maximum(np.abs(a).max(axis, keepdims=True), np.float32(2.0**-100)) * np.float32(1 / 448)
        units = np.clip(a * (np.float32(1) / scale), -448, 448).astype(ml_dtypes.float8_e4m3fn)
        return units.astype(np.float64) * scale

    def net(params, x):
        return x @ params["w"]

    options = tw.Options(quantization=tw.QuantConfig("f8-dynamic"), weights="params")
    program = tw.compile(net, {"w": jnp.asarray(w)}, jnp.asarray(x), target="ascend-950pr", options=options)
    wanted = stored(x, 1) @ stored(w, 0)
    near = 1e-5 * (np.abs(stored(x, 1)) @ np.abs(stored(w, 0)))
    assert (np.abs(np.asarray(program({"w": w}, x)) - wanted) <= near).all()


def test_the_gradient_is_straight_through() -> None:
    net, params, x = NETS["mlp"](5)
    made = tw.quantize(net, params, x, config="w8a8", progress=False)
    scales = {name: (made.config.products[f"params['{name}']"].scale, made.config.products[f"params['{name}']"].zero)
              for name in ("w1", "w2")}  # fmt: skip

    def rounded(x, scale, zero, low, high):
        units = x / scale
        stored = jnp.clip(jnp.round(units) + zero, low, high) - zero
        kept = jnp.where(jnp.round(units) == stored, units, jax.lax.stop_gradient(units))
        return (kept + jax.lax.stop_gradient(stored - kept)) * scale

    def straight(params, x):
        for name in ("w1", "w2"):
            w = params[name]
            scale = jax.lax.stop_gradient(jnp.abs(w).max(0, keepdims=True) / 127)
            x = rounded(x, *scales[name], -128, 127) @ rounded(w, scale, 0, -127, 127)
            x = jax.nn.relu(x + params["b1"]) if name == "w1" else x
        return x

    def loss(net):
        return lambda params: (net(params, x) ** 2).mean()

    ours, wanted = (jax.jit(jax.grad(loss(f)))(params) for f in (made.function, straight))
    for name in params:
        np.testing.assert_allclose(
            ours[name], wanted[name], rtol=0.05, atol=0.02 * np.abs(wanted[name]).max()
        )


def test_training_as_the_program_computes_lowers_its_loss() -> None:
    net, params, x = NETS["scanned"](2)
    target = net(params, x)
    made = tw.quantize(net, params, x, config="w4a8", progress=False)

    @jax.jit
    def loss(params):
        return ((made.function(params, x) - target) ** 2).mean()

    tuned, before = params, float(loss(params))
    for _ in range(60):
        tuned = jax.tree.map(lambda p, g: p - 0.05 * g, tuned, jax.grad(loss)(tuned))
    assert float(loss(tuned)) < before


def test_an_integer_layer_is_the_integer_model() -> None:
    """A product, a bias and a relu between two quantizations, in numpy integers."""
    net, params, x = NETS["mlp"](7)
    made = tw.quantize(net, params, x, config="w8a8", method="minmax", progress=False)
    first, second = (made.config.products[f"params['{n}']"] for n in ("w1", "w2"))

    def short(f):
        return (np.asarray(f, np.float32).view(np.uint32) & 0x7FFFE000).view(np.float32)

    def weights(w, step, shift):
        w = np.asarray(w, np.float32)
        top = np.maximum(np.abs(w).max(0), np.float32(2.0**-100)) * np.float32(1 / 127)
        if shift is not None:
            top = np.maximum(top, np.abs(shift) * np.float32(1 / (step * 2.0**24)))
        unit = short(top * np.float32(step))
        scale = unit * np.float32(1 / step)
        return np.clip(np.rint(w * (np.float32(1) / scale)), -127, 127).astype(np.int64), unit

    def sums(q, zero, w, shift, unit):
        bias = 0 if shift is None else np.rint(np.float32(shift) / unit).astype(np.int64)
        return (q - zero) @ w + bias

    def store(x, scale, zero):
        return np.clip(np.rint(np.float32(x) * np.float32(1 / scale)) + zero, -128, 127).astype(np.int64)

    b1 = np.asarray(params["b1"], np.float32)
    w1, unit1 = weights(params["w1"], first.scale, b1)
    w2, unit2 = weights(params["w2"], second.scale, None)
    total = np.maximum(sums(store(x, first.scale, first.zero), first.zero, w1, b1, unit1), 0)
    factor = short(unit1 * np.float32(1 / second.scale))
    stored = np.clip(np.rint(total.astype(np.float32) * factor) + second.zero, -128, 127).astype(np.int64)
    wanted = sums(stored, second.zero, w2, None, unit2).astype(np.float32) * unit2
    np.testing.assert_array_equal(np.asarray(made.program(params, x)), wanted)
