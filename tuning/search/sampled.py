"""Searches that ask for plans and are told their times: by chance, by generations, by a tree, by a model.

All have the same two methods, and what they ask follows from their seed and what they were told: a search that was
broken off goes on where it was, once it is told the same again (`resumed`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from ...kernels.space import Plans, PlanSpace
from .exact import Found, Plan

Told = tuple[Plan, float]
"""A plan and its time."""


class Search(ABC):
    """Asks for plans of a space, and is told what they take: infinity for those that do not fit."""

    name = ""
    tries = 200
    """After so many plans that are known already a batch is filled by chance."""

    def __init__(self, space: PlanSpace, seed: int = 0, start: Sequence[Plan] = ()) -> None:
        """start: plans that are asked for first, as that of a heuristic."""
        self.space, self.start = space, [*start]
        self.random = np.random.default_rng(seed)
        self.told: dict[Plan, float] = {}

    def ask(self, count: int) -> Plans:
        """At most so many plans that were not told yet, each once; fewer where the search knows no others."""
        found: dict[Plan, None] = {}
        while self.start and len(found) < count:
            plan = self.start.pop(0)
            if plan not in self.told:
                found[plan] = None
        for propose, tries in ((self.next, self.tries), (self.drawn, MOST_DRAWN)):
            while len(found) < count and tries and len(self.told) + len(found) < self.space.size:
                plan = propose()
                if plan in self.told or plan in found:
                    tries -= 1
                else:
                    found[plan] = None
        return np.array([*found], np.int64).reshape(len(found), len(self.space.choices))

    def tell(self, plans: Plans, microseconds: Iterable[float]) -> None:
        """What plans take."""
        for plan, us in zip(plans.tolist(), microseconds, strict=True):
            self.learn(tuple(plan), us)

    @abstractmethod
    def next(self) -> Plan:
        """A plan to look at."""

    def learn(self, plan: Plan, microseconds: float) -> None:
        """Takes notice of what a plan takes."""
        self.told[plan] = microseconds

    def drawn(self) -> Plan:
        """A plan by chance."""
        return tuple(self.space.drawn(1, self.random)[0].tolist())


MOST_DRAWN = 1000
"""After so many plans by chance that are known already a batch ends."""


class RandomSearch(Search):
    """Plans by chance: what others are measured by."""

    name = "random"

    def next(self) -> Plan:
        return self.drawn()


class GeneticSearch(Search):
    """Of two good plans each number of one of them; now and then another one, near it or anywhere."""

    name = "genetic"
    POPULATION, CHANCE, NEAR = 32, 0.15, 0.7
    """The best plans that have children; how often a number changes, and how often that is to a neighbour."""

    def next(self) -> Plan:
        alive = sorted((us, plan) for plan, us in self.told.items() if isfinite(us))[: self.POPULATION]
        if len(alive) < 4:
            return self.drawn()
        parents = [alive[min(self._picked(len(alive)), self._picked(len(alive)))][1] for _ in range(2)]
        child = [parents[int(side)][i] for i, side in enumerate(self.random.integers(0, 2, len(parents[0])))]
        chances = self.random.random((len(child), 2))
        for i, choice in enumerate(self.space.choices):
            if chances[i, 0] < self.CHANCE:
                last = len(choice.values) - 1
                if chances[i, 1] < self.NEAR:
                    child[i] = int(np.clip(child[i] + self.random.choice([-1, 1]), 0, last))
                else:
                    child[i] = self._picked(last + 1)
        return tuple(child)

    def _picked(self, count: int) -> int:
        return int(self.random.integers(0, count))


@dataclass
class _Node:
    visits: int = 0
    best: float = inf
    children: dict[int, _Node] = field(default_factory=dict[int, "_Node"])


class TreeSearch(Search):
    """One number after the other: that below which the best plan was found, or which was seldom looked at (UCT)."""

    name = "tree"
    EXPLORES = 0.5

    def __init__(self, space: PlanSpace, seed: int = 0, start: Sequence[Plan] = ()) -> None:
        super().__init__(space, seed, start)
        self.root = _Node()

    def next(self) -> Plan:
        node, plan = self.root, list[int]()
        for choice in self.space.choices:
            number = self._chosen(node, len(choice.values))
            plan.append(number)
            node = node.children.get(number, _Node())
        return tuple(plan)

    def _chosen(self, node: _Node, count: int) -> int:
        # of many values a few are opened first, more of them as the node is seen more often
        opened = min(count, 1 + int(2 * sqrt(node.visits)))
        if len(node.children) < opened:
            return int(self.random.integers(0, count))
        least = min((c.best for c in node.children.values()), default=inf)

        def worth(number: int) -> float:
            child = node.children[number]
            good = least / child.best if isfinite(child.best) and child.best > 0 else 0.0
            return good + self.EXPLORES * sqrt(log(node.visits + 1) / (child.visits + 1)) + 1e-6 * self.random.random()

        return max(sorted(node.children), key=worth)

    def learn(self, plan: Plan, microseconds: float) -> None:
        super().learn(plan, microseconds)
        node = self.root
        for number in plan:
            node.visits, node.best = node.visits + 1, min(node.best, microseconds)
            node = node.children.setdefault(number, _Node())
        node.visits, node.best = node.visits + 1, min(node.best, microseconds)


class ParzenSearch(Search):
    """optuna's tree-structured Parzen estimator: what good plans have more often than others."""

    name = "tpe"
    tries = 8

    def __init__(self, space: PlanSpace, seed: int = 0, start: Sequence[Plan] = ()) -> None:
        """Raises ImportError where optuna is not installed."""
        super().__init__(space, seed, start)
        import optuna  # pyright: ignore[reportMissingImports]

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.trial = optuna.trial
        self.open: dict[Plan, Any] = {}
        """What was asked for and is not told yet."""
        sampler = optuna.samplers.TPESampler(seed=seed)
        self.study = optuna.create_study(sampler=sampler)
        self.kinds: dict[str, Any] = {
            f"{i} {c.name}": optuna.distributions.IntDistribution(0, len(c.values) - 1)
            for i, c in enumerate(space.choices)
        }

    def next(self) -> Plan:
        trial = self.study.ask(self.kinds)
        plan = tuple(int(trial.params[name]) for name in self.kinds)
        if plan in self.told:
            self.study.tell(trial, self._value(self.told[plan]))
        else:
            self.open[plan] = trial
        return plan

    def learn(self, plan: Plan, microseconds: float) -> None:
        super().learn(plan, microseconds)
        value, trial = self._value(microseconds), self.open.pop(plan, None)
        if trial is not None:
            self.study.tell(trial, value)
            return
        given = dict(zip(self.kinds, plan, strict=True))
        known = self.trial.create_trial(params=given, distributions=self.kinds, value=value)
        self.study.add_trial(known)

    @staticmethod
    def _value(microseconds: float) -> float:
        return microseconds if isfinite(microseconds) else MOST


