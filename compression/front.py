"""The points of a search with their modelled cost, and the Pareto front of metric against cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeVar

from ..api.arguments.signature import CompileError
from ..support.files import write_plot
from ..support.fronts import unbeaten
from .measures import COMPARED
from .walk import SensitivityRow

_FRONT, _CHOSEN, _OTHER = "#1f6fb2", "#d1495b", "#9aa5b8"

Cost = Literal["microseconds", "weight_bytes", "energy_joules"]


@dataclass(frozen=True)
class ParetoPoint:
    """One net: its metric, how far that is below the original's, and the modelled cost of the whole program."""

    metric: float
    drop: float
    microseconds: float
    weight_bytes: int
    energy_joules: float

    @property
    def said(self) -> str:
        """What was changed, in a few words."""
        raise NotImplementedError


Point = TypeVar("Point", bound=ParetoPoint)


def cheapest(points: Iterable[Point], max_drop: float | None) -> Point | None:
    """The point with the fewest microseconds, then bytes, of those that drop no more than `max_drop`; None: there is no
    such point."""
    allowed = [p for p in points if max_drop is None or p.drop <= max_drop]
    return min(allowed, key=lambda p: (p.microseconds, p.weight_bytes, p.drop), default=None)


@dataclass(frozen=True)
class SearchResult(Generic[Point]):
    """What a search found. sensitivity: what each change does alone; points: from the least changed net to the
    smallest; best: the cheapest one whose drop is allowed, None where there is none; metric: its name; original: the
    value that drops are counted from; allowed: the least that is accepted, None where all is."""

    sensitivity: tuple[SensitivityRow, ...]
    points: tuple[Point, ...]
    best: Point | None
    metric: str
    original: float
    allowed: float | None = None

    CHANGED: ClassVar[str] = "changed"
    """What the table calls the column that says what was changed."""

    @property
    def base(self) -> str:
        """What the metric's drop is counted from."""
        return "most precise" if self.metric in COMPARED else "original"

    @property
    def front(self) -> tuple[Point, ...]:
        """The points that no other one beats in both the metric and microseconds."""
        return self.front_by("microseconds")

    def front_by(self, cost: Cost) -> tuple[Point, ...]:
        """The points that no other one beats in both the metric and a cost."""
        return tuple(compress(self.points, unbeaten([(getattr(p, cost), -p.metric) for p in self.points])))

    def __str__(self) -> str:
        head = ["", "#", self.metric, "drop", "us", "weights kB", "mJ", self.CHANGED]
        front = {id(p) for p in self.front}
        rows = [
            [
                "*" if p is self.best else "+" if id(p) in front else "", str(n),
                f"{p.metric:.4g}", f"{p.drop:.3g}", f"{p.microseconds:.1f}", f"{p.weight_bytes / 1e3:.1f}",
                f"{p.energy_joules * 1e3:.3g}", p.said,
            ]
            for n, p in enumerate(self.points, 1)
        ]  # fmt: skip
        lines = _columns([head, *rows])
        return "\n".join([*lines, f"{self.base}: {self.original:.4g}; + on the front, * chosen"])

    def sensitivity_table(self) -> str:
        """The sensitivity as text: a line for each change."""
        rows = [
            [r.part, r.change, f"{r.metric:.4g}", f"{r.drop:.3g}", f"{r.weight_bytes / 1e3:.1f}"]
            for r in self.sensitivity
        ]
        return "\n".join(_columns([["part", "changed to", self.metric, "drop", "weights kB"], *rows]))

    def plot(self, path: str | Path) -> None:
        """Draws the metric against microseconds; each configuration has its number in the table, and those on the front
        are named beside the plot. Raises CompileError where the file cannot be written."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        ordered = sorted(self.front, key=lambda p: (p.microseconds, p.metric))
        front = [p.microseconds for p in ordered], [p.metric for p in ordered]
        axes.plot(*front, "-", color=_FRONT, zorder=1, label="front")
        axes.axhline(self.original, color=_OTHER, linewidth=1, linestyle="--", label=self.base)
        if self.allowed is not None:
            axes.axhline(self.allowed, color=_CHOSEN, linewidth=1, linestyle=":", label="allowed")
        number = {id(p): str(n) for n, p in enumerate(self.points, 1)}
        marked = {**dict.fromkeys(map(id, ordered), _FRONT), id(self.best): _CHOSEN}
        for group in self._together():
            place = group[0].microseconds, group[0].metric
            colors = {marked.get(id(p), _OTHER) for p in group}
            color = next(c for c in (_CHOSEN, _FRONT, _OTHER) if c in colors)
            axes.plot(*([x] for x in place), "o", markersize=7, color=color, zorder=2)
            said = ", ".join(number[id(p)] for p in group)
            axes.annotate(said, place, fontsize=9, xytext=(6, 5), textcoords="offset points")
        for p in (p for p in self.points if id(p) in marked):
            said = f"{number[id(p)]}: {p.said}" + (" (chosen)" if p is self.best else "")
            axes.plot([], [], "o", color=marked[id(p)], label=said)
        axes.margins(0.08, 0.12)
        axes.set_xlabel("modelled microseconds")
        axes.set_ylabel("SQNR, dB" if self.metric == "sqnr" else self.metric)
        axes.grid(color="#e3e7ee")
        axes.set_axisbelow(True)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        try:
            write_plot(path, figure, dpi=120)
        except OSError as error:
            raise CompileError(f"{path}: {error.strerror or error}") from None
        except ValueError as error:
            raise CompileError(f"{path}: {error}") from None
        finally:
            pyplot.close(figure)

    def _together(self) -> list[list[Point]]:
        """The points in groups that lie on one place of the plot."""
        places = [(p.microseconds, p.metric) for p in self.points]
        wide, high = (max(x) - min(x) or 1.0 for x in zip(*places, strict=True))
        groups: list[list[Point]] = []
        for p in self.points:
            for group in groups:
                if (
                    abs(group[0].microseconds - p.microseconds) < 0.02 * wide
                    and abs(group[0].metric - p.metric) < 0.04 * high
                ):
                    group.append(p)
                    break
            else:
                groups.append([p])
        return groups


def _columns(rows: list[list[str]]) -> list[str]:
    """Lines of a table, columns as wide as what is in them."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
