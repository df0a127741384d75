"""A bar on a terminal or in a notebook, and now and then a line elsewhere, for what takes its time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol


class Say(Protocol):
    """Says what begins now, how many steps are done, and how many there are: 0 where nobody knows."""

    def __call__(self, said: str, done: int = 0, steps: int = 0) -> None: ...


LINE_SECONDS = 5.0
"""Between the lines that are written where there is no terminal, such as in the log of a script."""

_SILENT: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def silent(asked: bool = True) -> Iterator[None]:
    """Nothing is shown meanwhile, where that is asked for."""
    before = _SILENT.set(asked or _SILENT.get())
    try:
        yield
    finally:
        _SILENT.reset(before)


def can_show() -> bool:
    """Whether somebody watches: stderr is a terminal, or this is a notebook."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console(stderr=True).is_jupyter


@contextmanager
def showing(what: str, after: float = 0.0) -> Iterator[Say]:
    """Shows a bar once it takes longer than `after` seconds, and removes it at the end. The value changes what is said;
    a bar is drawn where the number of steps is known. Where nobody watches, see `can_show`, a line on stderr says what
    is done, one in `LINE_SECONDS` at most and the first one after as long; no line is said twice."""
    if _SILENT.get():
        yield lambda said, done=0, steps=0: None
        return
    if not can_show():
        lines = _Lines()
        try:
            yield lines.say
        finally:
            lines.ended.set()
        return
    shown = _bar()
    task = shown.add_task(what, total=None)
    ended, lock = False, threading.Lock()

    def begin() -> None:
        with lock:
            if not ended:
                shown.start()

    timer = threading.Timer(after, begin)
    timer.daemon = True
    if after > 0:
        timer.start()
    else:
        begin()

    def say(said: str, done: int = 0, steps: int = 0) -> None:
        shown.update(task, description=said, completed=done, total=steps or None)

    try:
        yield say
    finally:
        timer.cancel()
        with lock:
            ended = True
            if shown.live.is_started:
                shown.stop()


class _Lines:
    """Lines on stderr: of a step as it begins, or later while it lasts, where another line was there shortly before."""

    def __init__(self) -> None:
        self.ended, self.lock = threading.Event(), threading.Lock()
        self.last, self.due = time.monotonic(), ""
        self.thread: threading.Thread | None = None

    def say(self, said: str, done: int = 0, steps: int = 0) -> None:
        with self.lock:
            self.due = f"{said} ({done} of {steps})" if steps else said
            self._print()
        if self.thread is None:
            self.thread = threading.Thread(target=self._watch, name="tilewright-progress", daemon=True)
            self.thread.start()

    def _watch(self) -> None:
        while not self.ended.wait(LINE_SECONDS):
            with self.lock:
                self._print()

    def _print(self) -> None:
        now = time.monotonic()
        if not self.due or now - self.last < LINE_SECONDS or sys.stderr is None or self.ended.is_set():
            return
        self.last, said, self.due = now, self.due, ""
        with suppress(OSError, ValueError):  # nobody reads, or it is closed
            print(said, file=sys.stderr, flush=True)


@contextmanager
def watched(progress: bool | Say, what: str, after: float = 2.0) -> Iterator[Say]:
    """Tells a caller's own function of each step; where `progress` is True shows a bar after so many seconds, where it
    is False nothing."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda said, done=0, steps=0: None
    else:
        with showing(what, after) as say:
            yield say


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, Task, TextColumn
    from rich.text import Text

    class Bar(BarColumn):
        def render(self, task: Task) -> Any:
            return super().render(task) if task.total else Text()

    class Count(MofNCompleteColumn):
        def render(self, task: Task) -> Text:
            return super().render(task) if task.total else Text()

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), Bar(), Count())
    return Progress(*columns, console=Console(stderr=True), transient=True)
