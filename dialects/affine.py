"""`constant + sum(coefficient * variable)`: the one type for positions, counters and extents, in plain numbers.

A variable is anything that can be hashed. Four kinds are in use:

* an SSA value of type index, in what ops store and in what builders write (`Expr`);
* a number: an axis of a kernel's domain, or an index variable of a kernel (`Expr[int]`);
* a `Symbol`: a dimension that is known only at run time.

The terms of an expression are ordered: numbers first, ascending, then other variables in the order in which they
came, then symbols by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, overload

from typing_extensions import TypeVar
from xdsl.ir import SSAValue

Range = tuple[int, int]
"""Least and greatest value, both included."""

OpenRange = tuple[int | None, int | None]
"""The same; None where there is no bound."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A whole number that is known only at run time: at least `lower`, at most `upper` (None: no bound).

    Two symbols are one variable if name and bounds agree. Raises ValueError for bounds that leave no value.
    """

    name: str
    lower: int = 0
    upper: int | None = None

    def __post_init__(self) -> None:
        if self.upper is not None and self.upper < self.lower:
            raise ValueError(f"the symbol {self.name} has no value from {self.lower} to {self.upper}")

    def __str__(self) -> str:
        return self.name

    def place(self) -> tuple[str, int, bool, int]:
        """What symbols are ordered by: name, then bounds; no upper bound comes last."""
        return self.name, self.lower, self.upper is None, self.upper or 0


V_co = TypeVar("V_co", bound=Hashable, default=SSAValue, covariant=True)
W = TypeVar("W", bound=Hashable)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Lookup(Protocol[T_co]):
    """What gives a value for each variable: a mapping, or a sequence where the variables are numbers from 0 on."""

    def __getitem__(self, variable: Any, /) -> T_co: ...


class Expr(Generic[V_co]):
    """`constant + sum(coefficient * variable)`, immutable. `terms` has (variable, coefficient), ordered as the module
    says; no coefficient is zero and no variable comes twice.

    Two expressions are equal if they have the same constant and the same terms, in any order.
    """

    __slots__ = ("_hash", "constant", "terms")

    constant: int
    terms: tuple[tuple[V_co, int], ...]
    _hash: int

    def __init__(self, constant: int = 0, terms: Mapping[V_co, int] | None = None) -> None:
        """Raises TypeError for a constant or a coefficient that is no whole number."""
        _set_constant(self, constant if type(constant) is int else _whole(constant))
        if not terms:
            _set_terms(self, ())
            return
        pairs = [(v, c if type(c) is int else _whole(c)) for v, c in terms.items()]
        _set_terms(self, _ordered([pair for pair in pairs if _counts(pair[1])]))

    @staticmethod
    def of(variable: W, coefficient: int = 1) -> Expr[W]:
        """`coefficient * variable`. Raises TypeError for a coefficient that is no whole number."""
        if type(coefficient) is not int:
            coefficient = _whole(coefficient)
        return _made(0, ((variable, coefficient),) if _counts(coefficient) else ())

    @staticmethod
    def gathered(constant: int, terms: Iterable[tuple[W, int]]) -> Expr[W]:
        """`constant + sum(coefficient * variable)`, where variables may come more than once."""
        total: dict[W, int] = {}
        for variable, coefficient in terms:
            total[variable] = total.get(variable, 0) + coefficient
        return _made(constant, _ordered([pair for pair in total.items() if _counts(pair[1])]))

    @staticmethod
    def combine(constant: int, parts: Iterable[tuple[int, Expr[W]]]) -> Expr[W]:
        """`constant + sum(factor * expression)`."""
        terms: tuple[tuple[W, int], ...] = ()
        total: dict[W, int] = {}
        for factor, part in parts:
            if not _counts(factor):
                continue
            constant += factor * part.constant
            if not part.terms:
                continue
            if not terms:
                same = type(factor) is int and factor == 1
                terms = part.terms if same else tuple([(v, factor * c) for v, c in part.terms])
                continue
            total = total or dict(terms)
            for variable, coefficient in part.terms:
                total[variable] = total.get(variable, 0) + factor * coefficient
        if total:
            terms = _ordered([pair for pair in total.items() if _counts(pair[1])])
        return _made(constant, terms)

    # -- arithmetic ----------------------------------------------------------------------------------------

    def __add__(self, other: Expr[W] | int) -> Expr[V_co | W]:
        if isinstance(other, Expr):
            if not other.terms:
                return _made(self.constant + other.constant, self.terms)
            if not self.terms:
                return _made(self.constant + other.constant, other.terms)
            return Expr.gathered(self.constant + other.constant, (*self.terms, *other.terms))
        number = _whole_or_none(other)
        return NotImplemented if number is None else _made(self.constant + number, self.terms)

    def __radd__(self, other: int) -> Expr[V_co]:
        return self + other

    def __neg__(self) -> Expr[V_co]:
        return self * -1

    def __sub__(self, other: Expr[W] | int) -> Expr[V_co | W]:
        if isinstance(other, Expr):
            return self + other * -1
        number = _whole_or_none(other)
        return NotImplemented if number is None else _made(self.constant - number, self.terms)

    def __rsub__(self, other: int) -> Expr[V_co]:
        return self * -1 + other

    def __mul__(self, factor: int) -> Expr[V_co]:
        """Raises TypeError for a factor that is no whole number: the product would not be linear."""
        if type(factor) is not int:
            number = None if isinstance(factor, Expr) else _whole_or_none(factor)
            if number is None:
                raise TypeError(f"({self}) times ({factor}) is not linear: the factor must be a whole number")
            factor = number
        if type(factor) is int and factor == 1:
            return self
        if not _counts(factor):
            return _made(0, ())
        return _made(self.constant * factor, tuple([(v, c * factor) for v, c in self.terms]))

    __rmul__ = __mul__

    # -- values --------------------------------------------------------------------------------------------

    def substitute(self, known: Mapping[Any, Expr[W] | int]) -> Expr[V_co | W]:
        """The same with the variables in `known` replaced; the others stay."""
        found = [(c, v, known.get(v)) for v, c in self.terms]
        if all(value is None for *_, value in found):
            return self
        constant, terms = self.constant, list[tuple[V_co | W, int]]()
        for coefficient, variable, value in found:
            if value is None:
                terms.append((variable, coefficient))
            elif isinstance(value, Expr):
                constant += coefficient * value.constant
                terms += [(v, coefficient * c) for v, c in value.terms]
            else:
                constant += coefficient * _whole(value)
        return Expr.gathered(constant, terms)

    def evaluate(self, env: Lookup[T]) -> T:
        """The value where `env` gives the value of each variable: ints, traced integers or arrays of integers (an int
        if no variable is left). What `env` raises for a variable that it does not know goes on to the caller."""
        known: Lookup[Any] = env
        value: Any = self.constant
        for variable, coefficient in self.terms:
            value = value + coefficient * known[variable]
        return value

    @overload
    def span(self: Expr[int | SSAValue], ranges: Lookup[Range]) -> Range: ...

    @overload
    def span(self, ranges: Lookup[Range]) -> OpenRange: ...

    def span(self, ranges: Lookup[Range]) -> OpenRange:
        """Least and greatest value where each variable stays in its range, a symbol within its own bounds; None where
        the expression has no bound."""
        low: int | None = self.constant
        high: int | None = self.constant
        for variable, coefficient in self.terms:
            if type(variable) is Symbol:
                first, last = _ends(variable, coefficient)
                low = None if low is None or first is None else low + first
                high = None if high is None or last is None else high + last
                continue
            first, last = ranges[variable]
            if coefficient < 0:
                first, last = last, first
            low = None if low is None else low + coefficient * first
            high = None if high is None else high + coefficient * last
        return low, high

    def reach(self: Expr[int | SSAValue], counts: Lookup[int]) -> Range:
        """Least and greatest value where variable v takes the values 0 to `counts[v]` - 1."""
        low = high = self.constant
        for variable, coefficient in self.terms:
            far = coefficient * (counts[variable] - 1)
            if far < 0:
                low += far
            else:
                high += far
        return low, high

    # -- parts ---------------------------------------------------------------------------------------------

    @property
    def variables(self) -> tuple[V_co, ...]:
        """The variables, in the order of the terms."""
        return tuple([v for v, _ in self.terms])

    def coefficient(self, variable: Hashable) -> int:
        """How much the value grows with a variable; 0 for one that does not occur."""
        for v, c in self.terms:
            if v == variable:
                return c
        return 0

    def without(self, variables: Collection[Any]) -> Expr[V_co]:
        """The same with the terms of `variables` left out."""
        return _made(self.constant, tuple([t for t in self.terms if t[0] not in variables]))

    def only(self, variables: Collection[Any]) -> Expr[V_co]:
        """The terms of `variables`, without the constant."""
        return _made(0, tuple([t for t in self.terms if t[0] in variables]))

    # -- identity and text ---------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr):
            return NotImplemented
        if self.constant != other.constant or len(self.terms) != len(other.terms):
            return False
        return self.terms == other.terms or (len(self.terms) > 1 and dict(self.terms) == dict(other.terms))

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            terms = self.terms if len(self.terms) < 2 else frozenset(self.terms)
            _set_hash(self, hash((self.constant, terms)))
            return self._hash

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Expr does not change: its {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an Expr does not change: its {name} cannot be deleted")

    def __reduce__(self) -> tuple[object, ...]:
        return Expr, (self.constant, dict(self.terms))

    def write(self, put: Callable[[str], object], put_variable: Callable[[V_co], object]) -> None:
        """Writes the expression as the IR has it, `%i * 128 + %k + -3`: text through `put`, variables through
        `put_variable`."""
        for i, (variable, coefficient) in enumerate(self.terms):
            if i:
                put(" + ")
            put_variable(variable)
            if type(coefficient) is not int:
                put(f' * "{coefficient}"')
            elif coefficient != 1:
                put(f" * {coefficient}")
        constant = str(self.constant) if type(self.constant) is int else f'"{self.constant}"'
        if not self.terms:
            put(constant)
        elif type(self.constant) is not int or self.constant:
            put(f" + {constant}")

    def __str__(self) -> str:
        parts: list[str] = []
        self.write(parts.append, lambda variable: parts.append(_name(variable)))
        return "".join(parts)

    def __repr__(self) -> str:
        return f"Expr({self})"


_set_constant = Expr.__dict__["constant"].__set__
_set_terms = Expr.__dict__["terms"].__set__
_set_hash = Expr.__dict__["_hash"].__set__
_new = object.__new__


def _made(constant: int, terms: tuple[tuple[W, int], ...]) -> Expr[W]:
    """An expression of terms that are in order."""
    made: Any = _new(Expr)
    _set_constant(made, constant)
    _set_terms(made, terms)
    return made


def _ordered(terms: list[tuple[W, int]]) -> tuple[tuple[W, int], ...]:
    """Terms of different variables in their order."""
    if len(terms) > 1:
        kinds = {type(variable) for variable, _ in terms}
        if kinds == _NUMBERS:
            terms.sort()
        elif not kinds.isdisjoint(_SORTED):
            terms.sort(key=_place)
    return tuple(terms)


_NUMBERS = {int}
_SORTED = {int, Symbol}


def _place(term: tuple[Any, int]) -> tuple[Any, ...]:
    """What terms of several kinds of variables are ordered by."""
    variable = term[0]
    if type(variable) is int:
        return 0, variable
    return (2, *variable.place()) if type(variable) is Symbol else (1,)


def _ends(symbol: Symbol, coefficient: int) -> OpenRange:
    """Least and greatest value of `coefficient * symbol`."""
    low = coefficient * symbol.lower
    high = None if symbol.upper is None else coefficient * symbol.upper
    return (low, high) if coefficient > 0 else (high, low)


def _counts(factor: int) -> bool:
    """Whether a term with this factor is one: an open dimension as a factor is never known to be 0."""
    return type(factor) is not int or factor != 0


def _whole_or_none(number: Any) -> int | None:
    """A whole number of any type as an int; None for anything else, traced numbers included. An open dimension
    (open_sizes.py) stays what it is: it is whole."""
    if getattr(number, "OPEN", False):
        return number
    try:
        return operator.index(number)
    except TypeError:
        return None


def _whole(number: Any) -> int:
    """A whole number of any type as an int. Raises TypeError for anything else."""
    found = _whole_or_none(number)
    if found is None:
        raise TypeError(f"an Expr has whole numbers as constant and coefficients, not ({number})")
    return found


def _name(variable: object) -> str:
    """A variable as text: an SSA value as the IR has it (`%?` where it has no name), a number as `#3`."""
    if isinstance(variable, SSAValue):
        return f"%{variable.name_hint or '?'}"
    return f"#{variable}" if type(variable) is int else str(variable)
