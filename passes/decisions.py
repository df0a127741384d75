"""Choices of graph-schedule that are about more than how one kernel is cut: which alternative stands for fusions, into
how many parts sums are cut, in which layout an operand lies.

Each is made by the price of the few fusions that it is about. A source of plans (known_plans.py) may know better, of a
program that was simulated as a whole: it is asked by the name of an option.
"""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """What graph-schedule may do. microseconds: what that takes, by the price; those of two options of a decision say
    by how much they differ, and no more."""

    name: str
    microseconds: float


class Decision(NamedTuple):
    """A choice among options, of which the price takes `default`. kind: the name of the alternative that it is about;
    key: 64 hexadecimal digits of that, of the fusions and of the machine; about: the fusions, for people."""

    kind: str
    key: str
    about: str
    options: tuple[Option, ...]
    default: str

    def loss(self, name: str) -> float:
        """Microseconds more than the default that an option takes, by the price."""
        us = dict(self.options)
        return us[name] - us[self.default]
