"""What is known of kernels, kept only where somebody asks: graph-to-tile notes the plan of each kernel that it builds,
and the fingerprints of the fusions that kernels are made of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar

from ..dialects.open_sizes import choosing
from ..kernels.plan import KernelPlan
from ..support.collecting import collecting

_ASKED: ContextVar[dict[str, KernelPlan] | None] = ContextVar("plans", default=None)


def plans_asked() -> AbstractContextManager[dict[str, KernelPlan]]:
    """Passes note plans, by the names of their kernels, in what this gives, inside of it."""
    return collecting(_ASKED, {})


def note_plan(kernel: str, plan: Callable[[], KernelPlan]) -> None:
    """Notes the plan of a kernel. Nothing is done where nobody asks for plans."""
    plans = _ASKED.get()
    if plans is not None:
        with choosing():  # it decides nothing
            plans[kernel] = plan()


_FINGERPRINTS: ContextVar[dict[str, str] | None] = ContextVar("fingerprints", default=None)


def fingerprints_asked() -> AbstractContextManager[dict[str, str]]:
    """Passes note the fingerprint of each fusion that is one launch, by the name of its kernel, in what this gives,
    inside of it."""
    return collecting(_FINGERPRINTS, {})


def note_fingerprint(kernel: str, fingerprint: Callable[[], str]) -> None:
    """Notes of which fusion a kernel is made. Nothing is done where nobody asks for it."""
    found = _FINGERPRINTS.get()
    if found is not None and kernel not in found:
        found[kernel] = fingerprint()
