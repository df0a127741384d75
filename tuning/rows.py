"""What configurations of a program cost: a row of figures for each, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isnan
from typing import Any

from ..api.arguments.signature import CompileError
from ..api.options import Options
from ..api.program import Program
from ..backends.report import Report
from ..backends.simulator.errors import SimulationError
from ..passes.quantized.recipes import SUFFIX as QUANT_SUFFIX
from ..support.sentences import SentenceError
from .axes import Choice
from .configuration import Configuration
from .measured import Accuracy, MeasuredSource, Patterns


@dataclass(frozen=True)
class Figure:
    """A metric of configurations. unit: of its values; worth: a number from a value, the lower the better; of: the
    value, from the report of a call and the items of its batch."""

    unit: str
    worth: Callable[[float], float]
    of: Callable[[Report, int], float]


def _throughput(report: Report, items: int) -> float:
    return items / report.microseconds * 1e6 if report.microseconds else inf


METRICS: Mapping[str, Figure] = {
    "latency": Figure("microseconds", lambda v: v, lambda report, items: report.microseconds),
    "throughput": Figure("items per second", lambda v: -v, _throughput),
    "energy": Figure("joules per item", lambda v: v, lambda report, items: report.energy_joules / items),
    "memory": Figure("bytes", lambda v: v, lambda report, items: report.memory.arena_bytes),
}


@dataclass(frozen=True)
class AutotunedRow:
    """One configuration, and what it costs.

    Attributes:
        chosen: The value of each axis, as text.
        configuration: What `tw.compile` takes for it; None where there is no program.
        figures: `latency` in microseconds of a call, `throughput` in items per second, `energy` in joules per item,
            `memory` in bytes of device memory at the most; empty where there is no program.
        watts: The mean power of a call: all of its energy over its time.
        accuracy: The metric of accuracy on the data; None where it was not measured.
        problem: Why it is out: what the compiler says, or the limit that it does not keep; empty where it is not.
        note: What else there is to know of it.
        front: Whether no other row that is not out is as good in all figures, accuracy among them where it was
            measured, and better in one.
    """

    chosen: Mapping[str, str]
    configuration: Configuration | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    watts: float | None = None
    accuracy: float | None = None
    problem: str = ""
    note: str = ""
    front: bool = False

    @property
    def name(self) -> str:
        """Its axes in one line."""
        return ", ".join(f"{name}={value}" for name, value in self.chosen.items())

    @property
    def worth(self) -> tuple[float, ...]:
        """Its figures, the lower the better."""
        found = [each.worth(self.figures[name]) for name, each in METRICS.items()]
        return tuple(found if self.accuracy is None else [*found, -self.accuracy])


@dataclass(frozen=True)
class Wanted:
    """A configuration before its quantization is calibrated. mode: of quantization, where an axis says one that is
    calibrated."""

    chosen: Mapping[str, str]
    target: str | None
    sizes: Mapping[str, int]
    options: Options
    mode: str | None

    @staticmethod
    def of(row: Mapping[str, Choice], base: Options, target: str | None, sizes: Mapping[str, int]) -> Wanted:
        fields: dict[str, Any] = {}
        for choice in row.values():
            fields |= choice.options
        mode = fields.get("quantization")
        calibrated = mode if isinstance(mode, str) and not mode.endswith(QUANT_SUFFIX) else None
        found = next((c.target for c in row.values() if c.target is not None), target)
        at = {**sizes, **{name: n for c in row.values() for name, n in c.sizes.items()}}
        return Wanted({name: c.text for name, c in row.items()}, found, at, replace(base, **fields), calibrated)


FAULTS = (SentenceError, SimulationError, TypeError, ValueError)
"""What a configuration that cannot be compiled raises; the last two are what JAX says of a function that does not take
such sizes."""


def problem_of(error: Exception) -> str:
    """One line on why there is no program."""
    if isinstance(error, SentenceError | SimulationError):
        return " ".join(str(error).split())
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


class Rows:
    """Makes rows. limits: the most that accuracy may drop, and the most watts; calibration: finds the scales of
    quantization, None: accuracy, on the same data."""

    def __init__(
        self,
        measured: MeasuredSource,
        accuracy: Accuracy,
        batch: str | None,
        limits: tuple[float | None, float | None] = (None, None),
        calibration: Accuracy | None = None,
    ) -> None:
        self.measured, self.accuracy, self.batch = measured, accuracy, batch
        self.calibration = accuracy if calibration is None else calibration
        self.max_drop, self.power_limit = limits

    def row(self, wanted: Wanted) -> tuple[AutotunedRow, Program | None]:
        """What a configuration costs, and its program; or why it costs nothing."""
        try:
            return self._row(wanted)
        except FAULTS as error:
            return AutotunedRow(wanted.chosen, problem=problem_of(error)), None

    def _row(self, wanted: Wanted) -> tuple[AutotunedRow, Program]:
        options, weights, note = wanted.options, wanted.options.weight_patterns, []
        if wanted.mode is not None:
            found = self.calibration.calibrated(wanted.mode, wanted.target, weights, wanted.sizes)
            if weights is None:
                note.append(f"packs {', '.join(found.packed) or 'constants'} once")
            options = replace(options, quantization=found.config, weights=found.packed)
        program = self.measured.program(wanted.target, options, wanted.sizes)
        report = program.report()
        items = 1 if self.batch is None else wanted.sizes[self.batch]
        if not items:
            raise CompileError(f"a call with {self.batch} = 0 has no items")
        figures = {name: each.of(report, items) for name, each in METRICS.items()}
        watts = report.energy_joules / report.microseconds * 1e6 if report.microseconds else 0.0
        accuracy, problem = None, self._too_much(watts)
        if self.accuracy.data.batches is not None:
            accuracy = self.accuracy.of(options, wanted.target, weights)
            problem = problem or self._too_little(accuracy, wanted.target, weights)
        elif options.quantization is not None:
            note.append("its accuracy was not measured")
        kept = Configuration(program.target, {n: wanted.sizes[n] for n in self.measured.symbols}, options)
        return AutotunedRow(wanted.chosen, kept, figures, watts, accuracy, problem, "; ".join(note)), program

    def _too_much(self, watts: float) -> str:
        if self.power_limit is None or watts <= self.power_limit:
            return ""
        return f"takes {watts:.1f} W, more than {self.power_limit:g} W"

    def _too_little(self, accuracy: float, target: str | None, weights: Patterns) -> str:
        if isnan(accuracy):
            return "its accuracy cannot be measured: its results have numbers that are infinite or NaN"
        if self.max_drop is None:
            return ""
        drop = self.accuracy.original(target, weights) - accuracy
        if drop <= self.max_drop:
            return ""
        return f"{self.accuracy.data.metric_name} drops by {drop:.4g}, more than {self.max_drop:g}"
