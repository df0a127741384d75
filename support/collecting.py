"""What code far below collects, where somebody above asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def collecting(asked: ContextVar[T | None], found: T) -> Iterator[T]:
    """Has a variable name where things are put, inside of it, and gives that."""
    token = asked.set(found)
    try:
        yield found
    finally:
        asked.reset(token)
