"""Index values inside a kernel: the value and the range of each loop variable, grid coordinate and open size."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from jax import Array, lax
from xdsl.ir import SSAValue

from ...dialects.affine import Expr, Symbol
from ...dialects.open_sizes import is_open, size_of
from ...dialects.sizes import Derived, Size, SizeError, bounds


@dataclass(frozen=True)
class Offset:
    """An index: an int where it is known, else an i32 scalar; always within [low, high]. still: no loop moves it.

    Where numbers are traced, JAX takes an operator for a function of its own: `lax` is quicker.
    """

    value: Any
    low: int
    high: int
    still: bool = False

    @staticmethod
    def known(value: int) -> Offset:
        return Offset(value, value, value, still=True)

    def scaled(self, factor: int, add: int) -> Offset:
        """`self * factor + add`."""
        ends = sorted((self.low * factor + add, self.high * factor + add))
        if isinstance(self.value, int):
            return Offset.known(ends[0])
        value = self.value if factor == 1 else lax.mul(self.value, np.int32(factor))
        return Offset(lax.add(value, np.int32(add)) if add else value, ends[0], ends[1], self.still)

    def times(self, other: Offset) -> Offset:
        """`self * other`."""
        if isinstance(other.value, int):
            return self.scaled(other.value, 0)
        if isinstance(self.value, int):
            return other.scaled(self.value, 0)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        value = lax.mul(self.value, other.value)
        return Offset(value, min(ends), max(ends), self.still and other.still)

    def plus(self, other: Offset) -> Offset:
        """`self + other`."""
        if isinstance(other.value, int):
            return self.scaled(1, other.value)
        if isinstance(self.value, int):
            return other.scaled(1, self.value)
        low, high = self.low + other.low, self.high + other.high
        return Offset(lax.add(self.value, other.value), low, high, self.still and other.still)


def span_of(number: int) -> tuple[int, int]:
    """The least and the greatest value of an int or an `OpenSize`. Raises SizeError where it has no bound."""
    if not is_open(number):
        return number, number
    low, high = bounds(size_of(number))
    if low is None or high is None:
        raise SizeError(f"{number} has no bound, and the memory that it takes is reserved before")
    return low, high


def most(number: int) -> int:
    """The greatest value of an int or an `OpenSize`. Raises SizeError where it has no bound."""
    return span_of(number)[1]


class RunTimeSizes:
    """What open sizes are while a program runs. values: of each symbol, ints or i32 scalars that XLA computes."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.values = dict(values or {})
        self._kept: dict[Size, Offset] = {}

    def keeping(self, numbers: Iterable[int]) -> RunTimeSizes:
        """The same; what these numbers are is computed here and now, once. A loop takes it from outside then."""
        made = RunTimeSizes(self.values)
        for number in numbers:
            if is_open(number):
                made._kept[size_of(number)] = made.offset(number)
        return made

    def offset(self, number: int) -> Offset:
        """The value of an int or an `OpenSize`. Raises SizeError for one that has no bound."""
        if not is_open(number):
            return Offset.known(number)
        size = size_of(number)
        found = self._kept.get(size)
        if found is None:
            value = self._value(size)
            found = Offset.known(value) if isinstance(value, int) else Offset(value, *span_of(number), still=True)
        return found

    def value(self, number: int) -> Any:
        """The same as an int, or as an i32 scalar."""
        return self.offset(number).value

    def _value(self, size: Size) -> Any:
        total: Any = size.constant
        for variable, coefficient in size.terms:
            term = self._variable(variable)
            total = _sum(total, term if coefficient == 1 else _product(term, coefficient))
        return total

    def _variable(self, variable: Symbol | Derived) -> Any:
        if isinstance(variable, Symbol):
            return self.values[variable.name]
        return reduce(_COMPUTE[variable.kind], map(self._value, variable.args))


