"""What ops of the graph level compute, by NumPy, with the bits that XLA gives: arithmetic element by element, moves and
reductions. What XLA has a library for is not here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.ir import Operation

from ...dialects import graph as ops
from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import numpy_dtype
from ...dialects.graph import control
from ...dialects.graph.interface import element_of, shape_of
from . import numbers, reductions

Rule = Callable[..., np.ndarray]


def rule_of(op: Operation) -> Rule | None:
    """What NumPy computes of an op: a function of the op and its operands, whose result broadcasts to the op's; None
    where it has none."""
    return _RULES.get(ops.ElementwiseOp if isinstance(op, ops.ElementwiseOp) else type(op))


def _elementwise(op: ops.ElementwiseOp, *xs: np.ndarray) -> np.ndarray:
    denormals = any(map(numbers.has_denormals, xs))
    out = numpy_dtype(element_of(op.results[0]))
    return numbers.apply(op.FUNCTION.name, xs, shape_of(op.results[0]), out, denormals)


def _broadcast(op: ops.BroadcastOp, x: np.ndarray) -> np.ndarray:
    shape, dims = shape_of(op.results[0]), to_ints(op.dims)
    ordered = np.argsort(dims)
    within = [1] * len(shape)
    for d, n in zip(dims, x.shape, strict=True):
        within[d] = n
    return np.broadcast_to(x.transpose(ordered).reshape(within), shape)


def _pad(op: ops.PadOp, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    low, high, interior = to_ints(op.low), to_ints(op.high), to_ints(op.interior)
    spread = [max((n - 1) * (i + 1) + 1, 0) for n, i in zip(x.shape, interior, strict=True)]
    wide = np.full(
        [n + max(a, 0) + max(b, 0) for n, a, b in zip(spread, low, high, strict=True)], value.reshape(())
    )
    wide[
        tuple(
            slice(max(a, 0), max(a, 0) + n, i + 1) for n, a, i in zip(spread, low, interior, strict=True)
        )
    ] = x
    return wide[
        tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(wide.shape, low, high, strict=True))
    ]


def _slice(op: ops.SliceOp, x: np.ndarray) -> np.ndarray:
    lists = (to_ints(p) for p in (op.starts, op.limits, op.strides))
    return x[tuple(slice(*ends) for ends in zip(*lists, strict=True))]


def _iota(op: ops.IotaOp) -> np.ndarray:
    shape, dim, out = shape_of(op.results[0]), integer(op.dim), numpy_dtype(element_of(op.results[0]))
    places = np.arange(shape[dim]).astype(np.int32 if out == np.bool_ else out)
    return numbers.convert(
        np.broadcast_to(places.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape), out
    )


def _reduce(op: ops.ReduceOp, x: np.ndarray) -> np.ndarray:
    return reductions.reduce(x, text(op.kind), to_ints(op.dims)).reshape(shape_of(op.results[0]))


def _same(op: Operation, x: np.ndarray) -> np.ndarray:
    return x


_RULES: dict[type[Operation], Rule] = {
    ops.ElementwiseOp: _elementwise,
    ops.BroadcastOp: _broadcast,
    ops.ConcatOp: lambda op, *xs: np.concatenate(xs, integer(op.dim)),
    ops.ConstantOp: lambda op: np.asarray(op.value.data.array()),
    ops.IotaOp: _iota,
    ops.PadOp: _pad,
    ops.ReduceOp: _reduce,
    ops.ReshapeOp: lambda op, x: x.reshape(shape_of(op.results[0])),
    ops.ReverseOp: lambda op, x: np.flip(x, to_ints(op.dims)),
    ops.SliceOp: _slice,
    ops.TransposeOp: lambda op, x: x.transpose(to_ints(op.perm)),
    control.ParkOp: _same,
    control.ToHostOp: _same,
}
"""By class."""
