"""Loss scales, finite trees and skipped steps: in JAX, and compiled in both memory modes."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import MEMORIES, examples, later, sampled

import tilewright as tw
from tilewright import training
from tilewright.training import LossScale, all_finite, loss_scale, select_tree, step_if_finite

FLOATS = ("float16", "bfloat16", "float32")
BAD = (math.inf, -math.inf, math.nan)
TARGETS = ("ascend-910b1", "ascend-310")


def options(memory: str) -> tw.Options:
    return tw.Options(memory="bytes") if memory == "bytes" else tw.Options()


def same(got: Any, want: Any) -> None:
    """Equal trees, bit for bit but for the sign of zeros and what NaN."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


def written_out(
    flags: list[bool], initial: float, period: int, factor: float, low: float, high: float
) -> list:
    """The scale and the good steps after each step, in plain Python."""
    scale, good, found = initial, 0, []
    for finite in flags:
        if not finite:
            scale, good = max(scale / factor, low), 0
        elif good + 1 >= period:
            scale, good = min(scale * factor, high), 0
        else:
            good += 1
        found.append((scale, good))
    return found


powers = st.integers(-4, 20).map(lambda e: 2.0**e)


@st.composite
def scales(draw: st.DrawFn) -> dict[str, Any]:
    low, initial, high = sorted(draw(st.lists(powers, min_size=3, max_size=3)))
    return {
        "initial": initial,
        "period": draw(st.integers(1, 4)),
        "factor": draw(st.sampled_from([2.0, 4.0])),
        "smallest": low,
        "largest": high,
    }


@given(scales(), st.lists(st.booleans(), min_size=1, max_size=30))
@examples(100)
def test_a_scale_follows_the_rule_and_stays_in_its_bounds(kind: dict[str, Any], flags: list[bool]) -> None:
    scale = loss_scale(**kind)
    adjust = jax.jit(LossScale.adjust)
    for finite, (value, good) in zip(
        flags,
        written_out(
            flags, kind["initial"], kind["period"], kind["factor"], kind["smallest"], kind["largest"]
        ),
        strict=True,
    ):
        scale = adjust(scale, jnp.bool_(finite))
        assert (float(scale.scale), int(scale.good_steps)) == (value, good)
        assert kind["smallest"] <= float(scale.scale) <= kind["largest"]


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_compiled_scale_follows_the_rule(memory: str) -> None:
    flags = [True, True, True, False, False, True, True, True, True, True, True, False, False, False, False]
    scale = loss_scale(8.0, period=2, smallest=4.0, largest=32.0)
    adjust = tw.compile(LossScale.adjust, scale, jnp.bool_(True), options=options(memory))
    for finite, want in zip(flags, written_out(flags, 8.0, 2, 2.0, 4.0, 32.0), strict=True):
        scale = adjust(scale, jnp.bool_(finite))
        assert isinstance(scale, LossScale)
        assert (float(scale.scale), int(scale.good_steps)) == want


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"initial": 0.0}, "0 < smallest"),
        ({"initial": 2.0**30}, "0 < smallest"),
        ({"initial": 0.5}, "0 < smallest"),
        ({"largest": 2.0**127}, r"2\*\*126"),
        ({"smallest": -1.0}, "0 < smallest"),
        ({"initial": math.nan}, "0 < smallest"),
        ({"period": 0}, "a period of 1 or more, not 0"),
        ({"factor": 1.0}, "a finite factor above 1, not 1"),
        ({"factor": math.inf}, "a finite factor above 1, not inf"),
    ],
)
def test_a_scale_that_is_none(kind: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        loss_scale(**kind)


@given(st.data())
@examples(60)
def test_one_number_of_any_leaf_is_found(data: st.DataObject) -> None:
    """Any dtype, any shape, any place; integers beside them do not count."""
    shapes = data.draw(
        st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=4), label="shapes"
    )
    leaves = [
        np.ones(shape, jnp.dtype(data.draw(st.sampled_from([*FLOATS, "complex64"])))) for shape in shapes
    ]
    tree = {"x": leaves, "count": np.int32(3), "flag": np.bool_(True)}
    assert bool(jax.jit(all_finite)(tree))
    chosen = data.draw(st.sampled_from(leaves))
    chosen[tuple(data.draw(st.integers(0, n - 1)) for n in chosen.shape)] = data.draw(st.sampled_from(BAD))
    assert not bool(jax.jit(all_finite)(tree))


