"""What each instruction on on-chip memory computes, as a function of NumPy arrays: for the npu and the tile level.

A rule prepares an op once: it takes the op and a function that gives a number for an open size, and gives what computes
the results of the contents of the op's sources, where its `at [...]` has some values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from xdsl.dialects.builtin import DenseArrayBase

from ...dialects import npu as ops
from ...dialects.base import FormattedOp, integer, text, to_ints
from ...dialects.dtypes import limits, name_of_numpy, numbers_in
from ...dialects.npu.cumulate import VCumulateOp
from ...dialects.npu.interface import NpuOp, fill_value
from ...dialects.npu.scatter import VScatterOp
from ...dialects.npu.sorting import VSortOp
from ...dialects.open_sizes import is_open
from ...dialects.shapes import Keys, transposes
from ...support.rules import Rules
from ..functions import values
from ..functions.scope import Offset, Scope
from ..functions.specs import Spec
from . import functions, numbers, products, reductions
from .errors import fault
from .numbers import F32
from .reductions import scalar

Number = Callable[[int], int]
"""Gives the value of an int or an open size."""

Compute = Callable[[Sequence[int], Sequence[np.ndarray], bool], Sequence[np.ndarray]]
"""The results of an op for the values of its `at [...]` and the contents of its sources; the last argument says whether
these may have denormal numbers."""

Prepare = Callable[[Any, Number], Compute]


def ints_of(op: FormattedOp, name: str, number: Number, default: Sequence[int] = ()) -> tuple[int, ...]:
    attr = op.properties.get(name)
    assert attr is None or isinstance(attr, DenseArrayBase)
    return tuple(default) if attr is None else tuple(map(number, to_ints(attr)))


def made_by(op: FormattedOp) -> list[Spec]:
    """What an op of the npu or the tile level gives: an instruction writes buffers, an op on tiles has results."""
    return [Spec.of(v) for v in (op.destinations() if isinstance(op, NpuOp) else op.results)]


def taken_by(op: FormattedOp) -> list[Spec]:
    """What an op of the npu or the tile level takes."""
    return [Spec.of(v) for v in (op.sources() if isinstance(op, NpuOp) else op.main_operands())]


def _elementwise(op: Any, number: Number) -> Compute:
    name, (out, *_) = op.FUNCTION.name, made_by(op)
    single = [prod(spec.shape) == 1 for spec in taken_by(op)]
    ones = (1,) * len(out.shape)

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        lanes = [x.reshape(ones) if one else x for x, one in zip(xs, single, strict=True)]
        return [numbers.apply(name, lanes, out.shape, out.dtype, denormals)]

    return compute


def _round_to(op: Any, number: Number) -> Compute:
    mode, (out, *_) = text(op.mode), made_by(op)

    def rounded(x: Any) -> Any:
        return values.round_to(x, mode, out.dtype)

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        if mode == "even" and xs[0].dtype in numbers.WORK and out.dtype in numbers.INTEGERS:
            whole = np.rint(xs[0].astype(numbers.WORK[xs[0].dtype]))
            return [np.where(xs[0] != xs[0], out.dtype.type(0), numbers.convert(whole, out.dtype))]
        return [functions.apply_to(rounded, f"round {mode} -> {out.dtype}", xs, out.shape)]

    return compute


def _broadcast(op: Any, number: Number) -> Compute:
    return lambda at, xs, denormals: xs


def _matrix(op: Any, number: Number) -> Compute:
    """load_l0: [prod(sizes[:-1]), prod(window) * sizes[-1]], or its transpose."""
    sizes = ints_of(op, "sizes", number)
    rank, ones = len(sizes), (1,) * len(sizes)
    steps = ints_of(op, "steps", number, ones)
    window = (*ints_of(op, "window", number), *ones)[:rank]
    window_steps = (*ints_of(op, "window_steps", number), *ones)[:rank]
    transposed = transposes(op)
    (out,) = made_by(op)
    rows, columns = prod(sizes[:-1]), prod(window) * sizes[-1]

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        x = xs[0]
        shape = (*sizes[:-1], *window, sizes[-1])
        own = x.strides
        strides = (
            *(s * step for s, step in zip(own[:-1], steps[:-1], strict=True)),
            *(s * step for s, step in zip(own, window_steps, strict=True)),
            own[-1] * steps[-1],
        )
        check_inside(op, x.shape, at, sizes, steps, window, window_steps)
        # NumPy has no such views of 8-bit floats
        first = x[tuple(slice(o, None) for o in at)].view(f"u{x.dtype.itemsize}")
        taken = np.lib.stride_tricks.as_strided(first, shape, strides).reshape(rows, columns).view(x.dtype)
        taken = (taken.T if transposed else taken).reshape(out.shape)
        return [numbers.convert(taken, out.dtype)]

    return compute


def check_inside(
    op: Any,
    shape: Sequence[int],
    at: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    window: Sequence[int] | None = None,
    window_steps: Sequence[int] | None = None,
) -> None:
    """Raises OutOfBounds where a box of a buffer leaves it."""
    for d, (n, first, count, step) in enumerate(zip(shape, at, sizes, steps, strict=True)):
        more = (window[d] - 1) * window_steps[d] if window is not None and window_steps is not None else 0
        reach = ((count - 1) * step, 0)
        if count and (first + min(reach) + min(more, 0) < 0 or first + max(reach) + max(more, 0) >= n):
            said = f"positions from {first} on along dimension {d} of {list(shape)}"
            raise fault("out-of-bounds", op, "reads outside its buffer", said)


def _mma(op: Any, number: Number) -> Compute:
    main = op.main_operands()
    bias, index = (None if v is None else list(main).index(v) for v in (op.bias, op.index))
    pairs, out = numbers_in(op.a.type.element) == 2, Spec.of(op.acc)

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        start = xs[2]
        if at[0] == 0:
            start = None if bias is None else xs[bias]
        made = products.mma(xs[0], xs[1], start, out.dtype, None if index is None else xs[index], pairs)
        return [made]

    return compute


def _counted(op: Any, number: Number, dims: Sequence[int]) -> Callable[[np.ndarray], np.ndarray]:
    """The part of a source that a reduction combines. Where its length is open, the rest is neutral, so that sums have
    the order of those that are compiled for all lengths."""
    kind, part, rest = text(op.kind), list[tuple[int, int]](), list[tuple[int, int]]()
    for d, n in zip(dims, to_ints(op.counted) if op.counted is not None else (), strict=False):
        (rest if is_open(n) else part).append((d, number(n)))
    kept = tuple(slice(0, dict(part).get(d)) for d in range(len(Spec.of(op.source).shape)))

    def combined(x: np.ndarray) -> np.ndarray:
        x = x[kept]
        for d, n in rest:
            inside = np.expand_dims(np.arange(x.shape[d]) < n, tuple(a for a in range(x.ndim) if a != d))
            x = np.where(inside, x, reductions.neutral(kind, x.dtype))
        return x

    return combined


def _reduce(op: Any, number: Number) -> Compute:
    kind, dims, (out,) = text(op.kind), to_ints(op.dims), made_by(op)
    part = _counted(op, number, dims)

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        return [numbers.convert(reductions.reduce(part(xs[0]), kind, dims), out.dtype)]

    return compute


def _arg_reduce(op: Any, number: Number) -> Compute:
    kind, dim = text(op.kind), integer(op.dim)
    out, part = made_by(op), _counted(op, number, [dim])

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        made = reductions.arg_reduce(part(xs[0]), kind, dim, out[1].dtype)
        return [x.reshape(spec.shape) for x, spec in zip(made, out, strict=True)]

    return compute


def _transpose(op: Any, number: Number) -> Compute:
    perm = to_ints(op.perm)
    return lambda at, xs, denormals: [xs[0].transpose(perm)]


def _unpack(op: Any, number: Number) -> Compute:
    (out,) = made_by(op)
    return lambda at, xs, denormals: [numbers.convert(products.unpacked(xs[0]), out.dtype)]


def _iota(op: Any, number: Number) -> Compute:
    (out,), dim, step = made_by(op), integer(op.dim), number(integer(op.step))
    places = np.arange(out.shape[dim], dtype=np.int32) * np.int32(step)
    places = places.reshape([-1 if d == dim else 1 for d in range(len(out.shape))])

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        return [numbers.convert(places + np.array(at[0]).astype(np.int32), out.dtype)]

    return compute


def _fill(op: Any, number: Number) -> Compute:
    value = scalar(fill_value(op.value), made_by(op)[0].dtype)
    return lambda at, xs, denormals: [value]


def _mask(op: Any, number: Number) -> Compute:
    bounds, (source, *_) = ints_of(op, "bounds", number), taken_by(op)
    shape, value = source.shape, scalar(fill_value(op.value), source.dtype)

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        part = tuple(
            slice(min(max(-offset, 0), n), min(max(bound - offset, 0), n))
            for offset, bound, n in zip(at, bounds, shape, strict=True)
        )
        made = np.full(shape, value)
        made[part] = xs[0][part]
        return [made]

    return compute


def _extract(op: Any, number: Number) -> Compute:
    """vextract, load_row and copy_l0c: a box, in the destination's shape and dtype."""
    sizes, (out, *_) = ints_of(op, "sizes", number), made_by(op)
    steps = ints_of(op, "steps", number, (1,) * len(sizes))

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        check_inside(op, xs[0].shape, at, sizes, steps)
        ends = [
            (o, o + (n - 1) * s + (1 if s > 0 else -1), s) for o, n, s in zip(at, sizes, steps, strict=True)
        ]
        part = tuple(slice(a, b if b >= 0 else None, s) for a, b, s in ends)
        return [numbers.convert(xs[0][part].reshape(out.shape), out.dtype)]

    return compute


