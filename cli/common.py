"""What both command lines share: errors in one line, files that are never half written."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn


class CliError(Exception):
    """What the user did wrong, in one sentence."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line and exit code 1, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise CliError(f"{message} (see {self.prog} --help)")


def complain(program: str, message: str) -> None:
    """Prints an error to stderr."""
    print(f"{program}: error: {message}", file=sys.stderr)


def os_message(error: OSError) -> str:
    """`model.mlir: No such file or directory`."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean a or b?` where something known is spelled like `name`."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file in one step: a reader sees the old contents or the new ones, never a part."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(draft, target)
    except OSError as error:
        raise CliError(f"{target}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def quiet_pipe():
    """A reader that closes our output early (`| head`) is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A rich table on a terminal, plain columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*header, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    print(title)
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        print("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Says on a terminal that something takes its time; the value changes what is said. Silent elsewhere."""
    if not sys.stderr.isatty():
        yield lambda said: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield lambda said: status.update(said)
