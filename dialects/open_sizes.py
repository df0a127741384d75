"""`OpenSize`: a dimension that is known only at run time, as the compiler computes with it.

An `OpenSize` stands where shapes, extents, strides and trip counts are otherwise ints, and takes part in their
arithmetic; what becomes a number is an int again. Code may ask what the bounds of its symbols do not settle:
`n <= 128`, or a place where only a number will do. The answer is that for an example, sizes that a compilation assumes,
and is recorded as a constraint. So whatever code does with an `OpenSize`, the program that comes out is right for all
sizes for which the recorded constraints hold; code that asks little gives a program for many.

Choices between things that are all right, such as how large a tile is, ask within `choosing()`, which records nothing.

An open size in an i64 attribute is a number that stands for it (`encode`, `decode`). `ints` and `to_ints`, `tensor`
and `shape_of`, `integer_attr` and `integer` translate.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import ceil, floor, isfinite
from typing import Any, ClassVar, SupportsIndex, cast

from .affine import Expr
from .sizes import (
    Constraint,
    Size,
    SizeError,
    Sizes,
    bounds,
    evaluate,
    floordiv,
    mod,
    size_text,
    times,
)


@dataclass
class Assumptions:
    """What a compilation assumes of open dimensions. example: a value of each symbol; made: the constraints for which
    its result holds, which the example fulfils."""

    example: Sizes
    made: dict[Constraint, None] = field(default_factory=dict[Constraint, None])
    choices: int = 0
    """How many `choosing` are entered."""


_CURRENT: ContextVar[Assumptions | None] = ContextVar("assumptions", default=None)


class Undecided(SizeError):
    """A question about an open dimension that has no one answer, outside of a compilation that assumes a size."""


@contextmanager
def assuming(example: Sizes) -> Iterator[Assumptions]:
    """A compilation for open dimensions, with an example of each symbol's size; gives what it assumes."""
    token = _CURRENT.set(made := Assumptions(example))
    try:
        yield made
    finally:
        _CURRENT.reset(token)


@contextmanager
def choosing() -> Iterator[None]:
    """Answers are for the example, and nothing is assumed: for choices of which any is right."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    current.choices += 1
    try:
        yield
    finally:
        current.choices -= 1


_AS_WRITTEN: ContextVar[bool] = ContextVar("as_written", default=False)


@contextmanager
def as_written() -> Iterator[None]:
    """Sizes are equal where they are written alike, and nothing is assumed: for what is known of things by what they
    are."""
    token = _AS_WRITTEN.set(True)
    try:
        yield
    finally:
        _AS_WRITTEN.reset(token)


TYPICAL = 64
"""The size that stands for any where open sizes are looked at outside of a compilation."""


class _Typical(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return TYPICAL


@contextmanager
def typical_sizes() -> Iterator[None]:
    """Outside of a compilation, answers are those for a typical size: for who reads, verifies or prints a program."""
    if _CURRENT.get() is not None:
        yield
        return
    with assuming(_Typical()):
        yield


def example_sizes() -> Sizes:
    """The example of the compilation that is under way; nothing outside of one."""
    current = _CURRENT.get()
    return {} if current is None else current.example


def is_assumed(sizes: Sizes) -> bool:
    """Whether sizes meet what the compilation that is under way has assumed so far."""
    current = _CURRENT.get()
    return current is None or all(c.met_by(sizes) for c in current.made)


class OpenSize:
    """An open dimension: a `Size` that has symbols. Raises Undecided, in comparisons and where it must be a number,
    outside of `assuming` where the bounds of its symbols do not settle it."""

    __slots__ = ("size",)
    OPEN: ClassVar[bool] = True
    """What affine.py, which knows no dimensions, knows them by."""

    def __init__(self, size: Size) -> None:
        self.size = size

    @staticmethod
    def of(size: Size) -> int:
        """A size as what stands in a shape: an `OpenSize`, which takes the place of an int, or a number."""
        return cast("int", OpenSize(size)) if size.terms else size.constant

    def __add__(self, other: object) -> Any:
        return _combined(_added, self, other)

    def __radd__(self, other: object) -> Any:
        return _combined(_added, other, self)

    def __sub__(self, other: object) -> Any:
        return _combined(_less, self, other)

    def __rsub__(self, other: object) -> Any:
        return _combined(_less, other, self)

    def __mul__(self, other: object) -> Any:
        return _combined(times, self, other)

    def __rmul__(self, other: object) -> Any:
        return _combined(times, other, self)

    def __floordiv__(self, other: object) -> Any:
        return _combined(floordiv, self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return _combined(floordiv, other, self)

    def __mod__(self, other: object) -> Any:
        return _combined(mod, self, other)

    def __rmod__(self, other: object) -> Any:
        return _combined(mod, other, self)

    def __divmod__(self, other: object) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Any, Any]:
        return other // self, other % self

    def __truediv__(self, other: Any) -> float:
        return float(self) / float(other)

    def __rtruediv__(self, other: Any) -> float:
        return float(other) / float(self)

    def __neg__(self) -> Any:
        return OpenSize.of(self.size * -1)

    def __pos__(self) -> OpenSize:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float):
            return other.is_integer() and self == int(other)
        size = _size(other)
        if size is None or self.size == size or _AS_WRITTEN.get():
            return size is not None and self.size == size
        return _holds(self.size, "==", size)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return _compared(operator.lt, "<", self, other)

    def __le__(self, other: Any) -> bool:
        return _compared(operator.le, "<=", self, other)

    def __gt__(self, other: Any) -> bool:
        return _compared(operator.gt, ">", self, other)

    def __ge__(self, other: Any) -> bool:
        return _compared(operator.ge, ">=", self, other)

    def __hash__(self) -> int:
        return hash(self.size)

    def __bool__(self) -> bool:
        return not _holds(self.size, "==", Expr(0))

    def __index__(self) -> int:
        current = _CURRENT.get()
        if current is None:
            raise Undecided(f"{self} is known only at run time, and a number is needed")
        value = evaluate(self.size, current.example)
        if not current.choices:
            current.made[Constraint(self.size, "==", Expr(value))] = None
        return value

    def __int__(self) -> int:
        return self.__index__()

    def __float__(self) -> float:
        return float(self.__index__())

    def __str__(self) -> str:
        return size_text(self.size)

    def __format__(self, spec: str) -> str:
        """Its text; in a format of numbers its value in the example, as `example` has it."""
        if not spec:
            return str(self)
        with choosing():
            return format(int(self), spec)

    def __repr__(self) -> str:
        return f"OpenSize({self})"

    def bit_length(self) -> int:
        """As an int's."""
        return int(self).bit_length()


