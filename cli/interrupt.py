"""Ctrl-C ends a tool with exit code 130 and without a traceback, from its first import on."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

INTERRUPTED = 130
"""The exit code: 128 and the number of the signal, as shells have it."""

_pressed = False


def interrupted() -> bool:
    """Whether Ctrl-C was pressed: an import that it cuts short may raise anything."""
    return _pressed


def guarded(run: Callable[[], int], whole_process: bool) -> int:
    """The exit code of `run`, or 130 where Ctrl-C ended it.

    Where the tool is the whole process and SIGINT is not ignored, a second Ctrl-C ends it at once, one that a library
    swallows counts all the same, and one after the work is done shows no traceback.
    """
    ours = (
        whole_process
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, _press)
        sys.unraisablehook = _unraisable
    try:
        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception:
        if not _pressed:
            raise
        code = INTERRUPTED
    finally:
        if ours:
            signal.signal(signal.SIGINT, lambda *_: _end())
    return INTERRUPTED if _pressed else code


def _press(signal_number: int, frame: FrameType | None) -> None:
    global _pressed
    if _pressed or _importing(frame):
        _end()
    _pressed = True
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported. Nothing is half done then, and modules written in C print a traceback of
    their own for an exception that stops them."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end() -> NoReturn:
    """Ends the process at once; a cursor that a progress bar hides comes back."""
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h")
    os._exit(INTERRUPTED)


def _unraisable(problem: Any) -> None:
    """Ends the process where Ctrl-C came within a callback, from which Python lets no exception out."""
    if issubclass(problem.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(problem)
