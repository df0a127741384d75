"""What whole numbers that the program computes can be, while a model is traced: a shape that follows from such a number
needs a bound of it.

Of a value of few elements the least and the most of each element are known as arrays of its shape, so that what an op
makes of them is what it makes of these arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .node import Node
from .values import dtype_of, is_known, is_sizes, is_text

MOST = 64
"""Elements of an array whose elements each have bounds of their own."""


@dataclass(frozen=True)
class NumberRange:
    """The least and the most that the elements of an array can be, in its shape, or numbers for all of them alike."""

    low: np.ndarray
    high: np.ndarray

    @property
    def is_each(self) -> bool:
        """Whether each element has bounds of its own."""
        return bool(self.low.ndim or self.high.ndim)

    @classmethod
    def of(cls, low: Any, high: Any) -> NumberRange:
        return cls(np.asarray(low, np.float64), np.asarray(high, np.float64))

    def all(self) -> NumberRange:
        """Bounds of all elements alike; those of no elements are 0."""
        return (
            NumberRange.of(self.low.min(initial=np.inf), self.high.max(initial=-np.inf))
            if self.low.size
            else ZERO
        )

    def within(self, low: float, high: float) -> NumberRange:
        """The part of the range between two numbers."""
        return NumberRange(np.maximum(self.low, low), np.minimum(self.high, high))


MOST_SIZES = 8
"""Numbers by which a node decides shapes."""

BY_NUMBER: Mapping[str, tuple[int, ...]] = {
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "Range": (0, 1),
    "Reshape": (1,),
    "Resize": (3,),
    "Split": (1,),
    "Tile": (1,),
    "TopK": (1,),
}
"""Ops of ONNX's own domain, and the numbers of their inputs that decide shapes and may be computed: where the program
does, the sizes are those that data decides."""

ZERO = NumberRange.of(0, 0)
TRUTH = NumberRange.of(0, 1)
OPEN = NumberRange.of(-np.inf, np.inf)


class NumberRanges:
    """The ranges of the values of one trace."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, NumberRange]] = {}

    def of(self, value: Any) -> NumberRange:
        """The range of a value."""
        if value is None or isinstance(value, list) or is_text(value):
            return OPEN
        if is_known(value) and not is_sizes(value):
            array = np.asarray(value)
            if array.size > MOST or array.dtype.kind not in "iubf":
                return OPEN
            made = array.astype(np.float64)
            return NumberRange(made, made)
        if id(value) in self._known:
            return self._known[id(value)][1]
        return TRUTH if dtype_of(value).kind == "b" else OPEN

    def note(
        self, node: Node, folds: bool, run: Callable[[Sequence[Any]], Any], results: Sequence[Any]
    ) -> None:
        """Notes the ranges of what a node gives. folds, run: whether its rule gives known results for other known
        inputs, and what it gives."""
        computed = [v for v in results if hasattr(v, "dtype") and not is_known(v)]
        kinds = [dtype_of(v).kind for v in computed]
        if not computed or not (
            "i" in kinds or "u" in kinds or any(id(v) in self._known for v in node.inputs)
        ):
            return
        made = self._results(node, folds, run)
        for value, found in zip(results, made, strict=False):
            if not any(value is v for v in computed):
                continue
            shape, dtype = tuple(value.shape), dtype_of(value)
            if found.is_each and (found.low.shape != shape or found.low.size > MOST):
                found = found.all()
            if dtype.kind == "b":
                found = found.within(0, 1)
            elif dtype.kind in "iu" and not _fits(found, dtype):
                continue
            if np.isfinite(found.low).any() or np.isfinite(found.high).any():
                self._known[id(value)] = value, found

    def deciding(self, op: str, i: int, inputs: Sequence[Any]) -> NumberRange | None:
        """The range of each whole number of input i of an op, by which it decides shapes; None where that is known to
        the model's trace, or has no bounds."""
        value = inputs[i] if i < len(inputs) and i in BY_NUMBER.get(op, ()) else None
        if value is None or is_known(value) or isinstance(value, list) or dtype_of(value).kind not in "iu":
            return None
        if not all(isinstance(n, int) for n in value.shape) or value.size > MOST_SIZES:
            return None
        found = self.of(value)
        if op in ("Split", "TopK") and np.isfinite(found.low).all():  # parts of the operand
            found = found.within(0, self._count(inputs[0]))
        if not (np.isfinite(found.low).all() and np.isfinite(found.high).all()):
            return None
        low, high = (np.broadcast_to(side, value.shape) for side in (found.low, found.high))
        if op not in ("Range", "Pad") and ((low < 0) & (low != high)).any():
            return None
        return NumberRange(low, high)

    def _results(self, node: Node, folds: bool, run: Callable[[Sequence[Any]], Any]) -> list[NumberRange]:
        op = node.op
        if op in _ALIKE:
            return [self._alike(node, folds, run, _ALIKE[op])]
        if op in _PLACES:
            return self._places(node, _PLACES[op])
        if op in _FUNCTIONS:
            given = [None if v is None else self.of(v) for v in node.inputs]
            try:
                return [_FUNCTIONS[op](*given)]
            except (
                TypeError,
                ValueError,
                AttributeError,
            ):  # shapes that do not go together, or more operands
                return []
        if op in ("ReduceSum", "CumSum"):
            x = self.of(node.input(0)).all()
            count = self._count(node.input(0))
            return [NumberRange.of(min(0, count * x.low), max(0, count * x.high))]
        if op == "TopK":
            return [self.of(node.input(0)).all(), *self._places(node, (1,))[1:]]
        if op == "Unique":
            return [self.of(node.input(0)).all(), *self._places(node, (1, 2, 3), 0)[1:]]
        return []

    def _alike(
        self, node: Node, folds: bool, run: Callable[[Sequence[Any]], Any], data: Sequence[int] | None
    ) -> NumberRange:
        """Of an op whose result grows with its operands `data`, all of them for None."""
        inputs = list(node.inputs)
        which = range(len(inputs)) if data is None else [i for i in data if i < len(inputs)]
        found = [self.of(inputs[i]) for i in which]
        alike = [f.all() for f in found]
        union = NumberRange.of(min(f.low for f in alike), max(f.high for f in alike))
        shapes = [getattr(inputs[i], "shape", None) for i in which]
        each = all(f.low.shape == s for f, s in zip(found, shapes, strict=True))
        rest = all(v is None or is_known(v) for i, v in enumerate(inputs) if i not in which)
        if not (folds and each and rest):
            return union
        ends: list[np.ndarray] = []
        for side in ("low", "high"):
            for i, f in zip(which, found, strict=True):
                inputs[i] = getattr(f, side)
            try:
                made = run(inputs)
            except Exception:  # what rules and numpy raise
                return union
            made = made[0] if isinstance(made, tuple) else made
            if not isinstance(made, np.ndarray) or made.size > MOST:
                return union
            ends.append(made)
        return NumberRange.of(*ends)

    def _places(self, node: Node, outputs: Sequence[int], below: int = 1) -> list[NumberRange]:
        """Of results that are places in an operand, or numbers of its elements."""
        x = node.input(0)
        most = max(self._count(x) - below, 0)
        return [NumberRange.of(0, most) if k in outputs else OPEN for k in range(max(outputs) + 1)]

    @staticmethod
    def _count(x: Any) -> float:
        """The most elements that an array has; infinite where that is open."""
        count = 1.0
        for n in x.shape:
            count *= n if isinstance(n, int) else np.inf
        return count


