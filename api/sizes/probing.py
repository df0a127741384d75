"""Sources that cannot be traced with open sizes: whether they can be with numbers in the place of these.

What is undecided of open sizes in general, `If(n > 4)` or whether two of them are equal, is decided of numbers. So a
source is wrong only where it cannot be traced with numbers either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from ...dialects.sizes import Sizes
from ...passes.errors import CompileError
from .shapes import OpenShapes

EQUAL = (4, 3, 8, 2, 64, 1, 7, 16, 0)
"""Numbers that all sizes are, one after the other."""

MOST_SAID = 6
"""Numbers, and sizes, of an error that are tried."""

APART = (3, 2, 4, 5)
"""Numbers of sizes that are not equal."""


def sizes_to_try(shapes: OpenShapes, said: str = "") -> Iterator[Sizes]:
    """Small sizes that a program takes: all equal first; then one that is the sum of the others, one more, one less,
    twice as large; then all apart; then sizes that an error speaks of as numbers in it. said: what the error says."""
    names, seen = list(shapes.symbols), set[tuple[int, ...]]()
    for numbers in chain(_numbers(len(names)), _said(names, said)):
        bounds = zip(numbers, shapes.symbols.values(), strict=True)
        within = tuple(max(s.lower, n if s.upper is None else min(n, s.upper)) for n, s in bounds)
        sizes = dict(zip(names, within, strict=True))
        if within not in seen and shapes.allows(sizes):
            seen.add(within)
            yield sizes


def _numbers(count: int) -> Iterator[tuple[int, ...]]:
    for n in EQUAL:
        yield (n,) * count
    if count < 2:
        return
    apart = [APART[i % len(APART)] + i // len(APART) * len(APART) for i in range(count)]
    for i in range(count):
        others = [n for k, n in enumerate(apart) if k != i]
        yield tuple(sum(others) if k == i else n for k, n in enumerate(apart))
        for n in (5, 3, 8, 1):
            yield tuple(n if k == i else 4 for k in range(count))
    yield tuple(apart)


def _said(names: Sequence[str], text: str) -> Iterator[tuple[int, ...]]:
    """Sizes that a text speaks of as the numbers in it: a dimension that meets one of 32 has to be 32."""
    numbers = list(dict.fromkeys(int(n) for n in re.findall(r"\b\d{1,6}\b", text)))[:MOST_SAID]
    wanted = [name for name in names if re.search(rf"\b{re.escape(name)}\b", text)][:MOST_SAID]
    for number in numbers:
        yield (number,) * len(names)
        for name in wanted:
            yield tuple(number if n == name else EQUAL[0] for n in names)


def why_undecided(error: Exception, shapes: OpenShapes, trace: Callable[[Sizes], object]) -> str | None:
    """Why a source is not traced with open sizes, which `error` says; None where it is an error whatever the sizes are.
    trace: traces it with numbers."""
    said = first_line(error)
    failed = 0
    for sizes in sizes_to_try(shapes, str(error)):
        try:
            trace(sizes)
        except CompileError:
            raise
        except Exception as other:  # what the source raises, and what JAX says of it
            failed += first_line(other) == said
            if failed > 1:  # it is not about sizes
                return None
        else:
            return said
    return said if is_inconclusive(error) else None


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def is_inconclusive(error: BaseException | None) -> bool:
    """Whether JAX, or a rule that was traced, asked what is open."""
    from jax.errors import InconclusiveDimensionOperation

    while error is not None:
        if isinstance(error, InconclusiveDimensionOperation):
            return True
        error = error.__cause__
    return False
