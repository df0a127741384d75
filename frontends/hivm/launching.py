"""What a kernel is launched with: its grid, and the values of its arguments that are numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from ..errors import FrontendError
from .numbers import Number

GRID_RANK = 3

SCATTERED = "scattered"
"""What a launch says of blocks that data sends to places apart."""


@dataclass(frozen=True)
class LaunchTerms:
    """grid: blocks along each axis, none where it is not said; numbers: values of arguments that are numbers, by name
    or by place among them, and the open size of tensors, by name; sizes: their open sizes where they have several;
    scattered: numbers that blocks read send no two of them to one place."""

    grid: tuple[int, ...] = ()
    numbers: Mapping[str, Number] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    scattered: bool = False

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    @property
    def axes(self) -> tuple[int, ...]:
        """The grid with three axes."""
        return (*self.grid, *(1 for _ in range(GRID_RANK - len(self.grid))))


LINE = re.compile(r"^// launch:([^\n]*)\n", re.MULTILINE)
"""A line of HIVM text that says what its kernel is launched with: `// launch: grid=(64,), n=262144`."""

_ITEM = re.compile(r"\s*(?:(\w+)\s*=\s*)?(\([^)]*\)|[^,()]+?)\s*(?:,|$)")


def parse_launch(text: str) -> LaunchTerms:
    """A launch from `grid=(64,), n=262144` or `grid=64, 262144`. Raises FrontendError."""
    grid: tuple[int, ...] = ()
    numbers: dict[str, Number] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    at = place = 0
    scattered = False
    text = text.strip()
    while at < len(text):
        found = _ITEM.match(text, at)
        if found is None:
            raise FrontendError(f"{text!r} is no launch: write grid=(64,), n=262144")
        at, name, value = found.end(), found[1], found[2]
        if name == "grid":
            grid = _grid(value)
        elif name is None and value == SCATTERED:
            scattered = True
        elif name is not None and value.startswith("("):
            sizes[name] = _sizes(name, value)
        else:
            numbers[name or str(place)] = _number(value)
            place += name is None
    return LaunchTerms(grid, numbers, sizes, scattered)


def _parts(text: str) -> list[str]:
    """The numbers of `(8, 1024)` or `8x1024`."""
    return [p for p in re.split(r"[\s,x]+", text.strip("()")) if p]


def _grid(text: str) -> tuple[int, ...]:
    parts = _parts(text)
    if not 1 <= len(parts) <= GRID_RANK or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise FrontendError(
            f"grid={text}: a grid has one to three positive numbers of blocks, as in grid=(64,)"
        )
    return tuple(map(int, parts))


def _sizes(name: str, text: str) -> tuple[int, ...]:
    parts = _parts(text)
    if not parts or not all(map(str.isdigit, parts)):
        raise FrontendError(f"{name}={text}: open sizes are whole numbers, as in {name}=(8,1024)")
    return tuple(map(int, parts))


def _number(text: str) -> Number:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise FrontendError(f"{text!r} is no number") from None


def launch_of(text: str) -> LaunchTerms | None:
    """The launch that a line of the text says, the last one where several do; None where none does."""
    found = LINE.findall(text)
    return parse_launch(found[-1]) if found else None
