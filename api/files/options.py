"""Options of a program as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...knowledge.file_plans import FilePlans
from ..options import Options
from ..plans import plans_of

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


def with_plans(options: Options, plans: FilePlans | None) -> Options:
    """Options with the plans that a file has for a chip, behind those of the knowledge base that options name."""
    if plans is None:
        return options
    return replace(options, plans=plans_of(options.plans, options.plans_for, plans) or "")


def _plain(value: Any) -> Any:
    """An option as JSON has it."""
    if isinstance(value, set | frozenset | tuple | list):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    return dict(value) if isinstance(value, Mapping) else value
