"""A plan of memory for all sizes, made of one for an example: which tensor lies below which, and no numbers.

Of two tensors that are needed at one time, the plan of the example says which lies below the other. A tensor begins
where the highest of those below it ends: at the largest of some sizes, whatever the sizes are. So no two of them share
a byte, and at the example the places are those of its plan, or lower ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Protocol

import numpy as np

from ...dialects.affine import Expr
from ...dialects.open_sizes import example_sizes
from ...dialects.size_order import at_most
from ...dialects.sizes import Size, Sizes, evaluate, maximum, symbols_of
from ..errors import PassError

MOST_FORMS = 16
"""Sums of sizes that a place is the largest of. More of them are slower to put numbers in than a plan is to make."""


class NoOpenPlan(PassError):
    """There is no plan of memory for all sizes at once; there is one for each."""


class Lifetime(Protocol):
    """When a tensor is needed: from the op numbered `first` to `last`, both included."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


Form = tuple[Size, tuple[int, ...]]
"""A sum of sizes, and what it is at some samples."""


def stacked(lives: Sequence[Lifetime], places: Sequence[int], sizes: Sequence[Size]) -> tuple[list[Size], Size]:
    """Places for all sizes, in bytes, of tensors that have given places at the example; and the end of the last.

    sizes: theirs in bytes, aligned and at least 1 at all values. Raises NoOpenPlan for a place that is the largest of
    more than MOST_FORMS.
    """
    samples = _samples(sizes)
    first, last = (np.array([getattr(life, n) for life in lives], np.int64) for n in ("first", "last"))
    at = np.array(places, np.int64)
    values = [tuple(evaluate(size, sample) for sample in samples) for size in sizes]
    bottom: Form = (Expr(0), (0,) * len(samples))
    found: list[Size] = [Expr(0)] * len(lives)
    ends: list[list[Form]] = [[] for _ in lives]
    for i in np.argsort(at, kind="stable").tolist():
        below = np.flatnonzero((at < at[i]) & (first <= last[i]) & (last >= first[i])).tolist()
        begins = highest(form for j in below for form in ends[j]) if below else [bottom]
        found[i] = joined([size for size, _ in begins])
        ends[i] = [(form + sizes[i], tuple(map(sum, zip(v, values[i], strict=True)))) for form, v in begins]
    top = highest(form for forms in ends for form in forms) if lives else [bottom]
    return found, joined([size for size, _ in top])


def highest(forms: Iterable[Form]) -> list[Form]:
    """Those of some sums that are not at most another of them at all sizes. Raises NoOpenPlan for too many."""
    kept: list[Form] = []
    for size, values in sorted(dict(forms).items(), key=lambda form: -sum(form[1])):
        if not any(
            all(a >= b for a, b in zip(others, values, strict=True)) and at_most(size, other)
            for other, others in kept
        ):
            kept.append((size, values))
            if len(kept) > MOST_FORMS:
                raise NoOpenPlan(
                    f"a tensor's place in device memory is the largest of more than {MOST_FORMS} sums of sizes"
                )
    return kept


def joined(sums: Sequence[Size]) -> Size:
    """The largest of some sums, in which what is in all of them stands once: `512*t + max(a, b)`."""
    common = set.intersection(*(set(size.terms) for size in sums))
    shared = Expr(min(size.constant for size in sums), dict(common))
    return shared + maximum(*(size - shared for size in sums))


def _samples(sizes: Sequence[Size]) -> list[Sizes]:
    """The example, and the ends of the ranges of the symbols in all combinations."""
    symbols = sorted({s for size in dict.fromkeys(sizes) for s in symbols_of(size)}, key=lambda s: s.place())
    example = {s.name: example_sizes()[s.name] for s in symbols}
    ends = [dict.fromkeys((s.lower, example[s.name] if s.upper is None else s.upper)) for s in symbols]
    corners = product(*ends) if len(symbols) <= 6 else ()
    return [example, *(dict(zip(example, corner, strict=True)) for corner in corners)]
