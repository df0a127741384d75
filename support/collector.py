"""The garbage collector, paused while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

PROMOTED = 1_000_000
"""Objects that may be taken for old unseen before everything is looked through (about ten compilations of GPT-2)."""

_promoted = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside, where each would walk all that was made so far (a quarter of a compilation's time).

    What was made is then taken for old instead of being walked, by way of the collector's permanent generation. What
    of it is garbage waits for the next collection of everything, which is made here when more than `PROMOTED` objects
    wait, and a quarter of all there are. Does nothing where the collector is off or the caller has frozen objects.
    """
    global _promoted
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _promoted += max(gc.get_count()[0], 0)
        gc.freeze()
        full = _promoted > PROMOTED and _promoted > gc.get_freeze_count() / 4
        gc.unfreeze()
        gc.enable()
        if full:
            _promoted = 0
            gc.collect()
