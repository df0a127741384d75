"""xDSL's own passes between ours, at each level: programs give the same values, and npu-check accepts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination
from xdsl.transforms.dead_code_elimination import DeadCodeElimination
from xdsl.transforms.loop_invariant_code_motion import LoopInvariantCodeMotionPass

import tilewright as tw
from tilewright.passes.pipeline import PIPELINE, Stage

THEIRS: tuple[type[ModulePass], ...] = (
    CommonSubexpressionElimination,
    LoopInvariantCodeMotionPass,
    CanonicalizePass,
    DeadCodeElimination,
)


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    mask = jnp.tril(jnp.ones((q.shape[-2], k.shape[-2]), bool))
    scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / 8, -1e9)
    return jax.nn.softmax(scores) @ v


def pooled(x: jax.Array, w: jax.Array) -> jax.Array:
    y = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME"))
    z = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return jnp.cumsum(z, 2) + jnp.sort(z, -1)


def looped(x: jax.Array, w: jax.Array, at: jax.Array) -> tuple[jax.Array, ...]:
    """A loop whose length the program finds, updates in place, a branch, and a call of the host."""
    first = jax.lax.fori_loop(0, 3, lambda i, a: jnp.tanh(a @ w) + x, x)
    updated = first.at[at].set(0).at[at].add(x[at])
    many = jax.lax.while_loop(lambda c: c[0].sum() < 100, lambda c: (c[0] + jnp.abs(c[1]), c[1]), (x, x))
    chosen = jax.lax.cond(x[0, 0] > 0, lambda a: a * 2, lambda a: a - 1, updated)
    return first, updated, many[0], chosen, jnp.linalg.qr(x[:4, :4])[1] + jnp.linalg.qr(x[:4, :4])[1]


def two_sums(x: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
    """Two accumulators and two running totals that begin alike, of rows too long for one tile."""
    y = jnp.exp(x)
    return y.sum(-1), (y * y).sum(-1), x @ w + x @ (w + 1), y.max(-1)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (attention, tuple(data(2, 40, 16, seed=i) for i in range(3))),
    "pooled": (pooled, (data(1, 3, 12, 12), data(4, 3, 3, 3, seed=1))),
    "looped": (looped, (data(24, 24), data(24, 24, seed=1) / 24, np.array([3, 5, 3]))),
    "two sums": (two_sums, (data(3, 70000), data(70000, 2, seed=1) / 300)),
}
AFTER = {
    "graph": ("graph-simplify", "graph-fuse"),
    "tile": ("graph-to-tile",),
    "npu": ("tile-to-npu", "npu-synchronize", "npu-schedule-host", "npu-join-launches"),
}


def put_theirs(behind: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
    """Every compilation has xDSL's passes behind the stages that are named."""
    stages: list[Stage] = []
    for stage in PIPELINE:
        stages.append(stage)
        if stage.name in behind:
            stages += [Stage(p.name, p, stage.level) for p in THEIRS]
    ours = tw.Options.stages
    patch.setattr(tw.Options, "stages", lambda options: ours(options, stages))


ALL = tuple(place for places in AFTER.values() for place in places)
CASES = [
    *[(name, places) for name in ("pooled", "looped") for places in AFTER.values()],
    ("attention", ALL),
    ("two sums", ALL),
]


@sampled(4)
@pytest.mark.parametrize(("name", "places"), CASES, ids=lambda x: x if isinstance(x, str) else "+".join(x))
def test_values_stay(name: str, places: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    fn, args = PROGRAMS[name]
    want = tw.compile(fn, *args)(*args)
    put_theirs(places, monkeypatch)
    program = tw.compile(fn, *args, options=tw.Options(memory="bytes"))
    for a, b in zip(jax.tree.leaves(program(*args)), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "level"), [("looped", "graph"), ("pooled", "tile")])
def test_they_change_something(name: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above compares programs that differ."""
    fn, args = PROGRAMS[name]
    plain = tw.compile(fn, *args).ir("npu")
    put_theirs(AFTER[level], monkeypatch)
    assert tw.compile(fn, *args).ir("npu") != plain
