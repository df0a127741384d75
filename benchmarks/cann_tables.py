"""Rows of the vendor's benchmark and their tables, for `cann_bench.py`."""

from __future__ import annotations

import dataclasses
import math
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WORST = 10
"""The slowest rows that are listed."""

LONGER = (1.2, 1.5, 2, 3)
"""Ratios to the vendor's time above which rows are counted."""

SLOW = 1.0
"""Processor seconds of a compilation above which rows are counted."""

WIDTH = 110
"""Of lines that are no rows of tables."""


@dataclass(frozen=True)
class Barriers:
    """The kernels of a program, those of them that have barriers, these barriers, and the program's time on a chip that
    needs none."""

    kernels: int
    with_barriers: int
    barriers: int
    us_without: float


@dataclass(frozen=True)
class Row:
    """What came of a case; `ours` is None where it was not compiled, and `failure` says why. crash: whether that was no
    CompileError. trips_unknown: loops of which the report counts one round. read_us, moved_us: what HBM takes for the
    operands and those results that L2 has no room for, and for all of both, if that is more than L2 holds; None where
    indices say what is read."""

    id: str
    op: str
    chip: str
    theirs: float
    floor: float
    seconds: float = 0.0
    ours: float | None = None
    launches: int = 0
    bound: str = ""
    slowest: str = ""
    trips_unknown: int = 0
    read_us: float | None = None
    moved_us: float | None = None
    barriers: Barriers | None = None
    failure: str | None = None
    crash: bool = False

    @property
    def judged(self) -> bool:
        """Whether its time is that of the whole work."""
        return self.ours is not None and not self.trips_unknown

    @property
    def us(self) -> float:
        """Our time, of a row that has one."""
        assert self.ours is not None
        return self.ours

    @property
    def ratio(self) -> float:
        """Our time over theirs."""
        return self.us / self.theirs

    @property
    def hap(self) -> float:
        """The benchmark's measure, above 1 for what is below the floor."""
        margin = self.theirs - self.floor
        return margin / (self.us - self.floor + margin)

    @property
    def below_floor(self) -> bool:
        """Whether the vendor holds our time for impossible."""
        return self.us < self.floor

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        found = dataclasses.asdict(self)
        if self.ours is None:
            return found
        return {**found, "ratio": self.ratio, "hap": self.hap, "below_floor": self.below_floor}


def short(name: str) -> str:
    """The id of a row without what all of them have."""
    return name.removeprefix("cannbench_")


def summary(name: str, chip: str, rows: Sequence[Row]) -> str:
    """The line of some rows in Markdown."""
    done = [row for row in rows if row.judged]
    cells = [name, chip, str(len(rows)), *"-" * 6]
    if done:
        worst = max(done, key=lambda row: row.ratio)
        cells[3:] = (
            f"{statistics.median(row.ratio for row in done):.2f}",
            f"{worst.ratio:.2f}",
            f"`{short(worst.id)}`",
            f"{100 * sum(row.ratio <= 1 for row in done) / len(done):.0f} %",
            f"{statistics.median(row.hap for row in done):.2f}",
            str(sum(row.below_floor for row in done)),
        )
    cells.append(f"{max((row.seconds for row in rows), default=0.0):.1f}")
    return f"| {' | '.join(cells)} |"


def page(rows: Sequence[Row]) -> str:
    """All tables, and what is said with them."""
    head = (
        "| operator | chip | rows | median | worst | its row | not slower | HAP | below floor | compile, s |"
    )
    lines = [head, "|---|---|---:|---:|---:|---|---:|---:|---:|---:|"]
    groups = sorted({(row.op, row.chip) for row in rows})
    lines += [
        summary(f"`{op}`", chip, [r for r in rows if (r.op, r.chip) == (op, chip)]) for op, chip in groups
    ]
    chips = sorted({row.chip for row in rows})
    lines += [summary("**all**", chip, [row for row in rows if row.chip == chip]) for chip in chips]
    if len(chips) > 1:
        lines.append(summary("**all**", "both", rows))
    return "\n".join([*lines, "", *worst(rows), "", *said(rows)])


