"""What a whole program is better with than what the price takes: alternatives of the compiler that are left out, and
decisions about a few fusions (passes/decisions.py).

graph-schedule judges both by the price of the fusions that they are about. Here whole programs are compiled with one
change more than the best one so far, and simulated: those decisions first that the price is least sure of; and then
with what good programs have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from math import isfinite

import numpy as np

from ..kernels.space import PlanNumber, PlanSpace
from ..passes.alternatives import FUSION
from ..passes.decisions import Decision
from .kernel_search import BETTER
from .search.exact import Plan
from .search.sampled import GeneticSearch

MOST_OPTIONS = 3
"""Options of a decision that are tried beside what the price takes, at most: those nearest to it."""


@dataclass(frozen=True)
class Whole:
    """What of a program is otherwise. without: the alternatives that are left out; decided: options of decisions, by
    their keys."""

    without: tuple[str, ...] = ()
    decided: tuple[tuple[str, str], ...] = ()

    @property
    def said(self) -> str:
        """In a few words."""
        left_out = f"without {', '.join(self.without)}" if self.without else "with all alternatives"
        return f"{left_out}, {len(self.decided)} decisions otherwise" if self.decided else left_out


@dataclass(frozen=True)
class WholeFound:
    """best: what the program is best with; value: of that; tried: how many programs were compiled."""

    best: Whole
    value: float
    tried: int


def best_whole(
    names: Sequence[str],
    decisions: Sequence[Decision],
    judge: Callable[[Whole], float],
    most: int,
    now: float,
    seed: int = 0,
) -> WholeFound:
    """Which of these alternatives, but fusion as such, a program is best without, and which decisions it is best with.

    judge: what is to be least of a program, infinity where it cannot be compiled; most: how many programs are compiled;
    now: the value of the one that is there.
    """
    considered = [name for name in names if name != FUSION]
    options = {d.key: _nearest_options(d) for d in decisions}
    choices = [PlanNumber(name, (False, True)) for name in considered]
    choices += [PlanNumber(key, tried) for key, tried in options.items()]
    space = PlanSpace(tuple(choices))

    def whole(plan: Plan) -> Whole:
        values = space.values(plan)
        numbers = zip(options, plan[len(considered) :], strict=True)
        decided = tuple((key, values[key]) for key, number in numbers if number)
        return Whole(tuple(name for name in considered if values[name]), decided)

    search = GeneticSearch(space, seed)
    best: Plan = (0,) * len(choices)
    least, tried = now, 0
    search.tell(np.array([best], np.int64), [now])
    losses = sorted(
        (d.loss(name), at, number)
        for at, d in enumerate(decisions, len(considered))
        for number, name in enumerate(options[d.key])
        if number
    )
    left_out = ((at, 1) for at in range(len(considered)))
    changes = zip_longest(left_out, ((at, number) for _, at, number in losses))

    def proposed() -> Iterator[Plan]:
        for at, number in filter(None, chain.from_iterable(changes)):
            yield (*best[:at], number, *best[at + 1 :])
        while len(plans := search.ask(1)):
            yield tuple(plans[0].tolist())

    for plan in proposed():
        if tried >= most:
            break
        if plan in search.told:
            continue
        value = judge(whole(plan))
        search.tell(np.array([plan], np.int64), [value])
        tried += 1
        if isfinite(value) and value < least * BETTER:
            best, least = plan, value
    return WholeFound(whole(best), least, tried)


def _nearest_options(decision: Decision) -> tuple[str, ...]:
    """The default, and the options whose price is nearest to its."""
    others = [name for name, _ in decision.options if name != decision.default]
    return decision.default, *sorted(others, key=decision.loss)[:MOST_OPTIONS]
