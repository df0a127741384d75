"""Attention whose masks hide keys: rows in bands, each with the keys that it sees; both memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from tiering import covering, sampled

import tilewright as tw

NEVER = float("-inf")
HEADS = 24
"""As many as there are cores: then each block of 128 rows may be a band."""

Mask = Callable[[Any, Any, Any], Any]
"""What becomes of scores, of their rows and keys."""

MASKS: dict[str, Mask] = {
    "causal": lambda s, r, c: jnp.where(r >= c, s, NEVER),
    "window": lambda s, r, c: jnp.where((r >= c) & (r - c < 100), s, -1e30),
    "both sides": lambda s, r, c: jnp.where(jnp.abs(r - c) < 150, s, NEVER),
    "from behind": lambda s, r, c: jnp.where(c >= r, s, NEVER),
    "bias": lambda s, r, c: s + (1 - (r >= c).astype(s.dtype)) * -1e9,
    "soft cap": lambda s, r, c: jnp.where(r >= c, 20 * jnp.tanh(s / 20), NEVER),
}


def attention(mask: Mask) -> Callable[[Any, Any, Any], Any]:
    def f(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32) * 0.2
        rows, keys = (jax.lax.broadcasted_iota(jnp.int32, scores.shape[1:], d) for d in (0, 1))
        weights = jax.nn.softmax(mask(scores, rows, keys), axis=-1).astype(v.dtype)
        return jnp.einsum("hqk,hkd->hqd", weights, v)

    return f


def inputs(dtype: str, rows: int, keys: int, size: int = 16) -> list[jax.Array]:
    return [data(dtype, (HEADS, n, size), seed) for seed, n in enumerate((rows, keys, keys))]


def kernels(program: Any) -> list[str]:
    return [kernel.name for kernel in program.report().kernels]


def in_bands(count: int) -> tw.Options:
    return tw.Options(schedule=tw.Schedule(bands=count))


@sampled(6)
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    q, k, v = inputs("f32", 389, 389)
    program = check(attention(MASKS[name]), q, k, v, length=400, options=in_bands(4))
    assert kernels(program) == ["attention_0", *(f"attention_band_{n}" for n in range(3))]


@covering(1)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("rows", "keys", "bands"), [(256, 256, 2), (257, 640, 3), (400, 333, 2)])
def test_lengths(dtype: str, rows: int, keys: int, bands: int) -> None:
    q, k, v = inputs(dtype, rows, keys)
    program = check(attention(MASKS["causal"]), q, k, v, length=keys + 16, options=in_bands(bands))
    assert len(kernels(program)) == bands


def test_what_is_behind_the_cache_is_seen_by_all() -> None:
    """Rows at the end of their keys: the last of them sees all, and none sees fewer than those before the first."""

    def late(scores: Any, rows: Any, keys: Any) -> Any:
        return jnp.where(rows + 300 >= keys, scores, NEVER)

    q, k, v = inputs("f32", 256, 556)
    check(attention(late), q, k, v, length=600, options=in_bands(2))


def test_shared_keys_and_a_mask_that_is_given() -> None:
    def f(q: Any, k: Any, v: Any, padding: Any) -> Any:
        scores = jnp.einsum("gqhd,gkd->ghqk", q, k) * 0.2
        rows, keys = (jax.lax.broadcasted_iota(jnp.int32, scores.shape[2:], d) for d in (0, 1))
        scores = jnp.where(padding[:, None, None, :], scores, -1e30)
        weights = jax.nn.softmax(jnp.where(rows >= keys, scores, NEVER), axis=-1)
        return jnp.einsum("ghqk,gkd->gqhd", weights, v)

    q, k, v = (data("f32", shape, 3) for shape in ((6, 260, 4, 16), (6, 260, 16), (6, 260, 16)))
    padding = np.ones((6, 260), bool)
    padding[:, 1::3] = False
    check(f, q, k, v, padding, length=300)


def test_less_time() -> None:
    """Half of the keys are hidden, and twice as many bands leave out more of them."""
    x = jax.ShapeDtypeStruct((8, 4096, 128), "float16")
    times = [
        tw.compile(attention(MASKS["causal"]), x, x, x, options=options).report().microseconds
        for options in (in_bands(1), in_bands(2), tw.Options())
    ]
    assert times[1] < 0.9 * times[0] and times[2] < 0.75 * times[0]


def test_what_is_not_hidden_for_sure_is_computed() -> None:
    """Scores may be larger than a mask that subtracts little; a row without keys has all of them."""
    q, k, v = (jax.ShapeDtypeStruct((HEADS, 512, 16), "float32") for _ in range(3))

    def little(scores: Any, rows: Any, keys: Any) -> Any:
        return scores - jnp.where(rows >= keys, 0.0, 100.0)

    def none(scores: Any, rows: Any, keys: Any) -> Any:
        return jnp.where(rows > keys, scores, -1e30)  # row 0 has the mean of all values

    for mask in (little, none):
        assert kernels(tw.compile(attention(mask), q, k, v)) == ["attention_0"]


def test_bands_that_cannot_be() -> None:
    q, k, v = (jax.ShapeDtypeStruct((HEADS, 256, 16), "float32") for _ in range(3))
    with pytest.raises(tw.CompileError, match=r"@attention_0 cannot obey .*bands=3: its rows have 2 blocks of 128"):
        tw.compile(attention(MASKS["causal"]), q, k, v, options=in_bands(3))


def test_positions_of_rows_are_one_line() -> None:
    """Of a causal mask only the positions of keys are repeated over a tile: those of rows are a line of it."""
    shape = jax.ShapeDtypeStruct((HEADS, 512, 16), jnp.float32)
    program = tw.compile(attention(MASKS["causal"]), shape, shape, shape, options=in_bands(1))
    found = [line for line in program.ir("tile").splitlines() if "tile.broadcast" in line]
    assert len(found) == 1 and "tile.ge" in program.ir("tile")
