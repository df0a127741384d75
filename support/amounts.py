"""Amounts of memory and of time as people write them."""

from __future__ import annotations

import re

STRIP = 32 << 20
"""The most bytes of a tensor of a strip, where nothing else is asked for (graph-strips)."""

MOST = 1 << 63
"""No amount is as large."""

SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def bytes_in(text: str) -> int | None:
    """`4096`, `512K`, `64M`, `2G`, `512MiB` or `1.5 GiB` in whole bytes, K being 1,024; None for what is not that, or
    is nothing, or more than any memory has."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:iB)?|B?)\s*", text, re.IGNORECASE)
    if match is None:
        return None
    count = float(match[1]) * (1 << SHIFTS[(match[2] or "").upper()])
    return int(count) or None if count < MOST else None


_SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_in(given: str | float) -> float:
    """A time of at least 0 seconds, from a number or from text such as "2ms", "300s", "5m" or "1h". Raises
    ValueError."""
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < MOST:
        return float(given)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|m|min|h|)\s*", given) if isinstance(given, str) else None
    if found is None:
        raise ValueError(f"{given!r} is no time, such as 300s, 5m or 1h")
    return float(found[1]) * _SECONDS[found[2]]


def watts_in(given: str | float) -> float:
    """A power of more than 0 watts, from a number or from text such as "150", "150W" or "0.2 kW". Raises ValueError."""
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < MOST:
        return float(given)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(k?)W?\s*", given) if isinstance(given, str) else None
    watts = 0.0 if found is None else float(found[1]) * (1000 if found[2] else 1)
    if not 0 < watts < MOST:
        raise ValueError(f"{given!r} is no power of more than 0 W, such as 150 or 150W")
    return watts
