"""What runs the versions of a program with open dimensions: one set of compiled functions for all sizes of a range."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from ...dialects.module import target_of
from ...dialects.open_sizes import assuming, size_of
from ...dialects.sizes import Constraint, Sizes, bounds
from ...machine import DEFAULT_TARGET, Machine
from ...passes.templates import Template
from ..modes import Memory, SizedRunnable, executable_of


class SizedExecutable:
    """The executable of a version at given sizes."""

    def __init__(self, shared: SizedRunnable, sizes: Sizes) -> None:
        self._shared, self._sizes = shared, sizes

    def compile(self) -> None:
        """Has XLA compile what is not compiled yet."""
        self._shared.compile(self._sizes)

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results of `@main`. Raises TypeError for arguments of the wrong number, shape or dtype."""
        return self._shared.run(arrays, self._sizes)


class SharedExecutables:
    """The executables of a template by memory, each with what it assumes of the sizes: almost always one."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._lock = threading.Lock()
        self._made: dict[Memory, list[tuple[tuple[Constraint, ...], SizedRunnable]]] = {}

    def at(self, sizes: Sizes, memory: Memory) -> SizedExecutable | None:
        """The executable for given sizes; None where the program at these has to have its own: a plan for each size has
        addresses of its own, and what has no largest size has no room that can be kept for it."""
        steps = memory in ("step", "debug")
        if (memory != "typed" and self._template.unplanned) or not (steps or self._is_bounded):
            return None
        return SizedExecutable(self._executable(sizes, memory), sizes)

    @cached_property
    def _is_bounded(self) -> bool:
        """Whether all sizes in the module are known to be within bounds."""
        from ...backends.interpreter import open_numbers

        ends = (bounds(size_of(n)) for n in open_numbers(self._template.module))
        return all(low is not None and high is not None for low, high in ends)

    def _executable(self, sizes: Sizes, memory: Memory) -> SizedRunnable:
        with self._lock:
            made = self._made.setdefault(memory, [])
            for constraints, executable in made:
                if all(c.met_by(sizes) for c in constraints):
                    return executable
            machine = Machine.load(target_of(self._template.module) or DEFAULT_TARGET)
            with assuming(sizes) as assumed:
                executable = executable_of(self._template.module, machine, memory, tuple(self._template.symbols))
            made.append((tuple(assumed.made), executable))
            return executable
