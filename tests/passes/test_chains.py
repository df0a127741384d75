"""In-place chains: temporaries take idle slots of what is loaded and stored; values stay, and ub has more room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.dialects.base import integer
from tilewright.dialects.npu import AllocOp, buffer
from tilewright.machine import Machine
from tilewright.passes.npu import allocate
from tilewright.passes.npu.check import check

Case = tuple[Callable[..., Any], list[tuple[int, ...]], str]


def layernorm(x: Any, g: Any, b: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * g + b


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 0.1 * m / (jnp.sqrt(v) + 0.1), m, v


CASES: dict[str, Case] = {
    "layernorm": (layernorm, [(40, 72), (72,), (72,)], "float32"),
    "layernorm of one row": (layernorm, [(1, 131), (131,), (131,)], "float32"),
    "softmax": (lambda x: jax.nn.softmax(x, -1), [(37, 129)], "float32"),
    "softmax in f16": (lambda x: jax.nn.softmax(x.astype("float32"), -1).astype("float16"), [(16, 64)], "float16"),
    "long rows": (lambda x: jax.nn.log_softmax(x, -1), [(2, 20011)], "float32"),
    "adam": (adam, [(33, 65)] * 4, "float32"),
    "gelu": (lambda x: jax.nn.gelu(x), [(50, 40)], "float16"),
    "a mask": (lambda x, y: jnp.where(x > y, jnp.exp(x) * y, y - x), [(17, 31)] * 2, "float32"),
    "integers": (lambda x, y: (x * y + 3) // 2 - x, [(17, 31)] * 2, "int32"),
    "one number": (lambda x: jnp.exp(x) * x + 1, [(1,)], "float32"),
    "an extreme and where it is": (lambda x: (jnp.exp(x).max(-1), jnp.argmax(x * x, -1)), [(16, 40)], "float32"),
    "several tiles": (lambda x, y: jnp.tanh(x) * y + jnp.exp(y - x), [(256, 1024)] * 2, "float32"),
}


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * 2 + (seed == 3) * 9).astype(dtype)


def ub_bytes(program: tw.Program) -> int:
    """Where the last buffer of ub ends."""
    allocs = [op for op in program.module().walk() if isinstance(op, AllocOp) and buffer(op.result).space == "ub"]
    ends = [integer(a.address) + (k := buffer(a.result)).slot_bytes * k.slots for a in allocs if a.address is not None]
    return max(ends)


@pytest.mark.parametrize("memory", ["typed", "bytes", "step"])
@pytest.mark.parametrize("name", CASES)
def test_values_stay(name: str, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, shapes, dtype = CASES[name]
    if memory == "step" and max(map(np.prod, shapes)) > 30_000:
        shapes = [(min(s[0], 24), *s[1:]) for s in shapes]
    args = [numbers(dtype, shape, i) for i, shape in enumerate(shapes)]
    shared = tw.compile(fn, *args, options=tw.Options(memory=memory))
    assert check(shared.module("npu"), Machine.load("ascend-910b1")) == []
    monkeypatch.setattr(allocate, "share_slots", lambda usages: False)
    apart = tw.compile(fn, *args, options=tw.Options(memory=memory))
    assert ub_bytes(shared) <= ub_bytes(apart)
    for got, want in zip(jax.tree.leaves(shared(*args)), jax.tree.leaves(apart(*args)), strict=True):
        assert np.array_equal(np.asarray(got), np.asarray(want), equal_nan=True)


@pytest.mark.parametrize("target", ["ascend-310", "ascend-910b4", "ascend-950pr"])
def test_chips(target: str) -> None:
    fn, shapes, dtype = CASES["layernorm"]
    args = [numbers(dtype, shape, i) for i, shape in enumerate(shapes)]
    program = tw.compile(fn, *args, target=target)
    assert check(program.module("npu"), Machine.load(target)) == []
    np.testing.assert_allclose(np.asarray(program(*args)), np.asarray(fn(*args)), rtol=1e-5, atol=1e-5)


def test_layernorm_takes_less() -> None:
    """Temporaries as large as a tile live where the tile is loaded and stored; no instruction is added."""
    args = [jax.ShapeDtypeStruct(s, "float32") for s in ((256, 1024), (1024,), (1024,))]
    pins = tw.Schedule(tile=(4, 1024), grid=(16, 1))
    program = tw.compile(layernorm, *args, options=tw.Options(schedule=pins))
    tiles = [k for op in program.module().walk() if isinstance(op, AllocOp) and (k := buffer(op.result)).shape[-1] > 1]
    crossing = [k for k in tiles if k.slots == 2]
    assert [k.shape for k in crossing] == [(4, 1024)] * 2
    assert ub_bytes(program) < 110_000
