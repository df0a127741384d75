"""Calls under the debugger: `mode="debug"`, and all calls within `tw.debugging`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..dialects.sizes import Sizes

if TYPE_CHECKING:
    from ..backends.stepper import StepProgram

_COMMANDS: ContextVar[str | None] = ContextVar("commands", default=None)
_IS_ON: ContextVar[bool] = ContextVar("is_on", default=False)


@contextmanager
def debugging(commands: str | None = None) -> Iterator[None]:
    """Every call of a program within it runs under the debugger, as with `mode="debug"`.

    Args:
        commands: What is done in each call, such as `"break nan; run; waits"`; what they say is printed, and the
            call runs on to its end. None: a prompt.
    """
    tokens = _COMMANDS.set(commands), _IS_ON.set(True)
    try:
        yield
    finally:
        _COMMANDS.reset(tokens[0])
        _IS_ON.reset(tokens[1])


def is_debugging() -> bool:
    """Whether calls that do not say a mode run under the debugger."""
    return _IS_ON.get()


class Debugged:
    """Runs a program under the debugger: each call shows a prompt before its first instruction."""

    def __init__(self, program: StepProgram) -> None:
        self.program = program

    def compile(self, at: Sizes | None = None) -> None:
        """Nothing: an instruction is run as it is."""

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results of `@main`. Raises TypeError for arguments of the wrong number, shape or dtype, and StepFault."""
        return self.run(arrays)

    def run(self, arrays: Sequence[Any], at: Sizes | None = None) -> list[Any]:
        """The results of `@main` where its open sizes are these."""
        import jax

        from ..debugger import Debugger

        debugger = Debugger(self.program, arrays, at or {})
        commands = _COMMANDS.get()
        if commands is None:
            debugger.interact(leaves_at_end=True)
        else:
            said = debugger.do(commands)
            if said:
                print(said)
        results = debugger.left()
        with jax.enable_x64(True):
            return [jax.numpy.asarray(x) for x in results]
