"""How a program is run: compiled by XLA on arrays or on addressed bytes, one instruction at a time, or debugged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from ..dialects.npu import AllocOp
from ..dialects.sizes import Sizes
from ..machine import Machine
from ..passes.errors import CompileError
from .debugging import Debugged, is_debugging

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from .arguments.signature import Signature

Memory = Literal["typed", "bytes", "step", "debug"]
"""`typed`: an array for each tensor; `bytes`: addressed bytes; `step`: real addresses, without XLA; `debug`: as `step`,
under the debugger."""

MODES: tuple[Memory, ...] = get_args(Memory)


class Runnable(Protocol):
    """What runs a program."""

    def compile(self) -> Any:
        """Does what has to be done once, so that a call does not."""
        ...

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results of `@main`. Raises TypeError for arguments of the wrong number, shape or dtype."""
        ...


class SizedRunnable(Runnable, Protocol):
    """What runs a program with open sizes."""

    def compile(self, at: Sizes = ...) -> Any: ...

    def run(self, arrays: Sequence[Any], at: Sizes = ...) -> list[Any]:
        """The results of `@main` where its open sizes are these."""
        ...


def executable_of(
    module: ModuleOp, machine: Machine, mode: Memory, symbols: tuple[str, ...] = ()
) -> SizedRunnable:
    """What runs a module of the npu level in a mode. symbols: its open sizes, by name. Where buffers share bytes, an
    array per buffer would not do: `typed` has them at their addresses, too."""
    if mode == "typed" and any(isinstance(op, AllocOp) and op.shared is not None for op in module.walk()):
        mode = "bytes"
    if mode in ("step", "debug"):
        from ..backends.stepper import StepProgram

        program = StepProgram(module, machine)
        return program if mode == "step" else Debugged(program)
    from ..backends.interpreter import Executable

    return Executable(module, machine, mode, symbols)


def mode_of(kwargs: Mapping[str, Any], signature: Signature, usual: Memory) -> tuple[Memory, dict[str, Any]]:
    """The mode that a call asks for with `mode=`, `usual` where it does not, and its other arguments. A program that
    has an argument of that name is given it. Raises CompileError for a mode that there is not."""
    if "mode" not in kwargs or signature.takes("mode"):
        return "debug" if is_debugging() else usual, dict(kwargs)
    mode = kwargs["mode"]
    if mode not in MODES:
        raise CompileError(f"mode must be {' or '.join(map(repr, MODES))}, not {mode!r}")
    return mode, {name: value for name, value in kwargs.items() if name != "mode"}
