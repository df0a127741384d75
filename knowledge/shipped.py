"""The plans that Tilewright comes with: lines of JSON for each chip that has some (plans/). A line is read when its
kernel is asked for.

They were found as those of any knowledge base are, by `benchmarks/shipped_plans.py`; those of another version of the
price, or for other numbers of a machine, are found by nobody.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path

from .base import Entry, KnowledgeError, KnowledgeWarning, read_lines
from .goals import LATENCY

FOLDER = Path(__file__).parent / "plans"

_KERNEL = re.compile(r'"kernel": "([0-9a-f]{64})"')


class ShippedPlans:
    """The plans that Tilewright comes with."""

    def find(self, kernel: str, price: str, goal: str = LATENCY) -> list[Entry]:
        """What is known of a kernel: for a launch by itself, and for a stage of one."""
        try:
            entries = [*read_lines(_lines().get(kernel, ()), f"kernel {kernel[:12]}")]
        except KnowledgeError as error:
            self.warn(f"some are not used: {error}")
            return []
        return sorted((e for e in entries if e.price == price and e.goal == goal), key=lambda e: e.joined)

    def warn(self, what: str) -> None:
        """One line about an entry."""
        warnings.warn(f"plans that Tilewright comes with: {what}", KnowledgeWarning, stacklevel=3)


@cache
def _lines() -> dict[str, list[str]]:
    """The lines of each kernel, as they are: nothing of a file that cannot be read, or has a line without a kernel."""
    found: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("*.jsonl")):
        try:
            named = [(_KERNEL.search(line), line) for line in path.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            ShippedPlans().warn(f"they are not used: {path.name}: {error}")
            continue
        if (wrong := next((i for i, (match, _) in enumerate(named, 1) if match is None), None)) is not None:
            ShippedPlans().warn(f"they are not used: {path.name}, line {wrong}: it names no kernel")
            continue
        for match, line in named:
            if match is not None:
                found.setdefault(match[1], []).append(line)
    return found
