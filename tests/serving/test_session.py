"""Sessions: values from many threads and streams, events, bound buffers, errors, the end, and what stats count."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import xla_code

import tilewright as tw
from tilewright.serving import Session, SessionError

TABLE = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((256, 512)).astype(np.float32)
SECONDS = 30.0
"""No test waits longer for anything."""


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ TABLE) @ w


def ones(rows: int, by: float = 1.0) -> np.ndarray:
    return np.full((rows, 256), by, np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    short, long = (tw.compile(layer, W, ones(n)) for n in (1, 16))
    found = tmp_path_factory.mktemp("served") / "net.twm"
    tw.save({"decode": short, "prefill": long}, found, weights={"w": W})
    return found


@pytest.fixture(scope="module")
def double() -> tw.Program:
    return tw.compile(lambda x: x * 2, np.ones(8, np.float32))


def numbers(n: float) -> np.ndarray:
    return np.full(8, n, np.float32)


class Gate:
    """A call that runs until it is let go, so that others wait behind it."""

    def __init__(self, session: Session, **how: Any) -> None:
        self.begun, self.open = threading.Event(), Future[None]()
        self.future = session.submit("double", numbers(0), after=[self.open], **how)


# -- one set of weights ----------------------------------------------------------------------------------------


@xla_code()
def test_entries_of_a_file_share_its_weights(path: Path) -> None:
    """Constants and values of arguments of both entries are at the same addresses, of the map."""
    with tw.Session(path) as session:
        assert session.entries == ("decode", "prefill")
        assert session.stats().touched_bytes == 0
        x = np.random.default_rng(2).standard_normal((16, 256)).astype(np.float32)
        wanted = np.asarray(tw.load(path, entry="prefill")(x=x))
        np.testing.assert_array_equal(session.run("prefill", x=x), wanted)
        np.testing.assert_allclose(session("decode")(x=x[:1]), wanted[:1], rtol=1e-4, atol=1e-4)
        places: list[set[int]] = []
        for entry in session.entries:
            program = session(entry).program
            constants = program.executable("typed").constants.values()  # pyright: ignore
            held = [*constants, program._signature.parameters.defaults["w"]]
            places.append({a.unsafe_buffer_pointer() for a in held if a.nbytes >= TABLE.nbytes})
        assert places[0] == places[1] and len(places[0]) == 2
        found = session.stats()
        assert found.weight_bytes is not None and found.weight_bytes >= TABLE.nbytes + W.nbytes
        assert found.touched_bytes is not None and 0 < found.touched_bytes <= found.weight_bytes
    with tw.Session(path, "ascend-310p3") as session:
        assert session("decode").program.target == "ascend-310p3"


def test_what_is_no_file_and_what_is(path: Path, double: tw.Program, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="are for model files"):
        tw.Session(double, "ascend-310")
    with pytest.raises(SessionError, match="f is a function, not a program that"):
        tw.Session({"f": layer})  # pyright: ignore
    with pytest.raises(SessionError, match="1 is no name of a program"):
        tw.Session({1: double})  # pyright: ignore
    with pytest.raises(SessionError, match="at least one program"):
        tw.Session({})
    with pytest.raises(OSError, match="No such file"):
        tw.Session(tmp_path / "none.twm")
    with pytest.raises(tw.ModelFileError, match="none before 1 is taken"):
        tw.Session(path, least_sequence=1)
    with pytest.raises(SessionError, match="room for one call"):
        tw.Session(double, queue=0)
    with pytest.raises(SessionError, match="'wait' or 'raise'"):
        tw.Session(double, when_full="drop")  # pyright: ignore
    with tw.Session(path) as session, tw.Session(double) as other:
        with pytest.raises(SessionError, match=r"no entry 'decod'; did you mean decode\?; the session has decode, pre"):
            session.run("decod")
        with pytest.raises(SessionError, match="say which entry"):
            session()
        with pytest.raises(SessionError, match="an entry of another session"):
            session.run(other())
        np.testing.assert_array_equal(other()(numbers(2)), numbers(4))


# -- threads and streams ---------------------------------------------------------------------------------------


def test_eight_threads_on_one_session(path: Path) -> None:
    with tw.Session(path) as session:
        wanted = {n: np.asarray(session.run("decode", x=ones(1, n))) for n in range(8)}
        barrier = threading.Barrier(8)

        def calls(n: int) -> bool:
            barrier.wait()
            found = []
            for i in range(6):
                how = session.run("decode", x=ones(1, n)) if i % 2 else session("decode")(x=ones(1, n))
                found.append(np.array_equal(how, wanted[n]))
            return all(found)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(calls, range(8)))
        stats = session.stats()
        assert stats.entries["decode"].calls == 56 and stats.entries["decode"].errors == 0


def test_many_streams(double: tw.Program) -> None:
    """Values of each call, order within each stream."""
    ended: list[tuple[int, int]] = []
    with tw.Session({"double": double}, threads=8) as session:
        futures = {}
        for i in range(10):
            for stream in range(20):
                futures[stream, i] = future = session.submit("double", numbers(stream * 100 + i), stream=stream)
                future.add_done_callback(lambda _, key=(stream, i): ended.append(key))
        for (stream, i), future in futures.items():
            np.testing.assert_array_equal(future.result(SECONDS), numbers(2 * (stream * 100 + i)))
    for stream in range(20):
        assert [i for s, i in ended if s == stream] == [*range(10)]
    assert session._streams._streams == {} and session.stats().queue_most > 1


def test_streams_run_at_once() -> None:
    """Calls that meet in the middle end, which those of one stream would not."""
    meeting = threading.Barrier(3)

    def meet(x: Any) -> Any:
        meeting.wait(SECONDS)
        return x

    program = tw.compile(lambda x: jax.pure_callback(meet, x, x), np.ones(8, np.float32))
    with tw.Session(program) as session:
        futures = [session.submit("main", numbers(n), stream=n) for n in range(3)]
        assert [float(f.result(SECONDS)[0]) for f in futures] == [0, 1, 2]


def test_events_between_streams(double: tw.Program) -> None:
    with tw.Session({"double": double}) as session:
        first = Gate(session, stream="a")
        last = session.submit("double", numbers(3), stream="b", after=first.future)
        free = session.submit("double", numbers(4), stream="c")
        free.result(SECONDS)
        assert not last.done() and session.stats().queue_length == 2
        first.open.set_result(None)
        np.testing.assert_array_equal(last.result(SECONDS), numbers(6))
        assert first.future.done()
        with pytest.raises(SessionError, match="futures that submit gave, not int"):
            session.submit("double", numbers(1), after=[3])  # pyright: ignore


def test_an_error_belongs_to_its_future(double: tw.Program) -> None:
    with tw.Session({"double": double}) as session:
        wrong = session.submit("double", np.ones(3, np.float32))
        right = session.submit("double", numbers(1))
        behind = session.submit("double", numbers(1), stream=1, after=[wrong])
        with pytest.raises(tw.CompileError, match=r"must be f32\[8\], got f32\[3\]"):
            wrong.result(SECONDS)
        np.testing.assert_array_equal(right.result(SECONDS), numbers(2))
        with pytest.raises(SessionError, match="what it waits for failed: argument x") as caught:
            behind.result(SECONDS)
        assert isinstance(caught.value.__cause__, tw.CompileError)
        with pytest.raises(tw.CompileError):
            session.run("double", np.ones(3, np.float32))
        stats = session.stats().entries["double"]
        assert (stats.calls, stats.errors) == (3, 2)
        gate = Gate(session)
        cancelled = session.submit("double", numbers(1))
        follows = session.submit("double", numbers(1), stream=1, after=[cancelled])
        assert cancelled.cancel()
        with pytest.raises(SessionError, match="it was cancelled"):
            follows.result(SECONDS)
        gate.open.set_result(None)


def test_a_full_queue(double: tw.Program) -> None:
    with tw.Session({"double": double}, queue=2, when_full="raise") as session:
        gate = Gate(session)
        waits = session.submit("double", numbers(1))
        with pytest.raises(SessionError, match="double: 2 calls wait already, which is all that"):
            session.submit("double", numbers(1), stream=1)
        gate.open.set_result(None)
        waits.result(SECONDS)
    with tw.Session({"double": double}, queue=1) as session, ThreadPoolExecutor(1) as other:
        gate = Gate(session)
        waiting = other.submit(session.submit, "double", numbers(3), stream=1)
        time.sleep(0.05)
        assert not waiting.done()
        gate.open.set_result(None)
        np.testing.assert_array_equal(waiting.result(SECONDS).result(SECONDS), numbers(6))
        said: Future[str] = Future()
        gate = Gate(session)

        def again(_: Future[Any]) -> None:
            """In the thread of the stream: `full` waits there."""
            try:
                full.append(session.submit("double", numbers(0), stream=8, after=[Future()]))
                session.submit("double", numbers(0))
            except SessionError as error:
                said.set_result(str(error))

        full: list[Future[Any]] = []
        gate.future.add_done_callback(again)
        gate.open.set_result(None)
        assert "what a future calls back cannot wait for room" in said.result(SECONDS)
        session.close(cancel=True)
        assert full[0].cancelled()


# -- the end ---------------------------------------------------------------------------------------------------


def test_close_waits_or_cancels(double: tw.Program) -> None:
    session = tw.Session({"double": double})
    futures = [session.submit("double", numbers(n), stream=n % 3) for n in range(30)]
    session.close()
    assert [float(f.result(0)[0]) for f in futures] == [2.0 * n for n in range(30)]
    assert not [thread for thread in session._streams._pool._threads if thread.is_alive()]
    for call in (session.run, session.submit):
        with pytest.raises(SessionError, match="the session is closed"):
            call("double", numbers(1))
    session.close()

    entered, leave = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        entered.set()
        leave.wait(SECONDS)
        return x

    program = tw.compile(lambda x: jax.pure_callback(slow, x, x), np.ones(8, np.float32))
    session = tw.Session({"slow": program, "double": double}, queue=3)
    runs = session.submit("slow", numbers(5))
    assert entered.wait(SECONDS)
    queued = [session.submit("double", numbers(1)), session.submit("double", numbers(1), stream=1, after=[Future()])]
    with ThreadPoolExecutor(1) as other:
        closing = other.submit(session.close, cancel=True)
        for future in queued:
            with pytest.raises(CancelledError):
                future.result(SECONDS)
        assert not closing.done()
        leave.set()
        closing.result(SECONDS)
    assert float(runs.result(0)[0]) == 5

    found: list[Future[Any]] = []

    def fails() -> None:
        with tw.Session({"double": double}) as session:
            found.append(Gate(session).future)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert found[0].cancelled()


def test_a_future_cannot_close_its_session(double: tw.Program) -> None:
    said: Future[str] = Future()
    with tw.Session({"double": double}) as session:
        gate = Gate(session)

        def end(_: Future[Any]) -> None:
            try:
                session.close()
            except SessionError as error:
                said.set_result(str(error))

        gate.future.add_done_callback(end)
        gate.open.set_result(None)
        assert "cannot close its session" in said.result(SECONDS)
        np.testing.assert_array_equal(session.run("double", numbers(1)), numbers(2))


# -- buffers ---------------------------------------------------------------------------------------------------


def test_bound_buffers(path: Path) -> None:
    """A call takes what is in them then, and a result is no view of them."""
    with tw.Session(path) as session:
        x, w = ones(1), W.copy()
        out = np.zeros((1, 512), np.float32)
        bound = session.bind("decode", x=x, out=out)
        assert bound() is out
        first = out.copy()
        np.testing.assert_array_equal(first, session.run("decode", x=x))
        x *= 2
        assert session.submit(bound).result(SECONDS) is out
        np.testing.assert_array_equal(out, session.run("decode", x=ones(1, 2)))
        more = session.bind(bound, w=w)
        w[:] = 0
        assert not more().any() and out is more()
        np.testing.assert_array_equal(bound(x=ones(1)), first)  # what a call gives comes first
        with pytest.raises(SessionError, match="decode has no argument 'y'; it takes w, x"):
            session.bind("decode", y=x)
        with pytest.raises(SessionError, match="out= has an array that is read-only"):
            session.bind("decode", out=np.broadcast_to(np.float32(0), (1, 512)))
        with pytest.raises(SessionError, match="out= has a int"):
            session.bind("decode", out=3)
        with pytest.raises(SessionError, match=r"decode gives float32\[1, 512\], and out= has float64\[1, 512\] there"):
            session.bind("decode", x=x, out=np.zeros((1, 512)))()
        with pytest.raises(SessionError, match="out= has the structure"):
            session.bind("decode", x=x, out=[out])()
    same = tw.compile(lambda x: x, numbers(1))
    with tw.Session(same) as session:
        x = numbers(1)
        bound = session.bind("main", x=x)
        first = bound()
        x[:] = 2
        assert float(first[0]) == 1 and float(bound()[0]) == 2


# -- open sizes, and what is counted ---------------------------------------------------------------------------


def test_open_sizes_and_stats() -> None:
    (b,) = jax.export.symbolic_shape("b")
    program = tw.compile(lambda x: x + 1, jax.ShapeDtypeStruct((b, 64), "float32"))
    with tw.Session({"open": program, "closed": program.at(b=4)}) as session:
        for n in (2, 4, 4):
            np.testing.assert_array_equal(session.run("open", np.zeros((n, 64), np.float32)), np.ones((n, 64)))
        session.submit("closed", np.zeros((4, 64), np.float32)).result(SECONDS)
        with pytest.raises(tw.CompileError):
            session.run("open", np.zeros((2, 3), np.float32))
        stats = session.stats()
        found, closed = stats.entries["open"], stats.entries["closed"]
        assert (found.calls, found.errors, closed.calls, closed.errors) == (4, 1, 1, 0)
        two, four = (program.report(at={"b": n}) for n in (2, 4))
        assert found.microseconds == pytest.approx(two.microseconds + 2 * four.microseconds)
        assert found.joules == pytest.approx(two.energy_joules + 2 * four.energy_joules)
        assert closed.microseconds == pytest.approx(four.microseconds)
        wall = found.wall
        assert 0 < wall.p50 <= wall.p90 <= wall.p99 <= wall.most
        assert closed.waited.most > 0 == found.waited.most
        assert stats.device_bytes == program.at(b=4).report().memory.arena_bytes
        assert stats.pools["open"].watermark_bytes > 0 and stats.weight_bytes is None
        said = json.loads(json.dumps(stats.to_json()))
        assert said["schema"] == "tilewright.session/1" and said["entries"]["open"]["wall"]["most"] == wall.most
        assert said["pools"]["open"]["watermark_bytes"] == stats.pools["open"].watermark_bytes
