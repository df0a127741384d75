"""Bytes of constants that are kept beside the text of a program, and read where somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

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


class ByteStore(Protocol):
    """Where bytes are kept beside a text."""

    def put(self, dtype: str, shape: tuple[int, ...], data: bytes | StoredBytes) -> str:
        """Keeps the bytes of a constant; what they are called."""
        ...

    def get(self, key: str) -> StoredBytes:
        """The bytes that are called so. Raises ValueError where there are none."""
        ...


_STORE: ContextVar[ByteStore | None] = ContextVar("store", default=None)


def current_store() -> ByteStore | None:
    """Where texts that are printed or parsed now keep bytes; None where they have all themselves."""
    return _STORE.get()


@contextmanager
def stored_in(store: ByteStore) -> Iterator[None]:
    """Inside, texts have the keys of large constants, whose bytes are in a store."""
    token = _STORE.set(store)
    try:
        yield
    finally:
        _STORE.reset(token)
