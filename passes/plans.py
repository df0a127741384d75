"""How kernels are placed, kept only where somebody asks: graph-to-tile notes the plan of each kernel that it builds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..dialects.open_sizes import choosing
from ..kernels.plan import KernelPlan

_ASKED: ContextVar[dict[str, KernelPlan] | None] = ContextVar("plans", default=None)


@contextmanager
def plans_asked() -> Iterator[dict[str, KernelPlan]]:
    """Passes note plans, by the names of their kernels, in what this gives, inside of it."""
    found: dict[str, KernelPlan] = {}
    token = _ASKED.set(found)
    try:
        yield found
    finally:
        _ASKED.reset(token)


def note_plan(kernel: str, plan: Callable[[], KernelPlan]) -> None:
    """Notes the plan of a kernel. Nothing is done where nobody asks for plans."""
    plans = _ASKED.get()
    if plans is not None:
        with choosing():  # it decides nothing
            plans[kernel] = plan()
