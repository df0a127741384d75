"""Attention in its kernels, and products in one kernel, as programs that faults are injected into."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from subject_types import Subject

import tilewright as tw
from tilewright.passes.forms import chained
from tilewright.passes.strips import flash_backward


def attention_subject(number: int, target: str) -> Subject:
    """Attention in small tiles: several pieces of the keys, and several tiles on each core. Even numbers are causal,
    and every third one shares its keys between two heads; from 4 on, scores and parts of the result are handed over in
    two steps, and odd ones leave out weights; from 8 on, there are two bands of rows."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    banded, shared = bool(number // 8 % 2), 2 if number % 3 == 2 else 1
    rows, keys = int(rng.integers(17, 48)), int(rng.integers(33, 100))
    heads, rows, keys = (24 // shared, rows + 128, keys + 128) if banded else (2, rows, keys)
    stepwise, kept = bool(number // 4 % 2), rng.random((rows, keys)) < 0.75

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hgqd,hkd->hgqk", q, k, preferred_element_type=jnp.float32) * 0.25
        if number % 2 == 0:
            scores = jnp.where(jnp.arange(keys) <= jnp.arange(rows)[:, None], scores, -1e9)
        weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
        if stepwise and number % 2:
            weights = jnp.where(kept, weights, 0)
        return jnp.einsum("hgqk,hkd->hgqd", weights, v)

    kind = ("f2", "f4")[number // 2 % 2]
    shapes = ((heads, shared, rows, 16), (heads, keys, 16), (heads, keys, 24))
    args = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    schedule = tw.Schedule(rows=16, keys=16, cores=1 + number % 2)
    if stepwise:
        schedule = tw.Schedule(rows=16, keys=32, scored=16, columns=16, cores=1 + number % 2)
    if banded:
        schedule = tw.Schedule(rows=32, keys=48, bands=2)
    module = tw.compile(attention, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"attention {number} for {target}", module, target)


def chained_subject(number: int, target: str) -> Subject:
    """Two products without a softmax between them, in small tiles of several pieces of the keys: the last parts are
    added in the loop over them, and behind it for odd numbers. From 2 on, scores are handed over in two steps."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, keys = int(rng.integers(17, 60)), int(rng.integers(70, 150))

    def chained_products(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return jnp.einsum("hqk,hkd->hqd", jax.nn.relu(jnp.einsum("hqd,hkd->hqk", q, k) + bias), v)

    shapes = ((2, rows, 16), (2, keys, 16), (2, keys, 24), (keys,))
    args = [rng.standard_normal(shape).astype(("f2", "f4")[number // 2 % 2]) for shape in shapes]
    stepwise = {"scored": 16} if number // 2 % 2 else {}
    schedule = tw.Schedule(rows=16, keys=32, places=1 + number % 2, cores=2, **stepwise)
    with patch.multiple(chained, LEAST_BYTES=0, LEAST_TILE=0):
        module = tw.compile(chained_products, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"chained {number} for {target}", module, target)


def back_to_back_subject(number: int, target: str) -> Subject:
    """Two products that a cube core hands on through l1, in pieces of one part and, for odd numbers, of two, with one
    step of the first product, which stays in l0a, and from 2 on with two."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, columns = int(rng.integers(33, 70)), int(rng.integers(17, 40))

    def back_to_back(q: Any, k: Any, v: Any) -> Any:
        return jnp.einsum("hqk,hkd->hqd", jax.nn.relu(jnp.einsum("hqd,hkd->hqk", q, k)), v)

    args = [rng.standard_normal(s).astype("f2") for s in ((2, rows, 32), (2, 96, 32), (2, 96, columns))]
    parts, features = 1 + number % 2, 32 // (1 + number // 2 % 2)
    schedule = tw.Schedule(rows=16, keys=16 * parts, scored=16, features=features, cores=2)
    module = tw.compile(back_to_back, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"back to back {number} for {target}", module, target)


def gradient_subject(number: int, target: str) -> Subject:
    """Attention that stores its maxima and sums, and its gradient in kernels with two first products, in small tiles of
    several pieces. Odd numbers add the last parts behind the loop over the pieces, and from 2 on all is in f32."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, keys = int(rng.integers(33, 60)), int(rng.integers(70, 100))

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32) * 0.25
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores).astype(v.dtype), v)

    def gradient(q: Any, k: Any, v: Any, d: Any) -> Any:
        result, back = jax.vjp(attention, q, k, v)
        return (result, *back(d))

    shapes = ((2, rows, 16), (2, keys, 16), (2, keys, 24), (2, rows, 24))
    args = [rng.standard_normal(shape).astype(("f2", "f4")[number // 2 % 2]) for shape in shapes]
    schedule = tw.Schedule(rows=16, keys=32 if number % 2 else 16, places=1 + number % 2, cores=2)
    small = patch.multiple(chained, LEAST_BYTES=0, LEAST_LENGTH=0, LEAST_TILE=0)
    with small, patch.object(flash_backward, "LEAST_GROWTH", 0):
        module = tw.compile(gradient, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"gradient {number} for {target}", module, target)


def decoding_subject(number: int, target: str) -> Subject:
    """Attention of few rows in small pieces of the keys, with something left behind the last whole one. Odd numbers cut
    the keys into parts, and every third one has rows that share keys."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    keys, shared = 2 * int(rng.integers(17, 40)), 3 if number % 3 == 2 else 1

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hgd,khd->hgk", q, k, preferred_element_type=jnp.float32) * 0.25
        scores = jnp.where(jnp.arange(keys) < keys - 5, scores, -1e9)
        return jnp.einsum("hgk,khd->hgd", jax.nn.softmax(scores, axis=-1).astype(q.dtype), v)

    kind = ("f2", "f4")[number // 2 % 2]
    shapes = ((2, shared, 16), (keys, 2, 16), (keys, 2, 24))
    args = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    schedule = tw.Schedule(keys=16, **({"split_keys": 2} if number % 2 else {"cores": 1}))
    module = tw.compile(attention, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"decoding {number} for {target}", module, target)
