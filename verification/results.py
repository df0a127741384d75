"""What a verification says: a row for each pass, and the first thing that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backends.html import table_html
from .agreement import QuantizedAgreement

Progress = Callable[[str, int, int], None]
"""Is told what begins now, how many steps are done, and how many there are: 0 where nobody knows."""


NEARLY_ALL = 0.9
"""From this share of open numbers on, agreement with the reference says next to nothing."""


def precise_percent(share: float) -> str:
    """A share as a percentage that is neither 0 nor 100 unless the share is."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return "<0.1%" if share < 0.001 else ">99.9%" if share > 0.999 else f"{share:.1%}"


@dataclass(frozen=True)
class Check:
    """The program after one pass.

    error: largest difference from the reference, relative to the largest number of that output; tolerance: what is
    allowed, in the same measure (where the difference is closest to it, or exceeds it most); ratio: difference over
    what is allowed, element by element. isolated: the same ratio for single ops and kernels on golden inputs, against
    the pass before; compared: how many values those were. exact: nothing but equal bits is accepted of this pass.
    note: one clause, where there is more to say. numbers: how many numbers of the results were compared with the
    reference; open: for how many of them the tolerance is larger than any number of that output, so that it says
    nothing of them; numbers_alone, open_alone: the same of the values on golden inputs, where those of equal bits are
    not open.
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
    numbers: int = 0
    open: int = 0
    numbers_alone: int = 0
    open_alone: int = 0

    @property
    def open_share(self) -> float:
        """The share of the results' numbers that the tolerance leaves open, 0 to 1."""
        return self.open / self.numbers if self.numbers else 0.0

    @property
    def ok(self) -> bool:
        """Whether every difference is allowed and there is nothing to note."""
        return self.ratio <= 1 and (self.isolated is None or self.isolated <= 1) and not self.note

    @property
    def word(self) -> str:
        """`ok`, `open` where next to nothing of the results could be compared, or what is wrong."""
        if not self.ok:
            return self.note or "DIFFERS"
        return "open" if self.open_share >= NEARLY_ALL else "ok"

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
    """The comparison of a program at every level.

    Attributes:
        checks: A row for each pass and memory mode, in order.
        culprit: The cause, if bisection was asked for and something is wrong.
    """

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
    rounded: str = ""
    """The last pass that rounds to narrower types, such as graph-precision: from it on, the tolerance is that of the
    program as it is cast."""
    quantization: QuantizedAgreement | None = None
    """Of a program that a configuration quantizes: how far it is from its twin and from the original."""
    sums_apart: bool = False
    """Whether the compiled program has other bits by XLA than one instruction at a time, since it adds up products of
    floats, in another order each."""

    def __repr__(self) -> str:
        errors = ", ".join(f"{level} {error:.2g}" for level, error in self.levels.items())
        said = f"<Verification {self.verdict} against {self.reference}: {errors}"
        bad = next((c for c in self.checks if not c.ok), None)
        if bad is not None:
            said += f"; first bad pass {bad.name}"
        if self.open_share:
            said += f"; {precise_percent(self.open_share)} of the numbers open"
        if self.quantization is not None:
            said += f"; SQNR {self.quantization.sqnr:.1f} dB"
        return said + ("" if self.bitwise else "; memory modes differ") + ">"

    def _repr_html_(self) -> str:
        """A row for each pass, for notebooks."""
        rows: list[list[str | float]] = [
            [
                c.stage,
                f"npu {c.memory}" if c.level == "npu" else c.level,
                f"{c.error:.3g}",
                f"{c.tolerance:.2g}",
                precise_percent(c.open_share),
                c.word,
            ]
            for c in self.checks
        ]
        said = self.openness() if self.culprit is None else "; ".join(self.culprit.sentences())
        agreement = [] if self.quantization is None else self.quantization.sentences()
        said = "; ".join(filter(None, [self.roundings(), said, *agreement]))
        title = f"{self.verdict}: largest error against {self.reference}, after each pass"
        return table_html(title, ["pass", "level", "error", "tolerance", "open", ""], rows, said)

    @property
    def ok(self) -> bool:
        """Whether every row is, both memory modes give the same bits, and a quantized program is as close to the
        original as its twin."""
        agrees = self.quantization is None or self.quantization.ok
        return self.bitwise and agrees and all(c.ok for c in self.checks)

    @property
    def verdict(self) -> str:
        """`ok`, `OPEN` where nothing is wrong but next to nothing of the results could be compared, or `FAILED`. The
        results of a quantized program are compared by their SQNR, too, so that they are not open."""
        is_open = self.open_share >= NEARLY_ALL and self.quantization is None
        return "FAILED" if not self.ok else "OPEN" if is_open else "ok"

    @property
    def open_share(self) -> float:
        """The share of the results' numbers that the tolerance leaves open, 0 to 1: in the row where it is largest."""
        return max((c.open_share for c in self.checks), default=0.0)

    @property
    def judged(self) -> bool:
        """Whether anything was: not where the results are open and no pass was judged alone, op by op."""
        return self.verdict != "OPEN" or any(c.isolated is not None for c in self.checks)

    def roundings(self) -> str:
        """One sentence on the pass that rounds more than what it replaces; nothing where there is none."""
        if not self.rounded:
            return ""
        row = next((c for c in self.checks if c.stage == self.rounded), None)
        room = "" if row is None else f" of {row.tolerance:.2g}"
        return (
            f"{self.rounded} rounds more than the source: from it on, the tolerance{room} is what its roundings may "
            "add up to, and passes are compared with the program as it is then"
        )

    def openness(self) -> str:
        """One sentence on the numbers that the tolerance leaves open; nothing where there are none."""
        share = precise_percent(self.open_share)
        if self.open_share == 0:
            return ""
        if self.open_share < NEARLY_ALL:
            return f"{share} of the results' numbers are open: rounding alone may change them by more than their size"
        if self.quantization is not None:
            return (
                f"{share} of the results' numbers are open in some row, since rounding may move stored numbers by a "
                "step: the SQNR bounds them"
            )
        judged = "each pass was judged alone, op by op" if self.judged else "nothing was judged"
        return f"{share} of the results' numbers are open, since rounding alone may change them entirely: {judged}"

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
