"""Outcomes in groups: medians and percentiles, the table, the page for docs and the scatter plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..backends.simulator import judge
from ..machine import Machine
from ..support.files import write_part, write_plot
from .compare import RecordOutcome
from .records import CalibrationError, Record

FITTED, HELD_OUT = "910B family, fitted", "910B family, held out"
OTHER, NO_SCHEDULE = "other chips", "no published schedule"
GROUPS = (FITTED, HELD_OUT, OTHER, NO_SCHEDULE)
"""How outcomes are reported apart. The first two are what the model is judged by; the last has the compiler's own
schedule, and says what the vendor reaches on that work."""


def group_of(record: Record) -> str:
    """The group of a record."""
    if not record.by_hand:
        return NO_SCHEDULE
    if not record.family:
        return OTHER
    return FITTED if record.fitted else HELD_OUT


@dataclass(frozen=True)
class Summary:
    """Absolute errors of a group, as shares of the measured times."""

    records: int
    expressed: int
    task: list[float] = field(default_factory=list)
    pipes: dict[str, list[float]] = field(default_factory=dict)

    @property
    def median(self) -> float | None:
        """Of the task times."""
        return statistics.median(self.task) if self.task else None

    @property
    def p90(self) -> float | None:
        """The error that nine of ten task times stay below, interpolated."""
        return percentile(self.task, 0.9)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "records": self.records,
            "expressed": self.expressed,
            "task": {"count": len(self.task), "median": self.median, "p90": self.p90},
            "pipes": {p: {"count": len(e), "median": statistics.median(e)} for p, e in self.pipes.items()},
        }


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear between the two nearest values; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(outcomes: Sequence[RecordOutcome]) -> Summary:
    """Errors over some outcomes."""
    pipes: dict[str, list[float]] = {}
    for outcome in outcomes:
        for row in outcome.rows:
            if row.pipe is not None:
                pipes.setdefault(row.pipe, []).append(abs(row.error))
    return Summary(
        len(outcomes),
        sum(o.reason is None for o in outcomes),
        [abs(o.task.error) for o in outcomes if o.task is not None],
        dict(sorted(pipes.items())),
    )


def by_group(outcomes: Sequence[RecordOutcome]) -> dict[str, list[RecordOutcome]]:
    """Outcomes by group, in the order of GROUPS; groups without any are left out."""
    found: dict[str, list[RecordOutcome]] = {name: [] for name in GROUPS}
    for outcome in outcomes:
        found[group_of(outcome.record)].append(outcome)
    return {name: members for name, members in found.items() if members}


def judged(outcomes: Sequence[RecordOutcome]) -> list[RecordOutcome]:
    """The outcomes that the model is judged by: fitted and held out together."""
    return [o for o in outcomes if group_of(o.record) in (FITTED, HELD_OUT)]


def summaries(outcomes: Sequence[RecordOutcome]) -> dict[str, Summary]:
    """The summary of each group, and of both that are judged."""
    found = {name: summarise(members) for name, members in by_group(outcomes).items()}
    both = judged(outcomes)
    return {"910B family": summarise(both), **found} if both else found


def judges(outcomes: Sequence[RecordOutcome]) -> dict[str, str]:
    """The digest of the judge of each machine that outcomes are of."""
    targets = dict.fromkeys(o.target for o in outcomes if o.target)
    return {target: judge(Machine.load(target)) for target in targets}


def to_dict(outcomes: Sequence[RecordOutcome]) -> dict[str, Any]:
    """Everything, as plain data."""
    return {
        "schema": "tilewright.calibration/1",
        "judge": judges(outcomes),
        "summary": {name: s.to_dict() for name, s in summaries(outcomes).items()},
        "records": [
            {
                "id": o.record.id,
                "chip": o.record.chip,
                "group": group_of(o.record),
                "target": o.target or None,
                "schedule": o.schedule or None,
                "reason": o.reason,
                "times": [
                    {"quantity": r.quantity, "measured": r.measured, "modelled": r.modelled, "error": r.error}
                    for r in o.rows
                ],
            }
            for o in outcomes
        ],
    }


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def summary_rows(outcomes: Sequence[RecordOutcome]) -> tuple[list[str], list[list[str]]]:
    """(header, rows) of the summary by group."""
    found = summaries(outcomes)
    pipes = sorted({pipe for s in found.values() for pipe in s.pipes})
    header = ["group", "records", "expressed", "task median", "task p90", *pipes]
    rows = []
    for name, s in found.items():
        medians = [_share(statistics.median(s.pipes[p])) if p in s.pipes else "-" for p in pipes]
        rows.append([name, str(s.records), str(s.expressed), _share(s.median), _share(s.p90), *medians])
    return header, rows


def record_rows(outcomes: Sequence[RecordOutcome]) -> list[list[str]]:
    """A row for each published time, the whole kernel's first: id, quantity, measured, modelled, error."""
    rows = []
    for o in outcomes:
        for i, row in enumerate(sorted(o.rows, key=lambda r: r.pipe is not None)):
            figures = [f"{row.measured:.6g}", f"{row.modelled:.6g}", f"{row.error:+.1%}"]
            rows.append([o.record.id if i == 0 else "", row.quantity, *figures])
    return rows


