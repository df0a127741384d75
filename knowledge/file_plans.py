"""The plans that a file has beside its programs: lines of JSON, as the knowledge base exports them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from json import dumps

from .base import Entry, KnowledgeError, KnowledgeWarning, read_lines
from .goals import LATENCY


def lines_of(entries: Iterable[Entry]) -> str:
    """Entries as lines of JSON, each kernel and goal once, in an order that does not change. When each was found is
    left out: it changes nothing of what is compiled with them."""
    found = {(e.kernel, e.price, e.goal, e.joined): replace(e, seconds=0.0) for e in entries}
    return "".join(f"{dumps(found[key].to_json(), sort_keys=True)}\n" for key in sorted(found))


class FilePlans:
    """The plans of a file."""

    def __init__(self, text: str, source: str) -> None:
        """source: what messages call the file. Lines that cannot be read are no plans, with one warning."""
        self.source, self.digest = source, sha256(text.encode()).hexdigest()[:16]
        self.found: dict[str, list[Entry]] = {}
        """Entries by the fingerprints of kernels and the keys of decisions."""
        try:
            for entry in [*read_lines(text.splitlines(), source)]:
                self.found.setdefault(entry.kernel, []).append(entry)
        except KnowledgeError as error:
            self.warn(f"they are not used: {error}")

    def find(self, kernel: str, price: str, goal: str = LATENCY) -> list[Entry]:
        """What is known of a kernel: for a launch by itself, and for a stage of one."""
        own = (e for e in self.found.get(kernel, ()) if e.price == price and e.goal == goal)
        return sorted(own, key=lambda e: e.joined)

    def family(self, family: str, price: str, goal: str, machine: str) -> Sequence[Entry]:
        """What is known of kernels that differ in sizes alone, or of decisions."""
        asked = family, price, goal, machine
        every = (e for own in self.found.values() for e in own)
        return [e for e in every if (e.family, e.price, e.goal, e.machine) == asked]

    def warn(self, what: str) -> None:
        """One line about an entry."""
        warnings.warn(f"plans in {self.source}: {what}", KnowledgeWarning, stacklevel=3)
