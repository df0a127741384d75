"""The collector's pause: nothing is lost for good, and nothing of the caller's is touched."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest

import tilewright as tw
from tilewright.support import collector
from tilewright.support.collector import collector_paused


class Knot:
    """Refers to itself, so that only the collector ends it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The collector runs, and no test of the same process before has brought its next whole collection near."""
    assert gc.isenabled()
    monkeypatch.setattr(collector._PAUSE, "promoted", 0)
    yield
    gc.unfreeze()
    gc.enable()


def test_no_collection_inside_and_none_at_the_end() -> None:
    runs: list[str] = []
    watch = lambda phase, _: runs.append(phase)  # noqa: E731
    gc.callbacks.append(watch)
    try:
        with collector_paused():
            kept = [[] for _ in range(5000)]
    finally:
        gc.callbacks.remove(watch)
    assert not runs
    assert gc.isenabled() and gc.get_freeze_count() == 0 and len(kept) == 5000


def test_garbage_waits_for_the_next_whole_collection() -> None:
    with collector_paused():
        knot = weakref.ref(Knot())
    gc.collect(1)
    assert knot() is not None
    gc.collect()
    assert knot() is None


def test_a_whole_collection_comes_after_enough_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "PROMOTED", 1000)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)  # as if there were no other objects
    knots, kept = [], []
    for _ in range(4):
        with collector_paused():
            knots.append(weakref.ref(Knot()))
            kept.append([[] for _ in range(800)])
    assert knots[0]() is None and knots[1]() is None


def test_what_the_caller_does_with_the_collector_stays() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()
    gc.enable()
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collector_paused():
        assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen - 100 > 0


def test_an_error_inside_leaves_the_collector_running() -> None:
    with pytest.raises(ValueError, match="inside"), collector_paused():
        raise ValueError("inside")
    assert gc.isenabled()


def settings() -> tuple[bool, int, tuple[int, int, int]]:
    return gc.isenabled(), gc.get_freeze_count(), gc.get_threshold()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_settings_are_back_after_an_error(enabled: bool) -> None:
    gc.set_threshold(811, 7, 5)
    try:
        if not enabled:
            gc.disable()
        before = settings()
        with pytest.raises(ValueError, match="inside"), collector_paused():
            raise ValueError("inside")
        assert settings() == before
    finally:
        gc.set_threshold(700, 10, 10)


def test_threads_share_one_pause() -> None:
    """The first that leaves does not end the pause of the other, and the last one does."""
    before = settings()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collector_paused():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with collector_paused():
        thread.start()
        assert entered.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join(10)
    assert settings() == before


def test_objects_frozen_inside_stay_frozen() -> None:
    with collector_paused():
        gc.freeze()
        frozen = gc.get_freeze_count()
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen - 100 > 0


def test_two_compilations_at_once_leave_the_collector_as_it_was() -> None:
    def fn(x: Any) -> Any:
        return x * 2 + 1

    before = settings()
    with ThreadPoolExecutor(2) as pool:
        shapes = [jax.ShapeDtypeStruct((8, n), np.float32) for n in (8, 16, 24, 32)]
        programs = list(pool.map(lambda s: tw.compile(fn, s), shapes))
    assert len(programs) == 4 and settings() == before
    with pytest.raises(tw.CompileError):
        tw.compile("no program", *shapes)
    assert settings() == before
