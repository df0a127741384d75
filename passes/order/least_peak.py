"""The order of a block's ops that needs least device memory at one time: list scheduling on plain numbers.

An op *shrinks* what is live where it ends more bytes than it begins. `eager` runs such an op as soon as what it needs
is there; `lazy` does the same from the end of the block, so that what lets the live set grow runs as late as it may.
All else stays in the order given. Of a small block all orders are compared, by dynamic programming over the sets of
ops that have run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .queues import TensorLife, Unit

EXACT = 10
"""Ops up to which all orders are compared: at most 1,024 sets, a few milliseconds."""


@dataclass(frozen=True)
class SharedBytes:
    """A tensor of `bytes` that `ops` make, use or write: it is live from the first of them to the last, where `given`
    from the start of the block, where `kept` to its end."""

    bytes: int
    ops: tuple[int, ...]
    given: bool = False
    kept: bool = False


@dataclass(frozen=True)
class OrderProblem:
    """Ops by number, each with those that come before it, the bytes that only it needs, and tensors that they share."""

    before: Sequence[Sequence[int]]
    alone: Sequence[int]
    tensors: Sequence[SharedBytes]

    @classmethod
    def of(cls, units: Sequence[Unit], lives: Sequence[TensorLife]) -> OrderProblem:
        tensors = []
        for life in lives:
            ops = life.users if life.maker < 0 else {life.maker, *life.users}
            tensors.append(SharedBytes(life.bytes, tuple(sorted(ops)), life.maker < 0, life.kept))
        return cls([sorted(u.needs) for u in units], [u.bytes for u in units], tensors)

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes that are live at one time, where ops run in an order."""
        return max(self.live(order), default=_Live(self).bytes)

    def live(self, order: Sequence[int]) -> list[int]:
        """The bytes that are live while each op runs, in an order."""
        live = _Live(self)
        return [live.run(i) for i in order]

    def floor(self) -> int:
        """No order needs less: the bytes of the op that needs most by itself, and those that are always live."""
        own = list(self.alone)
        always = 0
        for t in self.tensors:
            if t.given and t.kept:
                always += t.bytes
                continue
            for i in t.ops:
                own[i] += t.bytes
        return max(own, default=0) + always

    def backwards(self) -> OrderProblem:
        """The same with time running backwards."""
        behind: list[list[int]] = [[] for _ in self.alone]
        for i, before in enumerate(self.before):
            for j in before:
                behind[j].append(i)
        return OrderProblem(behind, self.alone, [replace(t, given=t.kept, kept=t.given) for t in self.tensors])

    def eager(self, order: Sequence[int]) -> list[int]:
        """An order in which ops that shrink what is live run as soon as they may, the others as in `order`."""
        behind = self.backwards().before
        place = {op: at for at, op in enumerate(order)}
        waiting = [len(b) for b in self.before]
        live, done = _Live(self), [False] * len(order)
        ready = [at for at, i in enumerate(order) if not waiting[i]]
        shrinking: list[tuple[int, int]] = []
        found: list[int] = []

        def note(i: int) -> None:
            if not done[i] and not waiting[i] and (by := live.change(i)) < 0:
                heapq.heappush(shrinking, (by, place[i]))

        for at in ready:
            note(order[at])
        while ready or shrinking:
            at = heapq.heappop(shrinking)[1] if shrinking else heapq.heappop(ready)
            i = order[at]
            if done[i]:
                continue
            done[i] = True
            found.append(i)
            live.run(i)
            for t in live.of[i]:
                if live.left[t] <= 1 or self.tensors[t].ops[0] == i:
                    for other in self.tensors[t].ops:
                        note(other)
            for other in behind[i]:
                waiting[other] -= 1
                if not waiting[other]:
                    heapq.heappush(ready, place[other])
                    note(other)
        return found

    def lazy(self, order: Sequence[int]) -> list[int]:
        """An order in which ops that let what is live grow run as late as they may, the others as in `order`."""
        return self.backwards().eager(order[::-1])[::-1]

    def exact(self) -> list[int]:
        """An order that needs least, of all orders."""
        n = len(self.alone)
        needs = [sum(1 << j for j in before) for before in self.before]
        masks = [sum(1 << i for i in t.ops) for t in self.tensors]

        def live(ran: int) -> int:
            return sum(
                t.bytes
                for t, mask in zip(self.tensors, masks, strict=True)
                if (t.given or ran & mask) and (t.kept or mask & ~ran)
            )

        def during(ran: int, i: int) -> int:
            return self.alone[i] + sum(
                t.bytes
                for t, mask in zip(self.tensors, masks, strict=True)
                if mask >> i & 1 or ((t.given or ran & mask) and (t.kept or mask & ~ran))
            )

        best: dict[int, tuple[int, list[int]]] = {0: (live(0), [])}
        for ran in range(1 << n):
            if ran not in best:
                continue
            top, order = best[ran]
            for i in range(n):
                if ran >> i & 1 or needs[i] & ~ran:
                    continue
                found = (max(top, during(ran, i)), [*order, i])
                then = ran | 1 << i
                if then not in best or found[0] < best[then][0]:
                    best[then] = found
        return best[(1 << n) - 1][1]


class _Live:
    """What is live while ops run one after the other."""

    def __init__(self, problem: OrderProblem) -> None:
        self.problem = problem
        self.left = [len(t.ops) for t in problem.tensors]
        """Ops of each tensor that have not run."""
        self.begun = [t.given for t in problem.tensors]
        self.of: list[list[int]] = [[] for _ in problem.alone]
        """The tensors of each op."""
        for t, tensor in enumerate(problem.tensors):
            for i in tensor.ops:
                self.of[i].append(t)
        self.bytes = sum(t.bytes for t in problem.tensors if t.given and (t.kept or t.ops))

    def change(self, i: int) -> int:
        """By how many bytes more is live behind an op than before it, if it runs now."""
        by = 0
        for t in self.of[i]:
            tensor = self.problem.tensors[t]
            ends = self.left[t] == 1 and not tensor.kept
            by += tensor.bytes * ((not self.begun[t]) - ends)
        return by

    def run(self, i: int) -> int:
        """Runs an op; the bytes that are live meanwhile."""
        tensors = self.problem.tensors
        for t in self.of[i]:
            if not self.begun[t]:
                self.begun[t] = True
                self.bytes += tensors[t].bytes
        meanwhile = self.bytes + self.problem.alone[i]
        for t in self.of[i]:
            self.left[t] -= 1
            if not self.left[t] and not tensors[t].kept:
                self.bytes -= tensors[t].bytes
        return meanwhile


def least_peak(problem: OrderProblem) -> list[int]:
    """The order that needs least of those tried; the order of the numbers where none needs less."""
    given = list(range(len(problem.alone)))
    top = problem.peak(given)
    if len(given) < 2 or top <= problem.floor():
        return given
    if len(given) <= EXACT:
        tried = [problem.exact()]
    else:
        eager, lazy = problem.eager(given), problem.lazy(given)
        tried = [eager, lazy, problem.eager(lazy), problem.lazy(eager)]
    best = min(tried, key=problem.peak)
    return best if problem.peak(best) < top else given


__all__ = ["OrderProblem", "SharedBytes", "least_peak"]
