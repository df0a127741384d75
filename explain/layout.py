"""Where the stages of a graph are drawn: in rows from what is loaded down to what is stored, with edges that go through
the rows between.

A stage is one row below the last one that it takes something from; numbers stand right above what takes them first, and
all stores are in the last row. The stages of a row, and the points that edges go through, are ordered by where their
neighbours are, row by row down and up again (the barycentre heuristic of Sugiyama, Tagawa and Toda, Methods for visual
understanding of hierarchical system structures, 1981).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

SWEEPS = 4
"""How often all rows are ordered, down and up."""

Place = list[float]
"""[row, column]: columns are counted from the middle of the drawing, one node is one wide."""


class Edge(NamedTuple):
    """A result of a node that another one takes as an operand."""

    maker: int
    result: int
    reader: int
    operand: int


@dataclass(frozen=True)
class GraphLayout:
    """The place of each node, and the places that each edge goes through between those of its ends."""

    places: Sequence[Place]
    bends: Sequence[Sequence[Place]]

    @staticmethod
    def of(kinds: Sequence[str], edges: Sequence[Edge]) -> GraphLayout:
        """The layout of nodes of these kinds, each of which comes after what it takes."""
        row = _rows(kinds, edges)
        # a result that several nodes take goes down on one line: points are those of makers, by their rows
        points: dict[tuple[int, int], int] = {}
        at = list(row)
        links: list[tuple[int, int]] = []
        chains: list[list[int]] = []
        for edge in edges:
            chain: list[int] = []
            for between in range(row[edge.maker] + 1, row[edge.reader]):
                key = edge.maker, between
                if key not in points:
                    points[key] = len(at)
                    at.append(between)
                chain.append(points[key])
            chains.append(chain)
            ends = [edge.maker, *chain, edge.reader]
            links += pairwise(ends)
        column = _columns(at, links)
        places: list[Place] = [[r, round(column[i], 3)] for i, r in enumerate(at)]
        return GraphLayout(places[: len(kinds)], [[places[i] for i in chain] for chain in chains])


def _rows(kinds: Sequence[str], edges: Sequence[Edge]) -> list[int]:
    """The row of each node."""
    row = [0] * len(kinds)
    for edge in sorted(edges, key=lambda e: e.reader):
        row[edge.reader] = max(row[edge.reader], row[edge.maker] + 1)
    last = max(row, default=0)
    for i, kind in enumerate(kinds):
        if kind == "store":
            row[i] = last
        elif kind == "fill":
            row[i] = max(min((row[e.reader] for e in edges if e.maker == i), default=1) - 1, 0)
    return row


def _columns(row: Sequence[int], links: Iterable[tuple[int, int]]) -> list[float]:
    """The column of each point, which is in a row and linked to others in the rows above and below."""
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for upper, lower in dict.fromkeys(links):
        above[lower].append(upper)
        below[upper].append(lower)
    both = {i: [*above[i], *below[i]] for i in range(len(row))}
    rows: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    for i, r in enumerate(row):
        rows[r].append(i)
    column = [0.0] * len(row)
    for members in rows:
        for number, i in enumerate(members):
            column[i] = number - (len(members) - 1) / 2
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for members in rows if down else rows[::-1]:
            wanted = {i: _mean(above[i] if down else below[i], column, column[i]) for i in members}
            members.sort(key=wanted.__getitem__)
            _place(members, wanted, column)
    for members in rows:
        _place(members, {i: _mean(both[i], column, column[i]) for i in members}, column)
    return column


def _mean(points: Sequence[int], column: Sequence[float], otherwise: float) -> float:
    """The mean column of some points."""
    return sum(column[i] for i in points) / len(points) if points else otherwise


def _place(members: Sequence[int], wanted: Mapping[int, float], column: list[float]) -> None:
    """Puts the points of a row, in their order, as near to where they are wanted as lets each be one wide."""
    for before, i in zip((None, *members), members, strict=False):
        column[i] = wanted[i] if before is None else max(wanted[i], column[before] + 1)
    too_far = sum(column[i] - wanted[i] for i in members) / max(len(members), 1)
    for i in members:
        column[i] -= too_far
