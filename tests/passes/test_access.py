"""access: what a kernel reads through layout ops, against numpy."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st
from jax import lax
from tiering import examples
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from tilewright.dialects.affine import Expr
from tilewright.frontends import lower_function
from tilewright.passes.forms.access import Load, base_behind, reshape_groups, resolve

FACTORS = {
    n: [(n,), *((a, n // a) for a in range(2, n) if n % a == 0)] for n in (4, 6, 9, 10, 15, 25, 30)
}
SIZES = st.sampled_from([1, 2, 3, 4, 6])


@given(st.lists(SIZES, max_size=5), st.randoms(use_true_random=False))
def test_reshape_groups(source: list[int], random: Any) -> None:
    """The groups cover both shapes in order, with equal counts, and none could be cut further."""
    factors = [p for n in source for p in ((2, n // 2) if n in (4, 6) else (n,))]
    target: list[int] = []
    for f in factors:
        if target and random.random() < 0.4:
            target[-1] *= f
        else:
            target.append(f)
    groups = reshape_groups(source, target)
    assert [d for left, _ in groups for d in left] == list(range(len(source)))
    assert [d for _, right in groups for d in right] == list(range(len(target)))
    for left, right in groups:
        a, b = [source[d] for d in left], [target[d] for d in right]
        assert math.prod(a) == math.prod(b)
        ahead = {math.prod(a[:i]) for i in range(1, len(a))} & {math.prod(b[:i]) for i in range(1, len(b))}
        assert not ahead


def read(load: Load, base: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What `load` brings for every point of the domain, one element at a time."""
    flat, out = base.reshape(-1), np.zeros(shape, base.dtype)
    for point in np.ndindex(*shape):
        at, inside = load.offset, True
        for extent, stride, index in zip(load.shape, load.strides, load.indices, strict=True):
            i = index.constant + sum(c * point[a] for a, c in index.terms)
            inside &= 0 <= i < extent
            at += i * stride
        out[point] = flat[at] if inside else load.fill
    return out


@examples(60)
@given(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=3), st.data())
def test_resolve(shape: list[int], draw: st.DataObject) -> None:
    """A random chain of layout ops, resolved and read element by element, gives what JAX gives."""
    steps: list[Any] = []
    current = list(shape)
    for _ in range(draw.draw(st.integers(0, 4))):
        kind = draw.draw(
            st.sampled_from(["transpose", "slice", "reverse", "broadcast", "ones", "merge", "pad"])
        )
        rank = len(current)
        if kind == "transpose":
            perm = draw.draw(st.permutations(range(rank)))
            steps.append(lambda x, p=tuple(perm): x.transpose(p))
            current = [current[p] for p in perm]
        elif kind == "slice":
            cuts = [slice(draw.draw(st.integers(0, n - 1)), n, draw.draw(st.integers(1, 2))) for n in current]
            steps.append(lambda x, c=tuple(cuts): x[c])
            current = [len(range(*c.indices(n))) for c, n in zip(cuts, current, strict=True)]
        elif kind == "reverse" and rank:
            dim = draw.draw(st.integers(0, rank - 1))
            steps.append(lambda x, d=dim: jnp.flip(x, d))
        elif kind == "broadcast" and rank < 4:
            steps.append(lambda x: jnp.broadcast_to(x, (2, *x.shape)))
            current = [2, *current]
        elif kind == "ones" and rank < 4:
            steps.append(lambda x: x[..., None])
            current = [*current, 1]
        elif kind == "merge" and rank > 1:
            steps.append(lambda x: x.reshape(-1, *x.shape[2:]))
            current = [current[0] * current[1], *current[2:]]
        elif kind == "pad":
            steps.append(lambda x: lax.pad(x, jnp.float32(7), [(1, -1, 0)] + [(0, 1, 0)] * (x.ndim - 1)))
            current = [current[0], *(n + 1 for n in current[1:])]
        note(f"{kind} -> {current}")

    def chain(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    x = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    want = np.asarray(chain(jnp.asarray(x)))
    (function,) = (op for op in lower_function(chain, (x,)).module.ops if isinstance(op, FuncOp))
    returned = function.body.block.last_op
    assert returned is not None
    value = returned.operands[0]
    out = tuple(value.type.get_shape())
    def is_argument(v: SSAValue) -> bool:
        return isinstance(v, BlockArgument)

    load = resolve(value, [Expr.of(d) for d in range(len(out))], out, is_argument)
    assert base_behind(value, is_argument) == (load.base, load.fill is not None)
    if isinstance(load.base, BlockArgument):
        np.testing.assert_array_equal(read(load, x, out), want)

    # the same with several axes for each dimension, which may be those of what was merged
    factors = [draw.draw(st.sampled_from(FACTORS[n])) if n in FACTORS else (n,) for n in out]
    extents = [n for each in factors for n in each]
    axes = iter(range(len(extents)))
    indices = [Expr(0, {next(axes): math.prod(each[i + 1 :]) for i in range(len(each))}) for each in factors]
    load = resolve(value, indices, extents, is_argument)
    assert base_behind(value, is_argument, (indices, extents)) == (load.base, load.fill is not None)
    if isinstance(load.base, BlockArgument):
        np.testing.assert_array_equal(read(load, x, tuple(extents)), want.reshape(extents))


def test_parted_reshape() -> None:
    """A dimension that was two is read from these where each axis stays in one of them."""

    def chain(x: Any) -> Any:
        return x.transpose(1, 0, 2).reshape(2, 12, 5)

    x = np.arange(120, dtype=np.float32).reshape(3, 8, 5)
    (function,) = (op for op in lower_function(chain, (x,)).module.ops if isinstance(op, FuncOp))
    returned = function.body.block.last_op
    assert returned is not None
    value = returned.operands[0]

    def base(indices: list[Expr[int]], extents: list[int]) -> SSAValue:
        return resolve(value, indices, extents, lambda v: isinstance(v, BlockArgument)).base

    whole = [Expr.of(0), Expr.of(1), Expr.of(2)]
    assert not isinstance(base(whole, [2, 12, 5]), BlockArgument)
    parted = [Expr.of(0), Expr(0, {1: 3, 2: 1}), Expr.of(3)]
    assert isinstance(base(parted, [2, 4, 3, 5]), BlockArgument)
    assert not isinstance(base(parted, [2, 4, 4, 5]), BlockArgument), "the last one carries over"
    assert not isinstance(base([Expr.of(0), Expr(1, {1: 3, 2: 1}), Expr.of(3)], [2, 3, 3, 5]), BlockArgument)
