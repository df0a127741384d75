"""What a simulated service looks like: the queue over time, and how latency is distributed."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..support.files import PLOTS, FilePath, drawn_bytes, write_plot, write_whole
from .arrivals import ServingError

if TYPE_CHECKING:
    from .simulation import ServiceReport

PAGE = ".html"
"""The ending of a page with the drawing and the table."""

POINTS = 2000
"""Points of a line, about."""


def draw(report: ServiceReport, path: FilePath) -> None:
    """Draws a report. Raises ServingError without matplotlib, or for another ending, and OSError."""
    ending = Path(path).suffix
    if ending not in (*PLOTS, PAGE):
        raise ServingError(f"{path}: a plot is a file of {', '.join((*PLOTS, PAGE))}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ServingError("plots are drawn by matplotlib: install it") from None
    figure = Figure(figsize=(9, 7), layout="constrained")
    queue, latency = figure.subplots(2, 1)
    first = float(report.arrivals.seconds[0])
    for row in report.rows:
        times, lengths = row.replay.queue_lengths()
        queue.step(*_thinned(times - first, lengths), where="post", label=row.policy)
        seconds = np.sort((row.replay.ends - report.arrivals.seconds)[row.replay.served])
        shares = np.linspace(1, 100, POINTS)
        at = np.minimum((shares / 100 * len(seconds)).astype(int), len(seconds) - 1)
        latency.plot(1e3 * seconds[at], shares, label=row.policy)
    if report.goal is not None:
        goal = 1e3 * report.goal.seconds
        latency.axvline(goal, color="#b0572c", linewidth=0.8, linestyle="--", label=str(report.goal))
    queue.set(xlabel="seconds", ylabel="requests that wait", title=report.title.partition(";")[0])
    latency.set(xlabel="latency, ms", ylabel="% of requests", xscale="log")
    if any(row.saturated for row in report.rows):
        queue.set_yscale("symlog", linthresh=1)  # beside a queue that grows without end the others are seen, too
    queue.set_ylim(bottom=0)
    for axes in (queue, latency):
        axes.grid(color="#e3e7ee")
        axes.set_axisbelow(True)
        axes.legend(fontsize=8)
    if ending != PAGE:
        write_plot(path, figure, 120)
        return
    svg = drawn_bytes(figure, "svg", 120).decode()
    title, text = html.escape(report.title), html.escape(str(report))
    page = f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{title}</title>\n"
    write_whole(path, f"{page}{svg[svg.index('<svg') :]}\n<pre>{text}</pre>\n</html>\n")


def _thinned(times: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A line of not many more than `POINTS` points: of as many neighbours as one stands for, the longest queue."""
    step = -(-len(times) // POINTS)
    begins = np.arange(0, len(times), step)
    return times[begins], np.maximum.reduceat(lengths, begins)
