"""Error bounds beside values: for each graph op, how far its result may be off, given how far its operands are.

A bound is a float array of the value's shape: the largest absolute difference from the exact result. None stands
for all zeros. Integers have bounds too (a conversion may fall to either side); a bool's is 1 where it may be
either. First order, as Higham's running error analysis (section 3.3): products of two bounds count where they are
cheap, curvature does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array
from xdsl.ir import Attribute, Operation

from ...backends.interpreter.graph import RULES
from ...backends.stepper.tensors import rule_of
from ...dialects import graph as ops
from ...dialects.base import describe
from ...dialects.dtypes import limits, name_of_numpy
from ...dialects.graph import CumulateOp, ScatterOp, SelectAndScatterOp, SortOp, control
from ...dialects.quantized import quantized as quantized_type
from ...support.plugins import PluginError
from ...support.rules import Rules
from ..tolerance import HOST_FUNCTIONS, HOST_SUMS, Mode, gamma, roundoff
from . import indexed, quantized, sums
from .arrays import is_plain, jnp
from .base import Bound, as_bound, or_zeros, rounding, scaled, wide
from .elementwise import elementwise

MOVES = (
    ops.BroadcastOp,
    ops.ConcatOp,
    ops.PadOp,
    ops.PlaceOp,
    ops.ReshapeOp,
    control.ToHostOp,
    control.ParkOp,
    ops.ReverseOp,
    ops.SliceOp,
    ops.TransposeOp,
    ops.WidenOp,
)
"""Ops whose result holds elements of their operands, and whose bounds move with them."""

EXACT = (
    *MOVES,
    ops.ConstantOp,
    ops.DynamicSliceOp,
    ops.DynamicUpdateSliceOp,
    ops.GatherOp,
    ops.IotaOp,
    ops.ViewOp,
)
"""Ops that add no error of their own."""


def propagate(
    op: Operation, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """Bounds of the results `ys` of an op without regions on operands `xs` with bounds `es`."""
    found = _propagate(op, xs, es, ys, mode)
    return [
        None if e is None else _in_range(v.type, _known(op, e, y, es), y)
        for v, e, y in zip(op.results, found, ys, strict=True)
    ]


def _in_range(kind: Attribute, e: Array, y: Array) -> Array:
    """The bound of a whole number is no more than the range of its type, or of what a quantized type stores."""
    if y.dtype == np.bool_ or roundoff(np.dtype(y.dtype)):
        return e
    stored = quantized_type(kind)
    ends = limits(name_of_numpy(np.dtype(y.dtype))) if stored is None else stored.data.range
    low, high = map(float, ends)
    x = as_bound(y)
    # the ends of wide types are rounded
    return jnp.minimum(e, jnp.maximum(high - x, x - low) * (1 + 2 * roundoff(np.dtype(e.dtype))))


def _known(op: Operation, e: Array, y: Array, es: Sequence[Bound]) -> Array:
    """A bound without NaN, in the type of y's bounds. Where infinities cancel nothing is known; but what is NaN
    although all operands are known is NaN for sure."""
    doubts = [jnp.isinf(o) for o in es if o is not None]
    if not isinstance(op, ops.ElementwiseOp):
        doubts = [jnp.any(d) for d in doubts]
    sure = y != y
    for doubt in doubts:
        sure &= ~doubt
    return jnp.where(jnp.isnan(e), jnp.where(sure, 0, jnp.inf), e).astype(wide(y).dtype)


def _propagate(
    op: Operation, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    if isinstance(op, ops.ElementwiseOp):
        return [elementwise(op, xs, es, ys[0], mode)]
    if isinstance(op, MOVES):
        if all(e is None for e in es):
            return [None]
        bounds = [or_zeros(e, x) for e, x in zip(es, xs, strict=True)]
        move = rule_of(op) if is_plain(*bounds) else None
        moved: Any = (move or RULES[type(op)])(op, *bounds)
        assert not isinstance(moved, Sequence)
        return [moved]
    rule = BOUNDS.of(type(op))
    if rule is not None:
        return list(rule(op, xs, es, ys, mode))
    if isinstance(op, EXACT) or (all(e is None for e in es) and not any(roundoff(np.dtype(y.dtype)) for y in ys)):
        return [None] * len(ys)
    raise PluginError(f"{describe(op)} has no `error_bound`, so nobody knows how far its results may be off")


def _view(
    op: ops.ViewOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """A part is off by no more than the number, and the number by both its parts."""
    (e,) = es
    if e is None:
        return [None]
    if ys[0].dtype.kind == "c":
        return [jnp.hypot(e[..., 0], e[..., 1])]
    return [jnp.broadcast_to(e[..., None], ys[0].shape)]


def host_errors(
    name: str, xs: Sequence[Array], ys: Sequence[Array], run: Callable[[Sequence[Array]], Sequence[Array]]
) -> list[Bound]:
    """How far results of a host op, which runs alone, may be from what JAX makes of the op in the middle of a program,
    where XLA contracts a product and an addition and takes sums in another order. run: the op itself."""
    if not any(roundoff(np.dtype(y.dtype)) for y in ys):
        return [None] * len(ys)
    if name in HOST_SUMS:
        n = max((x.size for x in xs), default=1)
        sizes = run([x if x.dtype.kind in "biu" else wide(x).astype(x.dtype) for x in xs])
        return [
            scaled(wide(s), jnp.asarray(gamma(n, roundoff(np.dtype(y.dtype)), "likely")))
            for s, y in zip(sizes, ys, strict=True)
        ]
    if name in HOST_FUNCTIONS:
        return [rounding(y, HOST_FUNCTIONS[name] * 2 * roundoff(np.dtype(y.dtype)), "likely") for y in ys]
    return [None] * len(ys)


Rule = Callable[..., list[Bound]]

BOUNDS: Rules[Rule] = Rules(
    ops.GraphOp,
    "error_bound",
    {
        ops.ArgReduceOp: sums.arg_reduce,
        **quantized.RULES,
        ops.ContractOp: quantized.of_integers(sums.contract),
        ops.ConvOp: quantized.of_integers(sums.conv),
        ops.DynamicSliceOp: indexed.indexed,
        ops.DynamicUpdateSliceOp: indexed.indexed,
        ops.ExpandOp: indexed.expand,
        ops.GatherOp: indexed.indexed,
        ops.ReduceOp: sums.reduce,
        ops.ReduceWindowOp: sums.reduce_window,
        CumulateOp: sums.cumulate,
        ScatterOp: indexed.scatter,
        SelectAndScatterOp: indexed.select_and_scatter,
        SortOp: indexed.sort,
        ops.UnpackOp: sums.unpack,
        ops.ViewOp: _view,
    },
)
"""How errors get through ops, and what they add."""
