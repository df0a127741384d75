"""Windows along the axes of a product's result: where tiles of whole windows begin, and how far they reach.

A tile of a pooled result needs all elements of the product that its windows reach. Where windows overlap, two tiles
need some of them alike: each computes them. Where they do not, there are none.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects.base import Expr


@dataclass(frozen=True)
class PooledAxis:
    """Windows along one axis of `extent` elements.

    places: how many windows there are; window: elements of each, `dilation` apart; stride: from a window to the next;
    low: elements before the first one that the first window begins at, which count as neutral.
    """

    extent: int
    places: int
    window: int
    stride: int = 1
    dilation: int = 1
    low: int = 0

    def reach(self, windows: int) -> int:
        """The elements from the first to the last one of so many windows."""
        return (windows - 1) * self.stride + (self.window - 1) * self.dilation + 1

    def windows(self, extent: int) -> int:
        """How many windows lie within so many elements."""
        return max((extent - self.reach(1)) // self.stride + 1, 0)

    def holds(self, extent: int) -> bool:
        """Whether so many elements are those of whole windows."""
        windows = self.windows(extent)
        return windows > 0 and self.reach(windows) == extent

    @property
    def bordered(self) -> bool:
        """Whether windows reach outside of the axis."""
        return self.low > 0 or self.reach(self.places) - self.low > self.extent

    @property
    def is_whole(self) -> bool:
        """Whether there is one window, of elements side by side."""
        return self.places == 1 and self.dilation == 1

    def place(self, element: Expr) -> Expr:
        """The number of the window that begins at an element, whatever indices it is made of."""
        return scaled(element + self.low, self.stride, 1)


def scaled(place: Expr, step: int, by: int) -> Expr:
    """A place that is a multiple of `step`, with `by` in the place of each step."""
    return Expr(place.constant // step * by, {v: c // step * by for v, c in place.terms})
