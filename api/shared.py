"""What runs the versions of a program with open dimensions: one set of compiled functions for all sizes of a range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..dialects.module import target_of
from ..dialects.open_sizes import assuming
from ..dialects.sizes import Constraint, SizeError, Sizes
from ..machine import DEFAULT_TARGET, Machine
from ..passes.templates import Template

if TYPE_CHECKING:
    from ..backends.interpreter import Executable

Memory = Literal["typed", "bytes"]


class SizedExecutable:
    """The executable of a version at given sizes."""

    def __init__(self, shared: Executable, sizes: Sizes) -> None:
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
        self._made: dict[Memory, list[tuple[tuple[Constraint, ...], Executable]]] = {}

    def at(self, sizes: Sizes, memory: Memory) -> SizedExecutable | None:
        """The executable for given sizes; None where the program at these has to have its own: a plan for each size has
        addresses of its own."""
        if memory == "bytes" and self._template.unplanned:
            return None
        try:
            return SizedExecutable(self._executable(sizes, memory), sizes)
        except SizeError:  # a size without a bound
            return None

    def _executable(self, sizes: Sizes, memory: Memory) -> Executable:
        from ..backends.interpreter import Executable

        made = self._made.setdefault(memory, [])
        for constraints, executable in made:
            if all(c.met_by(sizes) for c in constraints):
                return executable
        machine = Machine.load(target_of(self._template.module) or DEFAULT_TARGET)
        with assuming(sizes) as assumed:
            executable = Executable(self._template.module, machine, memory, tuple(self._template.symbols))
        made.append((tuple(assumed.made), executable))
        return executable
