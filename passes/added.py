"""Passes of plugins, and their places in the pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from xdsl.passes import ModulePass

from ..support.plugins import AddedPass, PluginEntry, PluginError, PluginWarning, entries

LEVELS = ("graph", "tile", "npu")


class Named(Protocol):
    """A stage of a pipeline."""

    @property
    def name(self) -> str: ...


StageT = TypeVar("StageT", bound=Named)


def load_pass(entry: PluginEntry) -> type[ModulePass]:
    """The class of a plugin's pass. Raises PluginError."""
    given: AddedPass = entry.given
    found = entry.load(given.load)
    if not isinstance(found, type) or not issubclass(found, ModulePass) or found.name != entry.name:
        raise PluginError(f"{entry.found}: {given.load} is not a ModulePass called {entry.name}")
    return found


def with_added(
    stages: Sequence[StageT], states: Sequence[str], make: Callable[[PluginEntry], StageT]
) -> tuple[StageT, ...]:
    """A pipeline with the passes of plugins that say where they go; several behind one pass are in the order of their
    names. A pass whose place, level or states do not exist is left out with a warning."""
    out = list(stages)
    waiting = {name: e for name, e in sorted(entries("passes", [s.name for s in stages]).items()) if e.given.after}
    while waiting:
        names = [s.name for s in out]
        ready = [name for name, entry in waiting.items() if entry.given.after in names]
        for name in reversed(ready):
            entry = waiting.pop(name)
            problem = _problem(entry.given, states)
            if problem:
                _leave_out(entry, problem)
            else:
                out.insert([s.name for s in out].index(entry.given.after) + 1, make(entry))
        if not ready:
            for entry in waiting.values():
                _leave_out(entry, f"there is no pass {entry.given.after} to follow")
            break
    return tuple(out)


def loaders(taken: Sequence[str]) -> dict[str, Callable[[], type[ModulePass]]]:
    """All passes of plugins by name, for drivers."""
    return {name: _loader(entry) for name, entry in entries("passes", taken).items()}


def _loader(entry: PluginEntry) -> Callable[[], type[ModulePass]]:
    return lambda: load_pass(entry)


def _problem(given: AddedPass, states: Sequence[str]) -> str:
    if given.level not in LEVELS:
        return f"its level is {given.level!r}, not one of {', '.join(LEVELS)}"
    unknown = [state for state in (*given.requires, *given.establishes) if state not in states]
    return f"there is no state {unknown[0]!r}" if unknown else ""


def _leave_out(entry: PluginEntry, problem: str) -> None:
    warnings.warn(f"{entry.found}: pass {entry.name} is left out: {problem}", PluginWarning, stacklevel=3)
