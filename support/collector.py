"""The garbage collector, paused while many objects are made that stay."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PROMOTED = 1_000_000
"""Objects that may be taken for old unseen before everything is looked through (about ten compilations of GPT-2)."""


class _Pause:
    """The pause that all threads of the process share: the first that enters begins it, the last that leaves ends it.
    So none ends it while another is inside, and what the caller set is back when all have left."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.stopped = False
        """Whether the collector was running, and the pause has stopped it."""
        self.promoted = 0

    def enter(self) -> None:
        with self.lock:
            self.inside += 1
            if self.inside == 1 and gc.isenabled() and not gc.get_freeze_count():
                gc.disable()
                self.stopped = True

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside or not self.stopped:
                return
            self.stopped = False
            full = self._promote()
            gc.enable()
        if full:
            gc.collect()

    def _promote(self) -> bool:
        """Takes young objects for old; returns whether everything should be looked through. Does nothing where somebody
        froze objects or started the collector meanwhile."""
        if gc.isenabled() or gc.get_freeze_count():
            return False
        self.promoted += max(gc.get_count()[0], 0)
        gc.freeze()
        full = self.promoted > PROMOTED and self.promoted > gc.get_freeze_count() / 4
        gc.unfreeze()
        if full:
            self.promoted = 0
        return full


_PAUSE = _Pause()


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside, where each would walk all that was made so far (a quarter of a compilation's time).

    What was made is then taken for old instead of being walked, by way of the collector's permanent generation. What
    of it is garbage waits for the next collection of everything, which is made here when more than `PROMOTED` objects
    wait, and a quarter of all there are. Does nothing where the collector is off or the caller has frozen objects.
    Afterwards the collector runs as before, with the same thresholds and no object frozen, whatever is raised inside
    and however many threads are.
    """
    _PAUSE.enter()
    try:
        yield
    finally:
        _PAUSE.leave()
