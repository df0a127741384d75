"""Masks that keep n of m, and the loss of a student."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tiering import examples

import tilewright as tw
from tilewright.pruning import distillation_loss, masked, n_of_m, two_of_four


@st.composite
def weights(draw: st.DrawFn) -> tuple[np.ndarray, int, int, int]:
    """An array, n, m, and an axis that m divides."""
    m = draw(st.integers(1, 6))
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] *= m
    elements = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
    dtype = draw(st.sampled_from(["float16", "float32"]))
    return draw(hnp.arrays(dtype, tuple(shape), elements=elements)), draw(st.integers(1, m)), m, axis


@given(weights())
@examples(60)
def test_each_group_keeps_its_largest(case: tuple[np.ndarray, int, int, int]) -> None:
    array, n, m, axis = case
    mask = np.asarray(n_of_m(jnp.asarray(array), n, m, axis))
    assert mask.shape == array.shape and mask.dtype == bool
    groups = np.moveaxis(np.abs(array), axis, -1).reshape(-1, m)
    for values, kept in zip(groups, np.moveaxis(mask, axis, -1).reshape(-1, m), strict=True):
        assert sorted(range(m), key=lambda i: (-values[i], i))[:n] == sorted(
            np.flatnonzero(kept), key=lambda i: (-values[i], i)
        )


@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_masked_product_compiles(axis: int, memory: str) -> None:
    """The mask of 2 of 4 along either axis, and training under it: masked weights have no gradient."""

    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        mask = {"w": two_of_four(w, axis), "b": None}
        loss = lambda p: jnp.mean(jnp.square(x @ masked(p, mask)["w"]))  # noqa: E731
        return mask["w"], jax.grad(loss)({"w": w, "b": jnp.zeros(3)})["w"]

    rng = np.random.default_rng(axis)
    w, x = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((24, 16), (8, 24)))
    options = tw.Options(memory="bytes") if memory == "bytes" else tw.Options()
    mask, grad = tw.compile(step, w, x, options=options)(w, x)
    want_mask, want = jax.jit(step)(w, x)
    np.testing.assert_array_equal(mask, want_mask)
    assert int(mask.sum()) == mask.size // 2
    np.testing.assert_allclose(grad, want, rtol=0, atol=1e-5)
    assert not np.asarray(grad)[~np.asarray(mask)].any()


@pytest.mark.parametrize(
    ("n", "m", "said"), [(0, 4, "cannot keep 0 of 4"), (5, 4, "5 of 4"), (2, 5, "groups of 5")]
)
def test_groups_that_are_none(n: int, m: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        n_of_m(jnp.ones((8, 3)), n, m)


# -- distillation --------------------------------------------------------------------------------------------


def written_out(student: Any, teacher: Any, labels: Any, temperature: float, weight: float) -> float:
    """The loss in f64, by its definition."""
    s, t = np.asarray(student, np.float64), np.asarray(teacher, np.float64)

    def softmax(x: np.ndarray) -> np.ndarray:
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    p, q = softmax(t / temperature), softmax(s / temperature)
    soft = temperature**2 * (p * np.log(p / q)).sum(-1).mean()
    if labels is None:
        return float(soft)
    hard = -np.log(np.take_along_axis(softmax(s), np.asarray(labels)[..., None], -1)).mean()
    return float(weight * soft + (1 - weight) * hard)


@given(
    st.integers(0, 99),
    st.floats(0.5, 10),
    st.floats(0, 1),
    st.sampled_from([(5, 3), (2, 4, 7), (1, 2)]),
    st.sampled_from(["float16", "float32"]),
    st.booleans(),
)
@examples(40)
def test_the_loss_is_what_it_says(
    seed: int, temperature: float, weight: float, shape: tuple[int, ...], dtype: str, hard: bool
) -> None:
    rng = np.random.default_rng(seed)
    student, teacher = (jnp.asarray(3 * rng.standard_normal(shape), dtype) for _ in range(2))
    labels = jnp.asarray(rng.integers(0, shape[-1], shape[:-1]), jnp.int32) if hard else None
    found = distillation_loss(student, teacher, labels, temperature, weight)
    assert found.dtype == jnp.float32 and found.shape == ()
    assert float(found) == pytest.approx(
        written_out(student, teacher, labels, temperature, weight), rel=1e-3, abs=1e-5
    )


def test_a_student_like_its_teacher_has_nothing_to_learn() -> None:
    logits = jnp.asarray(np.random.default_rng(0).standard_normal((4, 5)), jnp.float32)
    value, grads = jax.value_and_grad(distillation_loss, (0, 1))(logits, logits)
    assert float(value) == pytest.approx(0, abs=1e-6)
    assert float(jnp.abs(grads[0]).max()) < 1e-6 and not grads[1].any()


def test_it_compiles_with_its_gradient() -> None:
    rng = np.random.default_rng(0)
    student, teacher = (jnp.asarray(rng.standard_normal((16, 10)), jnp.float32) for _ in range(2))
    labels = jnp.asarray(rng.integers(0, 10, 16), jnp.int32)
    fn = jax.value_and_grad(distillation_loss)
    got, want = (
        tw.compile(fn, student, teacher, labels)(student, teacher, labels),
        fn(student, teacher, labels),
    )
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x, y: distillation_loss(x, x[:, :2]), r"\[4, 3\] of the student and \[4, 2\]"),
        (lambda x, y: distillation_loss(x, x, y[:3]), r"need labels \[4\], not \[3\]"),
        (lambda x, y: distillation_loss(x, x, y, 0.0), "a temperature above 0, not 0"),
        (lambda x, y: distillation_loss(x, x, y, 1.0, 1.5), "a weight from 0 to 1, not 1.5"),
    ],
)
def test_what_is_no_distillation(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(jnp.ones((4, 3)), jnp.zeros(4, jnp.int32))