def table(outcomes: Sequence[RecordOutcome]) -> str:
    """Everything as plain text: each group's times, what cannot be expressed and why, the summary."""
    lines: list[str] = []
    for name, members in by_group(outcomes).items():
        lines.append(f"{name}: microseconds")
        lines += _columns([["record", "time", "measured", "modelled", "error"], *record_rows(members)])
        lines += [f"  {o.record.id}: not expressed: {o.reason}" for o in members if o.reason is not None]
        lines.append("")
    header, rows = summary_rows(outcomes)
    lines.append("absolute error; pipes are medians")
    lines += _columns([header, *rows])
    lines += [f"judge of {target}: {digest}" for target, digest in judges(outcomes).items()]
    return "\n".join(lines) + "\n"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


BEGIN, END = "<!-- calibration: begin -->", "<!-- calibration: end -->"


def markdown(outcomes: Sequence[RecordOutcome]) -> str:
    """The summary, the reasons and the times as a part of a page."""

    def rows_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        ruled = "|".join(["---"] + ["---:"] * (len(header) - 1))
        return [
            "| " + " | ".join(header) + " |",
            f"|{ruled}|",
            *("| " + " | ".join(r) + " |" for r in rows),
            "",
        ]

    header, rows = summary_rows(outcomes)
    lines = ["### Summary", "", "Absolute errors; pipes are medians.", "", *rows_of(header, rows)]
    lines += rows_of(["machine", "judge"], [[name, f"`{digest}`"] for name, digest in judges(outcomes).items()])
    for name, members in by_group(outcomes).items():
        lines += [f"### {name}", ""]
        found = record_rows(members)
        if found:
            lines += rows_of(["record", "time", "measured, us", "modelled, us", "error"], found)
        reasons: dict[str, list[str]] = {}
        for o in members:
            if o.reason is not None:
                reasons.setdefault(o.reason, []).append(o.record.id)
        if reasons:
            lines += rows_of(
                ["not expressed, because", "records"], [[w, ", ".join(i)] for w, i in reasons.items()]
            )
    return "\n".join(lines)


def write_page(path: str | Path, part: str) -> None:
    """Puts `part` between the two marks of a page. Raises CalibrationError where it has none."""
    try:
        write_part(path, BEGIN, END, part)
    except ValueError as error:
        raise CalibrationError(str(error)) from None
    except OSError as error:
        raise CalibrationError(f"{path}: {error.strerror or error}") from error


def scatter(path: str | Path, outcomes: Sequence[RecordOutcome]) -> None:
    """Measured against modelled times of whole kernels and of pipes, with a band of 20%. Raises CalibrationError
    without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise CalibrationError("a plot needs matplotlib: pip install matplotlib") from error
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 5.2), layout="constrained")
    for axis, title in zip(axes, ("whole kernels", "pipes (910B family)"), strict=True):
        axis.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="modelled, us", title=title)
        ends = (1.0, 1e6)
        axis.plot(ends, ends, color="0.4", linewidth=0.8)
        axis.fill_between(
            ends, [0.8 * e for e in ends], [1.2 * e for e in ends], color="0.9", label="within 20%"
        )
    for name, members in by_group(outcomes).items():
        tasks = [o.task for o in members if o.task is not None]
        axes[0].scatter([t.measured for t in tasks], [t.modelled for t in tasks], s=14, label=name)
    pipes: dict[str, list[tuple[float, float]]] = {}
    for o in judged(outcomes):
        for row in o.rows:
            if row.pipe is not None:
                pipes.setdefault(row.pipe, []).append((row.measured, row.modelled))
    for name, points in sorted(pipes.items()):
        axes[1].scatter(*zip(*points, strict=True), s=14, label=name)
    for axis in axes:
        axis.legend(fontsize=8)
    try:
        write_plot(path, figure, dpi=110)
    except OSError as error:
        raise CalibrationError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise CalibrationError(f"{path}: {error}") from None
    finally:
        pyplot.close(figure)
