"""Tasks for other processes, which can import them by name."""

from __future__ import annotations

import os
from pathlib import Path


def square(n: int) -> int:
    return n * n


def ends_once(given: tuple[str, int]) -> int:
    """Ends its process the first time that one of three tasks is begun."""
    folder, n = given
    mark = Path(folder) / str(n)
    if n == 1 and not mark.exists():
        mark.touch()
        os._exit(9)
    return n


def ends(n: int) -> int:
    os._exit(9)


def fails(n: int) -> int:
    raise ValueError(f"{n} is wrong")
