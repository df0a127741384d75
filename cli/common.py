"""What both command lines share: errors in one line, tables, warnings."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NoReturn, TextIO

from ..support.amounts import bytes_in
from ..support.files import kind_of_file
from ..support.progress import Say, showing
from ..support.sentences import SentenceError, shortened, suggestion, visible

STDIN = "-"
"""Standard input where a file is read, standard output where one is written."""


class CliError(SentenceError):
    """What the user did wrong, in one sentence."""

    code = 1
    """The exit code."""


class NothingJudged(CliError):
    """A check or a measurement has no finite numbers to judge."""

    code = 3


class _Noting(argparse._StoreAction):
    """Stores a value, and notes in `said` that the command line has it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        super().__call__(parser, namespace, values, option)
        namespace.said = {*getattr(namespace, "said", ()), self.dest}


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line and exit code 1, like every other error. `said` of what it
    parses has the names of the options with a value that the command line has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for action in (None, "store"):
            self.register("action", action, _Noting)

    def error(self, message: str) -> NoReturn:
        raise CliError(f"{message} (see {self.prog} --help)")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; what is no option gets a suggestion from those of the command."""
        parsed, left = self.parse_known_args(args, namespace)
        if left:
            parser = self._of(getattr(parsed, "command", None))
            options = [o for action in parser._actions for o in action.option_strings]
            parser.error(
                f"unrecognized arguments: {' '.join(left)}{suggestion(left[0].split('=')[0], options)}"
            )
        return parsed

    def _of(self, command: str | None) -> OneLineParser:
        """The parser of a command; this one where there is none."""
        groups = [a for a in self._actions if isinstance(a, argparse._SubParsersAction)]
        return next((g.choices[command] for g in groups if command in g.choices), self)

    def _check_value(self, action: argparse.Action, value: str) -> None:
        """As argparse's, with a suggestion for what is misspelt."""
        known = [] if action.choices is None else [str(c) for c in action.choices]
        if known and value not in known:
            said = f"invalid choice: '{value}' (choose from {', '.join(known)})"
            raise argparse.ArgumentError(action, said + suggestion(value, known))


def complain(program: str, message: str) -> None:
    """Prints an error to stderr, of long lines the ends."""
    say(f"{program}: error: {shortened(message)}")


def unreadable(error: BaseException) -> str | None:
    """The sentence for a text or a number that Python refuses to read; None for other errors."""
    if isinstance(error, UnicodeError):
        return "a name or a text is not UTF-8"
    if isinstance(error, ValueError) and "integer string conversion" in str(error):
        return "a number has too many digits"
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "the name of a file has a character 0"
    return None


def read_stdin() -> bytes:
    """All of standard input. Raises CliError where it is closed."""
    if sys.stdin is None:
        raise CliError("standard input is closed, and - reads it")
    return sys.stdin.buffer.read()


def finite(value: Any) -> Any:
    """Plain data in which numbers that JSON does not have, infinity and NaN, are null."""
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None


def print_json(value: Any) -> None:
    """Prints plain data as JSON."""
    print(json.dumps(finite(value), indent=2, allow_nan=False))


def tell(message: str) -> None:
    """Prints what a person reads to stdout; escape sequences in names are spelt."""
    print(visible(message))


def say(message: str) -> None:
    """Prints to stderr, if anybody listens."""
    try:
        print(visible(message), file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """What a stream still holds, and all that comes, goes nowhere: Python would fail to write it when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def os_message(error: OSError) -> str:
    """`model.mlir: No such file or directory`."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def check_plain(path: str) -> None:
    """Raises CliError where what is to be read is a device or a pipe with a name, of which nobody knows the end."""
    try:
        kind = kind_of_file(os.stat(path).st_mode)
    except (OSError, ValueError):
        return  # whoever opens it says so
    if kind is not None:
        raise CliError(f"{path}: {kind}, not a file; redirect it to stdin and read that, as -")


@contextmanager
def quiet_pipe():
    """A reader that closes our output early (`| head`) is no error."""
    # a program started with its output closed has none; what stands for it stays open to the end
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file may be no UTF-8
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError:
        try:
            sys.stdout.flush()
        except OSError:
            discard(sys.stdout)
        raise


@contextmanager
def short_warnings(program: str) -> Iterator[None]:
    """Warnings are one line on stderr."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_: f"{program}: warning: {' '.join(str(message).split())}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A rich table on a terminal, plain columns elsewhere."""
    rows = [[visible(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Column, Table
        from rich.text import Text

        from ..backends.terminal import Fitted

        columns = [Column(name, no_wrap=i == 0, overflow="fold") for i, name in enumerate(header)]
        shown = Table(*columns, title=Text(visible(title), "table.title"), title_justify="left")
        for row in rows:
            shown.add_row(*map(Text, row))
        Console().print(Fitted(shown))
        return
    tell(title)
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        print("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


def working(what: str) -> AbstractContextManager[Say]:
    """Says that something takes its time, as `support.progress.showing` does; the value changes what is said."""
    return showing(what)


def parse_bytes(text: str | None, option: str = "--pool-bytes") -> int | None:
    """`4096`, `512K`, `64MiB` or `2G` in bytes, K being 1,024; None for None. Raises CliError."""
    if text is None:
        return None
    found = bytes_in(text)
    if found is None:
        raise CliError(f"cannot read {option} {text}; write 4096, 512K, 64M or 2G")
    return found
