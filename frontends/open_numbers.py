"""What ops do to sizes: the walk over a program with open dimensions computes with these instead of converting them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..dialects.open_sizes import any_open, certain, is_open, size_of
from . import bindings
from .attributes import Op, int_array, int_attribute
from .size_arithmetic import larger, smaller, truncated_quotient, truncated_remainder

Numbers = Any
"""A numpy array of objects: ints, bools, `Question`s and `OpenSize`s."""

LIMIT = 64
"""Elements of a tensor of sizes: more is data."""


INTEGERS = ("i1", "i8", "i16", "i32", "i64")
"""Element types of sizes, and of what is asked about them, without their sign."""


def may_be_sizes(kind: Any) -> bool:
    """Whether a type is one of sizes, or of what is asked about them: a few integers or bools."""
    parts = bindings.tensor_parts(kind)
    if parts is None or bindings.DYNAMIC in parts[0] or parts[1].lstrip("u") not in INTEGERS:
        return False
    return int(np.prod(parts[0], dtype=np.int64)) <= LIMIT


SIZE_BITS = 32
"""The narrowest integers that sizes are: one that is converted to fewer bits is data."""


def wrapped(numbers: Numbers, kind: Any) -> Numbers | None:
    """Numbers as integers of an element type keep them; None where one is a size that may not fit."""
    parts = bindings.tensor_parts(kind)
    assert parts is not None
    bits, signed = int(parts[1].lstrip("ui")), not parts[1].startswith("u")
    if bits == 1:
        return numbers
    if bits < SIZE_BITS and any_open(list(numbers.reshape(-1))):
        return None
    low = 1 << (bits - 1) if signed else 0
    kept = np.frompyfunc(lambda n: n if is_open(n) else (int(n) + low) % (1 << bits) - low, 1, 1)(numbers)
    return np.asarray(kept, object)


def _each(function: Callable[..., Any]) -> Callable[..., Numbers]:
    """An op that does to each element what `function` does to a number."""
    made = np.frompyfunc(function, function.__code__.co_argcount, 1)
    return lambda op, *numbers: made(*numbers)


def _sign(a: int) -> int:
    return 0 if a == 0 else 1 if a > 0 else -1


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


class Question:
    """Whether two sizes compare so: what they do not settle is assumed where the answer is needed, and not before."""

    def __init__(self, direction: str, left: int, right: int) -> None:
        self.asked = direction, left, right

    def __bool__(self) -> bool:
        direction, left, right = self.asked
        return bool(_COMPARE[direction](left, right))


_SIGNS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


def _question(direction: str, left: int, right: int) -> bool | Question:
    if not (is_open(left) or is_open(right)):
        return bool(_COMPARE[direction](left, right))
    if certain(left, _SIGNS[direction], right):
        return True
    if certain(left, _SIGNS[_OPPOSITE[direction]], right):
        return False
    return Question(direction, left, right)


def _is_answer(value: object) -> bool:
    return isinstance(value, bool | Question)


def _both(a: Any, b: Any) -> Any:
    """The conjunction; what one side settles is not asked of the other."""
    if not _is_answer(a):
        return int(a) & int(b)
    if a is False or b is False:
        return False
    return bool(a) and bool(b)


def _either(a: Any, b: Any) -> Any:
    if not _is_answer(a):
        return int(a) | int(b)
    if a is True or b is True:
        return True
    return bool(a) or bool(b)


def _compared(op: Op, a: Numbers, b: Numbers) -> Numbers:
    direction = bindings.direction(op)
    return np.frompyfunc(lambda x, y: _compared_one(direction, x, y), 2, 1)(a, b)


def _compared_one(direction: str, a: Any, b: Any) -> bool | Question:
    if _is_answer(a) or _is_answer(b):
        return bool(_COMPARE[direction](bool(a), bool(b)))
    return _question(direction, a, b)


def _one_of(which: Any, a: Any, b: Any) -> Any:
    same = type(a) is type(b) and (size_of(a) == size_of(b) if is_open(a) else a == b)
    return a if same or which else b


def _selected(op: Op, which: Numbers, a: Numbers, b: Numbers) -> Numbers:
    return np.frompyfunc(_one_of, 3, 1)(which, a, b)


def _converted(op: Op, numbers: Numbers) -> Numbers | None:
    parts = bindings.tensor_parts(op.results[0].type)
    if parts is None or parts[1].lstrip("u") not in INTEGERS:
        return None
    if parts[1] == "i1":
        return np.frompyfunc(lambda n: n if _is_answer(n) else _question("NE", n, 0), 1, 1)(numbers)
    return np.frompyfunc(lambda n: int(bool(n)) if _is_answer(n) else n, 1, 1)(numbers)


def _reshaped(op: Op, numbers: Numbers) -> Numbers | None:
    parts = bindings.tensor_parts(op.results[0].type)
    return None if parts is None else numbers.reshape(parts[0])


def _joined(op: Op, *numbers: Numbers) -> Numbers:
    return np.concatenate(numbers, axis=int_attribute(op, "dimension"))


def _sliced(op: Op, numbers: Numbers) -> Numbers:
    bounds = (int_array(op, name) for name in ("start_indices", "limit_indices", "strides"))
    return numbers[tuple(slice(*b) for b in zip(*bounds, strict=True))]


def _spread(op: Op, numbers: Numbers) -> Numbers | None:
    parts, dims = bindings.tensor_parts(op.results[0].type), int_array(op, "broadcast_dimensions")
    if parts is None:
        return None
    shape = [1] * len(parts[0])
    for d, n in zip(dims, numbers.shape, strict=True):
        shape[d] = n
    return np.broadcast_to(numbers.reshape(shape), parts[0])


ON_SIZES: dict[str, Callable[..., Numbers | None]] = {
    "stablehlo.add": _each(lambda a, b: _either(a, b) if _is_answer(a) else a + b),
    "stablehlo.subtract": _each(lambda a, b: a - b),
    "stablehlo.multiply": _each(lambda a, b: _both(a, b) if _is_answer(a) else a * b),
    "stablehlo.divide": _each(truncated_quotient),
    "stablehlo.remainder": _each(truncated_remainder),
    "stablehlo.maximum": _each(larger),
    "stablehlo.minimum": _each(smaller),
    "stablehlo.negate": _each(lambda a: -a),
    "stablehlo.abs": _each(lambda a: a if a >= 0 else -a),
    "stablehlo.sign": _each(_sign),
    "stablehlo.and": _each(_both),
    "stablehlo.or": _each(_either),
    "stablehlo.not": _each(lambda a: not a if _is_answer(a) else ~int(a)),
    "stablehlo.compare": _compared,
    "stablehlo.select": _selected,
    "stablehlo.convert": _converted,
    "stablehlo.reshape": _reshaped,
    "stablehlo.concatenate": _joined,
    "stablehlo.slice": _sliced,
    "stablehlo.broadcast_in_dim": _spread,
}
"""What ops do to sizes."""
