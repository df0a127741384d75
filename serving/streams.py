"""Calls that wait in streams: those of one stream run in order, streams run at once, and a call may wait for others."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from ..support.sentences import SentenceError

WhenFull = Literal["wait", "raise"]
"""What `submit` does where the queue is full: wait for room, or raise SessionError."""


class SessionError(SentenceError):
    """A session cannot do what is asked of it; the message is one sentence."""


@dataclass(eq=False)
class StreamedCall:
    """A call that waits or runs. name: what messages call it; blockers: how many things it still waits for; failed:
    what one of these raised."""

    name: str
    run: Callable[[], Any]
    stream: Hashable
    blockers: int
    future: Future[Any] = field(default_factory=Future)
    waits: bool = True
    failed: BaseException | None = None


class CallStreams:
    """Runs calls on a few threads. A call that waits for something holds none."""

    def __init__(self, threads: int | None, room: int, when_full: WhenFull) -> None:
        """threads: calls that run at once; room: calls that may wait. Raises SessionError."""
        if when_full not in ("wait", "raise"):
            raise SessionError(f"when_full is 'wait' or 'raise', not {when_full!r}")
        if any(type(n) is not int or n < 1 for n in (room, threads) if n is not None):
            raise SessionError("a session has at least one thread, and room for one call that waits")
        self.room, self.when_full = room, when_full
        count = threads or max(4, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(count, "tilewright-session", self._mark)
        self._own = threading.local()
        """Has `here` in threads of the pool."""
        self._changed = threading.Condition()
        self._streams: dict[Hashable, deque[StreamedCall]] = {}
        self.waiting, self.most, self.running = 0, 0, 0
        """Calls that wait now, the most that ever did, and those that run now."""
        self._closed, self._over = False, False

    def _mark(self) -> None:
        self._own.here = True

    # -- calls ---------------------------------------------------------------------------------------------

    @contextmanager
    def here(self) -> Iterator[None]:
        """A call runs in the thread of the caller meanwhile. Raises SessionError after `close`."""
        with self._changed:
            self._check_open()
            self.running += 1
        try:
            yield
        finally:
            with self._changed:
                self.running -= 1
                if self._closed:
                    self._changed.notify_all()

    def submit(self, name: str, run: Callable[[], Any], stream: Hashable, after: Iterable[Future[Any]]) -> Future[Any]:
        """Queues a call behind those of its stream, which begins when all futures in `after` are done. Raises
        SessionError where there is no room and nobody waits for some, and after `close`."""
        events = [*after]
        for event in events:
            if not isinstance(event, Future):
                raise SessionError(f"{name}: after= has futures that submit gave, not {type(event).__name__}")
        with self._changed:
            self._check_open()
            if self.waiting >= self.room:
                self._wait_for_room(name)
            line = self._streams.setdefault(stream, deque())
            call = StreamedCall(name, run, stream, len(events) + bool(line) + 1)  # one until all events are watched
            line.append(call)
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        for event in events:
            event.add_done_callback(partial(self._event, call))
        self._unblock(call)
        return call.future

    def _wait_for_room(self, name: str) -> None:
        """Raises SessionError."""
        full = f"{name}: {self.room} calls wait already, which is all that the queue has room for"
        if self.when_full == "raise":
            raise SessionError(full)
        if hasattr(self._own, "here"):
            raise SessionError(f"{full}, and what a future calls back cannot wait for room")
        self._changed.wait_for(lambda: self._closed or self.waiting < self.room)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError("the session is closed")

    def _event(self, call: StreamedCall, event: Future[Any]) -> None:
        """Something that a call waits for is done."""
        if event.cancelled():
            call.failed = SessionError("it was cancelled")
        elif (error := event.exception()) is not None:
            call.failed = error
        self._unblock(call)

    def _unblock(self, call: StreamedCall) -> None:
        with self._changed:
            call.blockers -= 1
            if not call.blockers and not self._over:
                self._pool.submit(self._run, call)

    def _run(self, call: StreamedCall) -> None:
        """Runs a call whose turn it is, in a thread of the pool."""
        begins = call.future.set_running_or_notify_cancel()
        with self._changed:
            self._leave(call)
            self.running += begins
        if begins:
            try:
                if call.failed is not None:
                    raise SessionError(f"{call.name}: what it waits for failed: {call.failed}") from call.failed
                result = call.run()
            except BaseException as error:  # as of any executor: it belongs to the future
                call.future.set_exception(error)
            else:
                call.future.set_result(result)
        with self._changed:
            self.running -= begins
            line = self._streams[call.stream]
            line.popleft()
            behind = line[0] if line else None
            if behind is None:
                del self._streams[call.stream]
            self._changed.notify_all()
        if behind is not None:
            self._unblock(behind)

    def _leave(self, call: StreamedCall) -> None:
        """A call waits no longer."""
        if call.waits:
            call.waits = False
            self.waiting -= 1
            self._changed.notify_all()

    # -- the end -------------------------------------------------------------------------------------------

    def close(self, cancel: bool) -> None:
        """Takes no more calls, and waits for those that there are; with `cancel` only for those that run. Raises
        SessionError in what a future calls back."""
        if hasattr(self._own, "here"):
            raise SessionError("what a future calls back cannot close its session: it would wait for itself")
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            calls = [call for line in self._streams.values() for call in line] if cancel else []
        for call in calls:
            if call.future.cancel():
                with self._changed:
                    self._leave(call)
        with self._changed:
            self._changed.wait_for(lambda: not self.waiting and not self.running)
            self._over = True
        self._pool.shutdown()
