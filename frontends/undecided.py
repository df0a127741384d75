"""Equalities of symbolic sizes that JAX takes for false where it cannot decide them, noted while it traces.

JAX raises where `n > 4` is open; `n == 4` is False there, since an equality that hashing asks for must not raise. What
is traced so is right for all sizes but those for which one of them holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

Equalities = dict[Any, tuple[Any, Any]]
"""Pairs of a symbolic size and another or a number, each once."""

_NOTED: ContextVar[Equalities | None] = ContextVar("equalities", default=None)


@contextmanager
def noting_equalities() -> Iterator[Equalities]:
    """Gives the equalities of symbolic sizes that were taken for false though JAX knows no difference, as they are
    asked; among them those that bounds rule out."""
    _install()
    token = _NOTED.set(made := {})
    try:
        yield made
    finally:
        _NOTED.reset(token)


def forget_equalities(of: Callable[[Any], bool]) -> None:
    """Leaves out the equalities of some sizes, for which whoever traces them answers otherwise."""
    noted = _NOTED.get() or {}
    for key in [key for key, pair in noted.items() if any(map(of, pair))]:
        del noted[key]


@cache
def _install() -> None:
    """Makes symbolic sizes note such equalities. JAX has no hook for it."""
    from jax import export

    (size,) = export.symbolic_shape("n")
    kind: Any = type(size)
    plain = kind.__eq__

    def compared(one: Any, other: Any) -> bool:
        found = plain(one, other)
        noted = None if found else _NOTED.get()
        # JAX has one object for equal types, which it looks for among those that there are: that asks for no size
        if noted is not None and sys._getframe(1).f_code.co_name != "__new__":
            if _are_sizes(one, other) and export.is_symbolic_dim(one - other):
                noted[hash(one), (hash(other),) if export.is_symbolic_dim(other) else int(other)] = one, other
        return found

    kind.__eq__ = compared


def _are_sizes(one: Any, other: Any) -> bool:
    """Whether a symbolic size is compared with a number, or with a size of the same scope."""
    scope = getattr(other, "scope", None)
    return hasattr(other, "__index__") if scope is None else scope is one.scope
