"""What one run of a module leaves: values by tag, how they were made, their bounds, launches and findings."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from jax import Array
from xdsl.ir import Operation

from .bounds import Bound
from .compare import Difference

Path = tuple[tuple[str, int], ...]
"""Which iterations of which loops a value belongs to, outermost first: (tag of the loop, trip)."""

Key = tuple[Path, str]


@dataclass
class Late:
    """A bound that is computed when somebody asks: most values need none, since they are equal bit by bit.
    coarsest: the largest unit roundoff of any type on the way."""

    make: Callable[[], Bound]
    coarsest: float = 0.0
    found: Bound = None
    known: bool = False

    def __call__(self) -> Bound:
        if not self.known:
            self.found, self.known = self.make(), True
        return self.found


Pair = tuple[Array, Late | None]
"""A value and its bound; None where it is golden or an input."""


@dataclass
class LaunchRun:
    """One launch as it ran: the kernel's name, what it read and what the next ops see of its outputs. `starts[i]`:
    what output i was before, where that is an operand; `own`: what the kernel itself made of this."""

    op: Operation
    kernel: str
    path: Path
    inputs: list[Any]
    starts: dict[int, Any]
    outputs: list[Any]
    own: Callable[[], list[Any]]
    right: set[Hashable] = field(default_factory=set)
    """Compiled kernels of later levels that gave the golden outputs for these very inputs."""


@dataclass
class WrongValue:
    """A value that an op computed and that differs by more than allowed. index: which result of the op."""

    op: Operation
    index: int
    path: Path
    difference: Difference
    launch: int | None = None
    """The number of the launch in the order they ran, where it was one."""
    problem: str = ""
    """What is wrong, where it is not a value: one clause."""


@dataclass(frozen=True)
class ValueOrigin:
    """How a value came about: result `index` of an op on `operands`, which have `tags`. own: what the op gives there,
    where the value of the level before went on instead; None where that is it."""

    op: Operation
    index: int
    operands: list[Array]
    tags: list[str]
    own: Array | None = None


@dataclass
class Trace:
    """What a run left: values by key and how each was made, results, launches in order, and
    findings."""

    values: dict[Key, Array] = field(default_factory=dict)
    made: dict[Key, ValueOrigin] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)
    result_bounds: list[Bound] = field(default_factory=list)
    launches: list[LaunchRun] = field(default_factory=list)
    loops: dict[str, str] = field(default_factory=dict)
    """What a loop is called in paths, by the tags of its results."""
    findings: list[WrongValue] = field(default_factory=list)
    worst: float = 0.0
    """Largest difference of an op on golden inputs, relative to what is allowed."""
    compared: int = 0
    """Values that were held against golden ones."""
    numbers: int = 0
    """Numbers in the values that were held against golden ones."""
    open: int = 0
    """Numbers that differ where the bounds allow anything."""
    proven: int = 0
    """Values that needed no run: the same op on the same operands as before."""
    replaced: bool = False
    """Whether a golden value went on in place of one with other bits. If not, all values are the module's own."""

    def made_of(self, path: Path, tag: str) -> frozenset[str]:
        """The tags of the values at `path` that are made of one, and its own: all of them are off by how it was
        rounded."""
        found = {tag}
        for (where, made_tag), made in self.made.items():  # in the order in which they were made
            if where == path and not found.isdisjoint(made.tags):
                found.add(made_tag)
        return frozenset(found)

    def value(self, path: Path, tag: str | None) -> Array | None:
        """The value under a tag as seen from `path`: its own, or one of a loop around it."""
        for n in range(len(path), -1, -1):
            found = self.values.get((path[:n], tag or ""))
            if found is not None:
                return found
        return None

    def judge(self, finding: WrongValue, numbers: int) -> None:
        """Notes a comparison of a value of so many numbers."""
        self.numbers += numbers
        self.compared += 1
        self.worst = max(self.worst, finding.difference.ratio)
        self.open += finding.difference.open
        if finding.difference.ratio > 1:
            self.findings.append(finding)
