"""The prompt of the debugger, on a terminal or for what a pipe brings."""

from __future__ import annotations

import cmd
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from .commands import TABLE, Commands, split
from .errors import DebugError
from .inspector import Inspector

PROMPT = "(tilewright) "


class Prompt(cmd.Cmd):
    """Reads commands from a terminal until one of them leaves."""

    prompt = PROMPT

    def __init__(self, debugger: Inspector, leaves_at_end: bool = False) -> None:
        super().__init__()
        self.debugger, self.leaves_at_end = debugger, leaves_at_end
        self.commands = Commands(debugger)

    def onecmd(self, line: str) -> bool:
        """Does a command; whether it was the last one."""
        if line == "EOF":
            print()
            return True
        try:
            said = self.commands.do(line)
        except DebugError as error:
            said = f"error: {error}"
        if said:
            print(said)
        return self.commands.is_done or (self.leaves_at_end and self.debugger.is_over)

    def emptyline(self) -> bool:
        return self.onecmd("")

    def completenames(self, text: str, *ignored: object) -> list[str]:
        """The commands that begin so."""
        return [name for name in TABLE if name.startswith(text)]


def interact(debugger: Inspector, leaves_at_end: bool = False) -> None:
    """Shows the prompt until the user leaves. Ctrl-C stops a run before its next instruction; at the prompt it clears
    the line."""
    prompt = Prompt(debugger, leaves_at_end)
    print(debugger.here())
    with _ctrl_c_stops(debugger):
        while True:
            try:
                prompt.cmdloop()
                return
            except KeyboardInterrupt:
                print()


def script(debugger: Inspector, commands: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Does commands until one leaves; gives each with what it says. Raises DebugError at the first that cannot be
    done."""
    done = Commands(debugger)
    for line in commands:
        for each in split(line):
            yield each, done.do(each)
            if done.is_done:
                return


def is_interactive() -> bool:
    """Whether a person reads and writes."""
    with suppress(AttributeError, ValueError):
        return sys.stdin.isatty() and sys.stdout.isatty()
    return False


@contextmanager
def _ctrl_c_stops(debugger: Inspector) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def press(number: int, frame: FrameType | None) -> None:
        if debugger.is_running:
            debugger.is_interrupted = True
        else:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
