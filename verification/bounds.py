"""Error bounds beside values: for each graph op, how far its result may be off, given how far its operands are.

A bound is a float array of the value's shape: the largest absolute difference from the exact result. None stands
for all zeros. Integers have bounds too (a conversion may fall to either side); a bool's is 1 where it may be
either. First order, as Higham's running error analysis (section 3.3): products of two bounds count where they are
cheap, curvature does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from xdsl.ir import Operation

from ..backends.interpreter import scattering, selecting, sorting, values
from ..backends.interpreter.graph import RULES, over_windows
from ..dialects import graph as ops
from ..dialects.base import integer, text, to_ints
from ..dialects.dtypes import size
from ..dialects.graph import CumulateOp, ScatterOp, SelectAndScatterOp, SortOp, control
from .tolerance import (
    HOST_FUNCTIONS,
    HOST_SUMS,
    LIKELY,
    Mode,
    function_error,
    gamma,
    roundoff,
    smallest,
    sum_error,
)

Bound = Array | None

MOVES = (
    ops.BroadcastOp,
    ops.ConcatOp,
    ops.PadOp,
    ops.ReshapeOp,
    control.ToHostOp,
    ops.ReverseOp,
    ops.SliceOp,
    ops.TransposeOp,
)
"""Ops whose result holds elements of their operands, and whose bounds move with them."""

EXACT = (
    *MOVES,
    ops.ConstantOp,
    ops.DynamicSliceOp,
    ops.DynamicUpdateSliceOp,
    ops.GatherOp,
    ops.IotaOp,
    SortOp,
    ops.ViewOp,
)
"""Ops that add no error of their own."""

MONOTONE = ("floor", "ceil", "round_even", "round_away", "sign")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
BITS = ("bitcast", "and", "or", "xor", "not", "popcnt", "clz", "shl", "shr_logical", "shr_arithmetic")


def wide(x: Array) -> Array:
    """|x| in the type bounds have: f64 for 64-bit values, f32 otherwise."""
    if x.dtype == np.bool_:
        return x.astype(np.float32)
    dtype = np.float64 if x.dtype.itemsize >= 8 and x.dtype != np.complex64 else np.float32
    return jnp.abs(x) if x.dtype.kind == "c" else jnp.abs(x.astype(dtype))


def signed(x: Array) -> Array:
    """x in the type bounds have."""
    return x if x.dtype.kind == "c" else x.astype(wide(x).dtype)


def distance(x: Array, y: Array) -> Array:
    """|x - y| for each element: 0 where both are the same infinity or NaN, infinite where one is."""
    gap = jnp.where((x == y) | ((x != x) & (y != y)), 0, wide(signed(x) - signed(y)))
    return jnp.where(jnp.isnan(gap), jnp.inf, gap)


def zeros(x: Array) -> Array:
    return jnp.zeros(x.shape, wide(x).dtype)


def or_zeros(e: Bound, x: Array) -> Array:
    return zeros(x) if e is None else e


def both(first: Bound, second: Bound, mode: Mode) -> Bound:
    """The bound of a sum of two errors."""
    if first is None or second is None:
        return second if first is None else first
    return first + second if mode == "worst" else jnp.hypot(first, second)


def scaled(factor: Array, e: Bound) -> Bound:
    """`factor * e`, 0 where either is, even if the other is infinite."""
    return None if e is None else jnp.where((e == 0) | (factor == 0), 0, factor * e)


def reach(e: Array, mode: Mode) -> Array:
    """How far apart two computations of a value may be where that decides something: over a whole program, as many
    standard deviations as are allowed there."""
    return e if mode == "worst" else 2 * LIKELY * e


def rounding(y: Array, relative: float, mode: Mode) -> Bound:
    """The bound of a rounding of y."""
    if relative == 0:
        return None
    u = wide(y)
    return jnp.where(jnp.isfinite(u), relative * u + smallest(np.dtype(y.dtype)), 0)


def propagate(
    op: Operation, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """Bounds of the results `ys` of an op without regions on operands `xs` with bounds `es`."""
    # where infinities cancel nothing is known
    return [
        None if e is None else jnp.where(jnp.isnan(e), jnp.inf, e) for e in _propagate(op, xs, es, ys, mode)
    ]


def _propagate(
    op: Operation, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    if isinstance(op, ops.ElementwiseOp):
        return [_elementwise(op, xs, es, ys[0], mode)]
    if isinstance(op, MOVES):
        if all(e is None for e in es):
            return [None]
        moved = RULES[type(op)](op, *(or_zeros(e, x) for e, x in zip(es, xs, strict=True)))
        return [moved]  # pyright: ignore[reportReturnType]
    rule = _RULES.get(type(op))
    return [None] * len(ys) if rule is None else rule(op, xs, es, ys, mode)


# -- elementwise -------------------------------------------------------------------------------------------


def _elementwise(
    op: ops.ElementwiseOp, xs: Sequence[Array], es: Sequence[Bound], y: Array, mode: Mode
) -> Bound:
    name = op.FUNCTION.name
    pairs = any(x.dtype.kind == "c" for x in (*xs, y))
    local = rounding(y, function_error(name, np.dtype(y.dtype), pairs), mode)
    if name == "convert" and roundoff(np.dtype(xs[0].dtype)) <= roundoff(np.dtype(y.dtype)):
        pass
    elif name == "convert" and np.dtype(xs[0].dtype).kind not in "iu":
        local = None  # to a wider type nothing is lost
    if all(e is None for e in es):
        return local
    full = [or_zeros(e, x) for e, x in zip(es, xs, strict=True)]
    return both(_passed_on(name, xs, es, full, y, mode), local, mode)


def _passed_on(
    name: str, xs: Sequence[Array], es: Sequence[Bound], full: Sequence[Array], y: Array, mode: Mode
) -> Bound:
    """What the operands' errors do to the result of a function."""
    if name in COMPARISONS:
        near = wide(signed(xs[0]) - signed(xs[1])) <= reach(full[0] + full[1], mode)
        return (near & (full[0] + full[1] > 0)).astype(np.float32)
    if name in BITS or name == "is_finite":
        unsure = sum((e > 0).astype(np.float32) for e in full)
        return jnp.where(unsure > 0, 1 if y.dtype == np.bool_ else jnp.inf, 0).astype(wide(y).dtype)
    if y.dtype == np.bool_:  # add, mul, max, min, select, convert on bools
        return jnp.any(jnp.stack([e > 0 for e in full]), axis=0).astype(np.float32)
    match name:
        case "real" | "imag":
            return full[0]
        case "complex":
            return jnp.hypot(*full)
        case "sign" if y.dtype.kind == "c":
            return jnp.where(full[0] == 0, 0, 2 * full[0] / wide(xs[0]))
        case "add" | "sub":
            return both(es[0], es[1], mode)
        case "mul":
            first, second = scaled(wide(xs[1]), es[0]), scaled(wide(xs[0]), es[1])
            return both(both(first, second, mode), full[0] * full[1], mode)
        case "div" if y.dtype.kind in "fV":
            room = wide(xs[1]) - full[1]
            error = full[0] + jnp.where(full[1] == 0, 0, wide(y) * full[1])
            return jnp.where(error == 0, 0, jnp.where(room > 0, error / room, jnp.inf))
        case "max" | "min" | "clamp":
            ends = [
                values.SCALAR[name](*(signed(x) + s * e for x, e in zip(xs, full, strict=True)))
                for s in (1, -1)
            ]
            return jnp.maximum(*(jnp.abs(end - signed(y)) for end in ends))
        case "neg" | "abs":
            return full[0]
        case "select":
            apart = wide(signed(xs[1]) - signed(xs[2]))
            chosen = jnp.where(xs[0], full[1], full[2])
            return jnp.where(full[0] > 0, apart + jnp.maximum(full[1], full[2]), chosen)
        case "convert":
            return _converted(xs[0], full[0], y, mode)
        case _ if name in MONOTONE:
            step = values.SCALAR[name]
            x, r = signed(xs[0]), reach(full[0], mode)
            return jnp.abs(step(x + r) - step(x - r))
        case "rem":
            turns = signed(xs[0]) / signed(xs[1])
            slack = 1e-6 * jnp.abs(turns) + reach(full[0] + jnp.abs(turns) * full[1], mode) / wide(xs[1])
            crossed = jnp.trunc(turns + slack) != jnp.trunc(turns - slack)
            return full[0] + jnp.abs(jnp.trunc(turns)) * full[1] + jnp.where(crossed, wide(xs[1]), 0)
    if y.dtype.kind in "iu":
        return jnp.where(sum((e > 0).astype(np.float32) for e in full) > 0, jnp.inf, 0).astype(wide(y).dtype)
    return _by_slope(name, xs, es, y, mode)


