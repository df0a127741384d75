"""Relations between open sizes that a source needs: two names for one size, or a name for a number.

JAX traces nothing for sizes that do not fit together. Which equality it asked for last, and took for false, says what
would make them fit: one size is put in the place of another, and the source is traced again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import lcm
from typing import Any

from ...dialects.affine import Expr
from ...dialects.sizes import (
    Derived,
    Size,
    SizeError,
    evaluate,
    factors_of,
    fixed,
    parse_size,
    replaced,
    symbols_of,
    times,
)
from .probing import EQUAL, first_line, is_inconclusive
from .shapes import OpenShapes, solvable

Relations = Mapping[str, Size]
"""Sizes in the place of symbols, by name, none of which stands in these sizes."""

Trace = Callable[[Relations], tuple[Sequence[tuple[Any, Any]], Exception | None]]
"""Traces a source on sizes in the place of symbols: the equalities that were taken for false, in the order that they
were asked for, and what it raised."""

FEW_TRACES, MANY_TRACES = 8, 128
"""How often a source is traced for relations that save versions, and for those without which it is refused."""

DEPTH = 16
"""Traces that one repair may take with those behind it, and half of those that are left where that is more."""

LAST = 12
"""Equalities before a failure that may be why it failed."""

SMALL = (4, 3, 2, 1, 5, 6, 7, 8, 0)
"""Numbers that are tried for the symbols of an equality that is not linear in them."""


@dataclass
class RelationSearch:
    """Looks for relations under which a source is traced. most: how often it may be traced. tries_numbers: whether
    symbols that an error speaks of may be any numbers."""

    shapes: OpenShapes
    trace: Trace
    most: int
    tries_numbers: bool = True
    seen: set[str] = field(default_factory=set[str])

    def run(self) -> Relations | None:
        """Such relations; None where there are none, or none are found."""
        return self._from({}, "", 0)

    def _from(self, known: Relations, failed: str, left: int) -> Relations | None:
        """Relations that some are part of. failed: what went wrong before a size became a number, and must not go wrong
        again; left: how many traces are left for others."""
        key = str(sorted((n, str(s)) for n, s in known.items()))
        if key in self.seen or self.most <= left:
            return None
        self.seen.add(key)
        self.most -= 1
        noted, error = self.trace(known)
        if error is None:
            return known
        said = self._without_sizes(error)
        if said == failed:
            return None
        repairs = [(more, "") for more in self._repairs(noted, error)]
        repairs += [(more, said) for more in self._numbers(error)] if self.tries_numbers else []
        for more, before in repairs:
            own = max((self.most - left) // 2, DEPTH)
            composed = _composed(known, more)
            found = None if composed is None else self._from(composed, before, max(left, self.most - own))
            if found is not None:
                return found
        return None

    def _repairs(self, noted: Sequence[tuple[Any, Any]], error: Exception) -> Iterator[Relations]:
        """What may make a source fit: two sizes that are one first, then sizes that are numbers."""
        if is_inconclusive(error):
            return
        pairs = [self._sizes(pair) for pair in list(noted)[::-1][:LAST]]
        made = [relation for pair in pairs if pair is not None for relation in self._solved(*pair)]
        yield from sorted(made, key=_rank)

    def _numbers(self, error: Exception) -> Iterator[Relations]:
        """Numbers for the symbols that an error speaks of, and multiples of those that it has."""
        said = first_line(error)
        names = [n for n in self.shapes.symbols if re.search(rf"\b{re.escape(n)}\b", said)]
        told = [int(n) for n in re.findall(r"\b\d{1,2}\b", said) if int(n) > 1]
        numbers = dict.fromkeys([*EQUAL, *(factor * n for n in told for factor in (1, 2, 4))])
        yield from ({n: fixed(number)} for n in names for number in numbers if self._within(n, number))

    def _without_sizes(self, error: Exception) -> str:
        """What an error says, without sizes and numbers."""
        names = "|".join(map(re.escape, self.shapes.symbols))
        return re.sub(rf"\b({names})\b|[^A-Za-z]", "", first_line(error))

    def _sizes(self, pair: tuple[Any, Any]) -> tuple[Size, Size] | None:
        try:
            one, other = (parse_size(str(n), self.shapes.symbols) for n in pair)
        except SizeError:
            return None
        return _without_common(one, other)

    def _solved(self, one: Size, other: Size) -> Iterator[Relations]:
        """Sizes in the place of symbols that make two sizes equal."""
        gap = one - other
        cases = [case for each in _cases(gap) for case in (each, _exact(each)) if case is not None]
        made = [relation for case in cases for relation in self._linear(case)]
        yield from _cancelled(gap)
        yield from made
        symbols = symbols_of(gap)
        if (made and cases == [gap]) or not 0 < len(symbols) <= 2:
            return
        for numbers in product(SMALL, repeat=len(symbols)):
            sizes = {s.name: n for s, n in zip(symbols, numbers, strict=True)}
            if all(self._within(n, v) for n, v in sizes.items()) and _is_zero(gap, sizes):
                yield {n: fixed(v) for n, v in sizes.items()}

    def _linear(self, gap: Size) -> Iterator[Relations]:
        """Sizes in the place of single symbols for which a size is 0."""
        symbols = symbols_of(gap)
        for symbol in symbols:
            if solvable(gap, [s.name for s in symbols if s != symbol]) is None:
                continue
            factor, rest = gap.coefficient(symbol), gap.without((symbol,))
            if any(c % factor for c in (rest.constant, *(c for _, c in rest.terms))):
                continue
            size = Expr(-rest.constant // factor, {v: -c // factor for v, c in rest.terms})
            if size.terms or self._within(symbol.name, size.constant):
                yield {symbol.name: size}

    def _within(self, name: str, number: int) -> bool:
        symbol = self.shapes.symbols[name]
        return symbol.lower <= number and (symbol.upper is None or number <= symbol.upper)


def _cases(size: Size) -> Iterator[Size]:
    """A size with an argument of each minimum and maximum in its place, for each of them."""
    for variable, factor in size.terms:
        if isinstance(variable, Derived) and variable.kind in ("min", "max"):
            for argument in variable.args:
                yield from _cases(size.without((variable,)) + argument * factor)
            return
    yield size


def _cancelled(size: Size) -> Iterator[Relations]:
    """Of quotients, as of all elements by those of the dimensions that are known: symbols of the divisor as symbols
    that are divided."""
    for variable, _ in size.terms:
        if not isinstance(variable, Derived) or variable.kind != "floordiv":
            continue
        above, below = (
            [s for f in factors_of(part) or () for s in symbols_of(f) if f == Expr.of(s)]
            for part in variable.args
        )
        yield from ({b.name: Expr.of(a)} for b in below for a in above if a != b)


def _exact(size: Size) -> Size | None:
    """A size that is 0 where one is whose quotients leave nothing over, as those of features in heads; None for one
    that has no quotients by numbers."""
    quotients = [
        variable
        for variable, _ in size.terms
        if isinstance(variable, Derived) and variable.kind == "floordiv" and not variable.args[1].terms
    ]
    if not quotients:
        return None
    common = lcm(*(variable.args[1].constant for variable in quotients))
    made = size.without(quotients) * common
    for variable in quotients:
        a, by = variable.args
        made += a * (size.coefficient(variable) * (common // by.constant))
    return made


def _without_common(one: Size, other: Size) -> tuple[Size, Size]:
    """Two sizes that are equal where these are: products without the factors that both have."""
    sides = [factors_of(one), factors_of(other)]
    if None in sides:
        return one, other
    left, right = (list(side or ()) for side in sides)
    for factor in list(left):
        if factor in right:
            left.remove(factor)
            right.remove(factor)
    return times(*left), times(*right)


def _is_zero(size: Size, sizes: Mapping[str, int]) -> bool:
    try:
        return evaluate(size, sizes) == 0
    except SizeError:
        return False


def _rank(relation: Relations) -> int:
    """Two names for one size come first, a size that is 0 comes last."""
    sizes = relation.values()
    return 0 if any(s.terms for s in sizes) else 2 if any(not s.constant for s in sizes) else 1


def _composed(known: Relations, more: Relations) -> Relations | None:
    """Relations, and more of what they leave open; None where one would divide by zero."""
    try:
        return {**{name: replaced(size, more) for name, size in known.items()}, **more}
    except SizeError:
        return None
