"""What may be asked of convolutions with windows of 3: the choices, and their text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

OFF = "off"
AUTO = "auto"
PLACES = ("2", "4")
"""Results of a tile along each dimension: F(2, 3) and F(4, 3)."""

CHOICES = (OFF, AUTO, *PLACES)


@dataclass(frozen=True)
class WinogradChoice:
    """One of `CHOICES` for all convolutions, and others for those whose name fits a pattern, the first that does."""

    others: str
    named: tuple[tuple[str, str], ...] = ()

    def of(self, name: str) -> tuple[str, bool]:
        """The choice for a convolution, and whether a pattern made it."""
        for pattern, choice in self.named:
            if fits(name, pattern):
                return choice, True
        return self.others, False


def fits(name: str, pattern: str) -> bool:
    """Whether a name is a pattern's: `*` and `?` stand for characters, brackets for themselves."""
    return name == pattern or fnmatchcase(name, re.sub(r"\[", "[[]", pattern))


def winograd_text(asked: str | Mapping[str, str]) -> str:
    """What is asked as text; `parse_winograd` reads it back."""
    if isinstance(asked, str):
        return asked
    return ",".join(f"{name}={choice}" for name, choice in asked.items()) or OFF


def parse_winograd(text: str) -> WinogradChoice:
    """`auto`, or `params['conv1']=4,auto`: names or patterns with choices, and what holds for all others (off where
    nothing is said). Raises ValueError with one sentence."""
    others: str | None = None
    named: list[tuple[str, str]] = []
    for part in (p.strip() for p in text.split(",")):
        name, equals, choice = (s.strip() for s in part.rpartition("="))
        if choice not in CHOICES or bool(equals) != bool(name):
            raise ValueError(f"winograd must be {', '.join(CHOICES)}, or name=choice,..., not {part!r}")
        if name:
            named.append((name, choice))
        elif others is not None:
            raise ValueError(f"winograd has two choices for all convolutions, {others} and {choice}")
        else:
            others = choice
    return WinogradChoice(others or OFF, tuple(named))
