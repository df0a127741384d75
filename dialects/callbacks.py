"""Functions of this Python process that host ops call, as `jax.pure_callback` has them.

A program's text names such a function by its number; so it only runs in the process that compiled it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

Callback = Callable[..., Any]
"""Takes numpy arrays, gives a tuple of them."""

KEY = "python_callback"
"""The key under which the StableHLO of a host op has the number, in the backend_config of its custom call."""

_NUMBERS = itertools.count()
_CALLBACKS: dict[int, Callback] = {}


class MissingCallback(Exception):
    """A program calls a Python function that this process does not have: one sentence."""


def register(callback: Callback) -> int:
    """The number of a function, which is kept as long as the process runs: so is what XLA compiles with it."""
    number = next(_NUMBERS)
    _CALLBACKS[number] = callback
    return number


def callback(number: int) -> Callback:
    """The function of a number. Raises MissingCallback in a process that has none for it."""
    try:
        return _CALLBACKS[number]
    except KeyError:
        raise MissingCallback(
            f"the program calls Python function {number} of the process that compiled it, which is not this one"
        ) from None
