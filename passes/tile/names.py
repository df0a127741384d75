"""Names of kernels: what shapes one, and a number for each that differs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class KernelNames(Generic[T]):
    """What is known of each kernel, by what makes it differ from others; `given` are the names so far, in order."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[Hashable, list[tuple[object, T]]] = {}

    def find(self, key: Hashable, details: object) -> T | None:
        """What is known of the kernel of this key and these details, which are compared but not hashed."""
        return next((known for other, known in self._known.get(key, ()) if other == details), None)

    def next(self, stem: str) -> str:
        """The name of the next kernel of a stem."""
        return f"{stem}_{self._numbers.get(stem, 0)}"

    def give(self, name: str, key: Hashable, details: object, known: T) -> None:
        """Gives a kernel its name and keeps what is known of it."""
        stem, _, _ = name.rpartition("_")
        self._numbers[stem] = self._numbers.get(stem, 0) + 1
        self._known.setdefault(key, []).append((details, known))
        self.given.append(name)