def _on_numbers(
    exact: Callable[[int, int], int], traced_: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """A function of two ints, or of what XLA computes."""

    def compute(a: Any, b: Any) -> Any:
        return exact(a, b) if isinstance(a, int) and isinstance(b, int) else traced_(traced(a), traced(b))

    return compute


def _floored(a: Any, b: Any) -> Any:
    """`a // b`, rounded down."""
    rest = lax.rem(a, b)
    below = lax.bitwise_and(lax.ne(rest, np.int32(0)), lax.ne(lax.lt(rest, np.int32(0)), lax.lt(b, np.int32(0))))
    return lax.sub(lax.div(a, b), lax.convert_element_type(below, np.int32))


_sum = _on_numbers(operator.add, lax.add)
_product = _on_numbers(operator.mul, lax.mul)
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "mul": _product,
    "floordiv": _on_numbers(operator.floordiv, _floored),
    "mod": _on_numbers(operator.mod, lambda a, b: lax.sub(a, lax.mul(_floored(a, b), b))),
    "max": _on_numbers(max, lax.max),
    "min": _on_numbers(min, lax.min),
}


Blank = tuple[tuple[int, ...], np.dtype]
"""Shape and dtype of an array of zeros."""


@dataclass
class Scope:
    """`index` holds what is in scope; `zero` is a 0 (f32, shape []) that XLA cannot see through, `blanks` are arrays of
    such zeros; `sizes` has the values of open sizes."""

    zero: Array
    index: dict[SSAValue, Offset] = field(default_factory=dict)
    blanks: Mapping[Blank, Array] = field(default_factory=dict)
    sizes: RunTimeSizes = field(default_factory=RunTimeSizes)

    def evaluate(self, expr: Expr) -> Offset:
        """An expression of index values, in which numbers may be open."""
        if type(expr.constant) is not int:
            rest = self.evaluate(expr - expr.constant)
            return rest.plus(self.sizes.offset(expr.constant))
        value: Any = None
        still = True
        constant = low = high = expr.constant
        for v, c in expr.terms:
            term = self.index[v].scaled(c, 0) if type(c) is int else self.index[v].times(self.sizes.offset(c))
            low, high, still = low + term.low, high + term.high, still and term.still
            if isinstance(term.value, int):
                constant += term.value
            else:
                value = term.value if value is None else lax.add(value, term.value)
        if value is None:
            return Offset.known(constant)
        return Offset(lax.add(value, np.int32(constant)) if constant else value, low, high, still)

    def stepped(self, at: Offset, step: int, first: int) -> Offset:
        """`first + at * step`, of numbers that may be open."""
        return at.times(self.sizes.offset(step)).plus(self.sizes.offset(first))

    def zeros(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """Zeros for memory that is written in parts. To copy an array takes no code, to fill one takes XLA as long to
        compile as any other loop."""
        blank = self.blanks.get((tuple(shape), np.dtype(dtype)))
        if blank is not None:
            return blank
        one = lax.convert_element_type(lax.abs(self.zero), dtype)
        return lax.broadcast_in_dim(one, tuple(shape), ())


@dataclass(frozen=True)
class Box:
    """Elements of a tensor or tile: in dimension d `sizes[d]` of them, `steps[d]` apart, from `starts[d]` on."""

    starts: tuple[Expr, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def indices(self) -> list[SSAValue]:
        """The indices that move the box."""
        return list(dict.fromkeys(v for start in self.starts for v in start.variables))

    def offsets(self, scope: Scope) -> list[Offset]:
        return [scope.evaluate(start) for start in self.starts]

    def inside(self, shape: Sequence[int], ranges: Ranges) -> bool:
        """Whether the box lies in a tensor of `shape` whatever the indices are."""
        for start, n, step, extent in zip(self.starts, self.sizes, self.steps, shape, strict=True):
            low, high = start.span(ranges)
            if step < 1 or low < 0 or high + (n - 1) * step >= extent:
                return False
        return True


def is_static_index(start: Any) -> bool:
    """Whether an index value is a Python int rather than traced."""
    return isinstance(start, int)


def traced(value: Any) -> Any:
    """An index value as an i32 scalar."""
    return np.int32(value) if isinstance(value, int) else value


Ranges = dict[SSAValue, tuple[int, int]]
"""The lowest and highest value of each index of a kernel."""
