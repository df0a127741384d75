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
"""Pairs of a symbolic size and another or a number, each once, in the order that they were asked for last."""

_NOTED: ContextVar[Equalities | None] = ContextVar("equalities", default=None)


_SOME: ContextVar[Callable[[Any], bool] | None] = ContextVar("some", default=None)


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


@contextmanager
def taken_for_some(of: Callable[[Any], bool]) -> Iterator[None]:
    """Sizes of some kind are at least 1 wherever JAX asks that, and knows no answer."""
    _install()
    token = _SOME.set(of)
    try:
        yield
    finally:
        _SOME.reset(token)


def forget_equalities(of: Callable[[Any], bool]) -> None:
    """Leaves out the equalities of some sizes, for which whoever traces them answers otherwise."""
    noted = _NOTED.get() or {}
    for key in [key for key, pair in noted.items() if any(map(of, pair))]:
        del noted[key]


@cache
def _install() -> None:
    """Makes symbolic sizes note such equalities, and take others for granted. JAX has no hook for it."""
    from jax import export
    from jax.errors import InconclusiveDimensionOperation

    (size,) = export.symbolic_shape("n")
    kind: Any = type(size)
    plain = kind.__eq__

    def compared(one: Any, other: Any) -> bool:
        found = plain(one, other)
        noted = None if found else _NOTED.get()
        # JAX has one object for equal types, which it looks for among those that there are: that asks for no size
        if noted is not None and sys._getframe(1).f_code.co_name != "__new__":
            if _are_sizes(one, other) and export.is_symbolic_dim(one - other):
                key = hash(one), (hash(other),) if export.is_symbolic_dim(other) else int(other)
                noted.pop(key, None)  # the last one is last
                noted[key] = one, other
        return found

    def ordered(name: str, at_one: bool, at_least: bool) -> None:
        """at_one, at_least: what is compared is whether a size is 1 or more, by `1` or else by `0`; or is not."""
        plain = getattr(kind, name)

        def compare(one: Any, other: Any) -> bool:
            try:
                return plain(one, other)
            except InconclusiveDimensionOperation:
                of = _SOME.get()
                if of is None or export.is_symbolic_dim(other) or int(other) != at_one or not of(one):
                    raise
                return at_least

        setattr(kind, name, compare)

    kind.__eq__ = compared
    for name, at_one, at_least in _COMPARISONS:
        ordered(name, at_one, at_least)


_COMPARISONS = (
    ("__ge__", True, True),
    ("__lt__", True, False),
    ("__gt__", False, True),
    ("__le__", False, False),
)


def _are_sizes(one: Any, other: Any) -> bool:
    """Whether a symbolic size is compared with a number, or with a size of the same scope."""
    scope = getattr(other, "scope", None)
    return hasattr(other, "__index__") if scope is None else scope is one.scope
