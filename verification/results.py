"""What a verification says: a row for each pass, and the first thing that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backends.html import table_html

Progress = Callable[[str, int, int], None]
"""Is told what begins now, how many steps are done, and how many there are: 0 where nobody knows."""


@dataclass(frozen=True)
class Check:
    """The program after one pass.

    error: largest difference from the reference, relative to the largest number of that output; tolerance: what is
    allowed, in the same measure (where the difference is closest to it, or exceeds it most); ratio: difference over
    what is allowed, element by element. isolated: the same ratio for single ops and kernels on golden inputs, against
    the pass before; compared: how many values those were. exact: nothing but equal bits is accepted of this pass.
    note: one clause, where there is more to say.
    """

    stage: str
    level: str
    memory: str
    error: float
    tolerance: float
    ratio: float
    isolated: float | None
    compared: int
    exact: bool
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether every difference is allowed and there is nothing to note."""
        return self.ratio <= 1 and (self.isolated is None or self.isolated <= 1) and not self.note

    @property
    def name(self) -> str:
        """`npu-allocate (npu, bytes)`."""
        return f"{self.stage} ({self.level}{', ' + self.memory if self.level == 'npu' else ''})"


@dataclass(frozen=True)
class Tile:
    """Where in a kernel an element is stored: the store's box and the loops around it.

    grid: coordinates of the core; unit: number of the vector core in its block; loops: values of the loops' indices,
    outermost first; offsets, sizes: the box.
    """

    grid: tuple[int, ...]
    unit: int
    loops: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        box = ", ".join(f"{a}:{a + n}" for a, n in zip(self.offsets, self.sizes, strict=True))
        core = ",".join(map(str, self.grid))
        loops = f", loops ({','.join(map(str, self.loops))})" if self.loops else ""
        return f"[{box}] of core ({core}){f' unit {self.unit}' if self.unit else ''}{loops}"


@dataclass(frozen=True)
class Reproducer:
    """A small module that still fails. source: its text, at the highest level at which the bug shows; before: the
    text at the level right before the bad pass; inputs: arrays for either; ops: how many ops `source` has in
    functions and kernels."""

    source: str
    before: str
    inputs: tuple[np.ndarray, ...]
    ops: int


@dataclass(frozen=True)
class Culprit:
    """What went wrong first.

    stage: the pass; kind: `wrong value`, `crash`, `invalid` or `hazard`; op, place: the op it mistreated and its
    source line; kernel: the kernel it is in; element, got, want: the worst element of the first wrong value.
    """

    stage: str
    kind: str
    level: str
    op: str
    place: str | None = None
    kernel: str | None = None
    launch: int | None = None
    tile: Tile | None = None
    element: tuple[int, ...] = ()
    got: Any = None
    want: Any = None
    wrong: int = 0
    problem: str = ""
    reproducer: Reproducer | None = None

    def sentences(self) -> list[str]:
        """What a person reads."""
        where = f" at {self.place}" if self.place else ""
        inside = f" in kernel @{self.kernel}" if self.kernel else ""
        out = [f"first bad pass: {self.stage} ({self.kind})", f"op: {self.op}{where}{inside}"]
        if self.tile is not None:
            out.append(f"tile: {self.tile}")
        if self.element or self.got is not None:
            at = ", ".join(map(str, self.element))
            out.append(f"element: [{at}] is {self.got}, should be {self.want} ({self.wrong} elements differ)")
        if self.problem:
            out.append(f"problem: {self.problem}")
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        tile = self.tile
        return {
            "pass": self.stage,
            "kind": self.kind,
            "level": self.level,
            "op": self.op,
            "source": self.place,
            "kernel": self.kernel,
            "launch": self.launch,
            "tile": None
            if tile is None
            else {
                "grid": list(tile.grid),
                "unit": tile.unit,
                "loops": list(tile.loops),
                "offsets": list(tile.offsets),
                "sizes": list(tile.sizes),
            },
            "element": list(self.element),
            "got": None if self.got is None else str(self.got),
            "want": None if self.want is None else str(self.want),
            "wrong_elements": self.wrong,
            "problem": self.problem,
        }


@dataclass(repr=False)
class Verification:
    """A program at every level. checks: a row for each pass and memory mode, in order; culprit: where bisection was
    asked for and something is wrong, what."""

    checks: list[Check] = field(default_factory=list)
    culprit: Culprit | None = None
    bitwise: bool = True
    """Whether both memory modes of the npu level give the same bits."""
    reference: str = "JAX"
    """What results are compared with."""
    hazards: list[str] = field(default_factory=list)
    """Races, deadlocks and the like that npu-check or the simulator found; each has a row of its own too."""
    target: str = ""
    """The machine that the program was compiled for."""

    def __repr__(self) -> str:
        errors = ", ".join(f"{level} {error:.2g}" for level, error in self.levels.items())
        said = f"<Verification {'ok' if self.ok else 'FAILED'} against {self.reference}: {errors}"
        bad = next((c for c in self.checks if not c.ok), None)
        if bad is not None:
            said += f"; first bad pass {bad.name}"
        return said + ("" if self.bitwise else "; memory modes differ") + ">"

    def _repr_html_(self) -> str:
        """A row for each pass, for notebooks."""
        rows: list[list[str | float]] = [
            [
                c.stage,
                f"npu {c.memory}" if c.level == "npu" else c.level,
                f"{c.error:.3g}",
                f"{c.tolerance:.2g}",
                "ok" if c.ok else (c.note or "DIFFERS"),
            ]
            for c in self.checks
        ]
        note = "" if self.culprit is None else "; ".join(self.culprit.sentences())
        title = f"{'ok' if self.ok else 'FAILED'}: largest error against {self.reference}, after each pass"
        return table_html(title, ["pass", "level", "error", "tolerance", ""], rows, note)

    @property
    def ok(self) -> bool:
        """Whether every row is, and both memory modes give the same bits."""
        return self.bitwise and all(c.ok for c in self.checks)

    @property
    def levels(self) -> dict[str, float]:
        """The error of each level's last row: {"graph", "tile", "npu typed", "npu bytes"}, those it has."""
        found: dict[str, float] = {}
        for c in self.checks:
            found[f"npu {c.memory}" if c.level == "npu" else c.level] = c.error
        order = ("graph", "tile", "npu typed", "npu bytes")
        return {level: found[level] for level in order if level in found}

    @property
    def tolerance(self) -> float:
        """The largest tolerance of any row, relative to the largest number of an output."""
        return max((c.tolerance for c in self.checks), default=0.0)
