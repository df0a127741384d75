"""`tw.autotune`: every configuration of a space compiled and simulated, and the best one by a metric.

A configuration is a choice of each axis (tuning/axes.py): sizes of open dimensions, the target, and fields of
`tw.Options`. One that cannot be compiled is a row with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from math import isnan
from pathlib import Path
from typing import Any, Literal

from ..api.arguments.signature import CompileError
from ..api.options import Options
from ..api.program import Program
from ..compression.measures import Metric as QualityMetric
from ..machine import Machine, Target
from ..support.files import write_whole
from ..support.fronts import unbeaten
from ..support.progress import Say, showing
from .axes import Space, batch_symbol, configurations, read_space
from .configuration import changed
from .limits import check_idle, power_limit_in
from .measured import Accuracy, Data, Draw, MeasuredSource
from .rows import METRICS, AutotunedRow, Rows, Wanted

Metric = Literal["latency", "throughput", "energy", "memory"]


@dataclass(frozen=True)
class Autotuned:
    """What `tw.autotune` found.

    Attributes:
        rows: All configurations, in the order of the space.
        best: The row that is best by the metric, of those that are not out; None where all are.
        metric: The metric.
        batch: The open dimension that items are counted along; None where a call has one item.
        accuracy_metric: What accuracies are; empty where nothing was measured.
        original: The accuracy of the source itself; None where nothing was measured.
    """

    rows: tuple[AutotunedRow, ...]
    best: AutotunedRow | None
    metric: str
    batch: str | None
    accuracy_metric: str
    original: float | None
    source: MeasuredSource = field(repr=False)

    @cached_property
    def program(self) -> Program:
        """The program of the best configuration, compiled when it is first asked for. Raises CompileError where there
        is none."""
        found = self._best().configuration
        assert found is not None
        return self.source.program(found.target, found.options, found.sizes)

    def _best(self) -> AutotunedRow:
        if self.best is None:
            raise CompileError(self.none_said)
        return self.best

    @property
    def none_said(self) -> str:
        """Why there is no best row, in a sentence."""
        compiled = [row for row in self.rows if row.figures]
        why = (compiled or self.rows)[0].problem
        return f"no configuration {'keeps the limits' if compiled else 'can be compiled'}: {why}"

    def text(self, source: str | None = None) -> str:
        """What `save` writes."""
        best = self._best()
        assert best.configuration is not None
        return best.configuration.text(
            source=source,
            chosen=dict(best.chosen),
            metric=self.metric,
            value=best.figures[self.metric],
            unit=METRICS[self.metric].unit,
            figures=dict(best.figures),
        )

    def save(self, path: str | Path, source: str | None = None) -> None:
        """Writes the best configuration to a file, which `--config` takes and `Configuration.load` reads. source: what
        the program is called there. Raises CompileError where there is none, or an option that JSON does not hold, and
        OSError."""
        write_whole(path, self.text(source))

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "metric": self.metric,
            "batch": self.batch,
            "accuracy_metric": self.accuracy_metric or None,
            "original_accuracy": self.original,
            "best": None if self.best is None else self.rows.index(self.best),
            "rows": [_row_json(row) for row in self.rows],
        }


def _row_json(row: AutotunedRow) -> dict[str, Any]:
    figures = {name: row.figures.get(name) for name in METRICS}
    said = {"watts": row.watts, "accuracy": row.accuracy, "front": row.front, "problem": row.problem, "note": row.note}
    return {"chosen": dict(row.chosen), **figures, **said}


def autotune(
    source: Any,
    /,
    *args: Any,
    space: Mapping[str, Sequence[Any]],
    metric: Metric = "latency",
    target: Target | None = None,
    options: Options | None = None,
    at: Mapping[str, int] | None = None,
    data: Iterable[Any] | None = None,
    labels: Sequence[Any] | None = None,
    quality: str | QualityMetric = "sqnr",
    method: str = "auto",
    max_drop: float | None = None,
    power_limit: str | float | None = None,
    draw: Draw | None = None,
    progress: bool | Say = True,
    **kwargs: Any,
) -> Autotuned:
    """Compiles and simulates every configuration of a space, and says which is best.

    Args:
        source: As for `tw.compile`.
        *args: Arguments, as for `tw.compile`; weights with their values where products are quantized.
        space: A list of values for each name: an open dimension, `batch` for the first one, `target`, `precision`, or a
            field of `tw.Options` (docs/autotune.md). Values are text as on the command line, or what the field takes.
        metric: `latency` in microseconds of a call, `throughput` in items of the batch per second, `energy` in joules
            per item, or `memory` in bytes of device memory.
        target: As for `tw.compile`, where the space has none.
        options: What holds in all configurations.
        at: Sizes of open dimensions that the space does not have.
        data: Batches, as for `tw.quantize`: quantization is calibrated on them, and accuracy is measured.
        labels: What is right for each batch, for qualities that need it.
        quality: The metric of accuracy, as `tw.quantize` has it: `sqnr` in dB, `cosine`, `accuracy` in percent,
            `perplexity`, or a function of a batch's result and its labels of which more is better.
        method: How limits of static inputs are found, as for `tw.quantize`.
        max_drop: How far the quality may be below that of the source itself; configurations that lose more are out.
        power_limit: The most watts of mean power, as a number or as text such as "150W"; configurations that take more
            are out.
        draw: Makes arrays of shapes and element types, for arguments that are types alone where values count. None:
            configurations for which they count are out.
        progress: Whether it shows a bar; or a function, which is called at each step with its name, the steps done,
            and all steps.
        **kwargs: Keyword arguments of the function.

    Returns:
        A row for each configuration, and the best one.

    Raises:
        CompileError: The space, a limit, the options, the data or the arguments make no sense. What one configuration
            alone cannot do is said in its row.
        MachineError: The target is unknown.
    """
    named = None if target is None else Machine.named(target)
    if not isinstance(options, Options | None):
        raise CompileError(f"options must be tw.Options, not {type(options).__name__}")
    _check_metric(metric)
    given = Data.of(data, labels, quality, method)
    _check_drop(max_drop, given)
    limit = power_limit_in("autotune", power_limit)
    measured = MeasuredSource(source, args, kwargs, named, draw)
    tried = read_space(space, measured.name, measured.symbols)
    base = options or Options()
    _check_base(tried, base, named, at or {})
    sizes = fixed_sizes(measured, tried, at or {})
    if progress is True:
        with showing(f"autotuning {measured.name}", 2.0) as say:
            return _run(measured, tried, base, named, sizes, given, metric, (max_drop, limit), say)
    say = progress or (lambda said, done=0, steps=0: None)
    return _run(measured, tried, base, named, sizes, given, metric, (max_drop, limit), say)


# -- what is asked for ---------------------------------------------------------------------------------------


def _check_metric(metric: object) -> None:
    if metric not in METRICS:
        raise CompileError(f"autotune: there is no metric {metric!r}; there are {', '.join(METRICS)}")


def _check_drop(max_drop: float | None, data: Data) -> None:
    if max_drop is not None and (
        isinstance(max_drop, bool) or not isinstance(max_drop, int | float) or isnan(max_drop)
    ):
        raise CompileError(f"autotune: max_drop must be a number, not {max_drop!r}")
    if max_drop is not None and data.batches is None:
        raise CompileError("autotune: max_drop is about accuracy, which is measured on data: give data")
    if max_drop is not None and data.metric == "sqnr":
        raise CompileError("autotune: max_drop: the SQNR of the original is infinite: ask for another quality, "
                           "such as cosine or accuracy")  # fmt: skip


def _check_base(space: Space, base: Options, target: str | None, at: Mapping[str, int]) -> None:
    """Raises CompileError where an axis sets what is given for all configurations."""
    for name, choices in space.items():
        for choice in choices:
            fixed = [size for size in choice.sizes if size in at]
            fixed += ["target"] if None not in (choice.target, target) else []
            fixed += [option for option in choice.options if changed(base, option) is not None]
            if fixed:
                said = f"space: {name} says {fixed[0]}, which is given for all configurations, too: give it once"
                raise CompileError(said)


def fixed_sizes(measured: MeasuredSource, space: Space, at: Mapping[str, int]) -> Mapping[str, int]:
    """The sizes that the space does not have. Raises CompileError where one is missing, or is not there."""
    varied = {size for choices in space.values() for c in choices for size in c.sizes}
    if at and not measured.symbols:
        raise CompileError(f"{measured.name} has no open sizes, which at={dict(at)} is for")
    for name in at:
        if name not in measured.symbols:
            raise CompileError(f"{measured.name} has no size {name!r}: its sizes are {', '.join(measured.symbols)}")
    missing = [name for name in measured.symbols if name not in varied and name not in at]
    if missing:
        said = f"{measured.name} has open sizes that nothing says: {', '.join(missing)}"
        raise CompileError(f"{said}; give them values in the space, or one with at")
    return at


# -- rows ----------------------------------------------------------------------------------------------------


def _run(
    measured: MeasuredSource,
    space: Space,
    base: Options,
    target: str | None,
    sizes: Mapping[str, int],
    data: Data,
    metric: str,
    limits: tuple[float | None, float | None],
    say: Callable[..., object],
) -> Autotuned:
    wanted = [Wanted.of(row, base, target, sizes) for row in configurations(space)]
    if limits[1] is not None:
        check_idle("autotune", limits[1], {w.target or measured.target(w.sizes) for w in wanted})
    batch = batch_symbol(measured.symbols)
    accuracy = Accuracy(measured, data, wanted[0].sizes)
    original = None
    if data.batches is not None:
        say(f"running {measured.name} on the data")
        original = accuracy.original(wanted[0].target, base.weight_patterns)
    rows = Rows(measured, accuracy, batch, limits)
    found: list[AutotunedRow] = []
    for each in wanted:
        said = ", ".join(f"{name}={value}" for name, value in each.chosen.items())
        say(f"compiling {measured.name} for {said}", len(found), len(wanted))
        found.append(rows.row(each)[0])
    marked = _marked(found)
    best = min((r for r in marked if not r.problem), key=lambda r: _order(r, metric), default=None)
    measures = "" if data.batches is None else data.metric_name
    return Autotuned(tuple(marked), best, metric, batch, measures, original, measured)


def _order(row: AutotunedRow, metric: str) -> tuple[float, ...]:
    """What rows are compared by: the metric, then the others, in the order of `METRICS`."""
    return METRICS[metric].worth(row.figures[metric]), *row.worth


def _marked(rows: Sequence[AutotunedRow]) -> list[AutotunedRow]:
    """Rows with those on the front marked."""
    inside = [row for row in rows if not row.problem]
    front = {id(row) for row in compress(inside, unbeaten([row.worth for row in inside]))}
    return [replace(row, front=id(row) in front) for row in rows]
