"""Dimensions that are known only at run time: expressions of named sizes, and what must hold of these.

A size is an `Expr` over `Symbol`s and over terms that are not linear in them (`Derived`: products, quotients,
remainders, maxima, minima), so `8*s + floordiv(b, 2)` is a constant plus a sum of coefficients times variables like
every other expression. Text is that of `jax.export.symbolic_shape`, and of Python: `//` is `floordiv`, `%` is `mod`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import combinations, product
from math import gcd, inf, prod
from typing import Literal, TypeAlias

from .affine import Expr, OpenRange, Symbol

LARGEST = 1 << 40
"""The largest size of a dimension, and of an input in elements, far beyond any memory: what follows from it is still
computed exactly."""

Kind = Literal["mul", "floordiv", "mod", "max", "min"]


class SizeError(ValueError):
    """A text that is no size or constraint, or a size that has no value."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What is computed from sizes and is not linear in them: the `kind` of its arguments."""

    kind: Kind
    args: tuple[Size, ...]

    def __str__(self) -> str:
        if self.kind == "mul":
            return "*".join(size_text(a) if _is_atom(a) else f"({size_text(a)})" for a in self.args)
        return f"{self.kind}({', '.join(map(size_text, self.args))})"


Size: TypeAlias = "Expr[Symbol | Derived]"
Sizes = Mapping[str, int]
"""The value of each symbol, by its name."""

_EVALUATE: dict[Kind, Callable[..., int]] = {
    "mul": lambda *args: prod(args),
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}


def fixed(number: int) -> Size:
    """A size that is known."""
    return Expr(number)


def times(*factors: Size) -> Size:
    """The product of sizes, multiplied out."""
    return reduce(_times, factors, Expr(1))


def _times(a: Size, b: Size) -> Size:
    if not a.terms:
        return b * a.constant
    if not b.terms:
        return a * b.constant
    pairs = product([*a.terms, (None, a.constant)], [*b.terms, (None, b.constant)])
    return Expr.combine(0, [(x * y, _joined(u, v)) for (u, x), (v, y) in pairs])


def _joined(u: Symbol | Derived | None, v: Symbol | Derived | None) -> Size:
    """The product of two variables, or of one and nothing."""
    factors = [f for one in (u, v) if one is not None for f in _factors(one)]
    if not factors:
        return Expr(1)
    if len(factors) == 1:
        return Expr.of(factors[0])
    ordered = sorted(factors, key=str)
    return Expr.of(Derived("mul", tuple(Expr.of(f) for f in ordered)))


def _factors(variable: Symbol | Derived) -> list[Symbol | Derived]:
    if isinstance(variable, Derived) and variable.kind == "mul":
        return [argument.terms[0][0] for argument in variable.args]
    return [variable]


def factors_of(size: Size) -> list[Size] | None:
    """The factors of a product of sizes, a number among them; None for a sum."""
    if size.constant or len(size.terms) != 1:
        return None
    ((variable, coefficient),) = size.terms
    found: list[Size] = [Expr.of(f) for f in _factors(variable)]
    return found if coefficient == 1 else [*found, fixed(coefficient)]