def _converted(x: Array, e: Array, y: Array, mode: Mode) -> Array:
    if x.dtype == np.bool_:
        return e.astype(wide(y).dtype)
    if y.dtype.kind in "iu" and x.dtype.kind not in "iu":
        r = reach(e, mode)
        return jnp.abs(jnp.trunc(signed(x) + r) - jnp.trunc(signed(x) - r)).astype(wide(y).dtype)
    return e.astype(wide(y).dtype)


def _by_slope(name: str, xs: Sequence[Array], es: Sequence[Bound], y: Array, mode: Mode) -> Bound:
    """|derivative| times the operand's bound, for each operand of a smooth function."""
    points = [signed(x) for x in xs]
    total: Bound = None
    for i, e in enumerate(es):
        if e is None:
            continue
        tangents = [jnp.ones_like(p) if j == i else jnp.zeros_like(p) for j, p in enumerate(points)]
        _, slope = jax.jvp(values.SCALAR[name], tuple(points), tuple(tangents))
        total = both(total, scaled(jnp.abs(slope), e), mode)
    assert total is not None
    return jnp.where(jnp.isnan(total), jnp.inf, total)


# -- reductions and products -------------------------------------------------------------------------------


def _reduced(e: Array, dims: Sequence[int], mode: Mode) -> Array:
    if mode == "worst":
        return jnp.sum(e, axis=tuple(dims))
    return jnp.sqrt(jnp.sum(jnp.square(e), axis=tuple(dims)))