MOST = 1e12
"""Microseconds that a model is told of what does not fit."""

SEARCHES: dict[str, type[Search]] = {
    each.name: each for each in (RandomSearch, GeneticSearch, TreeSearch, ParzenSearch)
}
"""Searches by their names."""


def resumed(search: Search, told: Sequence[Told], batch: int) -> Search:
    """A search that was told the same as one before it, in the same batches, and goes on as that one would have."""
    left = [*told]
    while left:
        plans = search.ask(min(batch, len(left)))
        if not len(plans):
            break
        known, left = left[: len(plans)], left[len(plans) :]
        if [tuple(p) for p in plans.tolist()] != [plan for plan, _ in known]:
            search.tell(np.array([plan for plan, _ in known], np.int64), [us for _, us in known])
        else:
            search.tell(plans, [us for _, us in known])
    return search


def run(
    search: Search, judge: Callable[[Plans], Sequence[float]], most: int, batch: int = 16, keep: int = 1
) -> Found:
    """Lets a search ask for at most so many plans, some at a time, and returns the best ones. judge: microseconds of
    plans, infinity for those that do not fit."""
    found = Found()
    while found.priced < most:
        plans = search.ask(min(batch, most - found.priced))
        if not len(plans):
            break
        times = [*judge(plans)]
        search.tell(plans, times)
        for plan, us in zip(plans.tolist(), times, strict=True):
            found.priced += 1
            if isfinite(us):
                found.best = sorted([*found.best, (us, tuple(plan))])[:keep]
                if us < found.microseconds:
                    found.plan, found.microseconds = tuple(plan), us
                    found.trace.append((found.priced, us))
    return found
