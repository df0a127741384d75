"""What each instruction computes, as a function of arrays: for the tile and npu levels and both memory modes.

A rule takes the op, the index scope, the contents of its sources and the types of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from jax import Array, lax
from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import SSAValue

from ...dialects import npu as ops
from ...dialects.base import FormattedOp, integer, text, to_ints
from ...dialects.dtypes import numbers_in
from ...dialects.npu.cumulate import VCumulateOp
from ...dialects.npu.interface import NpuOp, fill_value
from ...dialects.npu.scatter import VScatterOp
from ...dialects.npu.sorting import VSortOp
from ...dialects.open_sizes import is_open
from ...dialects.shapes import Keys, transposes
from ...support.rules import Rules
from ..functions import scattering, sorting, values
from ..functions.products import mma, unpacked
from ..functions.scope import Box, Offset, Scope, span_of, traced
from ..functions.specs import Spec
from . import boxes

Rule = Callable[[FormattedOp, Scope, Sequence[Array], Sequence[Spec]], list[Array]]
Leading = Callable[[FormattedOp, Scope, Sequence[Array], Spec, int], Array]


def ints_of(op: FormattedOp, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
    attr = op.properties.get(name)
    assert attr is None or isinstance(attr, DenseArrayBase)
    return tuple(default) if attr is None else to_ints(attr)


def offsets_of(op: FormattedOp, scope: Scope) -> list[Offset]:
    """The values of an op's `at [...]` expressions."""
    return [scope.evaluate(expr) for expr in op.linear()]


def steps_of(op: FormattedOp) -> tuple[int, ...]:
    return ints_of(op, "steps", (1,) * len(ints_of(op, "sizes")))


def box_of(op: FormattedOp) -> Box:
    """The box that an op's `at [...] {sizes, steps}` addresses."""
    return Box(op.linear(), ints_of(op, "sizes"), steps_of(op))


def _elementwise(op: Any, scope: Scope, sources: Sequence[Array], out: Spec, rank: int) -> Array:
    """Leading dimensions may be 1 in some operands; single elements (scalar operands) stand for all lanes, rows for
    all rows."""
    leading = [max(x.shape[d] for x in sources) for d in range(rank)]
    shape, lanes = (*leading, *out.shape), []
    for x in sources:
        if prod(x.shape[rank:]) == 1:
            x = lax.reshape(x, (*x.shape[:rank], *(1 for _ in out.shape)))
        lanes.append(x if x.shape == shape else lax.broadcast_in_dim(x, shape, range(x.ndim)))
    return values.apply(op.FUNCTION.name, lanes, out.dtype)


def _round_to(op: Any, scope: Scope, sources: Sequence[Array], out: Spec, rank: int) -> Array:
    return values.round_to(sources[0], text(op.mode), out.dtype)


def _broadcast(op: Any, scope: Scope, sources: Sequence[Array], out: Spec, rank: int) -> Array:
    (x,) = sources
    shape = (*x.shape[:rank], *out.shape)
    return x if x.shape == shape else lax.broadcast_in_dim(x, shape, range(x.ndim))


