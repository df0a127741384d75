"""A contraction as numbers: the extents and roles of its axes, and divisions of its tiles over cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..dialects.dtypes import size
from ..dialects.npu.types import FRACTAL_ROWS
from ..dialects.open_sizes import is_open
from ..dialects.sparsity import INDEXED, KEPT_OF
from .builder import divide_grid
from .pooled_axes import PooledAxis

FRACTAL = FRACTAL_ROWS
"""Rows and columns of a cube fractal."""

Extents = Sequence[int]
"""Elements along each axis of a contraction."""


@dataclass(frozen=True)
class CubeProblem:
    """A contraction's axes: their extents and roles; itemsize of the inputs, in bytes."""

    extents: Sequence[int]
    batch: Sequence[int]
    m: Sequence[int]
    n: Sequence[int]
    k: Sequence[int]
    itemsize: int
    wide_m: bool = True
    """Whether a tile's rows may span several m axes (not where m is the innermost axis of lhs)."""
    windows: frozenset[int] = frozenset()
    """k axes that slide over an m axis (image to column): taken whole or one by one."""
    singly: frozenset[int] = frozenset()
    """Axes of which a step and a load have one place: those of windows where no move unrolls them."""
    dtype: str = "f32"
    stored: int = 4
    """Bytes of an element that the accumulator is stored as."""
    epilogue: float = 0.0
    """Cycles of a vector core for each element of the result; 0 without an epilogue."""
    epilogue_head: float = 0.0
    """Cycles of a vector core for each piece of a tile on top."""
    sparse: bool = False
    """Whether of rhs 2 of 4 numbers along the last k axis are stored, with their positions."""
    even: frozenset[int] = frozenset()
    """Axes of which all cores have as many tiles: the scalar unit reads a number for each, and none behind the last."""
    whole: frozenset[int] = frozenset()
    """Axes of the result that a core has all of, as what stands behind the product is reduced along them."""
    pooled: Mapping[int, PooledAxis] = field(default_factory=dict[int, PooledAxis])
    """Rows that are pooled behind the product, by axis: a step has those of whole windows."""

    @property
    def rhs_parts(self) -> tuple[int, ...]:
        """Elements along k for each element of what is stored of rhs: its values, and their positions."""
        return (KEPT_OF, INDEXED) if self.sparse else (1,)

    @property
    def out(self) -> list[int]:
        """The axes of the result."""
        return [*self.batch, *self.m, *self.n]

    @property
    def cut_k(self) -> Sequence[int]:
        """The k axes of which a step may have several places; all where none is such."""
        return [a for a in self.k if a not in self.singly] or self.k

    def walk(self, inner: str) -> list[int]:
        """The axes of the result in the order of the loops over tiles, the `inner` one ("m" or "n") last."""
        outer, last = (self.n, self.m) if inner == "m" else (self.m, self.n)
        order = [*self.batch, *outer, *last]
        return sorted(order, key=self.whole.__contains__) if self.whole else order

    def counts(self, step: Extents) -> list[int]:
        """Tiles along each axis of the result."""
        return [self.tiles(a, step[a]) for a in self.out]

    def tiles(self, axis: int, step: int) -> int:
        """Tiles of `step` elements along an axis of the result."""
        along = self.pooled.get(axis)
        return -(-self.extents[axis] // step) if along is None else -(-along.places // along.windows(step))

    def apart(self, axis: int, step: int) -> int:
        """Elements from where a tile of `step` elements along an axis begins to where the next one does."""
        along = self.pooled.get(axis)
        return step if along is None else along.windows(step) * along.stride

    def first(self, axis: int) -> int:
        """Where the first tile along an axis begins."""
        return -self.pooled[axis].low if axis in self.pooled else 0

    def long_k(self, step: Mapping[int, int] | Extents) -> int:
        """The k axis along which loads have several of these steps: the last one, or where a step has all of that, the
        one before, and so on. None of them is a window."""
        found = self.cut_k[-1]
        for a in reversed(self.cut_k[:-1]):
            if a in self.windows or found in self.windows or is_open(self.extents[found]):
                break
            if step[found] < self.extents[found]:
                break
            found = a
        return found

    def times(self, load: Extents) -> int:
        """How many loads of these extents follow each other along k."""
        return size([-(-self.extents[a] // load[a]) for a in self.k])


MOST_ROUNDS = 6
"""Numbers of cores that are tried for a tile: from all of them on, each with one tile more for the busiest."""


def grids(counts: Sequence[int], cores: int, even: Sequence[bool] = ()) -> Iterator[list[int]]:
    """Cores along each axis for so many tiles along each: the divisions over at most `cores` that are worth trying.
    even: axes of which all cores have as many tiles."""
    total, most = size(counts), cores
    for _ in range(MOST_ROUNDS):
        split = divide_grid(counts, most, even)
        used, tiles = size([c for c, _ in split]), size([t for _, t in split])
        yield [c for c, _ in split]
        most = min(-(-total // (tiles + 1)), used - 1)
        if most < 1:
            return


def sides(problem: CubeProblem, step: Extents) -> tuple[int, int]:
    """(rows, columns) of a mma step, in whole fractals."""
    rows, columns = (round_up(size([step[a] for a in axes])) for axes in (problem.m, problem.n))
    return rows, columns


def round_up(n: int) -> int:
    return -(-n // FRACTAL) * FRACTAL
