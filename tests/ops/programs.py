"""Random programs: chains of elementwise ops, reductions, layout changes and products on a pool of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from harness import SIZES, data
from hypothesis import strategies as st
from jax import lax

Shape = tuple[int, ...]
Apply = Callable[..., jax.Array]


@dataclass(frozen=True)
class Node:
    """One value of a program: `apply` on the values numbered `operands`; `text` says it for a person."""

    apply: Apply
    operands: tuple[int, ...]
    shape: Shape
    text: str


@dataclass(frozen=True)
class RandomProgram:
    """Inputs' shapes, the values computed from them, and which of those are the results."""

    inputs: tuple[Shape, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def __call__(self, *args: jax.Array) -> list[jax.Array]:
        values = list(args)
        for node in self.nodes:
            values.append(node.apply(*(values[i] for i in node.operands)))
        return [values[i] for i in self.outputs]

    def __repr__(self) -> str:
        n = len(self.inputs)
        lines = [f"v{i}: input {s}" for i, s in enumerate(self.inputs)]
        lines += [
            f"v{n + i}: {node.text} {' '.join(f'v{o}' for o in node.operands)} -> {node.shape}"
            for i, node in enumerate(self.nodes)
        ]
        return "\n".join([*lines, f"results {self.outputs}"])

    def arguments(self, dtype: str) -> list[jax.Array]:
        return [data(dtype, s, i) for i, s in enumerate(self.inputs)]

    @property
    def length(self) -> int:
        """The longest sum, roughly, for the tolerance."""
        return max((math.prod(s) for s in (*self.inputs, *(n.shape for n in self.nodes))), default=1)


UNARY: dict[str, Apply] = {
    "tanh": jnp.tanh,
    "abs": jnp.abs,
    "neg": jnp.negative,
    "relu": lambda x: jnp.maximum(x, 0),
    "logistic": jax.nn.sigmoid,
    "affine": lambda x: x * 0.5 + 1,
}
BINARY: dict[str, Apply] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": lambda x, y: jnp.tanh(x) * y,
    "max": jnp.maximum,
    "min": jnp.minimum,
}
REDUCE: dict[str, Apply] = {"sum": jnp.mean, "max": jnp.max, "min": jnp.min}
"""Sums as means, so that chains of them stay near 1."""

Draw = Callable[[st.SearchStrategy[Any]], Any]
Pool = Sequence[Shape]


def _pick(draw: Draw, pool: Pool, good: Callable[[Shape], bool] = lambda _: True) -> int | None:
    """A value of the pool, the latest ones first (hypothesis shrinks towards them)."""
    fitting = [i for i in reversed(range(len(pool))) if good(pool[i])]
    return draw(st.sampled_from(fitting)) if fitting else None


def _unary(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool)
    name = draw(st.sampled_from(sorted(UNARY)))
    return None if i is None else Node(UNARY[name], (i,), pool[i], name)


def _binary(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool)
    assert i is not None

    def fits(other: Shape) -> bool:
        try:
            return math.prod(jnp.broadcast_shapes(pool[i], other)) <= 1 << 15
        except ValueError:
            return False

    j = _pick(draw, pool, fits)
    name = draw(st.sampled_from(sorted(BINARY)))
    if j is None:
        return None
    return Node(BINARY[name], (i, j), tuple(jnp.broadcast_shapes(pool[i], pool[j])), name)


def _reduce(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: len(s) > 0)
    if i is None:
        return None
    shape = pool[i]
    axes = tuple(draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True)))
    keep = draw(st.booleans())
    name = draw(st.sampled_from(sorted(REDUCE)))
    out = tuple(1 if d in axes else s for d, s in enumerate(shape) if keep or d not in axes)
    return Node(
        lambda x: REDUCE[name](x, axis=axes, keepdims=keep), (i,), out, f"{name} axes={axes} keep={keep}"
    )


def _transpose(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: len(s) > 1)
    if i is None:
        return None
    perm = tuple(draw(st.permutations(range(len(pool[i])))))
    return Node(lambda x: x.transpose(perm), (i,), tuple(pool[i][p] for p in perm), f"transpose {perm}")


