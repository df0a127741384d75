"""Which keys rows of attention see: a causal mask or a window, made of positions and numbers, hides blocks of them.

What the softmax is of is bounded for blocks of rows and keys, by interval arithmetic over the ops between the scores
and the softmax. A key is hidden from a row where what it has there is so far below what another key has that its
exponential is zero in every type. Scores themselves may be anything up to `LARGEST_SCORE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, SSAValue

from ...dialects.base import integer
from ...dialects.dtypes import dtype_name, is_float, numpy_dtype
from ...dialects.graph import ElementwiseOp, IotaOp
from ...dialects.graph.interface import element_of, shape_of
from .access import splat_of
from .attention import Attention
from .layout_axes import Axes, backward_axes, behind

LARGEST_SCORE = 2.0**14
"""The magnitude of a product of queries and keys up to which hidden keys are known to be hidden. Their values and keys
are finite numbers: JAX makes NaN of zero by infinity."""

ZERO_BEHIND = 104.0
"""So far below the maximum an exponential is zero: half of the least f32, 2 ** -150, is exp(-103.97)."""

GRAIN = 16
"""Rows and keys of a block, where there are few; tiles of attention are multiples of it."""

MOST_BLOCKS = 512
"""Blocks along rows and along keys; of more rows or keys blocks are larger."""

Range = tuple[np.ndarray, np.ndarray]
"""The least and the largest of numbers in f64, for each block: i1 has 0 and 1."""


def _exactly(number: float) -> Range:
    return np.asarray(number), np.asarray(number)


ANYTHING: Range = np.asarray(-np.inf), np.asarray(np.inf)


@dataclass(frozen=True)
class VisibleKeys:
    """The keys that rows see. grain: rows of a block; first, end: for each block of rows, where the keys begin and end
    that some row of it sees."""

    grain: int
    first: np.ndarray
    end: np.ndarray

    def of(self, begin: int, stop: int) -> tuple[int, int]:
        """Where the keys begin and end that some of the rows from `begin` up to `stop` sees."""
        blocks = slice(begin // self.grain, max(-(-stop // self.grain), begin // self.grain + 1))
        return int(self.first[blocks].min()), int(self.end[blocks].max())


def visible_keys(at: Attention, row: int) -> VisibleKeys | None:
    """The keys that each row along an axis of attention sees; None where some row may see all of them."""
    shape = shape_of(at.scores.result)
    rows, keys = shape[row], shape[at.keys]
    if not any(isinstance(base.owner, IotaOp) for op in at.generated for v in op.operands for base in [behind(v)[1]]):
        return None
    least = _highest_seen(at, row)
    grain = GRAIN * -(-max(rows, keys) // (GRAIN * MOST_BLOCKS))
    starts = [np.arange(0, n, grain) for n in (rows, keys)]
    where = {
        axis: (begin.reshape(place), (np.minimum(begin + grain, n) - 1).reshape(place))
        for axis, begin, n, place in zip((row, at.keys), starts, (rows, keys), ((-1, 1), (1, -1)), strict=True)
    }
    _, most = _Ranges(at, where).of_softmax()
    each = np.minimum.reduceat(least, starts[0])[:, None]
    with np.errstate(invalid="ignore"):  # of infinities nothing is hidden
        seen = ~((each - most >= ZERO_BEHIND) & np.isfinite(each))
    seen = np.broadcast_to(seen, (len(starts[0]), len(starts[1])))
    if seen[:, (0, -1)].all():
        return None
    first, last = seen.argmax(1), seen.shape[1] - 1 - seen[:, ::-1].argmax(1)
    return VisibleKeys(grain, first * grain, np.minimum((last + 1) * grain, keys))


def _highest_seen(at: Attention, row: int) -> np.ndarray:
    """For each row, a number that the maximum of its softmax is not below: what one of a few keys has at least, those
    that masks leave to a row: the one of its own position, counted from the front and from the back, the first and the
    last."""
    shape = shape_of(at.scores.result)
    rows, keys = shape[row], shape[at.keys]
    positions = np.arange(rows)
    found = np.full(rows, -np.inf)
    for place in (positions, positions + keys - rows, np.zeros_like(positions), np.full_like(positions, keys - 1)):
        key = np.clip(place, 0, keys - 1)
        least, _ = _Ranges(at, {row: (positions, positions), at.keys: (key, key)}).of_softmax()
        found = np.maximum(found, least)
    return found


class _Ranges:
    """Bounds what the softmax is of, where positions along axes are in ranges; along other axes they are any."""

    def __init__(self, at: Attention, where: Mapping[int, Range]) -> None:
        self.at, self.where = at, where
        self.known: dict[tuple[SSAValue, Axes], Range] = {}

    def of_softmax(self) -> Range:
        x = self.at.x
        return self.of(x, self.at.axes.get(x, ()))

    def of(self, value: SSAValue, axes: Axes) -> Range:
        """The range of a value whose dimensions have these axes."""
        number = splat_of(value)
        if number is not None:
            return _exactly(float(number))
        chain, base = behind(value, self.at.axes)
        own = self.at.axes[base] if base in self.at.axes else backward_axes(chain, axes)
        if own is None:
            return ANYTHING
        if (base, own) not in self.known:
            self.known[base, own] = self._made(base, own)
        return self.known[base, own]

    def _made(self, value: SSAValue, axes: Axes) -> Range:
        """The range of what an op gives."""
        op = value.owner
        if op is self.at.scores:
            return np.asarray(-LARGEST_SCORE), np.asarray(LARGEST_SCORE)
        if isinstance(op, IotaOp):
            dim = integer(op.dim)
            axis, length = axes[dim], shape_of(value)[dim]
            anywhere = np.asarray(0.0), np.asarray(length - 1.0)
            found = anywhere if axis is None else self.where.get(axis, anywhere)
            return _in_type(*found, element_of(value))
        if not isinstance(op, ElementwiseOp):
            return ANYTHING
        given = [self.of(v, axes) for v in op.operands]
        whole = all(dtype_name(element_of(v)) == "i1" for v in op.operands)
        with np.errstate(all="ignore"):
            found = _applied(op.FUNCTION.name, given, whole, element_of(value))
        return ANYTHING if found is None else _in_type(*found, element_of(value))


def _applied(name: str, given: list[Range], logical: bool, result: Attribute) -> Range | None:
    """The range of a function of numbers in ranges, before it is rounded; None where no rule says."""
    if name == "select":
        return _selected(*given)
    if name in ("eq", "ne"):
        return _equal(*given, negated=name == "ne")
    if name == "convert" and dtype_name(result) == "i1":
        return _equal(given[0], _exactly(0.0), negated=True)
    if name == "rem":
        return _remainder(*given)
    if name == "abs":
        return _magnitude(*given)
    if name == "div" and not _apart_from_zero(given[1]):
        return None
    function = (LOGICAL if logical and name in LOGICAL else MONOTONE).get(name)
    return None if function is None else _at_corners(function, given)


MONOTONE: Mapping[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,  # by numbers of one sign; that of integers is cut off where it is brought into its type
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "sign": np.sign,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "floor": np.floor,
    "ceil": np.ceil,
    "convert": np.positive,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
"""Functions that grow, or fall, with each operand alone: over a box they are least and largest at corners."""

LOGICAL: Mapping[str, Callable[..., np.ndarray]] = {
    "and": np.minimum,
    "or": np.maximum,
    "not": lambda x: 1 - x,
}
"""The same of truth values."""


def _at_corners(function: Callable[..., np.ndarray], given: list[Range]) -> Range:
    """The range of a function that is monotone in each operand. NaN at a corner leaves anything."""
    corners: list[tuple[np.ndarray, ...]] = [()]
    for each in given:
        corners = [(*corner, end) for corner in corners for end in each]
    found = np.stack(np.broadcast_arrays(*(np.asarray(function(*corner), float) for corner in corners)))
    unknown = np.isnan(found).any(0)
    return np.where(unknown, -np.inf, found.min(0)), np.where(unknown, np.inf, found.max(0))


def _selected(mask: Range, yes: Range, no: Range) -> Range:
    always, never = mask[0] > 0, mask[1] <= 0
    least = np.where(always, yes[0], np.where(never, no[0], np.minimum(yes[0], no[0])))
    return least, np.where(always, yes[1], np.where(never, no[1], np.maximum(yes[1], no[1])))


def _equal(a: Range, b: Range, negated: bool) -> Range:
    same = (a[0] == a[1]) & (b[0] == b[1]) & (a[0] == b[0])
    apart = (a[1] < b[0]) | (b[1] < a[0])
    always, never = (apart, same) if negated else (same, apart)
    return always.astype(float), 1 - never.astype(float)


def _remainder(a: Range, b: Range) -> Range | None:
    """Of a division by one number: within one of its multiples it grows with what is divided."""
    if b[0].ndim or b[0] != b[1] or not np.isfinite(b[0]) or b[0] == 0:
        return None
    once = (np.trunc(a[0] / b[0]) == np.trunc(a[1] / b[0])) & np.isfinite(a[0]) & np.isfinite(a[1])
    most = np.abs(b[0])
    least = np.where(once, np.fmod(a[0], b[0]), np.where(a[0] >= 0, 0.0, -most))
    return least, np.where(once, np.fmod(a[1], b[0]), np.where(a[1] <= 0, 0.0, most))


def _magnitude(x: Range) -> Range:
    ends = np.abs(x[0]), np.abs(x[1])
    return np.where((x[0] <= 0) & (x[1] >= 0), 0.0, np.minimum(*ends)), np.maximum(*ends)


def _apart_from_zero(x: Range) -> bool:
    return bool(((x[0] > 0) | (x[1] < 0)).all())


def _in_type(least: np.ndarray, most: np.ndarray, element: Attribute) -> Range:
    """A range as numbers of a type have it: rounded, and anything where integers may run over."""
    kind = numpy_dtype(element)
    if is_float(element):
        with np.errstate(all="ignore"):
            return np.asarray(least).astype(kind).astype(float), np.asarray(most).astype(kind).astype(float)
    if kind == np.bool_ or not isinstance(element, IntegerType):
        return least, most
    limits = np.iinfo(kind) if kind.kind in "iu" else None
    if limits is None:
        return ANYTHING
    least, most = np.trunc(least), np.trunc(most)
    over = (least < limits.min) | (most > limits.max)
    return np.where(over, -np.inf, least), np.where(over, np.inf, most)
