"""Amounts of memory as people write them."""

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
