"""What a layer knows of classes of ops: in a table of its own, or said by the class itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Rules(Generic[R]):
    """Rules by class. Of a class and those that it derives from, the nearest that has one decides: by the table, or by
    a method called `hook`, which takes the op and then what the table's rules take. `base` declares the method."""

    def __init__(self, base: type[Any], hook: str, table: Mapping[type[Any], R]):
        self.table = dict(table)
        self._base, self._hook = base, hook
        self._known: dict[type[Any], R | None] = {}

    def of(self, cls: type[Any]) -> R | None:
        """The rule of a class; None where neither the table nor the class has one."""
        if cls not in self._known:
            self._known[cls] = self._find(cls)
        return self._known[cls]

    def __getitem__(self, cls: type[Any]) -> R:
        """The rule of a class that has one. Raises KeyError."""
        found = self.of(cls)
        if found is None:
            raise KeyError(cls.__name__)
        return found

    def _find(self, cls: type[Any]) -> R | None:
        for parent in cls.__mro__:
            if parent in self.table:
                return self.table[parent]
            if parent is self._base:
                break
            if self._hook in vars(parent):
                return getattr(cls, self._hook)
        return None
