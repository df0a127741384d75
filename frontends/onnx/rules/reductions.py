"""Reductions, the indices of extremes, cumulative sums, and the softmax family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..node import Node
from ..table import add_rules, rule
from ..values import is_float, is_known, is_sizes, larger, smaller


def wide(x: Any) -> Any:
    """x in f32 where it is a narrower float, to be summed or squared."""
    import jax.numpy as jnp

    return x.astype(jnp.float32) if is_float(x) and x.dtype.itemsize < 4 else x


@dataclass(frozen=True)
class ReductionKind:
    """What an op of the Reduce class does.

    reduce: a method of `_Axes`. before: what `jax.numpy` makes of the elements; after: of the results. numpy: the
    function that reduces sizes, which stay known.
    """

    reduce: str
    before: str = ""
    after: str = ""
    numpy: str = ""


REDUCTIONS = {
    "ReduceSum": ReductionKind("sum", numpy="sum"),
    "ReduceProd": ReductionKind("prod", numpy="prod"),
    "ReduceMax": ReductionKind("most", numpy="max"),
    "ReduceMin": ReductionKind("least", numpy="min"),
    "ReduceMean": ReductionKind("mean"),
    "ReduceL1": ReductionKind("sum", before="abs"),
    "ReduceL2": ReductionKind("sum", before="square", after="sqrt"),
    "ReduceSumSquare": ReductionKind("sum", before="square"),
    "ReduceLogSum": ReductionKind("sum", after="log"),
    "ReduceLogSumExp": ReductionKind("log_sum_exp"),
}


@dataclass(frozen=True)
class _Axes:
    """Reductions over axes, in the dtype of the operand, which lose the axes."""

    axes: tuple[int, ...]

    def sum(self, x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.sum(x, self.axes, dtype=x.dtype)

    def prod(self, x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.prod(x, self.axes, dtype=x.dtype)

    def most(self, x: Any) -> Any:
        """The maximum: of no elements, the least value of the type."""
        import jax

        return jax.lax.reduce_max(x, self.axes)

    def least(self, x: Any) -> Any:
        """The minimum: of no elements, the largest value of the type."""
        import jax

        return jax.lax.reduce_min(x, self.axes)

    def mean(self, x: Any) -> Any:
        """The mean, cut off where it is an integer."""
        import jax
        import jax.numpy as jnp

        if is_float(x):
            return jnp.mean(x, self.axes)
        count: Any = 1
        for axis in self.axes:
            count = count * x.shape[axis]
        total = self.sum(x)
        divisor = jnp.asarray(count, jnp.int64).astype(x.dtype)
        return jax.lax.div(total, jnp.broadcast_to(divisor, total.shape))

    def log_sum_exp(self, x: Any) -> Any:
        """The logarithm of the sum of exponentials, which are at most 1 in it."""
        import jax
        import jax.numpy as jnp

        x = x if is_float(x) else x.astype(jnp.float64)
        most = jax.lax.expand_dims(self.most(x), self.axes)
        most = jax.lax.stop_gradient(jnp.where(jnp.isfinite(most), most, jnp.zeros((), x.dtype)))
        return jnp.log(self.sum(jnp.exp(x - most))) + jnp.squeeze(most, self.axes)


def _axes_of(node: Node, rank: int) -> tuple[int, ...]:
    """The axes that are reduced, in order: all of them where none are given, but for `noop_with_empty_axes`."""
    given = node.axes(1)
    if given:
        return tuple(sorted(node.places(given, rank))) if rank else ()
    return () if node.get("noop_with_empty_axes", 0) else tuple(range(rank))


def _reduce(op: ReductionKind, node: Node, x: Any, axes: Any = None) -> Any:
    import jax
    import jax.numpy as jnp

    over, kept = _axes_of(node, x.ndim), bool(node.get("keepdims", 1))
    if is_sizes(x):
        return _reduced_sizes(op.numpy, x, over, kept)
    if is_known(x):
        with jax.ensure_compile_time_eval():
            return np.asarray(_reduced(op, jnp.asarray(x), over, kept))
    return _reduced(op, x, over, kept)


def _reduced(op: ReductionKind, x: Any, axes: tuple[int, ...], kept: bool) -> Any:
    import jax
    import jax.numpy as jnp

    y = wide(x)
    if op.before:
        y = getattr(jnp, op.before)(y)
    y = getattr(_Axes(axes), op.reduce)(y)
    if op.after:
        y = getattr(jnp, op.after)(y if is_float(y) else y.astype(jnp.float64))
    return (jax.lax.expand_dims(y, axes) if kept else y).astype(x.dtype)


def _reduced_sizes(name: str, x: np.ndarray, axes: tuple[int, ...], kept: bool) -> np.ndarray:
    """Sizes reduced by numpy, which stay known: an array of objects."""
    if not axes:
        return x
    extreme = {"max": larger, "min": smaller}.get(name)
    made: Any = x
    if extreme is None:
        made = getattr(np, name)(x, axis=axes, keepdims=True)
    else:
        for axis in axes:
            made = np.expand_dims(np.frompyfunc(extreme, 2, 1).reduce(made, axis=axis), axis)
    return made if kept else np.squeeze(made, axes)


for _op, _row in REDUCTIONS.items():
    add_rules([_op], partial(_reduce, _row), folds=bool(_row.numpy))


@rule("ArgMax", "ArgMin")
def _arg_extreme(node: Node, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    axis = node.place(node.get("axis", 0), x.ndim)
    find = jax.lax.argmax if node.op == "ArgMax" else jax.lax.argmin
    if node.get("select_last_index", 0):
        place = x.shape[axis] - 1 - find(jnp.flip(x, axis), axis, jnp.int64)
    else:
        place = find(x, axis, jnp.int64)
    return jnp.expand_dims(place, axis) if node.get("keepdims", 1) else place


@rule("CumSum", "CumProd")
def _cumulative(node: Node, x: Any, axis: Any) -> Any:
    import jax
    import jax.numpy as jnp

    along = node.place(node.number(1), x.ndim)
    sums = node.op == "CumSum"
    function, neutral = (jax.lax.cumsum, 0) if sums else (jax.lax.cumprod, 1)
    backwards = bool(node.get("reverse", 0))
    y = wide(x)
    if node.get("exclusive", 0):  # the elements move on by one, and the last of them is left out
        widths = [(0, 0, 0)] * x.ndim
        widths[along] = (-1, 1, 0) if backwards else (1, -1, 0)
        y = jax.lax.pad(y, jnp.asarray(neutral, y.dtype), widths)
    return function(y, along, reverse=backwards).astype(x.dtype)


# -- softmax -----------------------------------------------------------------------------------------------


def _normalized_axes(node: Node, rank: int) -> tuple[int, ...]:
    """The axes that are one row: before opset 13 all from `axis` on."""
    axis = node.get("axis", -1 if node.version >= 13 else 1)
    axis = node.place(axis, rank) if axis != rank or node.version >= 13 else rank
    return (axis,) if node.version >= 13 else tuple(range(axis, rank))


def _softmax_of(name: str) -> Callable[..., Any]:
    def build(node: Node, x: Any) -> Any:
        import jax

        return getattr(jax.nn, name)(x, _normalized_axes(node, x.ndim))

    return build


add_rules(["Softmax"], _softmax_of("softmax"))
add_rules(["LogSoftmax"], _softmax_of("log_softmax"))


@rule("Hardmax")
def _hardmax(node: Node, x: Any) -> Any:
    """One at the first maximum of each row."""
    import jax
    import jax.numpy as jnp

    axes = _normalized_axes(node, x.ndim)
    if not axes:
        return jnp.ones_like(x)
    rows, axis = x, axes[0]
    if len(axes) > 1:
        count: Any = 1
        for a in axes:
            count = count * x.shape[a]
        rows = x.reshape(*x.shape[:axis], count)
    best = jnp.expand_dims(jax.lax.argmax(rows, axis, jnp.int32), axis)
    places = jax.lax.broadcasted_iota(jnp.int32, rows.shape, axis)
    return (places == best).astype(x.dtype).reshape(x.shape)
