"""Bounds of integers, of bits and of quantized chains: they contain what is off, and stay small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tiering import later, sampled
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.backends.interpreter.graph import main_of
from tilewright.dialects.scalars import settle
from tilewright.frontends import lower_function
from tilewright.verification.functions import evaluate
from tilewright.verification.structure import Cache
from tilewright.verification.tolerance import LIKELY
from tilewright.verification.walk import GraphWalk, Settings

NUMBERS = ("NHWC", "HWIO", "NHWC")
STORED = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def bounded(fn: Callable[..., Any], xs: list[Any], es: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The result of a function of one op on operands that may be off by `es`, None where they are exact; its bound."""
    (op,) = [op for op in lower_function(fn, xs).module.walk() if op.name.startswith("graph.")]
    (y,), (bound,) = evaluate(op, [jnp.asarray(x) for x in xs], es, "worst")
    assert bound is not None
    return np.asarray(y), np.asarray(bound, np.float64)


def contains(y: np.ndarray, bound: np.ndarray, other: Any) -> bool:
    """Whether another result is within the bound of the first."""
    other = np.asarray(other)
    same = (y == other) | ((y != y) & (other != other))
    gap = np.abs(y.astype(np.float64) - other.astype(np.float64))
    return bool((same | (np.nan_to_num(gap, nan=np.inf) <= bound * (1 + 1e-6))).all())