def drained(op: Any, dtype: np.dtype) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """What a store makes of a tile, and of the words of its columns, as `functions.values.drained` says."""
    relu, given = "relu" in op.properties, "factor" in op.properties
    factor = np.float32(op.factor.value.data) if given else None
    zero = op.zero.value.data if op.properties.get("zero") is not None else 0

    def drain(x: np.ndarray, words: np.ndarray | None) -> np.ndarray:
        if relu:
            x = numbers.apply("max", [x, np.zeros((1,) * x.ndim, x.dtype)], x.shape, x.dtype)
        if words is None and factor is None:
            return numbers.convert(x, dtype)
        by = factor if words is None else words.astype(np.uint32).view(np.float32)
        scaled = numbers.finished(numbers.convert(x, F32) * by)
        if dtype.kind not in "iu":
            if dtype.itemsize == 1:
                low, high = map(np.float32, limits(name_of_numpy(dtype)))
                scaled = np.clip(scaled, low, high)
            return numbers.convert(scaled, dtype)
        info = np.iinfo(dtype)
        whole = np.rint(scaled) + np.float32(zero)
        return numbers.convert(np.clip(whole, np.float32(info.min), np.float32(info.max)), dtype)

    return drain


def _hand_on(op: Any, number: Number) -> Compute:
    drain = drained(op, made_by(op)[0].dtype)
    return lambda at, xs, denormals: [drain(xs[0], None)]


