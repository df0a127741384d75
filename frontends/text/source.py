"""How `.tw` programs are named: `model.tw`, or `model.tw:fn`."""

from __future__ import annotations

import re

_NAMED = re.compile(r"(.*\.tw)(?::(\w+))?", re.DOTALL)


def find_tw(source: str) -> tuple[str, str | None] | None:
    """Path and function of a source that names a .tw program; None where it is something else."""
    match = _NAMED.fullmatch(source) if "\n" not in source else None
    return (match[1], match[2]) if match else None
