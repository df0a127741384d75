"""What runs the versions of a program with open dimensions: one set of compiled functions for all sizes of a range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp
from xdsl.dialects.func import FuncOp

from ..dialects.base import integer, to_ints
from ..dialects.module import target_of
from ..dialects.npu.host_program import DeviceTensorOp
from ..dialects.npu.streams import Command
from ..dialects.open_sizes import assuming
from ..dialects.sizes import Constraint, SizeError, Sizes
from ..machine import DEFAULT_TARGET, Machine
from ..passes.templates import Template
from .sources import entry_of

if TYPE_CHECKING:
    from ..backends.interpreter import Executable

Memory = Literal["typed", "bytes"]


class SizedExecutable:
    """The executable of a version at given sizes. addresses: of its device tensors there, in bytes memory."""

    def __init__(self, shared: Executable, sizes: Sizes, addresses: Sequence[int] | None) -> None:
        self._shared, self._sizes, self._addresses = shared, sizes, addresses

    def compile(self) -> None:
        """Has XLA compile what is not compiled yet."""
        self._shared.compile(self._sizes)

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results of `@main`. Raises TypeError for arguments of the wrong number, shape or dtype."""
        return self._shared.run(arrays, self._sizes, self._addresses)


class SharedExecutables:
    """The executables of a template by memory, each with what it assumes of the sizes: almost always one."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._made: dict[Memory, list[tuple[tuple[Constraint, ...], int, Executable]]] = {}
        self._calls_host = any(isinstance(op, Command) and op.on_host for op in template.module.walk())

    def at(self, sizes: Sizes, module: Callable[[], ModuleOp], memory: Memory) -> SizedExecutable | None:
        """The executable for given sizes, at which `module` gives the program; None where it has to have its own: what
        is called on the host is text in which the sizes are numbers."""
        if self._calls_host:
            return None
        addresses, words = (None, 0) if memory == "typed" else _memory_of(module())
        try:
            return SizedExecutable(self._executable(sizes, memory, words), sizes, addresses)
        except SizeError:  # a size without a bound
            return None

    def _executable(self, sizes: Sizes, memory: Memory, words: int) -> Executable:
        from ..backends.interpreter import Executable

        made = self._made.setdefault(memory, [])
        for constraints, room, executable in made:
            if words <= room and all(c.holds(sizes) for c in constraints):
                return executable
        if memory == "bytes":  # as much as the largest sizes need, so that others need no more
            words = max(words, _memory_of(self._template.instance(self._template.example))[1])
        machine = Machine.load(target_of(self._template.module) or DEFAULT_TARGET)
        with assuming(sizes) as assumed:
            executable = Executable(
                self._template.module, machine, memory, tuple(self._template.symbols), words
            )
        made.append((tuple(assumed.made), words, executable))
        return executable


def _memory_of(module: ModuleOp) -> tuple[list[int], int]:
    """Where the arguments of a program, then the tensors of its functions begin, in bytes; the words of its memory."""
    main = entry_of(module)
    addresses = main.attributes["npu.addresses"]
    assert isinstance(addresses, DenseArrayBase)
    functions = [op for op in module.ops if isinstance(op, FuncOp) and op.body.blocks]
    tensors = [op for f in functions for op in f.walk() if isinstance(op, DeviceTensorOp)]
    places = [integer(op.address) for op in tensors if op.address is not None]
    return [*to_ints(addresses), *places], -(-integer(main.attributes["npu.arena_bytes"]) // 4)