def test_what_has_no_floats_is_finite() -> None:
    assert bool(all_finite({})) and bool(all_finite([np.arange(3), None]))


@sampled(3)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_overflow_in_any_leaf_skips_a_compiled_step(dtype: str, memory: str) -> None:
    """Each leaf in turn has an infinity or a NaN at its last place; the state stays, bit for bit, and the scale is
    halved. The step is all on the device."""

    def update(state: Any, grads: Any) -> Any:
        params = jax.tree.map(lambda p, g: p - (0.5 * g).astype(p.dtype), state["params"], grads)
        return {"params": params, "step": state["step"] + 1}

    step = step_if_finite(update)
    rng = np.random.default_rng(3)
    shapes = {"w": (33, 20), "b": (20,), "deep": {"k": (3, 3, 2, 5), "one": ()}}
    make = lambda: jax.tree.map(  # noqa: E731
        lambda s: np.asarray(rng.standard_normal(s), jnp.dtype(dtype)),
        shapes,
        is_leaf=lambda s: isinstance(s, tuple),
    )
    state, grads, scale = {"params": make(), "step": np.int32(7)}, make(), loss_scale(64.0, period=3)
    program = tw.compile(step, scale, state, grads, options=options(memory))
    assert not program.report().host_ops
    new_scale, new, finite = program(scale, state, grads)
    same((new_scale, new, finite), jax.jit(step)(scale, state, grads))
    assert (
        bool(finite)
        and int(new["step"]) == 8
        and float(new_scale.scale) == 64
        and int(new_scale.good_steps) == 1
    )
    for i in range(4):
        leaves, structure = jax.tree.flatten(jax.tree.map(np.copy, grads))
        leaves[i][(-1,) * leaves[i].ndim] = BAD[i % 3]
        new_scale, new, finite = program(scale, state, jax.tree.unflatten(structure, leaves))
        assert not bool(finite) and float(new_scale.scale) == 32 and int(new_scale.good_steps) == 0
        for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(state), strict=True):
            assert np.asarray(a).tobytes() == b.tobytes()


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and dtypes of leaves: many small ones of few extents, so that fusions are wide, and a large one."""
    extents = draw(st.lists(st.sampled_from([1, 2, 5, 10, 33, 48, 128]), min_size=1, max_size=3))
    shape = (
        st.lists(st.sampled_from(extents), max_size=3).map(tuple).filter(lambda s: math.prod(s) <= 1 << 14)
    )
    return draw(st.lists(st.tuples(shape, st.sampled_from(FLOATS)), min_size=1, max_size=9))


@given(trees(), st.data())
@examples(12)
def test_any_tree_is_kept_by_a_compiled_step(
    tree: list[tuple[tuple[int, ...], str]], data: st.DataObject
) -> None:
    """With a moment for each leaf, as optimizers have. The memory modes agree bit for bit, and so does JAX."""

    def update(state: Any, grads: Any) -> Any:
        mean = [m + g.astype(m.dtype) for m, g in zip(state["mean"], grads, strict=True)]
        return {"mean": mean, "params": [p - m for p, m in zip(state["params"], mean, strict=True)]}

    rng = np.random.default_rng(len(tree))
    # small integers: sums are exact in every type
    make = lambda: [np.asarray(rng.integers(-8, 9, s), jnp.dtype(d)) for s, d in tree]  # noqa: E731
    state, grads, scale = {"params": make(), "mean": make()}, make(), loss_scale()
    chosen = data.draw(st.sampled_from([None, *range(len(tree))]), label="overflow")
    if chosen is not None:
        leaf = grads[chosen]
        leaf[tuple(data.draw(st.integers(0, n - 1)) for n in leaf.shape)] = data.draw(st.sampled_from(BAD))
    step = step_if_finite(update)
    program = tw.compile(step, scale, state, grads, target=data.draw(st.sampled_from(TARGETS)))
    assert not program.report().host_ops
    got = program(scale, state, grads)
    same(got, jax.jit(step)(scale, state, grads))
    assert bool(got[2]) == (chosen is None)
    for a, b in zip(
        jax.tree.leaves(got), program.executable("bytes")(*program.flatten((scale, state, grads)))
    ):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), "the memory modes differ"


def test_more_arguments_reach_the_update() -> None:
    step = step_if_finite(lambda state, grads, rate: state - rate * grads)
    _, state, _ = step(loss_scale(), jnp.ones(3), jnp.ones(3), jnp.float32(0.25))
    same(state, np.full(3, 0.75, np.float32))


def test_a_step_that_changes_the_state_is_refused() -> None:
    scale = loss_scale()
    half = {"w": jnp.ones(3, jnp.float16)}
    with pytest.raises(TypeError, match=r"\['w'\] is float16\[3\] before the step and float32\[3\] after it"):
        step_if_finite(lambda s, g: {"w": s["w"].astype(jnp.float32)})(scale, half, half)
    with pytest.raises(TypeError, match="let it keep the structure"):
        step_if_finite(lambda s, g: s["w"])(scale, half, half)
    with pytest.raises(TypeError, match=r"the result is float32\[3\] before the step and float32\[4\] after"):
        select_tree(jnp.bool_(True), jnp.ones(4), jnp.ones(3))


def quadratic(params: Any, x: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(x @ params["w"].astype(x.dtype) + params["b"].astype(x.dtype)))


@later()
@given(st.integers(0, 12), st.sampled_from(FLOATS), st.tuples(st.integers(1, 6), st.integers(1, 6)))
@examples(30)
def test_the_gradient_of_a_scaled_loss_is_that_of_the_loss(
    exponent: int, dtype: str, shape: tuple[int, int]
) -> None:
    """A power of two changes no rounding where nothing is denormal, so in f32 and bf16 they are equal."""
    rng = np.random.default_rng(exponent)
    params = {
        "w": jnp.asarray(rng.standard_normal(shape), dtype),
        "b": jnp.asarray(rng.standard_normal(shape[1]), dtype),
    }
    x = jnp.asarray(rng.standard_normal((4, shape[0])), dtype)
    value, grads = training.scaled_value_and_grad(quadratic)(loss_scale(2.0**exponent), params, x)
    want_value, want = jax.value_and_grad(quadratic)(params, x)
    assert value.dtype == want_value.dtype and float(value) == float(want_value)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(want), strict=True):
        assert a.dtype == jnp.float32
        if dtype == "float16":
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b.astype(jnp.float32))
    only = training.scaled_grad(quadratic)(loss_scale(2.0**exponent), params, x)
    same(only, grads)


def test_small_gradients_survive() -> None:
    """1e-9 is zero in f16; through a scale of 2^15 it arrives in f32."""
    loss = lambda w, x: (w.astype(jnp.float16) * x).astype(jnp.float32) * 1e-9  # noqa: E731
    args = jnp.float32(1), jnp.float16(1)
    assert float(jax.grad(loss)(*args)) == 0
    assert float(training.scaled_grad(loss)(loss_scale(), *args)) == pytest.approx(1e-9, rel=1e-3)


def test_what_the_loss_gives_besides_is_handed_on() -> None:
    loss = lambda w, x: (jnp.sum(w * x), {"seen": x.shape[0], "x": x})  # noqa: E731
    w, x = jnp.ones(3), jnp.arange(3.0)
    (value, aux), grads = training.scaled_value_and_grad(loss, has_aux=True)(loss_scale(), w, x)
    assert float(value) == 3 and aux["seen"] == 3
    same(grads, x)
    grads, aux = training.scaled_grad(loss, has_aux=True)(loss_scale(), w, x)
    same((grads, aux["x"]), (x, x))


@pytest.mark.parametrize("dtype", FLOATS)
def test_quotients_are_in_f32(dtype: str) -> None:
    scale = loss_scale(2.0**20)
    found = scale.unscale({"g": jnp.ones(3, dtype)})["g"]
    assert found.dtype == jnp.float32
    same(found, np.full(3, 2.0**-20, np.float32))
