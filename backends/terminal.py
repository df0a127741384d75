"""Tables for terminals: where one is too narrow for a table, the rows one below the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

MOST_FOLDED = 1.35
"""How much wider than the terminal a table may be, so that cells which fold still read well."""


@dataclass(frozen=True)
class Fitted:
    """A table of text cells where the console has room for it, else each row as lines of `column value`."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        wide = console.measure(self.table, options=options.update(width=10_000))
        room = options.max_width
        if wide.maximum <= room or (wide.minimum <= room and wide.maximum <= MOST_FOLDED * room):
            yield self.table
            return
        from rich.text import Text

        if self.table.title:
            yield Text(str(self.table.title), style="italic")
        names = [str(column.header) for column in self.table.columns]
        for row in zip(*(column.cells for column in self.table.columns), strict=True):
            yield from _record(names, [str(cell) for cell in row], room)
        if self.table.caption:
            yield Text(str(self.table.caption), style="dim italic")


def _record(names: list[str], row: list[str], room: int) -> Iterator[Text]:
    """The lines of a row: its first cell, and below it the others with their columns' names."""
    from rich.text import Text

    yield Text(row[0], style="bold", overflow="fold")
    line = Text("  ")
    for name, cell in list(zip(names, row, strict=True))[1:]:
        if not cell:
            continue
        pair = Text.assemble((f"{name} ", "dim"), cell) if name else Text(cell)
        if line.plain.strip() and line.cell_len + 2 + pair.cell_len > room:
            yield line
            line = Text("  ")
        line = Text.assemble(line, "  " if line.plain.strip() else "", pair)
    line.overflow = "fold"
    yield line
