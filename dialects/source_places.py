"""Lines of the user's source, and nodes of a model, as things that can be compared and listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

from xdsl.ir import Operation

from .base import node_of, place_of


class SourcePlace(NamedTuple):
    """A line of a file, or a node of a model, which has a number and a name; node: empty where it is a line."""

    file: str
    line: int
    node: str

    def __str__(self) -> str:
        return f"{self.file}:{self.node or self.line}"


def source_place(op: Operation) -> SourcePlace | None:
    """Where `op` came from, or None."""
    place = place_of(op)
    return None if place is None else SourcePlace(place.filename.data, place.line.data, node_of(op))


def places_of(ops: Iterable[Operation]) -> tuple[SourcePlace, ...]:
    """Where ops came from, each place once, by file and line."""
    return tuple(sorted({place for op in ops if (place := source_place(op)) is not None}))


def places_text(places: Iterable[SourcePlace], name: Callable[[str], str] = str) -> str:
    """`model.py:12-14, 20; net.onnx:/fc/Gemm, /act/Relu`: places in order, by file. name: what files are called."""
    said = []
    for file, group in groupby(places, key=lambda place: place.file):
        members = list(group)
        nodes = [place.node for place in members if place.node]
        said.append(f"{name(file)}:{', '.join([*_ranges([p.line for p in members if not p.node]), *nodes])}")
    return "; ".join(said)


def without_folder(source: str) -> str:
    """`model.py:12` for `path/to/model.py:12`; the name of a node keeps its slashes."""
    file, colon, place = source.partition(":")
    return f"{file.rpartition('/')[2]}{colon}{place}"


def _ranges(lines: list[int]) -> list[str]:
    """Rising numbers, those that follow each other as one range."""
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][-1] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