def floordiv(a: Size, b: Size) -> Size:
    """The quotient, rounded down. Raises SizeError for division by zero."""
    if not b.terms and not b.constant:
        raise SizeError("a size is divided by zero")
    if not a.terms and not b.terms:
        return Expr(a.constant // b.constant)
    if not b.terms:
        n = b.constant  # (q * n + rest) // n = q + rest // n
        whole = Expr(a.constant // n, {v: c // n for v, c in a.terms if not c % n})
        rest = Expr(a.constant % n, {v: c for v, c in a.terms if c % n})
        if not rest.terms:
            return whole
        common = gcd(n, *(c for _, c in rest.terms))  # (g*q + r) // (g*m) = (q + r // g) // m
        rest = Expr(rest.constant // common, {v: c // common for v, c in rest.terms})
        return whole + _settled(Derived("floordiv", (rest, Expr(n // common))))
    if a == b:
        return Expr(1)
    if a == b * -1:
        return Expr(-1)
    return _settled(Derived("floordiv", (a, b)))


def _settled(made: Derived) -> Size:
    """What is computed of sizes, or the only number that their bounds leave it."""
    size = Expr.of(made)
    low, high = bounds(size)
    return Expr(low) if low is not None and low == high else size


def ceildiv(a: Size, b: Size) -> Size:
    """The quotient, rounded up. Raises SizeError for division by zero."""
    return floordiv(a * -1, b) * -1


def mod(a: Size, b: Size) -> Size:
    """The remainder of `floordiv`, of the sign of `b`. Raises SizeError for division by zero."""
    if not b.terms and b.constant:
        a = Expr(a.constant % b.constant, {v: c % b.constant for v, c in a.terms})
        if not a.terms:
            return Expr(a.constant % b.constant)
    if not b.terms and not b.constant:
        raise SizeError("a size is divided by zero")
    return Expr(0) if a == b else _settled(Derived("mod", (a, b)))


def maximum(*args: Size) -> Size:
    """The largest of sizes."""
    return _extreme("max", args)


def minimum(*args: Size) -> Size:
    """The smallest of sizes."""
    return _extreme("min", args)


def _extreme(kind: Literal["max", "min"], args: Sequence[Size]) -> Size:
    choose = max if kind == "max" else min
    numbers = [a.constant for a in args if not a.terms]
    open_ = list(dict.fromkeys(a for a in args if a.terms))
    kept = [*open_, *([Expr(choose(numbers))] if numbers else [])]
    if len(kept) > 1:
        for a in tuple(kept):  # one after the other, since two may beat each other
            if any(b is not a and _beaten(kind, a, b) for b in kept):
                kept.remove(a)
    return kept[0] if len(kept) == 1 else Expr.of(Derived(kind, tuple(sorted(kept, key=str))))


def _beaten(kind: Literal["max", "min"], a: Size, b: Size) -> bool:
    """Whether `b` is always the more extreme of two different sizes."""
    low, high = bounds(a - b)
    return (high is not None and high <= 0) if kind == "max" else (low is not None and low >= 0)


_MAKE: dict[Kind, Callable[..., Size]] = {
    "mul": times,
    "floordiv": floordiv,
    "mod": mod,
    "max": maximum,
    "min": minimum,
}


def replaced(size: Size, known: Mapping[str, Size]) -> Size:
    """A size with other sizes in the place of symbols, by name; those that are not in `known` stay. Raises SizeError
    for division by zero."""
    parts: list[tuple[int, Size]] = []
    for variable, coefficient in size.terms:
        if isinstance(variable, Symbol):
            parts.append((coefficient, known.get(variable.name, Expr.of(variable))))
        else:
            parts.append((coefficient, _MAKE[variable.kind](*(replaced(a, known) for a in variable.args))))
    return Expr.combine(size.constant, parts)


def symbols_of(size: Size) -> tuple[Symbol, ...]:
    """The symbols that a size depends on, by name."""
    found: dict[Symbol, None] = {}
    for variable in size.variables:
        inner = (
            (variable,) if isinstance(variable, Symbol) else [s for a in variable.args for s in symbols_of(a)]
        )
        found |= dict.fromkeys(inner)
    return tuple(sorted(found, key=Symbol.place))


def evaluate(size: Size, sizes: Sizes) -> int:
    """The value of a size. Raises SizeError for one that divides by zero, KeyError for a symbol without a value."""
    total = size.constant
    for variable, coefficient in size.terms:
        total += coefficient * _value(variable, sizes)
    return total


def _value(variable: Symbol | Derived, sizes: Sizes) -> int:
    if isinstance(variable, Symbol):
        return sizes[variable.name]
    try:
        return _EVALUATE[variable.kind](*(evaluate(a, sizes) for a in variable.args))
    except ZeroDivisionError:
        raise SizeError(f"{variable} divides by zero") from None


MOST_QUOTIENTS = 4
"""Quotients of a size that are replaced by their dividends in all combinations; of more, one at a time."""


@lru_cache(1 << 14)
def bounds(size: Size) -> OpenRange:
    """Bounds of a size, from those of its symbols; None where there is none. They need not be the tightest."""
    low, high = _bounds_of_sum(size)
    quotients = [(v, c) for v, c in size.terms if _takes_dividend(v, c)]
    most = len(quotients) if len(quotients) <= MOST_QUOTIENTS else 1
    for count in range(1, most + 1):
        for chosen in combinations(quotients, count):
            first, last = _bounds_by_rest(size, chosen)
            low = first if low is None else low if first is None else max(low, first)
            high = last if high is None else high if last is None else min(high, last)
    return low, high


def _bounds_of_sum(size: Size) -> OpenRange:
    """Bounds of a size of which each term is taken for itself."""
    low: int | None = size.constant
    high: int | None = size.constant
    for variable, coefficient in size.terms:
        first, last = _bounds_of(variable)
        if coefficient < 0:
            first, last = last, first
        low = None if low is None or first is None else low + coefficient * first
        high = None if high is None or last is None else high + coefficient * last
    return low, high


def _takes_dividend(variable: Symbol | Derived, coefficient: int) -> bool:
    """Whether so many of a variable are a multiple of a dividend, less a rest."""
    if not isinstance(variable, Derived) or variable.kind != "floordiv":
        return False
    divisor = variable.args[1]
    return not divisor.terms and divisor.constant > 0 and coefficient % divisor.constant == 0


def _bounds_by_rest(size: Size, quotients: Sequence[tuple[Symbol | Derived, int]]) -> OpenRange:
    """Bounds of a size in which dividends take the places of quotients: `n - 2*floordiv(n, 2)` is 0 or 1."""
    least = most = 0
    for quotient, coefficient in quotients:
        assert isinstance(quotient, Derived)
        dividend, divisor = quotient.args
        times_ = coefficient // divisor.constant
        size = size - Expr.of(quotient) * coefficient + dividend * times_
        gone = times_ * (divisor.constant - 1)  # at most, as the rest of the division is
        least, most = least - max(gone, 0), most - min(gone, 0)
    low, high = _bounds_of_sum(size)
    return (None if low is None else low + least), (None if high is None else high + most)


def _bounds_of(variable: Symbol | Derived) -> OpenRange:
    if isinstance(variable, Symbol):
        return variable.lower, variable.upper
    ranges = [bounds(a) for a in variable.args]
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
    known_lows, known_highs = [n for n in lows if n is not None], [n for n in highs if n is not None]
    match variable.kind:
        case "max":
            whole = len(known_highs) == len(highs)
            return max(known_lows, default=None), max(known_highs) if whole else None
        case "min":
            whole = len(known_lows) == len(lows)
            return min(known_lows) if whole else None, min(known_highs, default=None)
        case "mul":
            return _product_bounds(ranges)
        case "mod":
            divisor_low, divisor_high = ranges[1]
            if divisor_low is None or divisor_low <= 0:
                return None, None
            tops = [n for n in (None if divisor_high is None else divisor_high - 1,) if n is not None]
            if lows[0] is not None and lows[0] >= 0:
                tops += [n for n in (highs[0],) if n is not None]
            return 0, min(tops, default=None)
        case "floordiv":
            low, high = ranges[1]
            if low is None or low <= 0:
                return None, None
            ends = [low] if high is None else [low, high]
            first = None if lows[0] is None else min(lows[0] // n for n in ends) if high or lows[0] < 0 else 0
            if highs[0] is None:
                return first, None
            return first, max(*(highs[0] // n for n in ends), -1 if high is None else highs[0] // low)


def _product_bounds(ranges: Sequence[OpenRange]) -> OpenRange:
    """Bounds of a product of what is within these bounds."""
    low, high = 1.0, 1.0
    for first, last in ranges:
        ends = (-inf if first is None else first, inf if last is None else last)
        corners = [0.0 if 0 in (a, b) else a * b for a in (low, high) for b in ends]
        low, high = min(corners), max(corners)
    return (None if low == -inf else int(low)), (None if high == inf else int(high))


# -- text --------------------------------------------------------------------------------------------------

_BINARY: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: _times,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}
_CALLS: dict[str, Callable[..., Size]] = {
    "floordiv": floordiv,
    "mod": mod,
    "max": maximum,
    "min": minimum,
    "ceildiv": ceildiv,
}


def size_text(size: Size) -> str:
    """A size as people write it: `8*s + 1`."""
    parts: list[str] = []
    for variable, coefficient in size.terms:
        number = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
        up = _rounded_up(variable) if coefficient < 0 else None
        parts += [" + ", f"{number}{up}"] if up else [" - " if coefficient < 0 else " + ", f"{number}{variable}"]
    if size.constant or not parts:
        parts += [" - " if size.constant < 0 else " + ", str(abs(size.constant))]
    sign = "-" if parts[0] == " - " else ""
    return sign + "".join(parts[1:])


def _rounded_up(variable: Symbol | Derived) -> str | None:
    """The negative of a variable as `ceildiv(a, b)`, where it is `floordiv(-a, b)`."""
    if isinstance(variable, Symbol) or variable.kind != "floordiv" or variable.args[0].constant > 0:
        return None
    if any(coefficient > 0 for _, coefficient in variable.args[0].terms):
        return None
    return f"ceildiv({size_text(variable.args[0] * -1)}, {size_text(variable.args[1])})"


def _is_atom(size: Size) -> bool:
    return not size.constant and len(size.terms) == 1 and size.terms[0][1] == 1


Names = Mapping[str, "Symbol | int | Size"]
"""What the names in a text stand for: symbols, numbers where they are known, other sizes."""


def parse_size(text: str, symbols: Names) -> Size:
    """The size that a text says, of these names. Raises SizeError."""
    return _size_of(_parsed(text).body, text, symbols)


def _parsed(text: str) -> ast.Expression:
    """Powers are written `n^2` by JAX. Raises SizeError."""
    try:
        return ast.parse(text.strip().replace("^", "**"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SizeError(f"{text!r} is no size: write it as in 8*s + 1 or floordiv(b, 2)") from None


def names_in(text: str) -> set[str]:
    """The names of symbols in the text of a size or of a constraint. Raises SizeError for a text that is none."""
    tree = _parsed(text)
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - called


def _size_of(node: ast.expr, text: str, symbols: Names) -> Size:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return Expr(number)
        case ast.Name(id=name):
            if name not in symbols:
                raise SizeError(f"there is no symbol {name}, which {text.strip()!r} has; {_listed(symbols)}")
            known = symbols[name]
            if isinstance(known, Expr):
                return known
            return Expr(known) if isinstance(known, int) else Expr.of(known)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _size_of(inner, text, symbols) * -1
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            return times(*[_size_of(left, text, symbols)] * _power(power, text))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_size_of(left, text, symbols), _size_of(right, text, symbols))
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as args, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_size_of(a, text, symbols) for a in args))
        case _:
            raise SizeError(f"{text!r} is no size: write it as in 8*s + 1 or floordiv(b, 2)")


def _power(power: int, text: str) -> int:
    if not 0 <= power <= 8:
        raise SizeError(f"{text!r} has a power of {power}: sizes have powers from 0 to 8")
    return power


def _listed(symbols: Names) -> str:
    names = ", ".join(symbols)
    return f"there {'are' if len(symbols) > 1 else 'is'} {names}" if names else "there is none"


# -- constraints -------------------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True)
class Constraint:
    """What must hold of sizes: `left` compared with `right`."""

    left: Size
    compare: str
    right: Size

    def __str__(self) -> str:
        return f"{size_text(self.left)} {self.compare} {size_text(self.right)}"

    def holds(self, sizes: Sizes) -> bool:
        """Whether it holds for these sizes. Raises SizeError where one divides by zero."""
        return _COMPARE[self.compare](evaluate(self.left, sizes), evaluate(self.right, sizes))

    def met_by(self, sizes: Sizes) -> bool:
        """Whether it holds for these sizes; it does not where one divides by zero."""
        try:
            return self.holds(sizes)
        except SizeError:
            return False

    def always(self) -> bool | None:
        """Whether it holds for all sizes within the bounds of the symbols, or for none; None where that is open."""
        if self.compare == "!=":
            equal = replace(self, compare="==").always()
            return None if equal is None else not equal
        low, high = bounds(self.left - self.right)
        least = low is not None and (low > 0 if self.compare in (">", "<=", "==") else low >= 0)
        most = high is not None and (high < 0 if self.compare in ("<", ">=", "==") else high <= 0)
        match self.compare:
            case ">" | ">=":
                return True if least else False if most else None
            case "<" | "<=":
                return True if most else False if least else None
            case _:
                return True if low == high == 0 else False if least or most else None

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols of which it says something."""
        return tuple(dict.fromkeys([*symbols_of(self.left), *symbols_of(self.right)]))


def parse_constraint(text: str, symbols: Names) -> Constraint:
    """The constraint that a text says, as `s <= 2048` or `mod(s, 8) == 0`. Raises SizeError."""
    for compare in _COMPARE:  # the longer ones first
        left, found, right = text.partition(compare)
        if found:
            return Constraint(parse_size(left, symbols), compare, parse_size(right, symbols))
    raise SizeError(f"{text!r} is no constraint: write it as in s <= 2048 or mod(s, 8) == 0")


def parse_guard(text: str, symbols: Names) -> tuple[Constraint, ...]:
    """The constraints that a text joins by `and`: `s <= 512 and mod(s, 64) == 0`. Raises SizeError."""
    return tuple(parse_constraint(part, symbols) for part in re.split(r"\band\b", text))


def bounded(symbols: Mapping[str, Symbol], constraints: Sequence[Constraint]) -> dict[str, Symbol]:
    """Symbols with the bounds that constraints of one symbol each say: `s <= 2048`, `2*s + 1 >= 9`. Raises SizeError
    where none is left."""
    low = {name: s.lower for name, s in symbols.items()}
    high = {name: s.upper for name, s in symbols.items()}
    for constraint in constraints:
        gap = constraint.left - constraint.right
        if len(gap.terms) != 1 or not isinstance(gap.variables[0], Symbol):
            continue
        name, factor = gap.variables[0].name, gap.terms[0][1]
        compare = _TURNED[constraint.compare] if factor < 0 else constraint.compare
        # factor * s + constant `compare` 0, with the sign of the factor turned
        limit, factor = (gap.constant, -factor) if factor < 0 else (-gap.constant, factor)
        if compare in (">=", ">", "=="):
            low[name] = max(low[name], limit // factor + 1 if compare == ">" else -(-limit // factor))
        if compare in ("<=", "<", "=="):
            top = -(-limit // factor) - 1 if compare == "<" else limit // factor
            known = high[name]
            high[name] = top if known is None else min(known, top)
    out: dict[str, Symbol] = {}
    for name in symbols:
        try:
            out[name] = Symbol(name, low[name], high[name])
        except ValueError as error:
            raise SizeError(str(error)) from None
    return out


_TURNED = {"==": "==", "!=": "!=", "<=": ">=", ">=": "<=", "<": ">", ">": "<"}
