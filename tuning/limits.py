"""Limits of power, as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable

from ..api.program import CompileError
from ..machine import Machine
from ..support.amounts import watts_in


def power_limit_in(command: str, given: str | float | None) -> float | None:
    """The watts of a limit, a number or text such as "150W"; None for none. command: who says what is wrong. Raises
    CompileError."""
    try:
        return None if given is None else watts_in(given)
    except ValueError as error:
        raise CompileError(f"{command}: power_limit: {error}") from None


def check_idle(command: str, limit: float, targets: Iterable[str]) -> None:
    """Raises CompileError for a limit that no program on these chips keeps."""
    idle = {name: Machine.load(name).energy.idle_watts for name in targets}
    least = min(idle, key=lambda name: idle[name])
    if limit <= idle[least]:
        raise CompileError(
            f"{command}: power_limit: {least} draws {idle[least]:g} W when idle: say more than that, not {limit:g} W"
        )