def _cumulate(op: Any, number: Number) -> Compute:
    kind, dim, reverse = text(op.kind), integer(op.dim), bool(integer(op.reverse))
    return lambda at, xs, denormals: [reductions.cumulate(xs[0], kind, dim, reverse)]


def _scatter(op: Any, number: Number) -> Compute:
    kind = text(op.kind)
    return lambda at, xs, denormals: [reductions.scatter(xs[0], xs[1].astype(np.int64) - at[0], xs[2], kind)]


def _gather(op: Any, number: Number) -> Compute:
    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        source, places = xs[0].reshape(-1), xs[1]
        outside = places[(places < 0) | (places >= source.size)]
        if outside.size:
            said = f"place {outside.flat[0]} of {source.size}"
            raise fault("out-of-bounds", op, "gathers beyond its source", said)
        return [source[places]]

    return compute


def _sort(op: Any, number: Number) -> Compute:
    """The sorted rows, and zeros for the memory it works in: nothing may rely on what is there."""
    keys = Keys(to_ints(op.keys), to_ints(op.descending), to_ints(op.total))
    out = made_by(op)
    keep, work = out[0].shape[1], out[-1]
    blank = np.zeros(work.shape, work.dtype)
    return lambda at, xs, denormals: [*reductions.sort(xs, keys, keep), blank]


TABLE: dict[type[NpuOp], Prepare] = {
    ops.CopyL0cOp: _extract,
    ops.ElementwiseVectorOp: _elementwise,
    ops.FixpipeL1Op: _hand_on,
    ops.LoadL0Op: _matrix,
    ops.LoadRowOp: _extract,
    ops.MmadOp: _mma,
    ops.VArgReduceOp: _arg_reduce,
    ops.VBroadcastOp: _broadcast,
    ops.VExtractOp: _extract,
    ops.FillL1Op: _fill,
    ops.SetNumberOp: _fill,
    ops.VFillOp: _fill,
    ops.VIotaOp: _iota,
    ops.VMaskOp: _mask,
    ops.VReduceOp: _reduce,
    ops.VRoundToOp: _round_to,
    VCumulateOp: _cumulate,
    ops.VGatherOp: _gather,
    VScatterOp: _scatter,
    VSortOp: _sort,
    ops.VTransposeOp: _transpose,
    ops.VUnpackOp: _unpack,
}
RULES: Rules[Any] = Rules(NpuOp, "evaluate", TABLE)
"""Instructions that work on on-chip memory alone. An op that is not in the table is asked what it computes
(`NpuOp.evaluate`); its rule is none that prepares it: see `by_itself`."""


def by_itself(op: Any) -> Compute:
    """The op's own rule, for JAX arrays, as a function of the values of its index operands."""
    indices, out = list(op.index_operands()), made_by(op)
    evaluate = (type(op) if isinstance(op, NpuOp) else op.INSTRUCTION).evaluate

    def compute(at: Sequence[int], xs: Sequence[np.ndarray], denormals: bool) -> Sequence[np.ndarray]:
        with jax.enable_x64(True):
            scope = Scope(jax.numpy.float32(0))
            scope.index.update((v, Offset.known(n)) for v, n in zip(indices, at, strict=False))
            made = evaluate(op, scope, [jax.numpy.asarray(x) for x in xs], out)
            return [np.asarray(x).reshape(spec.shape) for x, spec in zip(made, out, strict=True)]

    return compute