def _fits(found: NumberRange, dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a type do not wrap around in a range."""
    info = np.iinfo(dtype)
    ends = [*found.low.reshape(-1), *found.high.reshape(-1)]
    return all(not np.isfinite(n) or info.min <= n <= info.max for n in ends)


def _sum(a: NumberRange, b: NumberRange) -> NumberRange:
    return NumberRange(a.low + b.low, a.high + b.high)


def _negative(a: NumberRange) -> NumberRange:
    return NumberRange(-a.high, -a.low)


def _product(a: NumberRange, b: NumberRange) -> NumberRange:
    with np.errstate(invalid="ignore"):
        ends = [
            np.nan_to_num(x * y, nan=0.0, posinf=np.inf, neginf=-np.inf)
            for x in (a.low, a.high)
            for y in (b.low, b.high)
        ]
    return NumberRange(np.minimum.reduce(ends), np.maximum.reduce(ends))


def _quotient(a: NumberRange, b: NumberRange) -> NumberRange:
    """Of a division by what is positive, cut off or not."""
    if not (b.low >= 1).all():
        return OPEN
    low, high = np.where(a.low < 0, np.floor(a.low / b.low), np.floor(a.low / b.high)), a.high / b.low
    return NumberRange(low, np.where(a.high < 0, 0.0, high))


def _remainder(a: NumberRange, b: NumberRange) -> NumberRange:
    if not (b.low >= 1).all() or not (a.low >= 0).all():
        return OPEN
    return NumberRange(np.zeros_like(b.high), np.minimum(b.high - 1, a.high))


def _clip(x: NumberRange, low: NumberRange | None = None, high: NumberRange | None = None) -> NumberRange:
    for bound, by in ((low, np.maximum), (high, np.minimum)):
        x = x if bound is None else NumberRange(by(x.low, bound.low), by(x.high, bound.high))
    return x


def _either(_: NumberRange, a: NumberRange, b: NumberRange) -> NumberRange:
    return NumberRange(np.minimum(a.low, b.low), np.maximum(a.high, b.high))


def _magnitude(a: NumberRange) -> NumberRange:
    most = np.maximum(np.abs(a.low), np.abs(a.high))
    return NumberRange(np.where(a.low > 0, a.low, np.where(a.high < 0, -a.high, 0.0)), most)


def _rounded(by: Callable[[Any], Any]) -> Callable[[NumberRange], NumberRange]:
    return lambda a: NumberRange(by(a.low), by(a.high))


def _extreme(by: Callable[[Any, Any], Any]) -> Callable[..., NumberRange]:
    def made(*given: NumberRange) -> NumberRange:
        low, high = given[0].low, given[0].high
        for other in given[1:]:
            low, high = by(low, other.low), by(high, other.high)
        return NumberRange(low, high)

    return made


_FUNCTIONS: Mapping[str, Callable[..., NumberRange]] = {
    "Abs": _magnitude,
    "Add": _sum,
    "Cast": _rounded(np.trunc),
    "Ceil": _rounded(np.ceil),
    "Clip": _clip,
    "Div": _quotient,
    "Floor": _rounded(np.floor),
    "Max": _extreme(np.maximum),
    "Min": _extreme(np.minimum),
    "Mod": _remainder,
    "Mul": _product,
    "Neg": _negative,
    "Relu": _rounded(lambda x: np.maximum(x, 0)),
    "Round": _rounded(np.rint),
    "Sub": lambda a, b: _sum(a, _negative(b)),
    "Where": _either,
}
"""Elementwise ops, as functions of ranges."""

_ALIKE: Mapping[str, Sequence[int] | None] = {
    "Compress": (0,),
    "Concat": None,
    "Expand": (0,),
    "Flatten": (0,),
    "Gather": (0,),
    "GatherElements": (0,),
    "GatherND": (0,),
    "Identity": (0,),
    "ReduceMax": (0,),
    "ReduceMean": (0,),
    "ReduceMin": (0,),
    "Reshape": (0,),
    "Slice": (0,),
    "Squeeze": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unsqueeze": (0,),
}
"""Ops whose elements are among those of these operands, or between them; None: of all."""

_PLACES: Mapping[str, Sequence[int]] = {"ArgMax": (0,), "ArgMin": (0,), "NonZero": (0,)}
"""Ops some of whose results are places in an operand."""
