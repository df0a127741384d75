"""What is elementwise before an operand of a product of few rows is computed where it is loaded: weights that are
widened and scaled, layouts, odd shapes, every type; both memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from harness import check, data
from tiering import covering, sampled

import tilewright as tw
from tilewright.api.program import Program
from tilewright.passes.choose.prologue import PrologueOnCube, PrologueOnVector


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel whatever two take."""
    monkeypatch.setattr(PrologueOnVector, "pays", lambda self, made, now: True)
    monkeypatch.setattr(PrologueOnCube, "may_take", lambda *_: False)


def kernels(program: Program) -> list[str]:
    return [kernel.name for kernel in program.report().kernels]


def dequantised(x: Any, w: Any, scale: Any, offset: Any) -> Any:
    return x @ ((w.astype(x.dtype) + offset) * scale)


def inputs(dtype: str, weights: str, m: int, k: int, n: int) -> list[jax.Array]:
    return [data(dtype, (m, k)), data(weights, (k, n), 1), data(dtype, (n,), 2), data(dtype, (n,), 3)]


@covering(6)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-950pr"])
@pytest.mark.parametrize(
    ("dtype", "weights"), [("f16", "i8"), ("bf16", "i8"), ("f32", "f16"), ("f16", "f32")]
)
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 64, 64), (1, 97, 31), (2, 513, 257), (3, 33, 1031), (4, 257, 17), (1, 2, 5), (64, 128, 1)],
)
def test_dequantised_weights(m: int, k: int, n: int, dtype: str, weights: str, target: str) -> None:
    options = tw.Options(without="transposed,pitch")  # an operand with another layout is left as it is
    program = check(dequantised, *inputs(dtype, weights, m, k, n), length=k, target=target, options=options)
    assert kernels(program) == ["reduce_0"]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "transposed": lambda x, w, s: x @ (w.T * s[:, None]),
    "rows": lambda x, w, s: (x * s) @ w.T,
    "both": lambda x, w, s: jnp.tanh(x) @ jnp.abs(w.T),
    "epilogue": lambda x, w, s: jnp.exp(x @ (w.T * 0.125)) + 1,
    "batched": lambda x, w, s: jnp.einsum("bk,bkn->bn", jnp.stack([x[0], x[0]]), jnp.stack([w.T, w.T]) * 0.5),
    "a number": lambda x, w, s: x @ jnp.full((40, 24), 0.25, x.dtype),
}


@sampled(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_forms(name: str) -> None:
    check(FUNCTIONS[name], data("f16", (2, 40)), data("f16", (24, 40), 1), data("f16", (40,), 2), length=40)


def test_what_is_used_twice_stays() -> None:
    """A tensor that others read is stored anyway."""

    def fn(x: Any, w: Any) -> Any:
        wide = w * 2
        return x @ wide, wide

    program = check(fn, data("f16", (1, 64)), data("f16", (64, 96), 1), length=64)
    assert len(kernels(program)) == 2


def test_many_rows_stay() -> None:
    program = check(dequantised, *inputs("f16", "i8", 48, 64, 32), length=64)
    assert len(kernels(program)) == 2


def test_it_is_taken_where_it_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    shapes = ((1, 4096), "float16"), ((4096, 4096), "int8"), ((4096,), "float16"), ((4096,), "float16")
    args = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    for target in ("ascend-910b1", "ascend-950pr"):
        one, two = (
            tw.compile(dequantised, *args, target=target, options=tw.Options(without=out)).report()
            for out in ((), "prologue,cube-prologue")
        )
        assert len(one.kernels) == 1 and one.microseconds < 0.8 * two.microseconds
        assert one.memory.arena_bytes < 0.6 * two.memory.arena_bytes
