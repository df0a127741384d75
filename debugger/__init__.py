"""The debugger: a program of the npu level, stopped, looked at and taken back (docs/debugger.md)."""

from .breakpoints import Breakpoint
from .debugger import Debugger
from .errors import DebugError
from .runner import Stop

__all__ = ["Breakpoint", "DebugError", "Debugger", "Stop"]
