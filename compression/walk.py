"""From an unchanged net to the smallest one: parts are changed one by one, first those that cost the metric least.

A part is a product that is quantized, or a set of units that is pruned. Its ladder lists what it can be changed to,
from unchanged (level 0) to cheapest; a step goes one level down one ladder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..support.progress import Say

FLOPS_PER_BYTE = 2**10
"""Flops on f16 that count as much as a byte of weights where steps are ordered."""

Levels = Mapping[str, int]
"""The level of each part."""


@dataclass(frozen=True)
class SensitivityRow:
    """What it does to the metric when one part alone is changed. change: to what, such as `w8a8` or `8/32`; drop: how
    far the metric is below that of the unchanged net; weight_bytes: of the part when
    it is changed, or of the whole net where parts share weights."""

    part: str
    change: str
    metric: float
    drop: float
    weight_bytes: int


@dataclass(frozen=True)
class GreedyWalk:
    """sensitivity: a row for each change; states: levels and metric, from the unchanged net to the smallest one; start:
    what drops are counted from, see `reference_of`."""

    sensitivity: tuple[SensitivityRow, ...]
    states: tuple[tuple[Levels, float], ...]
    start: float

    def places(self, original: float, max_drop: float | None, count: int) -> list[int]:
        """The states worth their exact cost, at most `count` + 1 numbers: both ends, the last one that drops no more
        than `max_drop` below `original`, and some between."""
        n = len(self.states)
        allowed = (i for i, (_, v) in enumerate(self.states) if max_drop is None or original - v <= max_drop)
        between = np.linspace(0, n - 1, count - 1).round().astype(int).tolist()
        return sorted({0, n - 1, max(allowed, default=0), *between})


def walk_down(
    ladders: Mapping[str, Sequence[str]],
    measure: Callable[[Levels], float],
    saved: Callable[[str, int], float],
    weight_bytes: Callable[[str, int], int],
    say: Say,
) -> GreedyWalk:
    """Measures each change alone, then takes all steps, those first that lose least of the metric for what they save.

    measure: the metric of a net, of which more is better; saved: what the step to level i of a part saves, in bytes of
    traffic or what takes as long; weight_bytes: of a part at a level.
    """
    state: Levels = dict.fromkeys(ladders, 0)
    states = [(state, measure(state))]
    steps = [(name, i) for name, ladder in ladders.items() for i in range(1, len(ladder))]
    alone: dict[tuple[str, int], float] = {}
    for n, (name, i) in enumerate(steps):
        say(f"searching: {name} in {ladders[name][i]}", n, 2 * len(steps))
        alone[name, i] = measure({**state, name: i})
    start = reference_of(states[0][1], alone.values())
    rows = [
        SensitivityRow(name, ladders[name][i], value, start - value, weight_bytes(name, i))
        for (name, i), value in alone.items()
    ]
    for n, (name, i) in enumerate(in_order(alone, start, saved)):
        say(f"searching: {name} in {ladders[name][i]}, too", len(steps) + n, 2 * len(steps))
        state = {**state, name: i}
        states.append((state, measure(state)))
    return GreedyWalk(tuple(rows), tuple(states), start)


def reference_of(unchanged: float, changed: Iterable[float]) -> float:
    """What drops are counted from: the metric of the unchanged net or, where that is infinite, as an SQNR is, the best
    finite one of nets with one change (0 where there is none)."""
    if math.isfinite(unchanged):
        return unchanged
    return max((v for v in changed if math.isfinite(v)), default=0.0)


def in_order(
    alone: Mapping[tuple[str, int], float], start: float, saved: Callable[[str, int], float]
) -> list[tuple[str, int]]:
    """The steps, those first that lose least for what they save; steps of one part from level to level.

    alone: the metric after each step of each part, others unchanged; start: what drops are counted from.
    """
    rate = {key: max(start - value, 0.0) / saved(*key) for key, value in alone.items()}
    for name, i in sorted(rate):  # a step is not taken before the one that it follows
        if i > 1:
            rate[name, i] = max(rate[name, i], rate[name, i - 1])
    return sorted(rate, key=lambda key: (rate[key], key[1], key[0]))