def _reshape(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool)
    assert i is not None
    shape = pool[i]
    merged = [(*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :]) for d in range(len(shape) - 1)]
    ones = [(*shape[:d], 1, *shape[d:]) for d in range(len(shape) + 1)]
    split = [
        (*shape[:d], p, shape[d] // p, *shape[d + 1 :])
        for d in range(len(shape))
        for p in (2, 3, 5, 13)
        if shape[d] % p == 0 and shape[d] > p
    ]
    choices = [*merged, *split, *ones, shape[::-1]]
    out = draw(st.sampled_from([s for s in choices if len(s) <= 5] or [shape]))
    return Node(lambda x: x.reshape(out), (i,), out, f"reshape {out}")


def _slice(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: any(n > 1 for n in s))
    if i is None:
        return None
    cuts = []
    for n in pool[i]:
        start = draw(st.integers(0, n - 1))
        cuts.append(slice(start, draw(st.integers(start + 1, n)), draw(st.integers(1, 3))))
    out = tuple(len(range(*c.indices(n))) for c, n in zip(cuts, pool[i], strict=True))
    return Node(lambda x: x[tuple(cuts)], (i,), out, f"slice {cuts}")


def _reverse(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: len(s) > 0)
    if i is None:
        return None
    dim = draw(st.integers(0, len(pool[i]) - 1))
    return Node(lambda x: jnp.flip(x, dim), (i,), pool[i], f"reverse {dim}")


def _pad(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: len(s) > 0)
    if i is None:
        return None
    spec = [
        (draw(st.integers(-1, 2)), draw(st.integers(0, 2)), draw(st.sampled_from([0, 0, 0, 1])))
        for _ in pool[i]
    ]
    out = tuple(max(n + (n - 1) * k + a + b, 0) for n, (a, b, k) in zip(pool[i], spec, strict=True))
    if not math.prod(out):
        return None
    value = draw(st.sampled_from([0.0, 1.0]))
    return Node(lambda x: lax.pad(x, jnp.asarray(value, x.dtype), spec), (i,), out, f"pad {spec} {value}")


def _concat(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: len(s) > 0)
    if i is None:
        return None
    dim = draw(st.integers(0, len(pool[i]) - 1))

    def rest(s: Shape) -> Shape:
        return (*s[:dim], *s[dim + 1 :])

    j = _pick(draw, pool, lambda s: len(s) == len(pool[i]) and rest(s) == rest(pool[i]))
    assert j is not None
    out = tuple(a + b if d == dim else a for d, (a, b) in enumerate(zip(pool[i], pool[j], strict=True)))
    return Node(lambda x, y: jnp.concatenate([x, y], dim), (i, j), out, f"concat {dim}")


def _mask(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: len(s) > 0)
    if i is None:
        return None
    dim, at = draw(st.integers(0, len(pool[i]) - 1)), draw(st.integers(0, 20))

    def apply(x: jax.Array) -> jax.Array:
        return jnp.where(lax.broadcasted_iota(jnp.int32, x.shape, dim) < at, x, -1)

    return Node(apply, (i,), pool[i], f"mask dim {dim} below {at}")


def _softmax(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: len(s) > 0)
    if i is None:
        return None
    dim = draw(st.integers(0, len(pool[i]) - 1))
    return Node(lambda x: jax.nn.softmax(x, dim), (i,), pool[i], f"softmax {dim}")


def _matmul(draw: Draw, pool: Pool) -> Node | None:
    i = _pick(draw, pool, lambda s: len(s) > 0)
    if i is None:
        return None
    k = draw(st.integers(0, len(pool[i]) - 1))
    j = _pick(draw, pool, lambda s: len(s) > 0 and pool[i][k] in s)
    assert j is not None
    at = pool[j].index(pool[i][k])
    out = (*pool[i][:k], *pool[i][k + 1 :], *pool[j][:at], *pool[j][at + 1 :])
    if math.prod(out) > 1 << 15 or len(out) > 5:
        return None
    scale = 1 / math.sqrt(pool[i][k])
    return Node(lambda x, y: jnp.tensordot(x, y, (k, at)) * scale, (i, j), out, f"tensordot {k} {at}")


STEPS = (_unary, _binary, _binary, _reduce, _transpose, _reshape, _slice, _reverse, _pad, _concat, _mask)
STEPS_WITH_PRODUCTS = (*STEPS, _softmax, _matmul, _matmul)
STEPS_FOLDED = (_unary, _binary, _binary, _reduce, _reduce, _transpose, _reshape)


@st.composite
def programs(
    draw: st.DrawFn, steps: Sequence[Callable] = STEPS_WITH_PRODUCTS, most: int = 10
) -> RandomProgram:
    """A program of up to `most` steps on one to three inputs that broadcast against each other."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.sampled_from([s for s in SIZES if s <= 31])) for _ in range(rank))
    inputs = [shape]
    for _ in range(draw(st.integers(0, 2))):
        kept = draw(st.integers(0, rank))
        inputs.append(tuple(1 if draw(st.booleans()) and rank > 1 else s for s in shape[rank - kept :]))
    pool = list(inputs)
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, most))):
        node = draw(st.sampled_from(steps))(draw, pool)
        if node is not None and math.prod(node.shape) <= 1 << 15 and len(node.shape) <= 5:
            nodes.append(node)
            pool.append(node.shape)
    results = draw(st.lists(st.integers(0, len(pool) - 1), min_size=0, max_size=2))
    return RandomProgram(tuple(inputs), tuple(nodes), (len(pool) - 1, *results))