def whole_numbers(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole numbers, how far they may be off, and others that are no further away."""
    info, rng, n = np.iinfo(kind), np.random.default_rng(seed), 4096
    near = rng.integers(-20, 20, n).clip(info.min, info.max)
    x = np.where(rng.random(n) < 0.5, near, rng.integers(info.min, info.max, n, endpoint=True))
    e = rng.integers(0, rng.choice([1, 2, 9, 1000, 2**33], n), n)
    other = (x + (e * rng.uniform(-1, 1, n)).astype(np.int64)).clip(info.min, info.max)
    return x.astype(kind), e.astype(np.float32), other.astype(kind)


@sampled(3)
@pytest.mark.parametrize("kind", STORED)
def test_bits_stay_within_their_bounds(kind: str) -> None:
    x, e, other = whole_numbers(kind, 1)
    rng, info = np.random.default_rng(2), np.iinfo(kind)
    width = 8 * x.dtype.itemsize
    ones = (1 << rng.integers(0, width - 1, x.shape)) - 1
    some = rng.integers(info.min, info.max, x.shape, endpoint=True)
    mask = np.choose(
        rng.integers(0, 3, x.shape), [ones, ~ones if info.min else info.max - ones, some]
    ).astype(kind)
    again, off, moved = (np.roll(v, 1) for v in (x, e, other))
    for fn in (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor):
        for xs, es, others in (
            ([x, mask], [e, None], [other, mask]),
            ([mask, x], [None, e], [mask, other]),
            ([x, again], [e, off], [other, moved]),
        ):
            y, bound = bounded(fn, xs, es)
            assert contains(y, bound, fn(*others)), fn
    by = rng.integers(0, width, x.shape).astype(kind)
    for fn in (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic):
        y, bound = bounded(fn, [x, by], [e, None])
        assert contains(y, bound, fn(other, by)), fn
    for wanted in STORED:
        if wanted != kind:
            y, bound = bounded(lambda x, wanted=wanted: lax.convert_element_type(x, wanted), [x], [e])
            assert contains(y, bound, other.astype(wanted)), wanted


def test_what_is_cut_off_or_kept_does_not_cost_more() -> None:
    """The end of a number, its front, and its digits: one step each, however many bits a carry changes."""
    x, e = np.int32([1023, 1024, 4096 + 8, -1]), np.float32([1, 1, 1, 1])
    cut = bounded(lax.bitwise_and, [x, np.full(4, -16, np.int32)], [e, None])[1]
    assert cut.tolist() == [16, 16, 0, 16]
    low = bounded(lax.bitwise_and, [x, np.full(4, 15, np.int32)], [e, None])[1]
    assert low.tolist() == [15, 15, 1, 15]
    assert bounded(lax.shift_right_arithmetic, [x, np.full(4, 4, np.int32)], [e, None])[1].tolist() == [
        1,
        1,
        0,
        1,
    ]


@sampled(3)
@pytest.mark.parametrize("relative", [1e-7, 1e-3, 1e-1])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_floats_read_as_bits_and_back(kind: str, relative: float) -> None:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(256) * 2.0 ** rng.integers(-10, 10, 256), kind)
    e = np.abs(np.asarray(x, np.float32)) * np.float32(relative)
    far = np.asarray(x, np.float32) + e * rng.uniform(-1, 1, 256).astype(np.float32)
    unsigned = {"float32": "uint32"}.get(kind, "uint16")

    def read(x: Any) -> Any:
        return lax.bitcast_convert_type(x, unsigned)

    off = jnp.abs(jnp.asarray(far, kind).astype("float32") - x.astype("float32"))
    other = jnp.where(off <= e, jnp.asarray(far, kind), x)
    y, bound = bounded(read, [x], [e])
    assert contains(y, bound, read(other))
    digits = 2.0 ** (jnp.finfo(kind).nmant + 1)
    assert (bound <= 4 * relative * digits).all()
    z, back = bounded(lambda n: lax.bitcast_convert_type(n, kind), [y], [bound.astype(np.float32)])
    assert contains(z.astype(np.float32), back, np.asarray(other, np.float32))
    assert (back <= (8 * relative + 1 / digits) * np.abs(np.asarray(x, np.float32))).all()


def test_where_the_sign_is_unsure_bits_are_open() -> None:
    x, e = np.float32([1e-3, -1e-3, 1.0, np.nan, 3e38]), np.float32([1e-2, 1e-2, 1e-2, 0, 1e38])
    _, bound = bounded(lambda x: lax.bitcast_convert_type(x, np.uint32), [x], [e])
    assert (bound > 2.0**30).tolist() == [True, True, False, True, False]
    n = np.int32([0x7F7FFFFF, 0x7F800000, 5, 0x3F800000])
    _, bound = bounded(lambda n: lax.bitcast_convert_type(n, np.float32), [n], [np.float32([9, 1, 9, 9])])
    assert np.isfinite(bound).tolist() == [False, False, False, True]


@pytest.mark.parametrize("far", [1e-3, 0.3, 2.0, 300.0])
def test_roundings_add_one_step_and_clamps_keep_the_range(far: float) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(4096) * 60).astype(np.float32)
    e = np.abs(rng.standard_normal(4096) * far).astype(np.float32)
    other = x + e * rng.uniform(-1, 1, 4096).astype(np.float32)
    other = np.where(np.abs(other - x) <= e, other, x)
    for fn in (jnp.floor, jnp.ceil, jnp.sign, lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)):
        y, bound = bounded(fn, [x], [e])
        assert contains(y, bound, fn(other)) and (bound <= np.maximum(e + 1, 2)).all()
    for kind in ("int8", "uint8", "int32"):
        info = np.iinfo(kind)
        inside = [np.clip(v, info.min + 1, info.max - 1).astype(np.float32) for v in (x, other)]
        y, bound = bounded(lambda x, kind=kind: x.astype(kind), [inside[0]], [e])
        assert contains(y, bound, np.trunc(inside[1]))
        assert (bound <= np.minimum(e + 1, info.max - info.min)).all()
    ends = [np.full(x.shape, 50 * s, np.float32) for s in (-1, 1)]
    for off in (e, np.full_like(e, np.inf)):
        y, bound = bounded(lax.clamp, [ends[0], x, ends[1]], [None, off, None])
        assert contains(y, bound, np.clip(other, -50, 50)) and (bound <= np.minimum(off, 100)).all()


def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS)


def residual(params: Any, x: jax.Array) -> jax.Array:
    """Two convolutions and the input."""
    return convolved(jax.nn.relu(convolved(x, params["w1"])), params["w2"]) + x


def pooled(params: Any, x: jax.Array) -> jax.Array:
    """A residual, a pool and one more convolution."""
    y = jax.nn.relu(residual(params, x))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return convolved(y, params["w1"])


def inputs(seed: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    c, side = int(rng.integers(3, 12)), 2 * int(rng.integers(2, 5))
    weights = {
        k: (rng.standard_normal((3, 3, c, c)) / np.sqrt(9 * c)).astype(np.float32) for k in ("w1", "w2")
    }
    return weights, rng.standard_normal((1, side, side, c)).astype(np.float32)


def quantized(net: Callable[..., Any], seed: int, mode: str) -> tuple[ModuleOp, list[Any]]:
    """A quantized program with quantization as ops of the graph, and its flat inputs."""
    params, x = inputs(seed)
    made = tw.quantize(net, params, x, config=mode, progress=False)
    return made.program.origin.lower()[0], [*jax.tree.leaves(params), x]


def walked(module: ModuleOp, inputs: list[Any], errors: list[Any]) -> tuple[Any, Any]:
    """The result of a module without control flow, and its bound, on inputs that may be off by `errors`."""
    block = main_of(module).body.block
    with jax.enable_x64(True):
        env = {a: (jnp.asarray(x), e) for a, x, e in zip(block.args, inputs, errors, strict=True)}
        for op in block.ops:
            pairs = [env[v] for v in op.operands]
            if isinstance(op, func.ReturnOp):
                return pairs[0]
            ys, bounds = evaluate(op, [x for x, _ in pairs], [e for _, e in pairs], "worst")
            env.update(zip(op.results, zip(ys, bounds, strict=True), strict=True))
    raise AssertionError("no return")


@sampled(6)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("net", [residual, pooled])
def test_chains_stay_within_their_bounds(net: Callable[..., Any], seed: int) -> None:
    """Inputs that are off, by much and by little, move results by no more than the bound says, which is a number."""
    module, (*weights, x) = quantized(net, seed, ("w8a8", "w8a8-dynamic", "w4a8")[seed % 3])
    rng = np.random.default_rng(seed)
    for far in (1e-5, 1e-2):
        y, bound = walked(module, [*weights, x], [None, None, jnp.full(x.shape, far, jnp.float32)])
        assert np.isfinite(bound).all()
        for _ in range(4):
            other = x + (far * rng.uniform(-1, 1, x.shape)).astype(np.float32)
            moved, _ = walked(module, [*weights, other], [None, None, None])
            assert contains(np.asarray(y), np.asarray(bound, np.float64), moved)


@sampled(2)
@pytest.mark.parametrize(("mode", "share"), [("w8a8", 0), ("w8a8-dynamic", 0), ("w4a8", 0), ("w8a16", 0.5)])
def test_little_of_a_quantized_residual_is_open(mode: str, share: float) -> None:
    """Scales are floats whose last bits are cut off, which flips few weights, and these move sums by little. The two
    digits of an i16 are off by more than their number is: a carry changes the upper one by a step, which is 256."""
    module, flat = quantized(residual, 3, mode)
    trace = GraphWalk(module, Cache(), Settings(likely=True)).run(flat)
    (y,), (bound,) = trace.results, trace.result_bounds
    allowed = 2 * LIKELY * np.asarray(bound, np.float64)
    assert np.isfinite(allowed).all()
    assert (allowed > np.abs(np.asarray(y)).max()).mean() <= share


@later()
def test_the_twin_alone_is_not_open() -> None:
    """A quantized program as a JAX function, which tests bits for NaN: those of numbers about 0 are all unsure."""
    params, x = inputs(3)
    made = tw.quantize(residual, params, x, config="w8a8", progress=False)
    found = tw.verify(made.function, params, x, quick=True, progress=False)
    assert found.verdict == "ok" and found.open_share == 0


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_test_for_nan_adds_nothing(kind: str) -> None:
    x = jnp.asarray([0, 1e-3, -2, jnp.nan], kind)

    nan, half, unsure = (
        jnp.full(x.shape, jnp.nan, kind),
        jnp.full(x.shape, 0.5, jnp.float32),
        jnp.ones(x.shape),
    )

    def bound(way: Callable[[jax.Array], jax.Array]) -> list[float]:
        (op,) = [o for o in lower_function(way, (x,)).module.walk() if o.name == "graph.select"]
        inside = op.operands[1] in op.parent.args
        xs, es = (
            ([x == x, x, nan], [unsure, half, None]) if inside else ([x != x, nan, x], [unsure, None, half])
        )
        _, (found,) = evaluate(op, xs, es, "worst")
        return np.asarray(found).tolist()

    assert bound(settle) == [0.5] * 4
    assert bound(lambda x: lax.select(x == x, x, jnp.full_like(x, jnp.nan))) == [0.5] * 4
    assert bound(lambda x: lax.select(x > 1, jnp.full_like(x, jnp.nan), x))[:3] == [np.inf] * 3
