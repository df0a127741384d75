"""Names of kernels: what shapes one, and a number for each that differs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from ...dialects.open_sizes import as_written

T = TypeVar("T")


class Memo(Generic[T]):
    """What is known of things by a key, which is hashed, and details, which are only compared: hashes of types and
    properties would take longer than all else. Open sizes in them are compared as they are written."""

    def __init__(self) -> None:
        self._found: dict[Hashable, list[tuple[object, T]]] = {}

    def find(self, key: Hashable, details: object) -> T | None:
        return next(iter(self._alike(key, details)), None)

    def known(self, key: Hashable, details: object, make: Callable[[], T]) -> T:
        """What is known, which `make` finds the first time."""
        for known in self._alike(key, details):
            return known
        return self.keep(key, details, make())

    def _alike(self, key: Hashable, details: object) -> Sequence[T]:
        """What is known of a thing, alone, if anything is."""
        with as_written():
            return next(([known] for other, known in self._found.get(key, ()) if other == details), [])

    def keep(self, key: Hashable, details: object, known: T) -> T:
        self._found.setdefault(key, []).append((details, known))
        return known


class KernelNames(Memo[T]):
    """What is known of each kernel; `given` are the names so far, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []
        self._numbers: dict[str, int] = {}

    def next(self, stem: str) -> str:
        """The name of the next kernel of a stem."""
        return f"{stem}_{self._numbers.get(stem, 0)}"

    def give(self, name: str, key: Hashable, details: object, known: T) -> T:
        """Gives a kernel its name and keeps what is known of it."""
        stem, _, _ = name.rpartition("_")
        self._numbers[stem] = self._numbers.get(stem, 0) + 1
        self.given.append(name)
        return self.keep(key, details, known)
