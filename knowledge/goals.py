"""What a plan is to be good for, and what it has to keep to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf

LATENCY, THROUGHPUT, ENERGY, PRODUCT, MEMORY = "latency", "throughput", "energy", "edp", "memory"

OBJECTIVES = (LATENCY, THROUGHPUT, ENERGY, PRODUCT, MEMORY)
"""Of a program: microseconds of a call; of the busiest queue, which is what calls behind each other take; joules;
joules times microseconds; the most bytes of device memory."""

_SHARES = {ENERGY: 1.0, PRODUCT: 0.5}
"""Of the logarithm of what a plan is judged by, that of the joules; of a kernel all others are judged by their time."""


@dataclass(frozen=True)
class Goal:
    """What plans of a kernel are judged by. energy_share: from 0, the time alone, to 1, the energy alone; watts: the
    most that a launch may draw on the mean, None where it does not matter."""

    energy_share: float = 0.0
    watts: float | None = None

    @staticmethod
    def of(objective: str, watts: float | None = None) -> Goal:
        """What kernels of a program with this objective are judged by. Raises ValueError for one that is none."""
        if objective not in OBJECTIVES:
            raise ValueError(f"there is no objective {objective!r}; there are {', '.join(OBJECTIVES)}")
        return Goal(_SHARES.get(objective, 0.0), watts)

    @property
    def plain(self) -> bool:
        """Whether it is the time alone: what the compiler judges by without any plans."""
        return self == PLAIN

    @property
    def text(self) -> str:
        """`latency`, `energy`, `edp`, or a share of the energy such as `0.25`; with a limit `latency, 150 W`."""
        names = {0.0: LATENCY, **{share: name for name, share in _SHARES.items()}}
        name = names.get(self.energy_share, f"{self.energy_share:g}")
        return name if self.watts is None else f"{name}, {self.watts:g} W"

    @staticmethod
    def parse(text: str) -> Goal:
        """The goal of a text. Raises ValueError."""
        found = re.fullmatch(r"([a-z]+|[0-9.]+)(?:, ([0-9.]+) W)?", text)
        try:
            if found is None:
                raise ValueError
            word, watts = found[1], None if found[2] is None else float(found[2])
            if word[0].isalpha():
                return Goal.of(word, watts)
            if not 0 <= float(word) <= 1:
                raise ValueError
            return Goal(float(word), watts)
        except ValueError:
            said = "latency, energy, edp or a share of the energy from 0 to 1"
            raise ValueError(f"{text!r} is no goal of plans, such as {said}, with a limit: 'latency, 150 W'") from None

    def value(self, microseconds: float, joules: float | None) -> float:
        """What is to be least: infinity for what draws too much, or of whose energy nothing is known where it
        matters."""
        if microseconds == inf or (joules is None and not self.plain):
            return inf
        if joules is None or self.plain:
            return microseconds
        if self.watts is not None and joules * 1e6 > self.watts * microseconds * (1 + 1e-9):
            return inf
        if not self.energy_share:
            return microseconds
        return microseconds ** (1 - self.energy_share) * joules**self.energy_share


PLAIN = Goal()
"""The time alone."""
