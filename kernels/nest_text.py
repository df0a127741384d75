"""The text of nests, which reads back as the same nest, and what is checked of it.

    nest {
      for 2 by cores along [(0, 64)] {
        for 8 along [(1, 128)] carries [%1 to %3] {
          %2 = load {input = 0, box = [128 by 1024 at 0, 1024 by 1 at 1]} : f32 over [0, 1] tile [(0, 64), (1, 128)]
          ...

A loop goes along (axis, elements from turn to turn), or (axis, elements, how far ahead of where it is it begins); what
it carries is what stands for it before and behind; its `steps` are mma steps of a turn, and those before. A stage is as
in a graph (text.py), with the extents of its tile along the axes of which it has more than one element. `nest over 2`
has two axes, of which the last are of one element, as nothing else names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from lark import Token, v_args

from ..dialects.open_sizes import certain
from ..dialects.sizes import Names
from .builder import may_repeat
from .graph import StageGraph
from .nest import AxisStep, Nest, Turns, may_move
from .plan import Binding
from .stage import KernelStage, Ref
from .text import StageError, StageReader, check, own_text, read, ref_text, stage_text, value_text

Placed = tuple[int, Sequence[Ref], KernelStage, Sequence[tuple[int, int]]]
"""A stage that was read: its line, its results, and the extents of its tile."""


def nest_text(nest: Nest) -> str:
    """The text of a nest."""
    named = [a for tile in nest.tiles for a, n in enumerate(tile) if _counts(n)]
    least, axes = _named(nest.stages, nest.body, named), len(nest.tiles[0]) if nest.tiles else 0
    head = f"nest over {axes} {{" if axes > least else "nest {"
    return "\n".join([head, *own_text(nest.stages), *_lines(nest, nest.body, "  "), "}"])


def _lines(nest: Nest, body: Sequence[int | Turns], indent: str) -> Iterator[str]:
    for item in body:
        if isinstance(item, Turns):
            yield f"{indent}{_head(nest, item)} {{"
            yield from _lines(nest, item.body, indent + "  ")
            yield f"{indent}}}"
        else:
            tile = tuple((a, n) for a, n in enumerate(nest.tiles[item]) if _counts(n))
            yield f"{indent}{stage_text(item, nest.stages[item])}" + (f" tile {value_text(tile)}" if tile else "")


def _counts(extent: int) -> bool:
    """Whether text says an extent of a tile."""
    return not certain(extent, "==", 1)


def _named(graph: StageGraph, body: Sequence[int | Turns], tiled: Iterable[int]) -> int:
    """How many axes a nest has as far as its tiles, stages and loops name them."""
    return 1 + max([*graph.own, *tiled, *_axes(graph, body)], default=-1)


def _head(nest: Nest, loop: Turns) -> str:
    """`for 8 along [(1, 128)] carries [%1 to %3]`."""
    along = tuple(tuple(a) if may_move(a.ahead) else (a.axis, a.apart) for a in loop.along)
    carried = ", ".join(f"{_ref(nest, before)} to {_ref(nest, after)}" for before, after in loop.carried)
    parts = [
        f"for {value_text(loop.trips)}",
        "" if loop.by == "loop" else f" by {loop.by}",
        f" along {value_text(along)}" if along else "",
        f" carries [{carried}]" if carried else "",
        f" steps {value_text(loop.steps)}" if may_move(*loop.steps) else "",
    ]
    return "".join(parts)


def _ref(nest: Nest, ref: Ref) -> str:
    return ref_text(ref, len(nest.stages[ref[0]].elements))


def parse_nest(text: str, symbols: Names | None = None) -> Nest:
    """The nest of a text, checked. symbols: what the names in open sizes stand for. Raises StageError."""
    nest = read(text, "nest", _Reader(symbols or {}))
    check_nest(nest)
    return nest


@v_args(inline=True)
class _Reader(StageReader):
    """Makes a nest of its text."""

    def nest(self, over: Token | None, *lines: Any) -> Nest:
        own = [line for line in lines if isinstance(line, tuple) and len(line) == 2]
        graph, tiles = StageGraph(), list[Sequence[tuple[int, int]]]()
        graph.own = dict(own)
        body = tuple(self._numbered(line, graph, tiles) for line in lines[len(own) :])
        axes = max(int(over or 0), _named(graph, body, [a for tile in tiles for a, _ in tile]))
        extents = tuple(tuple(dict(tile).get(a, 1) for a in range(axes)) for tile in tiles)
        return Nest(graph, extents, body)

    def _numbered(
        self, item: Placed | Turns, graph: StageGraph, tiles: list[Sequence[tuple[int, int]]]
    ) -> int | Turns:
        """Adds stages to a graph in their order, and gives loops their numbers."""
        if isinstance(item, Turns):
            body = tuple(self._numbered(inner, graph, tiles) for inner in item.body)  # pyright: ignore[reportArgumentType]
            return Turns(item.trips, item.along, body, item.by, item.carried, item.steps)
        line, results, stage, tile = item
        self.add(graph, line, results, stage)
        tiles.append(tile)
        return len(graph) - 1

    def placed(self, stage: tuple[int, Sequence[Ref], KernelStage], tile: Sequence[tuple[int, int]] | None) -> Placed:
        return (*stage, tile or ())

    def turns(
        self,
        trips: int,
        by: Token | None,
        along: Sequence[Sequence[int]] | None,
        carried: Sequence[tuple[Ref, Ref]] | None,
        steps: Sequence[int] | None,
        *body: Any,
    ) -> Turns:
        bindings = get_args(Binding)
        if by is not None and str(by) not in bindings:
            raise StageError(f"line {by.line}: there is no {by} that takes turns; there are {', '.join(bindings)}")
        binding: Any = "loop" if by is None else str(by)
        begun, done = steps or (0, 0)
        steps_along = tuple(AxisStep(*a) for a in along or ())
        return Turns(trips, steps_along, body, binding, tuple(carried or ()), (begun, done))

    def pairs(self, *pairs: tuple[Ref, Ref]) -> Sequence[tuple[Ref, Ref]]:
        return pairs

    def pair(self, before: Ref, after: Ref) -> tuple[Ref, Ref]:
        return before, after


def _axes(graph: StageGraph, body: Sequence[int | Turns]) -> Iterator[int]:
    """The axes that a nest has, as far as stages and loops say."""
    for stage in graph:
        yield from (*stage.axes, *stage.moves, *stage.tile_axes)
    for item in body:
        if isinstance(item, Turns):
            yield from (a.axis for a in item.along)
            yield from _axes(StageGraph(), item.body)


# -- rules ---------------------------------------------------------------------------------------------------


def check_nest(nest: Nest) -> None:
    """Raises StageError where a nest is none that a kernel could have."""
    check(nest.stages)
    _check(nest, nest.body, set())


def _check(nest: Nest, body: Sequence[int | Turns], known: set[Ref]) -> None:
    """Adds what is known behind some items to what is known before them."""
    for item in body:
        if isinstance(item, Turns):
            _check_loop(nest, item, known)
            continue
        stage = nest.stages[item]
        for ref in stage.operands:
            if ref not in known:
                said = f"stage {item} ({stage.op.NAME})"
                raise StageError(f"{said} reads {_ref(nest, ref)}, which is made in another loop")
        known.update((item, j) for j, _ in enumerate(stage.elements))


def _check_loop(nest: Nest, loop: Turns, known: set[Ref]) -> None:
    inside = set(known)
    for before, _ in loop.carried:
        if before not in known:
            raise StageError(f"{_head(nest, loop)}: {_ref(nest, before)} is not there before the loop")
    _check(nest, loop.body, inside)
    for before, after in loop.carried:
        if after not in inside:
            raise StageError(f"{_head(nest, loop)}: {_ref(nest, after)} is not there at the end of a turn")
        types = (nest.stages[i].elements[j] for i, j in (before, after))
        if len({*types}) > 1:
            raise StageError(f"{_head(nest, loop)}: {_ref(nest, after)} has elements of another type")
    if loop.by == "loop" and may_repeat(loop.trips):
        known.update(after for _, after in loop.carried)
    else:
        known.update(inside)
