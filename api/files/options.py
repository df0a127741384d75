"""Options of a program as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..options import Options

KEPT_OPTIONS = (
    "memory",
    "check",
    "host",
    "donate",
    "precision",
    "without",
    "strips",
    "winograd",
    "memory_limit",
    "hivm",
)
"""Options that a file has, so that it is compiled for other chips as it was for its own."""

FURTHER = ("schedule", "oracle", "quantization", "weights")
"""Options that a file has not: a program with one of these is for its own chips alone."""


def options_facts(options: Options) -> dict[str, Any]:
    """What is not as it is by default, as JSON."""
    default = Options()
    found = {name: getattr(options, name) for name in KEPT_OPTIONS}
    return {name: _plain(value) for name, value in found.items() if value != getattr(default, name)}


def has_further(options: Options) -> bool:
    """Whether options say more than a file has."""
    default = Options()
    return any(getattr(options, name) != getattr(default, name) for name in FURTHER)


def _plain(value: Any) -> Any:
    """An option as JSON has it."""
    if isinstance(value, set | frozenset | tuple | list):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    return dict(value) if isinstance(value, Mapping) else value
