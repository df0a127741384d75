"""Results that have as many elements as data says, in JAX: bounded where it traces, and cut where values are there.

The primitive behind them is the identity, which StableHLO has as a composite that we know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from ..dialects.graph.extents import BOUNDED


def mark(x: Any, n: Any, axis: int) -> Any:
    """x, of which the first n elements along an axis count, where JAX traces."""
    return _primitive().bind(x, n, axis=axis, within=True)


def first(x: Any, n: Any, axis: int = 0) -> Any:
    """The first n elements of x along an axis, none where n is negative: x marked so where JAX traces either, a slice
    otherwise."""
    import jax
    import jax.numpy as jnp
    from jax.core import Tracer

    axis %= x.ndim
    if isinstance(x, Tracer) or isinstance(n, Tracer):
        made = mark(x, jnp.asarray(n), axis)
        noted = _FIRSTS.get()
        if noted is not None:
            noted.append((made, axis))
        return made
    return jax.lax.slice_in_dim(x, 0, min(max(int(n), 0), x.shape[axis]), axis=axis)


def whole(x: Any, axes: Sequence[int]) -> Any:
    """x, of which all elements count along some axes."""
    import jax.numpy as jnp

    for axis in axes:
        x = _primitive().bind(x, jnp.asarray(x.shape[axis], jnp.int32), axis=axis, within=False)
    return x


def size_of(x: Any, axis: int) -> Any:
    """How many elements of x count along an axis, an i32 number: all where JAX runs it."""
    return _size_primitive().bind(x, axis=axis)


_FIRSTS: ContextVar[list[tuple[Any, int]] | None] = ContextVar("firsts", default=None)


@contextmanager
def noting_firsts() -> Iterator[list[tuple[Any, int]]]:
    """Gives what `first` has marked, with the axes."""
    token = _FIRSTS.set(made := [])
    try:
        yield made
    finally:
        _FIRSTS.reset(token)


def packed(mask: Any, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
    """The rows of arrays that a mask [n] selects, one after the other, with zeros behind them, and their i32 count."""
    import jax.numpy as jnp

    n = mask.shape[0]
    if isinstance(n, int) and not n:
        return list(arrays), jnp.int32(0)
    ends = jnp.cumsum(mask, dtype=jnp.int32)
    places = jnp.where(mask, ends - 1, n)
    return [jnp.zeros_like(a).at[places].set(a, mode="drop") for a in arrays], ends[-1]


def compressed(mask: Any, arrays: Sequence[Any], to: int = 0) -> list[Any]:
    """The rows of arrays that a mask [n] selects, as many as there are; their dimension is moved to `to`."""
    import jax.numpy as jnp

    rows, count = packed(mask, arrays)
    return [first(jnp.moveaxis(r, 0, to), count, to) for r in rows]


def coordinates(places: Any, shape: Sequence[Any]) -> list[Any]:
    """The coordinates in each dimension of places that are numbered in row-major order; no size is 0."""
    found: list[Any] = []
    stride: Any = 1
    for n in reversed(shape):
        found.append(places // stride % n)
        stride = stride * n
    return found[::-1]


def begins(rows: Any) -> Any:
    """Which rows, in order, differ from the one before. NaN is equal to NaN, as `numpy.unique` has it."""
    import jax.numpy as jnp

    before, behind = rows[:-1], rows[1:]
    differs = (before != behind) & ~((before != before) & (behind != behind))
    if rows.ndim > 1:
        differs = jnp.any(differs, tuple(range(1, rows.ndim)))
    return jnp.concatenate([jnp.ones(1, bool), differs])[: rows.shape[0]]


def _as_composite(ctx: Any, x: Any, n: Any, *, axis: int, within: bool) -> Any:
    """`jax.lax.composite` does not take shapes that are symbolic. within: whether no more count than did before."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func, stablehlo

    def i64(value: int) -> Any:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)

    module = ctx.module_context
    with ir.InsertionPoint.at_block_begin(module.module.body):
        function = func.FuncOp(BOUNDED, ir.FunctionType.get([x.type, n.type], [x.type]), visibility="private")
    module.symbol_table.insert(function)
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        func.ReturnOp([block.arguments[0]])
    made = stablehlo.CompositeOp(
        [x.type],
        [x, n],
        name=BOUNDED,
        decomposition=ir.FlatSymbolRefAttr.get(function.name.value),
        composite_attributes=ir.DictAttr.get({"dimension": i64(axis), "within": i64(int(within))}),
    )
    return made.results


@cache
def _primitive() -> Any:
    import jax
    import jax.numpy as jnp
    from jax.core import ShapedArray
    from jax.extend import core
    from jax.interpreters import ad, batching, mlir

    symbolic_zero: Any = ad.Zero
    made = core.Primitive("tilewright_bounded")

    def batch(args: Any, dims: Any, *, axis: int, within: bool) -> Any:
        x, n = args
        at, per_example = dims
        if at is None:
            x, at = jnp.broadcast_to(x, (n.shape[per_example], *x.shape)), 0
        return made.bind(x, n, axis=axis + (at <= axis), within=within), at

    def tangent(primals: Any, tangents: Any, *, axis: int, within: bool) -> Any:
        x, n = primals
        out = made.bind(x, n, axis=axis, within=within)
        if type(tangents[0]) is symbolic_zero:
            return out, symbolic_zero(jax.typeof(out).to_tangent_aval())
        return out, made.bind(tangents[0], n, axis=axis, within=within)

    def transposed(ct: Any, x: Any, n: Any, *, axis: int, within: bool) -> Any:
        """All of x has a derivative; it is zero by what does not count."""
        counts = jax.lax.broadcasted_iota(jnp.int32, ct.shape, axis) < n
        return made.bind(jnp.where(counts, ct, 0), jnp.int32(ct.shape[axis]), axis=axis, within=False), None

    made.def_impl(lambda x, n, axis, within: x)
    made.def_abstract_eval(lambda x, n, axis, within: ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(made, _as_composite)
    batching.primitive_batchers[made] = batch
    ad.primitive_jvps[made] = tangent
    ad.primitive_transposes[made] = transposed
    return made


@cache
def _size_primitive() -> Any:
    import jax
    import numpy as np
    from jax.core import ShapedArray
    from jax.extend import core
    from jax.interpreters import ad, batching, mlir

    symbolic_zero: Any = ad.Zero
    made = core.Primitive("tilewright_size")

    def lowered(ctx: Any, x: Any, *, axis: int) -> Any:
        from jaxlib.mlir.dialects import stablehlo

        return stablehlo.GetDimensionSizeOp(x, axis).results

    def batch(args: Any, dims: Any, *, axis: int) -> Any:
        return made.bind(args[0], axis=axis + (dims[0] <= axis)), None

    def tangent(primals: Any, tangents: Any, *, axis: int) -> Any:
        out = made.bind(*primals, axis=axis)
        return out, symbolic_zero(jax.typeof(out).to_tangent_aval())

    made.def_impl(lambda x, axis: np.int32(x.shape[axis]))
    made.def_abstract_eval(lambda x, axis: ShapedArray((), np.int32))
    mlir.register_lowering(made, lowered)
    batching.primitive_batchers[made] = batch
    ad.primitive_jvps[made] = tangent
    return made
