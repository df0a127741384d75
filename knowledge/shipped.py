"""The plans that Tilewright comes with: lines of JSON for each chip that has some (plans/), read when one is asked for.

They were found as those of any knowledge base are, by `benchmarks/shipped_plans.py`; those of another version of the
price, or for other numbers of a machine, are found by nobody.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path

from .base import Entry, KnowledgeError, KnowledgeWarning, read_lines
from .goals import LATENCY

FOLDER = Path(__file__).parent / "plans"


class ShippedPlans:
    """The plans that Tilewright comes with."""

    def find(self, kernel: str, price: str, goal: str = LATENCY) -> list[Entry]:
        """What is known of a kernel: for a launch by itself, and for a stage of one."""
        found = [e for e in _by_kernel().get(kernel, ()) if e.price == price and e.goal == goal]
        return sorted(found, key=lambda e: e.joined)

    def warn(self, what: str) -> None:
        """One line about an entry."""
        warnings.warn(f"plans that Tilewright comes with: {what}", KnowledgeWarning, stacklevel=3)


@cache
def _of_chip(machine: str) -> tuple[Entry, ...]:
    """The entries of a chip: none where its file is not there, or cannot be read."""
    path = FOLDER / f"{machine}.jsonl"
    try:
        return tuple(read_lines(path.read_text().splitlines(), path.name)) if path.is_file() else ()
    except (KnowledgeError, OSError, UnicodeDecodeError) as error:
        ShippedPlans().warn(f"they are not used: {error}")
        return ()


@cache
def _by_kernel() -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for path in sorted(FOLDER.glob("*.jsonl")):
        for entry in _of_chip(path.stem):
            found.setdefault(entry.kernel, []).append(entry)
    return found