def is_open(number: object) -> bool:
    """Whether a number is an `OpenSize`."""
    return type(number) is OpenSize


def size_of(number: int) -> Size:
    """An int or an `OpenSize` as a size."""
    found = _size(number)
    assert found is not None
    return found


def example(number: int) -> int:
    """The value of an int or an `OpenSize` in the example of the compilation, which assumes nothing by that."""
    with choosing():
        return int(number)


def most_of(number: int) -> int | None:
    """The most that an `OpenSize` may be, by its bounds, or the number; None where there is no most."""
    return bounds(number.size)[1] if type(number) is OpenSize else number


def value_at(number: int, sizes: Sizes) -> int:
    """The value of an int or an `OpenSize` at given sizes."""
    return evaluate(number.size, sizes) if type(number) is OpenSize else number


def _size(number: object) -> Size | None:
    if type(number) is OpenSize:
        return number.size
    if type(number) is int:  # most are, and the question below takes long
        return Expr(number)
    if isinstance(number, SupportsIndex):
        return Expr(operator.index(number))
    return None


def _combined(make: Callable[[Size, Size], Size], left: object, right: object) -> Any:
    a, b = _size(left), _size(right)
    if a is None or b is None:
        if isinstance(left, float) or isinstance(right, float):
            return _WITH_FLOATS[make](float(cast("Any", left)), float(cast("Any", right)))
        return NotImplemented
    return OpenSize.of(make(a, b))


def _added(a: Size, b: Size) -> Size:
    return a + b


def _less(a: Size, b: Size) -> Size:
    return a - b


_WITH_FLOATS: dict[Any, Callable[[float, float], float]] = {
    _added: operator.add,
    _less: operator.sub,
    times: operator.mul,
    floordiv: operator.floordiv,
    mod: operator.mod,
}


def _compared(compare: Callable[[float, float], bool], text: str, left: OpenSize, right: Any) -> bool:
    if isinstance(right, float):
        if not isfinite(right):
            return compare(0.0, right)
        right = floor(right) if text in ("<=", ">") else ceil(right)
    size = _size(right)
    return NotImplemented if size is None else _holds(left.size, text, size)


_OPPOSITE = {"==": "!=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _holds(left: Size, compare: str, right: Size) -> bool:
    """Whether a comparison holds: for all sizes within their bounds, or else for the example, which is assumed."""
    known = settled(left - right, compare)
    if known is not None:
        return known
    asked = Constraint(left, compare, right)
    current = _CURRENT.get()
    if current is None:
        raise Undecided(f"whether {asked} is known only at run time")
    holds = asked.holds(current.example)
    if not current.choices:
        said = asked if holds else Constraint(left, _OPPOSITE[compare], right)
        current.made[said] = None
    return holds


def certain(left: int, compare: str, right: int) -> bool:
    """Whether a comparison holds for all sizes within their bounds. Nothing is assumed: False says that it does not,
    or that it is not known to. compare: "==", "!=", "<", "<=", ">" or ">="."""
    difference = size_of(left) - size_of(right)
    return settled(difference, "==") is False if compare == "!=" else settled(difference, compare) is True


def settled(difference: Size, compare: str) -> bool | None:
    """Whether a difference compares with 0 in the same way for all sizes within their bounds; None where it does not,
    or it is not known to."""
    low, high = bounds(difference)
    if compare == "==":
        if low == high == 0:
            return True
        return False if (low is not None and low > 0) or (high is not None and high < 0) else None
    if compare in (">", "<="):  # the same of the negative difference
        return settled(difference * -1, "<" if compare == ">" else ">=")
    below = True if high is not None and high < 0 else False if low is not None and low >= 0 else None
    return below if below is None or compare == "<" else not below


# -- in attributes -----------------------------------------------------------------------------------------

FIRST = -(1 << 62)
"""The number that stands for the first open dimension of a process in i64 attributes; the next ones follow. No shape,
address or offset is near it."""

_OPEN: list[OpenSize] = []
_NUMBERS: dict[Size, int] = {}


def encode(number: int) -> int:
    """What stands for an int or an `OpenSize` in an i64 attribute."""
    if type(number) is not OpenSize:
        return int(number)
    found = _NUMBERS.get(number.size)
    if found is None:
        found = _NUMBERS[number.size] = FIRST + len(_OPEN)
        _OPEN.append(number)
    return found


def decode(number: int) -> int:
    """The int or the `OpenSize` for which a number in an i64 attribute stands."""
    place = number - FIRST
    return cast("int", _OPEN[place]) if 0 <= place < len(_OPEN) else number


def decoded(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The same for several."""
    if not numbers or min(numbers) >= 0:
        return numbers
    return tuple(map(decode, numbers))


def any_open(numbers: Sequence[int]) -> bool:
    """Whether one of several numbers is an `OpenSize`."""
    return any(type(n) is OpenSize for n in numbers)
