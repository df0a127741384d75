"""The debugger, as Python has it: `tw.debug`."""

from __future__ import annotations

import numpy as np

from .inspector import Inspector
from .prompt import interact, script


class Debugger(Inspector):
    """A program of the npu level on some arguments, run one instruction at a time.

    It begins before the first instruction. `run`, `step`, `next`, `finish` and `resume` go on and give the `Stop`;
    a fault of the program (a race, a read of what nothing wrote, an access out of bounds, a deadlock) is a stop, too.
    `back` runs it again up to an earlier instruction: runs are the same each time. What cannot be done raises
    DebugError.
    """

    def do(self, text: str) -> str:
        """Does commands such as "break exp; run; print %5"; gives what they say."""
        return "\n".join(said for _, said in script(self, [text]) if said)

    def interact(self, leaves_at_end: bool = False) -> None:
        """Shows a prompt on the terminal until the user leaves it. leaves_at_end: or until the program is over."""
        interact(self, leaves_at_end)

    def left(self) -> list[np.ndarray]:
        """The results of `@main`, after it ran on to its end without stops. Raises the fault that it met."""
        if self.fault is not None:
            raise self.fault
        kept, self.breakpoints = self.breakpoints, []
        try:
            stop = None if self.is_over else self.resume()
        finally:
            self.breakpoints = kept
        if stop is not None and stop.fault is not None:
            raise stop.fault
        return self.results()
