"""What combines columns of a product is part of its kernel: rotary embeddings in their layouts and types, gates whose
halves are columns of one product, sizes that no tile divides; by steps and in both memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from harness import check, data
from hypothesis import given
from hypothesis import strategies as st
from tiering import covering, examples, sampled

import tilewright as tw
from tilewright.api.program import Program
from tilewright.dialects.graph import FusionOp
from tilewright.machine import Machine
from tilewright.passes.choose.column_epilogue import ColumnEpilogue
from tilewright.passes.lower.cube.contraction_axes import product_in, takes_places
from tilewright.passes.npu.check import check as hazards
from tilewright.passes.reasons import reasons_asked

TARGETS = ["ascend-910b1", "ascend-950pr"]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel whatever two take."""
    monkeypatch.setattr(ColumnEpilogue, "pays", lambda self, made, now: made < float("inf"))


def combined(program: Program) -> int:
    """The number of products whose epilogue takes several columns together."""
    fusions = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    return sum(product_in(op) is not None and takes_places(op) for op in fusions)


def turned(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def rotary(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """x [b, t, k] by w [k, heads * d], of which each head is rotated: [b, t, heads, d]."""
    y = (x @ w).reshape(*x.shape[:2], -1, 2 * cos.shape[-1])
    return turned(y, cos[:, None], sin[:, None])


def heads_first(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """The same as [b, heads, t, d], rotated behind the transpose."""
    y = (x @ w).reshape(*x.shape[:2], -1, 2 * cos.shape[-1])
    return turned(y.transpose(0, 2, 1, 3), cos, sin)


def stored_first(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """The same, rotated before the transpose."""
    return rotary(x, w, cos, sin).transpose(0, 2, 1, 3)


def of_heads(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """The same with weights that have a dimension of heads."""
    y = jnp.einsum("btk,khd->bthd", x, w.reshape(x.shape[-1], -1, 2 * cos.shape[-1]))
    return turned(y, cos[:, None], sin[:, None])


def biased(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """The same behind a bias."""
    y = (x @ w + w[0]).reshape(*x.shape[:2], -1, 2 * cos.shape[-1])
    return turned(y, cos[:, None], sin[:, None])


def from_f32(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """The same computed in f32."""
    y = (x @ w).reshape(*x.shape[:2], -1, 2 * cos.shape[-1]).astype("float32")
    return turned(y, cos[:, None].astype("float32"), sin[:, None].astype("float32")).astype(x.dtype)


def by_halves(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """The same, written with a rotation of the halves."""
    y = (x @ w).reshape(*x.shape[:2], -1, 2 * cos.shape[-1])
    a, b = jnp.split(y, 2, axis=-1)
    cos, sin = (jnp.concatenate([angles, angles], axis=-1)[:, None] for angles in (cos, sin))
    return y * cos + jnp.concatenate([-b, a], axis=-1) * sin


def in_part(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """The same of heads that have as many features again, which are not rotated."""
    y = (x @ w).reshape(*x.shape[:2], -1, 4 * cos.shape[-1])
    each = 2 * cos.shape[-1]
    return jnp.concatenate([turned(y[..., :each], cos[:, None], sin[:, None]), y[..., each:]], axis=-1)


LAYOUTS: dict[str, Callable[..., Any]] = {
    fn.__name__: fn for fn in (rotary, heads_first, stored_first, of_heads, biased, from_f32, by_halves)
}


def inputs(dtype: str, b: int, t: int, k: int, heads: int, d: int) -> list[jax.Array]:
    shapes = (b, t, k), (k, heads * d), (t, d // 2), (t, d // 2)
    return [data(dtype, shape, i) for i, shape in enumerate(shapes)]


@covering(10)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(
    ("b", "t", "k", "heads", "d"),
    [
        (1, 128, 64, 4, 64),
        (2, 37, 128, 3, 32),
        (1, 100, 48, 2, 512),
        (1, 300, 96, 1, 128),
        (2, 16, 64, 5, 16),
    ],
)
def test_rotary(b: int, t: int, k: int, heads: int, d: int, dtype: str, name: str, target: str) -> None:
    program = check(LAYOUTS[name], *inputs(dtype, b, t, k, heads, d), length=k, target=target)
    # the transpose of a concatenation is a kernel of its own, as what makes small tables f32 is
    apart = {"stored_first": 1, "from_f32": 2 * (dtype != "f32")}
    assert combined(program) == 1 and len(program.report().kernels) == 1 + apart.get(name, 0)
    assert hazards(program.module(), Machine.load(target)) == []


@covering(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("t", "k", "heads", "d"), [(64, 96, 2, 32), (37, 64, 3, 64)])
def test_rotary_of_a_part(t: int, k: int, heads: int, d: int, dtype: str, target: str) -> None:
    x, w, cos, sin = inputs(dtype, 1, t, k, 2 * heads, d)
    program = check(in_part, x, w, cos, sin, length=k, target=target)
    assert combined(program) == 1 and len(program.report().kernels) == 1


def interleaved(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


@covering(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("shape", [(2, 37, 3, 32), (1, 64, 2, 128), (5, 6)])
def test_pairs_of_neighbours(shape: tuple[int, ...], dtype: str, target: str) -> None:
    """Numbers that alternate are stored by the kernel that computes them."""
    angles = [data(dtype, (shape[-1] // 2,), i) for i in (1, 2)]
    program = check(interleaved, data(dtype, shape), *angles, target=target)
    assert len(program.report().kernels) == 1


def gated(x: Any, w: Any) -> Any:
    """A gate and what it is for, side by side in one product."""
    gate, up = jnp.split(x @ w, 2, axis=-1)
    return jax.nn.silu(gate) * up


FORMS: dict[str, tuple[Callable[..., Any], int]] = {
    "gate": (gated, 1),
    "three parts": (lambda x, w: (lambda y: y[:, :32] * y[:, 32:64] + y[:, 64:])(x @ w[:, :96]), 1),
    "one part": (lambda x, w: jnp.exp((x @ w)[:, 64:]), 1),
    "with others": (lambda x, w: (lambda y: (y[:, :64] * y[:, 64:], y))(x @ w), 0),
    "alternating": (lambda x, w: (lambda y: y[:, ::2] * y[:, 1::2])(x @ w), 0),
    "rows": (lambda x, w: (lambda y: y[:20] * y[20:])(x @ w), 0),
    "reversed": (lambda x, w: (lambda y: y[:, :64] * y[:, :63:-1])(x @ w), 0),
    "unequal": (lambda x, w: (lambda y: y[:, :96] * y[:, 32:])(x @ w), 0),
}


@sampled(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, target: str) -> None:
    fn, number = FORMS[name]
    program = check(fn, data("f16", (40, 64)), data("f16", (64, 128), 1), length=64, target=target)
    assert combined(program) == number


@examples(8)
@given(
    st.integers(1, 140),
    st.integers(1, 90),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from(["f16", "bf16", "f32"]),
    st.sampled_from(TARGETS),
)
def test_any_sizes(t: int, k: int, heads: int, half: int, dtype: str, target: str) -> None:
    check(rotary, *inputs(dtype, 1, t, k, heads, 2 * half), length=k, target=target)


def test_in_a_loop() -> None:
    def fn(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.concatenate([gated(y, w), y[:, :64]], -1), x)

    assert combined(check(fn, data("f16", (24, 128)), data("f16", (128, 128), 1) / 16, length=128)) == 1


def test_few_rows_stay_on_vector_cores() -> None:
    """A product of one row is on the vector cores, which have no such epilogue."""
    args = inputs("f16", 1, 1, 512, 4, 64)
    program = tw.compile(rotary, *args, options=tw.Options(without={"column-epilogue"}))
    assert "npu.mmad" not in str(program.module())
    check(rotary, *args, length=512)


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps two kernels apart is said: their times, or how the product is read."""
    monkeypatch.setattr(ColumnEpilogue, "pays", lambda self, made, now: False)
    for fn, why in ((gated, "one kernel takes"), (FORMS["alternating"][0], "every other column")):
        with reasons_asked() as found:
            tw.compile(fn, data("f16", (40, 64)), data("f16", (64, 128), 1))
        assert any(why in reason.why for reason in found)
