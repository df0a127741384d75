"""The figures of a machine file with what is written beside them: where each number is from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.files import read_plain, toml_of
from . import files
from .machine import Machine
from .parts import MachineError

_TABLE = re.compile(r"\[([\w.\-]+)\]")
_KEY = re.compile(r"([\w\-]+)\s*=")


@dataclass(frozen=True)
class ChipFigure:
    """`key` ("memory.l2_bytes") and its value as the file has it; source: the comment beside it, above it or at the
    head of its table; file: the chip whose file it stands in."""

    key: str
    value: Any
    source: str
    file: str


def figures(name_or_path: str) -> tuple[str, list[ChipFigure]]:
    """What the head of a machine file says, and its figures in order, those of the chip it extends first.

    Raises MachineError for an unknown target.
    """
    Machine.load(name_or_path)
    path = files.find(name_or_path)
    found: dict[str, ChipFigure] = {}
    about = _collect(path, found)
    return about, list(found.values())


def _collect(path: Path, found: dict[str, ChipFigure]) -> str:
    content = read_plain(path).decode()
    try:
        table = toml_of(content)
    except ValueError as error:
        raise MachineError(f"{path}: {error}") from error
    about, comments = _comments(content)
    base = table.pop("extends", None)
    if base is not None:
        _collect(files.find(base, path), found)
    for key, value in _leaves(table, "", comments):
        if value == {}:
            for old in [k for k in found if k == key or k.startswith(f"{key}.")]:
                del found[old]
            continue
        found[key] = ChipFigure(key, value, comments.get(key, ""), path.stem)
    return about


def _leaves(table: dict[str, Any], prefix: str, known: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """The keys that stand on lines of their own: an inline table is one figure."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value and key not in known:
            yield from _leaves(value, f"{key}.", known)
        else:
            yield key, value


def _comments(content: str) -> tuple[str, dict[str, str]]:
    """The comment that a file begins with, and the one of each key: behind it, else right above it, else the one that
    its table begins with."""
    found: dict[str, str] = {}
    tables: dict[str, str] = {}
    about: list[str] = []
    above: list[str] = []
    prefix, depth, head, last = "", 0, True, ""
    for line in content.splitlines():
        code, comment = _split(line)
        if depth:
            found[last] = found[last] or comment
        elif not code:
            if comment:
                (about if head else above).append(comment)
            else:
                above = []
            continue
        elif table := _TABLE.fullmatch(code):
            prefix, above = f"{table[1]}.", [comment] if comment else []
        elif key := _KEY.match(code):
            last = prefix + key[1]
            tables.setdefault(prefix.removesuffix("."), " ".join(above))
            found[last] = comment or " ".join(above)
            if depth == 0 and not _open(code):
                above = []
        head = False
        depth = max(0, depth + _open(code))
    return "\n".join(about), {key: said or tables[key.rpartition(".")[0]] for key, said in found.items()}


def _split(line: str) -> tuple[str, str]:
    """A line's code and its comment; a `#` in quotes is code."""
    quoted = False
    for i, c in enumerate(line):
        quoted ^= c == '"'
        if c == "#" and not quoted:
            return line[:i].strip(), line[i + 1 :].strip()
    return line.strip(), ""


def _open(code: str) -> int:
    """Brackets of a value that stay open at the end of the line."""
    value = code.partition("=")[2] if _KEY.match(code) else code
    return value.count("[") - value.count("]")