def _extreme(x: Array, e: Array, y: Array, choose: Callable[[Array], Array]) -> Array:
    """How far the largest (or smallest) element may move: those that cannot be it do not count."""
    return jnp.maximum(*(jnp.abs(choose(signed(x) + s * e) - signed(y)) for s in (1, -1)))


def _reduce(
    op: ops.ReduceOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    (x,), (e,), (y,) = xs, es, ys
    kind, dims = text(op.kind), to_ints(op.dims)
    n = size([x.shape[d] for d in dims])
    if kind in ("max", "min"):
        return [None if e is None else _extreme(x, e, y, lambda v: values.reduce(v, kind, dims))]
    if kind in ("and", "or"):
        return [None if e is None else jnp.max(jnp.where(e > 0, jnp.inf, 0), axis=dims, initial=0)]
    # other dimensions are walked tile by tile, a few rows at a time
    own = sum_error(n, _accumulator(x), np.dtype(x.dtype), mode, halves=dims == (x.ndim - 1,))
    if kind == "prod":
        share = None if e is None else _reduced(jnp.where(e == 0, 0, e / wide(x)), dims, mode)
        return [both(scaled(wide(y), share), rounding(y, own, mode), mode)]
    moved = None if e is None else _reduced(e, dims, mode)
    return [both(moved, own * jnp.sum(wide(x), axis=dims), mode) if own else moved]


def _accumulator(x: Array) -> np.dtype:
    dtype = np.dtype(x.dtype)
    return np.dtype(np.float32) if roundoff(dtype) > roundoff(np.dtype(np.float32)) else dtype


def _arg_reduce(
    op: ops.ArgReduceOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    (x,), (e,), dim = xs, es, integer(op.dim)
    if e is None:
        return [None, None]
    worst = _extreme(x, e, ys[0], lambda v: values.reduce(v, text(op.kind), [dim]))
    best = jnp.expand_dims(signed(ys[0]), dim)
    near = reach(e + jnp.expand_dims(worst, dim), mode)
    rivals = jnp.sum(jnp.abs(signed(x) - best) <= near, axis=dim)
    unsure = (rivals > 1) & (jnp.max(e, axis=dim) > 0)
    return [worst, jnp.where(unsure, jnp.inf, 0).astype(wide(ys[1]).dtype)]


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


def _windows(op: ops.ReduceWindowOp, x: Array, kind: str = "sum") -> Array:
    return over_windows(op, x, kind)


def _reduce_window(
    op: ops.ReduceWindowOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    (x,), (e,), (y,) = xs, es, ys
    kind, n = text(op.kind), size(to_ints(op.window))
    # the vector unit combines the window's elements one by one, in the element type
    own = sum_error(n, np.dtype(x.dtype), np.dtype(x.dtype), mode)
    if kind in ("max", "min"):
        return [None if e is None else _extreme(x, e, y, lambda v: _windows(op, v, kind))]
    if kind in ("and", "or"):
        return [None if e is None else jnp.where(_windows(op, e) > 0, jnp.inf, 0)]
    if kind == "prod":
        share = None if e is None else _windows(op, jnp.where(e == 0, 0, e / wide(x)))
        return [both(scaled(wide(y), share), rounding(y, own, mode), mode)]
    if e is None:
        moved = None
    else:
        moved = _windows(op, e) if mode == "worst" else jnp.sqrt(_windows(op, jnp.square(e)))
    return [both(moved, own * _windows(op, wide(x)) if own else None, mode)]


def _cumulate(
    op: CumulateOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """As a reduction of all that each element is combined with."""
    (x,), (e,), (y,) = xs, es, ys
    kind, dim, reverse = text(op.kind), integer(op.dim), bool(integer(op.reverse))

    def total(v: Array, way: str = "sum") -> Array:
        return values.cumulate(v, way, dim, reverse)

    if kind in ("max", "min"):
        return [None if e is None else _extreme(x, e, y, lambda v: total(v, kind))]
    if kind in ("and", "or"):
        return [None if e is None else jnp.where(total(e) > 0, jnp.inf, 0)]
    # pieces of a row are combined in the type the unit computes in
    own = sum_error(x.shape[dim], _accumulator(x), np.dtype(x.dtype), mode)
    if kind == "prod":
        share = None if e is None else total(jnp.where(e == 0, 0, e / wide(x)))
        return [both(scaled(wide(y), share), rounding(y, own, mode), mode)]
    moved = None if e is None else total(e) if mode == "worst" else jnp.sqrt(total(jnp.square(e)))
    return [both(moved, own * total(wide(x)) if own else None, mode)]


def _product(
    multiply: Callable[[Array, Array], Array],
    n: int,
    xs: Sequence[Array],
    es: Sequence[Bound],
    y: Array,
    mode: Mode,
) -> Bound:
    """Bound of a bilinear op that adds n products for each result."""
    a, b = (wide(x) for x in xs)
    acc = values.accumulator(np.dtype(xs[0].dtype), np.dtype(y.dtype))
    own = sum_error(n + 1, acc, acc, mode)
    if acc.kind == "c":  # of each part: twice as many terms, of no larger magnitude together
        own = 2**0.5 * sum_error(2 * n + 1, acc, acc, mode)
    total: Bound = own * multiply(a, b) if own else None
    if np.dtype(y.dtype) != acc:
        total = both(total, rounding(y, roundoff(np.dtype(y.dtype)), mode), mode)
    for e, other, flip in ((es[0], b, False), (es[1], a, True)):
        if e is None:
            continue
        if mode == "worst":
            part = multiply(other, e) if flip else multiply(e, other)
        else:
            squares = jnp.square(e), jnp.square(other)
            part = jnp.sqrt(multiply(*reversed(squares)) if flip else multiply(*squares))
        total = both(total, part, mode)
    return total


def _contract(
    op: ops.ContractOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    numbers = (
        (to_ints(op.lhs_contract), to_ints(op.rhs_contract)),
        (to_ints(op.lhs_batch), to_ints(op.rhs_batch)),
    )
    n = size([xs[0].shape[d] for d in to_ints(op.lhs_contract)])
    return [_product(lambda a, b: lax.dot_general(a, b, numbers), n, xs, es, ys[0], mode)]


def _conv(
    op: ops.ConvOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    la, lb, lo = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)

    def multiply(a: Array, b: Array) -> Array:
        return lax.conv_general_dilated(
            a,
            b,
            to_ints(op.strides),
            list(zip(to_ints(op.low), to_ints(op.high), strict=True)),
            lhs_dilation=to_ints(op.lhs_dilation),
            rhs_dilation=to_ints(op.rhs_dilation),
            dimension_numbers=lax.ConvDimensionNumbers(la, (lb[1], lb[0], *lb[2:]), lo),
            feature_group_count=integer(op.groups),
        )

    n = size([xs[1].shape[d] for d in (lb[0], *lb[2:])])
    return [_product(multiply, n, xs, es, ys[0], mode)]


# -- indexed access ----------------------------------------------------------------------------------------


def _indexed(
    op: Operation, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """The data's bounds move; where a position is unsure, so is everything."""
    data = 2 if isinstance(op, ops.DynamicUpdateSliceOp) else 1
    moved: Bound = None
    if any(e is not None for e in es[:data]):
        bounds = [or_zeros(e, x) for e, x in zip(es[:data], xs[:data], strict=True)]
        moved = RULES[type(op)](op, *bounds, *xs[data:])  # pyright: ignore[reportAssignmentType]
    for e in es[data:]:
        if e is not None:
            lost = jnp.where(jnp.max(e, initial=0) > 0, jnp.inf, 0)
            moved = both(moved, jnp.broadcast_to(lost, ys[0].shape).astype(wide(ys[0]).dtype), "worst")
    return [moved]


def _sort(
    op: SortOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """Bounds move with their elements where all keys are exact. Otherwise the n-th of one key is as near as the worst
    of its row, and what follows it may be anything."""
    keys, dim = op.order(), integer(op.dim)
    if all(e is None for e in es):
        return [None] * len(ys)
    if all(es[k] is None for k in keys.operands):
        moved = sorting.sort([*xs, *map(or_zeros, es, xs)], keys, dim, op.kept())[len(xs) :]
        return [None if e is None else m for e, m in zip(es, moved, strict=True)]
    worst = [jnp.max(or_zeros(es[k], xs[k]), axis=dim, keepdims=True, initial=0) for k in keys.operands]
    found: list[Bound] = []
    for i, y in enumerate(ys):
        if keys.operands == (i,):
            found.append(jnp.broadcast_to(worst[0], y.shape))
        else:
            lost = jnp.where(sum(worst) > 0, jnp.inf, 0)
            found.append(jnp.broadcast_to(lost, y.shape).astype(wide(y).dtype))
    return found


def _scatter(
    op: ScatterOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """Sums and products round once for each update that meets an element; where a place is unsure, so is everything."""
    (x, index, updates), (y,), kind = xs, ys, text(op.kind)
    moved: Bound = None
    if es[0] is not None or es[2] is not None:
        bounds = or_zeros(es[0], x), index, or_zeros(es[2], updates)
        # of a product nothing is known; a maximum is off by no more than what may win
        off = scattering.scatter(*bounds, kind if kind in ("set", "sum") else "max")
        moved = jnp.where(off > 0, jnp.inf, 0) if kind == "prod" else off
    u = roundoff(np.dtype(y.dtype))
    if kind in ("sum", "prod") and u:
        hits = scattering.hits(x.shape[0], index)[:, None].astype(wide(y).dtype)
        size_of = scattering.scatter(wide(x), index, wide(updates), "sum") if kind == "sum" else wide(y)
        rounded = jnp.where(hits * u < 0.5, hits * u / (1 - jnp.minimum(hits * u, 0.5)), jnp.inf)
        known = jnp.isfinite(size_of) & (hits > 0) & (size_of > 0)
        moved = both(moved, jnp.where(known, size_of * rounded, 0), mode)
    if es[1] is not None:
        lost = jnp.where(jnp.max(es[1], initial=0) > 0, jnp.inf, 0)
        moved = both(moved, jnp.broadcast_to(lost, y.shape).astype(wide(y).dtype), "worst")
    return [moved]


def _select_and_scatter(
    op: SelectAndScatterOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """As the scatter of `source`; where errors could let another element be selected, anything may be there."""
    (x, source), (y,), kind = xs, ys, text(op.kind)
    window, strides, low = (to_ints(p) for p in (op.window, op.strides, op.low))
    place = selecting.selected(x, source.shape, text(op.select), window, strides, low)
    e, n = or_zeros(es[1], source), size([-(-w // s) for w, s in zip(window, strides, strict=True)])
    moved: Bound = selecting.scattered(place, e, x.shape, "sum" if kind == "sum" else "max")
    moved = jnp.where(jnp.isfinite(moved), moved, 0) if es[1] is None else moved
    if kind == "prod":
        moved = jnp.where(moved > 0, jnp.inf, 0)
    own = sum_error(n, np.dtype(y.dtype), np.dtype(y.dtype), mode)
    if kind in ("sum", "prod") and own:
        sizes = selecting.scattered(place, wide(source), x.shape, "sum") if kind == "sum" else wide(y)
        moved = both(moved, own * sizes, mode)
    if es[0] is not None:
        off = jnp.max(reach(2 * es[0], mode), initial=0)
        flat = jnp.concatenate([jnp.ravel(signed(x)), jnp.zeros(1, wide(x).dtype)])
        best = flat[jnp.where(place < 0, x.size, place)]
        nearest = selecting.rivals(signed(x), best, off, window, strides, low)
        unsure = jnp.where((nearest > 1) & (off > 0), jnp.inf, 0).astype(wide(y).dtype)
        moved = both(moved, selecting.covered(unsure, x.shape, window, strides, low), "worst")
    return [moved]


# -- the host ----------------------------------------------------------------------------------------------


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

_RULES: dict[type[Operation], Rule] = {
    ops.ArgReduceOp: _arg_reduce,
    ops.ContractOp: _contract,
    ops.ConvOp: _conv,
    ops.DynamicSliceOp: _indexed,
    ops.DynamicUpdateSliceOp: _indexed,
    ops.GatherOp: _indexed,
    ops.ReduceOp: _reduce,
    ops.ReduceWindowOp: _reduce_window,
    CumulateOp: _cumulate,
    ScatterOp: _scatter,
    SelectAndScatterOp: _select_and_scatter,
    SortOp: _sort,
    ops.ViewOp: _view,
}