def worst(rows: Sequence[Row]) -> list[str]:
    """The table of the slowest rows beside the vendor's, the slowest first."""
    head = (
        "| the slowest rows | ours, us | theirs, us | ratio | floor, us | launches | longest kernel | bound |"
    )
    lines = [head, "|---|---:|---:|---:|---:|---:|---|---|"]
    done = sorted((row for row in rows if row.judged), key=lambda row: -row.ratio)
    for row in done[:WORST]:
        cells = (
            f"`{short(row.id)}`",
            f"{row.us:,.1f}",
            f"{row.theirs:,.1f}",
            f"{row.ratio:.2f}",
            f"{row.floor:,.1f}",
            str(row.launches),
            f"`{row.slowest}`",
            row.bound,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def said(rows: Sequence[Row]) -> list[str]:
    """What the tables do not show, as a list in Markdown."""
    done = [row for row in rows if row.ours is not None]
    failed = [row for row in rows if row.failure is not None]
    slow = sum(row.seconds > SLOW for row in done)
    lines = [
        _item(
            f"{len(done)} of {len(rows)} rows compile; {sum(row.crash for row in rows)} crash the compiler."
        ),
        *(_item(f"`{short(row.id)}`: {row.failure}", inner=True) for row in failed),
        _item(_longer([row.ratio for row in done if row.judged])),
        _item(
            f"All compile in {sum(row.seconds for row in done):,.0f} processor seconds, {slow} of them in more than "
            f"{SLOW:.0f} s each."
        ),
    ]
    return lines + _loops(done) + _below_floor(done) + _beside_hbm(done) + _of_barriers(done)


def _longer(ratios: Sequence[float]) -> str:
    more = [f"{sum(ratio > times for ratio in ratios)} more than {times:g} times as long" for times in LONGER]
    longer = sum(ratio > 1 for ratio in ratios)
    return f"Of {len(ratios)} judged rows, {longer} take longer than the vendor's: {', '.join(more)}."


def _item(text: str, inner: bool = False) -> str:
    """An item of a list, wrapped."""
    lead = "    * " if inner else "* "
    return textwrap.fill(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))


def _loops(rows: Sequence[Row]) -> list[str]:
    once = [row for row in rows if row.trips_unknown]
    if not once:
        return []
    names = ", ".join(sorted({f"`{row.op}`" for row in once}))
    ratio = statistics.median(row.ratio for row in once)
    return [
        _item(
            f"Rows that loop as often as their data needs: {len(once)} ({names}). A report counts one round, which "
            f"takes {ratio:.2f} times what the vendor takes for all (median). They are no part of the ratios above."
        )
    ]


def _below_floor(rows: Sequence[Row]) -> list[str]:
    found = [row for row in rows if row.judged and row.below_floor]
    return [_item(f"Rows below the vendor's floor: {len(found)}.")] + [
        _item(f"`{short(row.id)}`: {row.us:,.2f} us, the floor is {row.floor:,.2f}", inner=True)
        for row in found
    ]


def _beside_hbm(rows: Sequence[Row]) -> list[str]:
    read = [row for row in rows if row.read_us is not None]
    faster = [row for row in read if row.us < (row.read_us or 0)]
    moved = [row for row in rows if row.moved_us is not None]
    kept = [row for row in moved if row.us < (row.moved_us or 0)]
    theirs = sum(row.theirs < (row.moved_us or 0) for row in kept)
    lines = [
        _item(
            f"{len(read)} rows must read all of their operands. In less time than HBM takes for these and for results "
            f"that L2 cannot hold: {len(faster)}."
        )
    ]
    lines += [
        _item(f"`{short(row.id)}`: {row.us:,.1f} us, HBM {row.read_us:,.1f}", inner=True) for row in faster
    ]
    lines.append(
        _item(
            f"{len(moved)} of them move more bytes than L2 holds. In less time than HBM takes for all of these, as "
            f"results stay in L2: {len(kept)}; so do {theirs} of the vendor's kernels for the same rows."
        )
    )
    return lines + [
        _item(
            f"`{short(row.id)}`: {row.us:,.1f} us, the vendor {row.theirs:,.1f}, HBM {row.moved_us:,.1f}",
            inner=True,
        )
        for row in kept
    ]


def _of_barriers(rows: Sequence[Row]) -> list[str]:
    counted = [(row.us, row.barriers) for row in rows if row.barriers is not None]
    if not counted:
        return []
    kernels, having, count = (
        sum(getattr(found, name) for _, found in counted) for name in ("kernels", "with_barriers", "barriers")
    )
    ratios = [us / found.us_without for us, found in counted]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return [
        _item(
            f"{having:,} of {kernels:,} kernels have barriers within a pipe, {count:,} of them. The geometric mean of "
            f"the time with them over that on a chip that needs none is {mean:.4f}, the largest ratio "
            f"{max(ratios):.3f}, the smallest {min(ratios):.3f}."
        )
    ]
