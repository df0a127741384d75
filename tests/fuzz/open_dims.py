"""Open dimensions of random programs: their text, their symbols with bounds and constraints, and sizes to call with."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import export

Sizes = Mapping[str, int]


def floordiv(a: Any, b: Any) -> Any:
    """The quotient of sizes, as JAX's text of dimensions has it."""
    return a // b


def mod(a: Any, b: Any) -> Any:
    """The remainder of sizes."""
    return a % b


def most(*sizes: Any) -> Any:
    """The largest of sizes, which may be symbolic."""
    return functools.reduce(jax.core.max_dim, sizes)


def least(*sizes: Any) -> Any:
    """The smallest of sizes, which may be symbolic."""
    return functools.reduce(jax.core.min_dim, sizes)


LANGUAGE: dict[str, Any] = {"floordiv": floordiv, "mod": mod, "max": most, "min": least}
"""What the text of a dimension may call."""


class Open(int):
    """A dimension that is an expression of symbols. Its text takes its place in programs; as an int it is its value at
    the least sizes, so that what is chosen below it is there at every size. It equals dimensions of the same text."""

    text: str
    dim: Any
    """JAX's symbolic dimension."""

    def __new__(cls, text: str, dim: Any, lowest: Sizes) -> Open:
        made = super().__new__(cls, value_of(text, lowest))
        made.text, made.dim = text, dim
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Open) and other.text == self.text

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return self.text


def value_of(text: str, sizes: Sizes) -> int:
    """The value of a dimension or a constraint at given sizes."""
    return _compiled(text)(dict(sizes))


@functools.cache
def _compiled(text: str) -> Callable[[dict[str, int]], int]:
    code = compile(text.strip(), "<dimension>", "eval")
    return lambda sizes: eval(code, {"floordiv": floordiv, "mod": mod, "max": max, "min": min, **sizes})


def at(number: int, sizes: Sizes) -> int:
    """A dimension at given sizes."""
    return value_of(number.text, sizes) if isinstance(number, Open) else number


@dataclass(frozen=True)
class Symbols:
    """The open sizes of a program. bounds: the least size of each and the largest, None where there is none; more: what
    else must hold of them, in JAX's language."""

    bounds: Mapping[str, tuple[int, int | None]]
    more: tuple[str, ...]

    @property
    def lowest(self) -> dict[str, int]:
        return {name: low for name, (low, _) in self.bounds.items()}

    @property
    def constraints(self) -> tuple[str, ...]:
        """What `jax.export.SymbolicScope` takes."""
        lows = [f"{n} >= {low}" for n, (low, _) in self.bounds.items() if low > 1]
        highs = [f"{n} <= {high}" for n, (_, high) in self.bounds.items() if high is not None]
        return (*lows, *highs, *self.more)

    def symbolic(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """JAX's dimensions for texts, all of one scope."""
        return tuple(export.symbolic_shape(", ".join(texts), scope=export.SymbolicScope(self.constraints)))

    def allows(self, sizes: Sizes) -> bool:
        within = all(low <= sizes[n] <= (high or sizes[n]) for n, (low, high) in self.bounds.items())
        return within and all(value_of(c, sizes) for c in self.more)


def random_symbols(rng: random.Random) -> Symbols:
    """One to three symbols, some with bounds, some with a constraint."""
    names = ("b", "s", "t")[: rng.choice((1, 1, 2, 2, 2, 3))]
    bounds: dict[str, tuple[int, int | None]] = {
        n: (rng.choice((1, 1, 1, 2, 4, 5, 8)), rng.choice((None, None, None, 16, 40, 64, 100))) for n in names
    }
    chosen, other = rng.choice(names), rng.choice(names)
    more: tuple[str, ...] = ()
    if rng.random() < 0.2:
        more = (f"mod({chosen}, {rng.choice((2, 4))}) == 0",)
    elif rng.random() < 0.15 and chosen != other and bounds[chosen][0] <= bounds[other][0]:
        more = (f"{other} >= {chosen}",)
    return Symbols(bounds, more)


PRIMES = (2, 3, 5, 7, 11, 13, 17, 23, 31, 37, 53, 61, 67, 89, 101, 113, 127)
POWERS = (1, 2, 4, 8, 16, 32, 64, 128)
CALLS = 3
"""Sizes at which a program is called."""


def random_sizes(
    rng: random.Random, symbols: Symbols, largest: Callable[[Sizes], int], room: int
) -> tuple[dict[str, int], ...]:
    """Sizes to call a program with: ends of ranges, 1, primes; the second is in the range of the first (33 to 64).
    largest: the elements of the largest value at given sizes, which `room` limits."""
    made: list[dict[str, int]] = []
    for tries in range(400):
        if len(made) == CALLS:
            break
        cap = max(160 >> (tries // 60), 2)
        sizes = {n: _size(rng, low, high, cap) for n, (low, high) in symbols.bounds.items()}
        if len(made) == 1 and tries % 4:
            sizes = {n: _near(rng, value, *symbols.bounds[n]) for n, value in made[0].items()}
        if symbols.allows(sizes) and sizes not in made and largest(sizes) <= room:
            made.append(sizes)
    return tuple(made)


def _size(rng: random.Random, low: int, high: int | None, cap: int) -> int:
    top = max(low, min(high or cap, cap))
    kind = rng.random()
    if kind < 0.3:
        value = rng.choice(POWERS) + rng.choice((0, 1, -1))
    elif kind < 0.55:
        value = rng.choice(PRIMES)
    elif kind < 0.7:
        value = rng.choice((low, top))
    else:
        value = rng.randint(low, top)
    return min(max(value, low), top)


def _near(rng: random.Random, value: int, low: int, high: int | None) -> int:
    """Another size between the same powers of two, which one program is compiled for."""
    if value <= 2:
        return value
    power = 1 << (value - 1).bit_length()
    first, last = max(power // 2 + 1, low), min(power, high or power)
    return rng.choice((first, last, rng.randint(first, max(first, last))))
