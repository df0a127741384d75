"""Bytes of constants that are kept beside the text of a program, and read where somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol

from ...support.collecting import collecting

LEAST_STORED = 64
"""Bytes of a constant that is kept beside the text, at least."""

PREFIX = "stored "
"""What a text has before the key of bytes that are kept beside it."""


class StoredBytes:
    """Bytes that are elsewhere until they are looked at, as in a file that is mapped. key: what they are called, the
    SHA-256 of them as 64 hexadecimal digits, so that two with one key are equal; read: gives them."""

    __slots__ = ("_found", "_read", "_size", "key")

    def __init__(self, key: str, size: int, read: Callable[[], memoryview]) -> None:
        self.key, self._size, self._read = key, size, read
        self._found: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """The bytes."""
        if self._found is None:
            self._found = self._read()
        return self._found

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, StoredBytes) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


class Keep(Protocol):
    """Keeps the bytes of a constant beside a text."""

    def __call__(self, dtype: str, shape: tuple[int, ...], data: bytes | StoredBytes, /) -> str:
        """What the bytes are called."""
        ...


Give = Callable[[str], StoredBytes]
"""The bytes that are called so. Raises ValueError where there are none."""

_KEEP: ContextVar[Keep | None] = ContextVar("keep", default=None)
_GIVE: ContextVar[Give | None] = ContextVar("give", default=None)


def who_keeps() -> Keep | None:
    """Who keeps the bytes of large constants of a text that is printed now; None where the text has them."""
    return _KEEP.get()


def who_gives() -> Give | None:
    """Who gives the bytes that a text which is parsed now names; None where it has all itself."""
    return _GIVE.get()


def kept_by(keep: Keep) -> AbstractContextManager[Keep | None]:
    """Texts that are printed inside have the keys of large constants, whose bytes are kept."""
    return collecting(_KEEP, keep)


def given_by(give: Give) -> AbstractContextManager[Give | None]:
    """Texts that are parsed inside may name bytes, which are given."""
    return collecting(_GIVE, give)
