"""`tw.Session`: programs that are called again and again, from many threads and in streams."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from ..api.files.loading import opened, program_of
from ..api.files.names import ENTRY
from ..api.files.reading import ModelFile
from ..api.program import Program
from ..api.sizes.dynamic import DynamicProgram
from ..api.sources import entry_of
from ..dialects.npu.places import arena_of
from ..modelfile.keys import Secret
from ..support.files import FilePath
from ..support.sentences import suggestion
from .stats import EntryRecord, SessionStats
from .streams import CallStreams, SessionError, WhenFull

ROOM = 1024
"""Calls that wait at most, where nobody says how many."""


class SessionEntry:
    """An entry of a session, which is called as its program is, with the buffers that are bound to it: a call takes an
    argument from these where it leaves it out."""

    def __init__(self, session: Session, name: str, program: Program, bound: Mapping[str, Any], out: Any) -> None:
        self.session, self.name, self.program, self.bound, self.out = session, name, program, bound, out

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs it as `Session.run` does."""
        return self.session.run(self, *args, **kwargs)

    def __repr__(self) -> str:
        bound = ", ".join([*self.bound, *(["out"] if self.out is not None else [])])
        return f"<tilewright.SessionEntry {self.name}{f' with {bound}' if bound else ''}>"


class Session:
    """Programs that are open for calls: those of a model file, on one set of mapped weights, or some of this process.

        with tw.Session("model.twm") as session:
            y = session.run("decode", x)                             # in this thread
            future = session.submit("decode", x, stream=1)           # behind the calls of stream 1
            other = session.submit("prefill", x, after=[future])     # in stream 0, after that call

    Any thread may call it. What a call raises belongs to its future; the session goes on.
    """

    def __init__(
        self,
        programs: FilePath | Program | Mapping[str, Program],
        target: str | None = None,
        *,
        key: Secret | None = None,
        trusted: FilePath | Sequence[FilePath] = (),
        least_sequence: int = 0,
        threads: int | None = None,
        queue: int = ROOM,
        when_full: WhenFull = "wait",
    ) -> None:
        """Opens a session.

        Args:
            programs: A model file, which is opened once; or programs by name, with open sizes or without; one alone is
                called `main`.
            target: The chip that programs of a file are for; where it is None, the first one that the file has.
            key, trusted, least_sequence: As `tw.load` has them, for a file.
            threads: Submitted calls that run at once; as many as there are processors, and at least 4, where it is
                None.
            queue: Submitted calls that wait, at most.
            when_full: What `submit` does when so many wait: "wait" until there is room, or "raise" SessionError.

        Raises:
            SessionError: A file is asked for what only programs have, or the other way round, or there is no program.
            ModelFileError, CompileError, MachineError, OSError: As `tw.load` raises them.
        """
        self._file: ModelFile | None = None
        if isinstance(programs, Program | Mapping):
            if target is not None or key is not None or trusted or least_sequence:
                raise SessionError("target=, key=, trusted= and least_sequence= are for model files; programs have a "
                                   "chip")  # fmt: skip
            found = {ENTRY: programs} if isinstance(programs, Program) else dict(programs)
            for name, program in found.items():
                if not isinstance(name, str):
                    raise SessionError(f"{name!r} is no name of a program")
                if not isinstance(program, Program):
                    raise SessionError(f"{name} is a {type(program).__name__}, not a program that tw.compile gave")
        else:
            self._file = file = opened(programs, key, trusted, least_sequence)
            found = {name: program_of(file, target, name) for name in file.entries}
        if not found:
            raise SessionError("a session has at least one program")
        self._entries = {name: SessionEntry(self, name, program, {}, None) for name, program in found.items()}
        self._records = {name: EntryRecord(program) for name, program in found.items()}
        self._streams = CallStreams(threads, queue, when_full)

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of its programs."""
        return tuple(self._entries)

    def __call__(self, entry: str | None = None, /) -> SessionEntry:
        """An entry, which is called as its program is; it may be left out where there is one. Raises SessionError."""
        return self._entry(entry)

    def _entry(self, entry: str | SessionEntry | None) -> SessionEntry:
        if isinstance(entry, SessionEntry):
            if entry.session is not self:
                raise SessionError(f"{entry.name} is an entry of another session")
            return entry
        if entry is None and len(self._entries) == 1:
            return next(iter(self._entries.values()))
        if entry not in self._entries:
            near = "" if entry is None else suggestion(entry, self._entries)
            asked = "say which entry" if entry is None else f"there is no entry {entry!r}{near}"
            raise SessionError(f"{asked}; the session has {', '.join(self._entries)}")
        return self._entries[entry]

    # -- calls ---------------------------------------------------------------------------------------------

    def run(self, entry: str | SessionEntry, /, *args: Any, **kwargs: Any) -> Any:
        """Calls an entry at once, in this thread, whatever waits in streams; gives what its program gives, when that is
        computed. Raises what the program raises, and SessionError."""
        found = self._entry(entry)
        with self._streams.here():
            return self._call(found, args, kwargs, 0.0)

    def submit(
        self,
        entry: str | SessionEntry,
        /,
        *args: Any,
        stream: Hashable = 0,
        after: Future[Any] | Iterable[Future[Any]] = (),
        **kwargs: Any,
    ) -> Future[Any]:
        """Queues a call of an entry, and gives the future of its results.

        Calls of one stream run in order, streams run at once. Arrays are read when the call runs. What the call raises
        is in its future, and the next call of the stream runs.

        Args:
            entry: Its name, or what `bind` gave.
            *args: Arguments, as for a call; those called `stream` and `after` can be given by position, or bound.
            stream: Any value that can be a key; a stream is there as long as it has calls.
            after: Futures that have to be done before it begins, of any stream or session. Where one of them failed or
                was cancelled, the call is not run, and fails.
            **kwargs: Arguments, as for a call.

        Raises:
            SessionError: The queue is full, and nobody waits (`when_full`); or the session is closed.
        """
        found, queued = self._entry(entry), perf_counter()
        events = (after,) if isinstance(after, Future) else after
        return self._streams.submit(
            found.name, lambda: self._call(found, args, kwargs, perf_counter() - queued), stream, events
        )

    def bind(self, entry: str | SessionEntry, /, *, out: Any = None, **buffers: Any) -> SessionEntry:
        """The entry with buffers, which calls of it take where they leave an argument out. Nothing is copied now: a
        call takes an array as it is when the call runs, so that the caller may write to it between calls.

        Args:
            entry: Its name, or what `bind` gave before.
            out: Arrays of numpy that results are written to, in the structure of the results; calls give these. Bind
                one for each stream, as streams would write to it at one time.
            **buffers: Arrays, or pytrees of arrays, by the names of arguments.

        Raises:
            SessionError: The program has no such argument, or `out` is no array that can be written to.
        """
        found = self._entry(entry)
        program, known = found.program, ", ".join(found.program.input_names)
        for name in buffers:
            if not program.takes(name):
                raise SessionError(f"{found.name} has no argument {name!r}; it takes {known}")
        if out is not None:
            _check_writable(found.name, out)
        return SessionEntry(self, found.name, program, {**found.bound, **buffers}, found.out if out is None else out)

    def _call(self, entry: SessionEntry, args: Sequence[Any], kwargs: Mapping[str, Any], waited: float) -> Any:
        """Calls an entry, which has waited for so many seconds, and counts it."""
        import jax

        record, sizes, done = self._records[entry.name], (), False
        named = {**entry.bound, **kwargs} if entry.bound else kwargs
        began = perf_counter()
        try:
            sizes = record.sizes(args, named)
            found = jax.block_until_ready(entry.program(*args, **named))
            if entry.out is not None:
                found = _written(entry.name, entry.out, found)
            done = True
            return found
        finally:
            record.add(waited, perf_counter() - began, sizes if done else None)

    # -- what it did, and the end ---------------------------------------------------------------------------

    def stats(self) -> SessionStats:
        """What the session has done so far. The first time it prices the programs that were called."""
        programs = {name: entry.program for name, entry in self._entries.items()}
        closed = [program for program in programs.values() if not isinstance(program, DynamicProgram)]
        return SessionStats(
            {name: record.summary() for name, record in self._records.items()},
            self._streams.waiting,
            self._streams.most,
            self._streams.running,
            sum(arena_of(entry_of(program.module())) or 0 for program in closed),
            {name: p.pool.statistics for name, p in programs.items() if isinstance(p, DynamicProgram)},
            None if self._file is None else self._file.weight_bytes,
            None if self._file is None else self._file.touched_bytes,
        )

    def close(self, *, cancel: bool = False) -> None:
        """Takes no more calls, and waits for those that were submitted; with `cancel` those that have not begun are
        cancelled, and it waits for the others."""
        self._streams.close(cancel)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it; calls that wait are cancelled where the block raised something."""
        self.close(cancel=kind is not None)

    def __repr__(self) -> str:
        return f"<tilewright.Session {', '.join(self._entries)}>"


# -- results that are written to buffers ----------------------------------------------------------------------


def _check_writable(name: str, out: Any) -> None:
    """Raises SessionError."""
    import jax

    for buffer in jax.tree.leaves(out):
        if not isinstance(buffer, np.ndarray) or not buffer.flags.writeable:
            what = "an array that is read-only" if isinstance(buffer, np.ndarray) else f"a {type(buffer).__name__}"
            raise SessionError(f"{name}: out= has {what}; results are written to arrays of numpy")


def _written(name: str, out: Any, results: Any) -> Any:
    """The buffers, with the results. Raises SessionError, and writes nothing, where they have other types."""
    import jax

    buffers, structure = jax.tree.flatten(out)
    found, given = jax.tree.flatten(results)
    if structure != given:
        raise SessionError(f"{name} gives {given}, and out= has the structure {structure}")
    for buffer, result in zip(buffers, found, strict=True):
        if (buffer.shape, buffer.dtype) != (result.shape, result.dtype):
            said = f"{result.dtype}{list(result.shape)}"
            raise SessionError(f"{name} gives {said}, and out= has {buffer.dtype}{list(buffer.shape)} there")
    for buffer, result in zip(buffers, found, strict=True):
        np.copyto(buffer, result)
    return out
