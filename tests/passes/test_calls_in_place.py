"""Functions that update an argument: in the caller's tensor where that may be, else in a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import data
from jax import lax
from tiering import sampled
from xdsl.dialects.func import FuncOp

import tilewright as tw
from tilewright.dialects.base import to_ints
from tilewright.dialects.npu import structure
from tilewright.frontends.calls import SMALL

ROWS, WIDTH = 7, 13


def much(x: Any) -> Any:
    """More ops than a function may have that is inlined."""
    for _ in range(SMALL // 2):
        x = jnp.sin(x) * 1.5
    return x


@jax.jit
def step(cache: Any, x: Any, at: Any) -> Any:
    """Writes a row of a cache, and uses all of it."""
    cache = lax.dynamic_update_slice(cache, much(x)[None], (at, 0))
    return cache, jnp.sum(cache, axis=0)


@jax.jit
def both(a: Any, b: Any, x: Any) -> Any:
    """Two caches, of which each result is an update of the other one's argument."""
    row = much(x)[None]
    return lax.dynamic_update_slice(b, row, (2, 0)), lax.dynamic_update_slice(a, row + 1, (3, 0))


@jax.jit
def needs_old(cache: Any, x: Any) -> Any:
    """What the cache was is needed after its update."""
    new = lax.dynamic_update_slice(cache, much(x)[None], (1, 0))
    return new, jnp.sum(new - cache, axis=0)


@jax.jit
def reshaped(cache: Any, x: Any) -> Any:
    """Two updates, one after the other, of a cache that is looked at as another shape meanwhile."""
    flat = lax.dynamic_update_slice(cache.reshape(-1), much(x), (3,))
    return lax.dynamic_update_slice(flat.reshape(cache.shape), much(x)[None] + 1, (ROWS - 1, 0))


def twice(cache: Any, x: Any) -> Any:
    cache, x = step(cache, x, 1)
    return step(cache, x, 4)


def keeps(cache: Any, x: Any) -> Any:
    """The caller needs the old cache after the first call."""
    first, y = step(cache, x, 1)
    second, z = step(cache, x + y, 2)
    return first, second, z


def same(cache: Any, x: Any) -> Any:
    """One tensor for two arguments that are updated."""
    a, b = both(cache, cache, x)
    return both(a, b, x * 2)


def swapped(cache: Any, x: Any) -> Any:
    a, b = both(cache, cache + 1, x)
    return both(a, b, x * 2)


def old(cache: Any, x: Any) -> Any:
    cache, x = needs_old(cache, x)
    return needs_old(cache, x)


def shapes(cache: Any, x: Any) -> Any:
    return reshaped(reshaped(cache, x), x * 2)


def looped(cache: Any, x: Any) -> Any:
    def body(i: Any, state: Any) -> Any:
        cache, x = step(*state, i)
        return step(cache, x, i + 1)

    return lax.fori_loop(0, 3, body, (cache, x))


CASES: dict[str, tuple[Callable[..., Any], bool, int, int]] = {
    "an update in a donated cache": (twice, True, 1, 0),
    "of one that is kept": (twice, False, 1, 1),
    "needed by the caller": (keeps, True, 1, 1),
    "one tensor twice": (same, True, 2, 2),
    "results the other way round": (swapped, True, 2, 0),
    "needed by the function": (old, True, 0, 1),
    "through another shape": (shapes, True, 1, 0),
    "in a loop": (looped, False, 1, 2),
}
"""The function, whether its cache is donated, how many arguments its callee updates, and how many copies there are."""


def compiled(name: str) -> tuple[tw.Program, list[np.ndarray]]:
    fn, free, _, _ = CASES[name]
    arrays = [data("f32", (ROWS, WIDTH)), data("f32", (WIDTH,), 1)]
    return tw.compile(fn, *arrays, options=tw.Options(donate=0 if free else ())), arrays


@sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_values_and_copies(name: str) -> None:
    fn, _, updates, copies = CASES[name]
    program, arrays = compiled(name)
    module = program.module()
    calls = [op for op in module.walk() if isinstance(op, structure.CallOp)]
    assert len(calls) == 2 and all(len(to_ints(op.updates)) == updates for op in calls)
    assert sum(isinstance(op, structure.CopyOp) for op in module.walk()) == copies
    want = jax.tree.leaves(jax.jit(fn)(*arrays))
    results = {}
    for memory in ("typed", "bytes"):
        for _ in range(2):
            results[memory] = program.executable(memory)(*arrays)
            for a, b in zip(results[memory], want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    for a, b in zip(*results.values(), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), "the memory modes differ"


@sampled(2)
@pytest.mark.parametrize("name", ["of one that is kept", "needed by the caller", "in a loop"])
def test_every_level_agrees(name: str) -> None:
    program, arrays = compiled(name)
    assert tw.verify(CASES[name][0], *arrays, program=program).ok


def test_a_function_takes_what_it_updates_once() -> None:
    """The argument comes in the tensor of the result."""
    program, _ = compiled("an update in a donated cache")
    (callee,) = (op for op in program.module().ops if isinstance(op, FuncOp) and op.sym_name.data != "main")
    assert [str(a.type) for a in callee.body.block.args].count(f"!npu.gm<{ROWS}x{WIDTH}xf32>") == 1


def test_avoided_copies_count_where_none_was_made() -> None:
    size = 4 * ROWS * WIDTH
    for name, n in (("an update in a donated cache", 2), ("of one that is kept", 1)):
        avoided = compiled(name)[0].report().avoided_copies
        assert (avoided.updates, avoided.update_bytes) == (n, n * size), name
