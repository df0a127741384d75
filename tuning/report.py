"""What tuning found: of each kernel, and of whole programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from ..api.program import CompileError
from ..backends.report import Report
from ..knowledge.goals import LATENCY
from ..support.files import write_plot
from ..support.fronts import beats, unbeaten


@dataclass(frozen=True)
class ProgramCosts:
    """What a call of a program takes, modelled: microseconds, joules, and the most bytes of device memory."""

    microseconds: float
    joules: float
    memory_bytes: int

    @staticmethod
    def of(report: Report) -> ProgramCosts:
        """What a report says of it."""
        return ProgramCosts(report.microseconds, report.energy_joules, report.memory.arena_bytes)

    @property
    def watts(self) -> float:
        """The mean power of a call."""
        return self.joules / self.microseconds * 1e6 if self.microseconds else 0.0

    @property
    def amounts(self) -> tuple[float, float, int]:
        """Microseconds, joules and bytes."""
        return self.microseconds, self.joules, self.memory_bytes

    def beats(self, other: ProgramCosts) -> bool:
        """Whether it takes no more of anything, and less of something."""
        return beats(self.amounts, other.amounts)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "watts": self.watts}


def front_of(costs: Iterable[ProgramCosts]) -> tuple[ProgramCosts, ...]:
    """Those that no other one beats, each once, the fastest first."""
    known = sorted({*costs}, key=lambda c: c.amounts)
    return tuple(compress(known, unbeaten([c.amounts for c in known])))


@dataclass(frozen=True)
class TunedKernel:
    """What tuning found of one kernel.

    Attributes:
        name: What it is called by itself.
        kernels: What the tuned program calls it.
        launches: How many launches of the program are this kernel.
        before, after: Microseconds of a launch by itself, before and after, as the judge says.
        work_before, work_after: The same without the start of the cores, of the plan that is best for a stage of a
            launch of several.
        joules_before, joules_after: The energy of a launch by itself, what the chip draws when idle included; 0 where
            the judge does not say.
        measured: Microseconds of a launch in a profile; 0 where it has none.
        priced: Microseconds of the best plan by the price.
        bound: Microseconds by the price that no plan takes less than; 0 where nothing is proven.
        certified: Whether it is proven, of both, that no plan has a lower price.
        evaluations: Prices and bounds that were asked for; 0 where it was known.
        plans: How many plans the space has.
        schedule: Its plan for a launch by itself, as text.
        how: How the plan was found.
        trace: The best price after so many prices, each time it changed.
        front: Of the plans that were judged those of which no other one takes less time and less energy: microseconds,
            joules and the plan.
        why: Which bottleneck the better plan removed, or what holds the kernel where none was found, in sentences
            (why.py); empty where nobody asked.
    """

    name: str
    launches: int
    before: float
    after: float
    work_before: float
    work_after: float
    priced: float
    bound: float
    certified: bool
    evaluations: int
    plans: int
    schedule: str
    how: str
    trace: tuple[tuple[int, float], ...] = ()
    joules_before: float = 0.0
    joules_after: float = 0.0
    measured: float = 0.0
    kernels: tuple[str, ...] = ()
    front: tuple[tuple[float, float, str], ...] = ()
    why: str = ""

    @property
    def watts(self) -> float:
        """The mean power of a launch after; 0 where the judge does not say."""
        return self.joules_after / self.after * 1e6 if self.after else 0.0


@dataclass(frozen=True)
class DecidedOtherwise:
    """A decision of the compiler about a few fusions with which the whole program is better. kind: the alternative that
    it is about; about: the fusions; default: what the price takes; taken: what the program takes."""

    kind: str
    about: str
    default: str
    taken: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.about}: {self.taken} instead of {self.default}"


@dataclass(frozen=True)
class TuneReport:
    """What tuning did. costs_before, costs_after: of the whole program; objective: what it was tuned for; power_limit:
    the most watts that a launch was to draw, None where there was no limit; without: the alternatives that it is better
    without, of those that were looked at; front: of the programs that were compiled those that no other one beats, the
    fastest first; decided: the decisions that it is better with, of those that were looked at."""

    kernels: tuple[TunedKernel, ...]
    costs_before: ProgramCosts
    costs_after: ProgramCosts
    seconds: float
    target: str
    objective: str = LATENCY
    power_limit: float | None = None
    without: tuple[str, ...] = ()
    front: tuple[ProgramCosts, ...] = ()
    decided: tuple[DecidedOtherwise, ...] = ()

    @property
    def before(self) -> float:
        """Microseconds of the program before."""
        return self.costs_before.microseconds

    @property
    def after(self) -> float:
        """Microseconds of the tuned program."""
        return self.costs_after.microseconds

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "target": self.target,
            "before_us": self.before,
            "after_us": self.after,
            "objective": self.objective,
            "power_limit_watts": self.power_limit,
            "costs_before": self.costs_before.to_json(),
            "costs_after": self.costs_after.to_json(),
            "seconds": self.seconds,
            "without": [*self.without],
            "decided": [asdict(d) for d in self.decided],
            "front": [costs.to_json() for costs in self.front],
            "kernels": [asdict(k) for k in self.kernels],
        }

    def plot(self, path: str | Path) -> None:
        """Draws the best price of each kernel against the plans that were priced, as a share of the first one. Raises
        CompileError where the file cannot be written."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        for kernel in (k for k in self.kernels if k.trace):
            first = kernel.trace[0][1]
            last = max(kernel.evaluations, kernel.trace[-1][0] + 1)
            at = [*(n for n, _ in kernel.trace), last]
            best = [*(us / first for _, us in kernel.trace), kernel.trace[-1][1] / first]
            axes.step(at, best, where="post", label=f"{kernel.name}, {kernel.priced:.1f} us")
        axes.set_xscale("log")
        axes.set_xlabel("plans priced")
        axes.set_ylabel("best price, of the first one")
        axes.grid(color="#e3e7ee")
        if any(k.trace for k in self.kernels):
            axes.legend(fontsize=8)
        try:
            write_plot(path, figure, 120)
        except OSError as error:
            raise CompileError(f"tune: {path}: {error.strerror}") from None
        finally:
            pyplot.close(figure)

    def __str__(self) -> str:
        share = f", {1 - self.after / self.before:.1%} less" if self.after < self.before else ""
        searched = [k for k in self.kernels if k.evaluations]
        proven = sum(k.certified for k in self.kernels)
        head = f"{self.before:.1f} us before, {self.after:.1f} us after{share}, on {self.target}"
        said = f"{head}: {len(self.kernels)} kernels, {len(searched)} searched, {proven} proven, {self.seconds:.1f} s"
        if self.objective != LATENCY or self.power_limit is not None:
            first, last = (f"{c.joules * 1e3:.3g} mJ at {c.watts:.0f} W" for c in (self.costs_before, self.costs_after))
            limit = "" if self.power_limit is None else f", at most {self.power_limit:g} W in each launch"
            said += f"; for {self.objective}{limit}: {first} before, {last} after"
        return f"{said}; without {', '.join(self.without)}" if self.without else said
