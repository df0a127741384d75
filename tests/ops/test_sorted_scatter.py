"""Scatters into tables that are larger than what is on chip: their updates are sorted, and combined by place."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import JAX_DTYPE, check, data
from tiering import covering

import tilewright as tw
from tilewright.dialects.graph.interface import shape_of
from tilewright.passes.simplify import sorted_scatter

KINDS = ("add", "multiply", "min", "max", "set")
PLACES = {
    "any": lambda rng, rows, n: rng.integers(0, rows, n),
    "few": lambda rng, rows, n: rng.integers(0, 3, n) * (rows - 1) // 2,
    "one": lambda rng, rows, n: np.full(n, rows - 1),
    "outside too": lambda rng, rows, n: rng.integers(-rows, 3 * rows, n),
    "all outside": lambda rng, rows, n: np.full(n, rows),
    "each once": lambda rng, rows, n: rng.permutation(max(rows, n))[:n],
}


def sort_always(monkeypatch: pytest.MonkeyPatch, chunk: int = 8, longest: int = 64) -> None:
    """Scatters of rows of several numbers are sorted however small, in chunks, and in columns of sorts, that are as
    small."""
    monkeypatch.setattr(sorted_scatter, "takes_less", lambda op, *_: shape_of(op.x)[1] > 1)
    monkeypatch.setattr(sorted_scatter, "CHUNK", chunk)
    monkeypatch.setattr(sorted_scatter, "longest_row", lambda *_: longest)


def scattered(x: Any, ids: Any, updates: Any, kind: str) -> Any:
    return getattr(x.at[ids], kind)(updates, mode="drop", wrap_negative_indices=False)


@covering(4)
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "i8"])
@pytest.mark.parametrize(("rows", "columns", "count"), [(50, 5, 100), (7, 2, 20), (300, 3, 1), (3, 17, 65)])
def test_values(
    places: str, kind: str, dtype: str, rows: int, columns: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of floats are of small whole numbers, products of 1, 2 and -1: they are exact in any order. Of several
    updates that replace a row the last one stays."""
    sort_always(monkeypatch)
    rng = np.random.default_rng(count + rows)
    ids = jnp.asarray(PLACES[places](rng, rows, count), jnp.int32)
    x = jnp.asarray(rng.integers(-3, 4, (rows, columns)), JAX_DTYPE[dtype])
    some = (
        rng.choice([1, -1], (count, columns)) if kind == "multiply" else rng.integers(-2, 3, (count, columns))
    )
    updates = jnp.asarray(some, JAX_DTYPE[dtype])

    def fn(x: Any, ids: Any, updates: Any) -> Any:
        zeros = jnp.zeros(x.shape, x.dtype)
        return scattered(x, ids, updates, kind), scattered(zeros, ids, updates, kind)

    check(fn, x, ids, updates)


@covering()
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-910b4", "ascend-310", "ascend-950pr"])
@pytest.mark.parametrize("longest", [64, 512])
def test_long_sorts(target: str, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of columns, on all chips; many updates of few places are combined over many chunks."""
    sort_always(monkeypatch, chunk=16, longest=longest)
    ids = data("i32", (400,)) % 90
    updates = jnp.asarray(np.arange(400 * 2).reshape(400, 2) % 5, jnp.float32)
    check(lambda i, u: jnp.zeros((80, 2), u.dtype).at[i].add(u), ids, updates, target=target)
    last = jnp.arange(800.0).reshape(400, 2)
    check(lambda i, u: jnp.zeros((80, 2), u.dtype).at[i].set(u), ids, last, target=target)


def test_rounding_keeps_the_order_of_updates_within_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    sort_always(monkeypatch, chunk=200, longest=512)
    ids = jnp.asarray(np.random.default_rng(0).permutation([1] * 200 + [4] * 100), jnp.int32)
    updates = data("bf16", (300, 4))
    program = tw.compile(lambda i, u: jnp.zeros((7, 4), u.dtype).at[i].add(u), ids, updates)
    want = np.zeros((7, 4), updates.dtype)
    for place, update in zip(np.asarray(ids), np.asarray(updates), strict=True):
        want[place] += update
    np.testing.assert_array_equal(np.asarray(program(ids, updates)), want)


def test_the_gradient_of_an_embedding_takes_little_more_than_its_traffic() -> None:
    """171 us over HBM; 3,963 where each part of the table reads all updates."""
    ids, updates = jax.ShapeDtypeStruct((8192,), "int32"), jax.ShapeDtypeStruct((8192, 768), "float32")
    program = tw.compile(lambda i, u: jnp.zeros((50257, 768), u.dtype).at[i].add(u), ids, updates)
    assert program.report().microseconds < 300


@pytest.mark.parametrize("longest", [64, 2048, 4096])
def test_columns_sort_any_number(longest: int) -> None:
    """The lengths that Leighton's proof asks for, in columns that get shorter."""
    for count in [longest + 1, 2 * longest, 5 * longest + 3, 77 * longest, 1 << 20, (1 << 24) + 1]:
        length = count
        while length > longest:
            number, high = sorted_scatter.columns_of(length, longest)
            assert number * high >= length > high
            assert high % (2 * number) == 0
            assert high >= 2 * (number - 1) ** 2
            length = high
