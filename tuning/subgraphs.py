"""Which alternatives a whole program is faster without: what joins, where it is cut, which layouts tensors have.

graph-schedule judges each alternative by the price of the few fusions that it is about. Here whole programs are
compiled without some of them, and simulated: first without each one, then without what good programs are without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite

import numpy as np

from ..kernels.space import Choice, PlanSpace
from ..passes.alternatives import FUSION
from .kernel_search import BETTER
from .search.exact import Plan
from .search.sampled import GeneticSearch


@dataclass(frozen=True)
class WithoutFound:
    """without: the alternatives that are left out; microseconds: what the program takes so; tried: how many programs
    were compiled."""

    without: tuple[str, ...]
    microseconds: float
    tried: int


def faster_without(
    names: Sequence[str], judge: Callable[[tuple[str, ...]], float], most: int, now: float, seed: int = 0
) -> WithoutFound:
    """The alternatives of these, but fusion as such, without which a program takes least.

    judge: microseconds of the program without some, infinity where it cannot be compiled; most: how many programs are
    compiled; now: what it takes with all of them.
    """
    considered = [name for name in names if name != FUSION]
    space = PlanSpace(tuple(Choice(name, (False, True)) for name in considered))
    all_in: Plan = (0,) * len(considered)
    search = GeneticSearch(space, seed)
    search.tell(np.array([all_in], np.int64), [now])
    best, least, tried = all_in, now, 0
    for plan in chain(_without_one(len(considered)), _asked(search)):
        if tried >= most:
            break
        us = judge(tuple(name for name, out in zip(considered, plan, strict=True) if out))
        search.tell(np.array([plan], np.int64), [us])
        tried += 1
        if isfinite(us) and us < least * BETTER:
            best, least = plan, us
    left_out = tuple(name for name, out in zip(considered, best, strict=True) if out)
    return WithoutFound(left_out, least, tried)


def _without_one(count: int) -> Iterator[Plan]:
    for i in range(count):
        yield tuple(int(i == j) for j in range(count))


def _asked(search: GeneticSearch) -> Iterator[Plan]:
    while len(plans := search.ask(1)):
        yield tuple(plans[0].tolist())