def _matrix(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    """load_l0: [prod(sizes[:-1]), prod(window) * sizes[-1]], or its transpose."""
    sizes, window = ints_of(op, "sizes"), ints_of(op, "window")
    at, window_steps = offsets_of(op, scope), ints_of(op, "window_steps")
    shape = (prod(sizes[:-1]), prod(window) * sizes[-1])
    x = boxes.extract(values.raw(sources[0]), at, sizes, steps_of(op), shape, window, window_steps)
    return [as_operand(op, values.cooked(x, sources[0].dtype), out[0])]


def is_transposed(value: SSAValue) -> bool:
    """Whether all loads to a buffer of l0a or l0b transpose their matrix."""
    loads = [op for op in ops.buffer_users(ops.whole_buffer(value)) if isinstance(op, ops.LoadL0Op)]
    return bool(loads) and all(map(transposes, loads))


def as_operand(op: Any, x: Array, out: Spec) -> Array:
    """A matrix [prod(sizes[:-1]), prod(window) * sizes[-1]] as a load to l0a or l0b leaves it."""
    if transposes(op):
        x = lax.transpose(x, (1, 0))
    return values.convert(lax.reshape(x, out.shape), out.dtype)


def _mma(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    a, b, acc, *others = sources
    given = dict(zip(op.main_operands()[3:], others, strict=True))
    step = offsets_of(op, scope)[0].value
    pairs = numbers_in(op.a.type.element) == 2
    return [mma(a, b, acc, step, bias=given.get(op.bias), index=given.get(op.index), pairs=pairs)]


def _counted(op: Any, scope: Scope, x: Array, dims: Sequence[int]) -> Array:
    """What a reduction combines: of some only the first elements along its dimensions count."""
    for d, n in zip(dims, to_ints(op.counted), strict=False):
        if is_open(n):
            nothing = lax.full(x.shape, values.neutral(text(op.kind), x.dtype))
            x = lax.select(_first(x.shape, d, scope.sizes.value(n)), x, nothing)
        else:
            x = lax.slice_in_dim(x, 0, n, axis=d)
    return x


def _first(shape: Sequence[int], d: int, count: Any) -> Array:
    """Which elements are among the first `count` along a dimension."""
    return lax.lt(lax.broadcasted_iota(np.int32, tuple(shape), d), traced(count))


def _reduce(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    x = _counted(op, scope, sources[0], to_ints(op.dims))
    x = values.reduce(x, text(op.kind), to_ints(op.dims), keep=True)
    return [values.convert(x, out[0].dtype)]


def _arg_reduce(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    dim = integer(op.dim)
    x = _counted(op, scope, sources[0], [dim])
    value, index = values.arg_reduce(x, text(op.kind), dim, out[1].dtype, keep=True)
    return [lax.reshape(value, out[0].shape), lax.reshape(index, out[1].shape)]


def _transpose(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    return [values.cooked(lax.transpose(values.raw(sources[0]), to_ints(op.perm)), sources[0].dtype)]


def _unpack(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    return [values.convert(unpacked(sources[0]), out[0].dtype)]


def _iota(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    first = offsets_of(op, scope)[0].value
    x = lax.broadcasted_iota(np.int32, out[0].shape, integer(op.dim)) * np.int32(integer(op.step))
    # of numbers that it knows, XLA would compute a function with other roundings than of others
    hidden = traced(first) + lax.convert_element_type(scope.zero, np.int32)
    return [values.convert(x + hidden, out[0].dtype)]


def _fill(op: Any, scope: Scope, sources: Sequence[Array], out: Spec, rank: int) -> Array:
    value = values.scalar(fill_value(op.value), out.dtype)
    if out.dtype.kind not in "iub":
        # as a constant, XLA would divide by it with a rounded reciprocal
        value = lax.sub(value, lax.convert_element_type(scope.zero, out.dtype))
    return lax.broadcast(value, (*(1 for _ in range(rank)), *out.shape))


def _mask(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    x, inside = sources[0], None
    for d, (offset, bound) in enumerate(zip(offsets_of(op, scope), to_ints(op.bounds), strict=True)):
        ends = offset.high + x.shape[d] > span_of(bound)[0]
        if offset.low >= 0 and not ends:
            continue
        at = lax.broadcasted_iota(np.int32, x.shape, d) + traced(offset.value)
        if ends:
            here = lax.lt(at, traced(scope.sizes.value(bound)))
            inside = here if inside is None else lax.bitwise_and(inside, here)
        if offset.low < 0:
            here = lax.ge(at, np.int32(0))
            inside = here if inside is None else lax.bitwise_and(inside, here)
    if inside is None:
        return [x]
    return [lax.select(inside, x, values.full(x.shape, fill_value(op.value), x.dtype))]


def _extract(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    """vextract, load_row and copy_l0c: a box, in the destination's shape and dtype."""
    at, sizes = offsets_of(op, scope), ints_of(op, "sizes")
    x = boxes.extract(values.raw(sources[0]), at, sizes, steps_of(op), out[0].shape)
    x = values.cooked(x, sources[0].dtype)
    return [values.convert(x, out[0].dtype)]


def _hand_on(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    return [values.drained(op, sources[0], out[0].dtype)]


def _cumulate(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    return [values.cumulate(sources[0], text(op.kind), integer(op.dim), bool(integer(op.reverse)))]


def _scatter(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    target, index, updates = sources
    first = traced(offsets_of(op, scope)[0].value)
    return [
        scattering.scatter(target, lax.sub(index, lax.broadcast(first, index.shape)), updates, text(op.kind))
    ]


def _gather(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    source, places = sources
    return [source.reshape(-1).at[places].get(mode="clip")]


def _sort(op: Any, scope: Scope, sources: Sequence[Array], out: Sequence[Spec]) -> list[Array]:
    """The sorted rows, and zeros for the memory it works in: nothing may rely on what is there."""
    keys = Keys(to_ints(op.keys), to_ints(op.descending), to_ints(op.total))
    return [*sorting.sort(sources, keys, 1, out[0].shape[1]), lax.full(out[-1].shape, 0, out[-1].dtype)]


_LEADING: dict[type[NpuOp], Leading] = {
    ops.ElementwiseVectorOp: _elementwise,
    ops.VBroadcastOp: _broadcast,
    ops.FillL1Op: _fill,
    ops.SetNumberOp: _fill,
    ops.VFillOp: _fill,
    ops.VRoundToOp: _round_to,
}
LEADING: Rules[Leading] = Rules(NpuOp, "", _LEADING)
"""Instructions whose operands may be [*leading, *shape], each with a rule that is given the number of leading
dimensions."""

ALONG: Rules[Callable[[Any], Sequence[int]]] = Rules(
    NpuOp,
    "combines_along",
    {
        ops.VArgReduceOp: lambda op: [integer(op.dim)],
        ops.VReduceOp: lambda op: to_ints(op.dims),
        VCumulateOp: lambda op: [integer(op.dim)],
    },
)
"""Instructions that combine elements along the dimensions that are given here, and do the same everywhere along the
others."""


def _alone(rule: Leading) -> Rule:
    """`rule` without leading dimensions."""
    return lambda op, scope, sources, out: [rule(op, scope, sources, out[0], 0)]


RULES: Rules[Rule] = Rules(
    NpuOp,
    "evaluate",
    {
        **{cls: _alone(rule) for cls, rule in _LEADING.items()},
        ops.CopyL0cOp: _extract,
        ops.FixpipeL1Op: _hand_on,
        ops.LoadL0Op: _matrix,
        ops.LoadRowOp: _extract,
        ops.MmadOp: _mma,
        ops.VArgReduceOp: _arg_reduce,
        ops.VExtractOp: _extract,
        ops.VIotaOp: _iota,
        ops.VMaskOp: _mask,
        ops.VReduceOp: _reduce,
        VCumulateOp: _cumulate,
        ops.VGatherOp: _gather,
        VScatterOp: _scatter,
        VSortOp: _sort,
        ops.VTransposeOp: _transpose,
        ops.VUnpackOp: _unpack,
    },
)
"""Instructions that work on on-chip memory alone."""
