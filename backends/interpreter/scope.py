"""Index values inside a kernel: the value and the range of each loop variable and grid coordinate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax import Array, lax
from xdsl.ir import SSAValue

from ...dialects.affine import Expr


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


Blank = tuple[tuple[int, ...], np.dtype]
"""Shape and dtype of an array of zeros."""


@dataclass
class Scope:
    """`index` holds what is in scope; `zero` is a 0 (f32, shape []) that XLA cannot see through, `blanks` are arrays of
    such zeros."""

    zero: Array
    index: dict[SSAValue, Offset] = field(default_factory=dict)
    blanks: Mapping[Blank, Array] = field(default_factory=dict)

    def evaluate(self, expr: Expr) -> Offset:
        """An expression of index values."""
        value: Any = None
        still = True
        constant = low = high = expr.constant
        for v, c in expr.terms:
            term = self.index[v].scaled(c, 0)
            low, high, still = low + term.low, high + term.high, still and term.still
            if isinstance(term.value, int):
                constant += term.value
            else:
                value = term.value if value is None else lax.add(value, term.value)
        if value is None:
            return Offset.known(constant)
        return Offset(lax.add(value, np.int32(constant)) if constant else value, low, high, still)

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
