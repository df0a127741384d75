"""`tw.tiers.build`: from one source a model file for each tier, and a table of what each costs and keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from ..api.arguments.signature import CompileError
from ..api.files.names import SUFFIX
from ..api.files.reading import ModelFile
from ..api.files.saving import save
from ..api.options import Options
from ..api.program import Program
from ..compression.measures import COMPARED
from ..compression.measures import Metric as QualityMetric
from ..modelfile.archive import ModelFileError
from ..passes.quantized.recipes import recipe_of
from ..pruning.searching import without_share
from ..pruning.units import Units
from ..support.files import FilePath
from ..support.progress import Say, showing
from ..support.sentences import quoted, suggestion
from ..tuning.autotune import fixed_sizes
from ..tuning.axes import BATCH, Space, axes_of, batch_symbol, configurations, read_space
from ..tuning.measured import Accuracy, Data, Draw, MeasuredSource
from ..tuning.rows import FAULTS, AutotunedRow, Rows, Wanted, problem_of
from .checking import CHECKS, UNCHECKED, Check, WrongTier, check_file, check_program
from .forms import Form
from .spec import check_names

PRUNE = "prune"
"""The choice of a tier that says what share of its units is removed."""

NARROW = ("precision", "quantization")
"""Choices that make weights narrower, which are then packed before the program is saved."""


@dataclass(frozen=True)
class Pruning:
    """What may be removed of a net whose first argument is its parameters. units: by names, as `tw.pruning.search` has
    them; retrain: what trains pruned parameters further, a function of these; multiple: what is left of an axis is a
    whole number of so many elements."""

    units: Mapping[str, Units]
    retrain: Callable[[Any], Any] | None = None
    multiple: int = 16


@dataclass(frozen=True)
class Tier:
    """A tier, and what it costs.

    Attributes:
        name: What it is called.
        chosen: What was asked for, as text.
        problem: Why there is no file, in a sentence; empty where there is one. All below is then None or empty.
        path: Its file.
        target: The chip.
        items: How many samples a call has.
        accuracy: The metric of accuracy; None where it was not measured.
        change: That less the first tier's; None where one of these is not known or infinite.
        microseconds, joules: Of a call, modelled.
        file_bytes, weight_bytes: Of the file, and of the weights in it.
        device_bytes: Device memory at the most, arguments and constants included.
        check: What `verify` said: its verdict and the error beside the tolerance, or why it said nothing.
        note: What else there is to know of it.
    """

    name: str
    chosen: Mapping[str, str]
    problem: str = ""
    path: str | None = None
    target: str | None = None
    items: int | None = None
    accuracy: float | None = None
    change: float | None = None
    microseconds: float | None = None
    joules: float | None = None
    file_bytes: int | None = None
    weight_bytes: int | None = None
    device_bytes: int | None = None
    check: str = ""
    note: str = ""

    @property
    def made(self) -> bool:
        """Whether there is a file."""
        return not self.problem

    def to_json(self) -> dict[str, Any]:
        """As plain data, with what a sample costs."""
        each = {
            f"{name}_per_sample": None if value is None or not self.items else value / self.items
            for name, value in (("microseconds", self.microseconds), ("joules", self.joules))
        }
        return {**vars(self), "chosen": dict(self.chosen), **each}


@dataclass(frozen=True)
class Tiers:
    """What `build` made: the tiers in their order; accuracy_metric: what accuracies are; where: what they are of."""

    tiers: tuple[Tier, ...]
    accuracy_metric: str
    where: str

    @property
    def ok(self) -> bool:
        """Whether all tiers were made."""
        return all(tier.made for tier in self.tiers)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        tiers = [tier.to_json() for tier in self.tiers]
        return {"accuracy_metric": self.accuracy_metric, "measured_on": self.where, "tiers": tiers}


def build(
    source: Any,
    /,
    *args: Any,
    tiers: Mapping[str, Mapping[str, Any]],
    folder: FilePath = ".",
    data: Iterable[Any] | None = None,
    labels: Sequence[Any] | None = None,
    calibration: Iterable[Any] | None = None,
    accuracy: str | QualityMetric | None = None,
    method: str = "auto",
    pruning: Pruning | None = None,
    check: Check = "quick",
    draw: Draw | None = None,
    progress: bool | Say = True,
) -> Tiers:
    """Makes a model file of a source for each tier, `folder/NAME.twm`, and says what each costs and keeps.

    A tier that cannot be made has a sentence in its place, and no file; the others are made.

    Args:
        source: As for `tw.compile`.
        *args: Arguments, as for `tw.compile`, weights with their values: these go into the files.
        tiers: The choices of each tier by its name, one value for each name that a space of `tw.autotune` may have
            (`target`, `batch` or an open dimension, `precision`, `quantization`, `weights`, ...), and `prune`, the
            share of units that are removed, from 0 on and below 1. Weights that are to be narrower are packed.
        folder: Where the files go; it is made if its parent is there. Files of other names stay as they are, and one of
            such a name is overwritten only where it is a model file.
        data, labels: As for `tw.autotune`: accuracy is measured on them. No data: on the arguments themselves.
        calibration: Batches from which scales of quantization are found; None: the data.
        accuracy: The metric: `accuracy` in percent (default where there are labels), `sqnr` in dB against the source's
            own results (default elsewhere), `cosine`, `perplexity`, or a function of a batch's result and its labels.
        method: How limits of static inputs are found, as for `tw.quantize`.
        pruning: What may be removed, for tiers with `prune`.
        check: `quick` compares each program with its source in both memories and each file with its program, `full`
            compares after each pass, too, and `off` compares nothing.
        draw: Makes arrays of shapes and element types, for arguments that are types alone where values count.
        progress: As for `tw.autotune`.

    Raises:
        CompileError: The tiers, the data or the arguments make no sense.
        MachineError: A chip is unknown.
        OSError: The folder cannot be made, or a file not be written.
    """
    check_names(tiers)
    if check not in CHECKS:
        raise CompileError(f"check must be one of {', '.join(CHECKS)}, not {quoted(check)}")
    metric = accuracy or ("sqnr" if labels is None else "accuracy")
    measured = MeasuredSource(source, args, {}, None, draw)
    asked = [_Asked.of(name, choices, measured, pruning) for name, choices in tiers.items()]
    for each in asked:
        _check_place(Path(folder) / f"{each.name}{SUFFIX}")
    given = Data.of(data, labels, metric, method)
    if data is None and metric not in COMPARED:
        raise CompileError("without data there is nothing to compare with but the source's own results: say sqnr or "
                           "cosine as accuracy, or give data")  # fmt: skip
    scales = given if calibration is None else Data.of(calibration, None, "sqnr", method)
    builder = _Builder(measured, given, scales, pruning, Path(folder), check)
    if progress is True:
        with showing(f"building tiers of {measured.name}", 2.0) as say:
            return builder.run(asked, say)
    return builder.run(asked, progress or (lambda said, done=0, steps=0: None))


@dataclass(frozen=True)
class _Asked:
    """What is asked of a tier. share: of units that are removed, 0 for none."""

    name: str
    space: Space
    share: float

    @staticmethod
    def of(
        name: str, choices: Mapping[str, Any], measured: MeasuredSource, pruning: Pruning | None
    ) -> _Asked:
        """Raises CompileError, which names the tier, for choices that make no sense."""
        try:
            return _Asked._of(name, choices, measured, pruning)
        except CompileError as error:
            raise CompileError(f"tiers.{name}: {str(error).removeprefix('space: ')}") from None

    @staticmethod
    def _of(name: str, choices: Mapping[str, Any], measured: MeasuredSource, pruning: Pruning | None) -> _Asked:
        known = [*axes_of(measured.symbols), PRUNE]
        for key, value in choices.items():
            if key not in known and not (key == BATCH and not measured.symbols):
                said = f"there are {', '.join(known)}{suggestion(str(key), known)}"
                raise CompileError(f"there is no choice {quoted(key)}; {said}")
            sizes = key in (BATCH, *measured.symbols) and isinstance(value, int) and not isinstance(value, bool)
            if sizes and value < 1:
                raise CompileError(f"{key} is {value}, and is at least 1")
        share = choices.get(PRUNE, 0)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise CompileError(f"{PRUNE} is a share from 0 on and below 1, not {quoted(share)}")
        if share and pruning is None:
            raise CompileError(f"{PRUNE} needs to know what can be removed: say units in [pruning]")
        rest = {key: [value] for key, value in choices.items() if key != PRUNE}
        space = read_space(rest, measured.name, measured.symbols) if rest else {}
        fixed_sizes(measured, space, {})
        return _Asked(name, space, float(share))

    @property
    def chosen(self) -> dict[str, str]:
        """As text."""
        found = {name: choice.text for name, (choice,) in self.space.items()}
        return {**found, PRUNE: f"{self.share:g}"} if self.share else found


def _check_place(path: Path) -> None:
    """Raises CompileError for a file that is there and is no model file, so that it is not overwritten."""
    if not path.exists():
        return
    try:
        ModelFile(path)
    except ModelFileError:
        raise CompileError(f"{path}: it is there and is no model file: name another folder") from None


class _Builder:
    """Makes tiers. data: what accuracy is measured on; scales: what quantization is calibrated on."""

    def __init__(
        self, measured: MeasuredSource, data: Data, scales: Data, pruning: Pruning | None, folder: Path, check: Check
    ) -> None:
        self.measured, self.data, self.scales = measured, data, scales
        self.pruning, self.folder, self.check = pruning, folder, check

    def run(self, asked: Sequence[_Asked], say: Say) -> Tiers:
        """Makes all of them. Raises CompileError where nothing can be measured at all."""
        wanted = [Wanted.of(next(configurations(each.space), {}), Options(), None, {}) for each in asked]
        start = min((each.sizes for each in wanted), key=lambda sizes: sorted(sizes.items()))
        data, where = self.data, "the data"
        if data.batches is None:
            args, _ = self.measured.arguments(start)
            data, where = replace(data, batches=[tuple(args)]), "the arguments"
        first = Accuracy(self.measured, data, start)
        is_there = self.folder.is_dir()
        self.folder.mkdir(exist_ok=True)
        found: list[Tier] = []
        try:
            for each, choice in zip(asked, wanted, strict=True):
                say(f"making {each.name}", len(found), len(asked))
                made = self._tier(each, choice, first, data, say)
                found.append(replace(made, change=_change(made, found)))
        finally:
            if not is_there:
                with suppress(OSError):  # something is in it
                    self.folder.rmdir()
        return Tiers(tuple(found), data.metric_name, where)

    def _tier(self, asked: _Asked, wanted: Wanted, first: Accuracy, data: Data, say: Say) -> Tier:
        measured, accuracy, note = self.measured, first, []
        try:
            self._check_scales(wanted)
            if asked.share:
                measured, left = self._pruned(asked.share)
                accuracy = Accuracy(measured, data, wanted.sizes, first)
                note.append(f"keeps {', '.join(f'{name} {n}/{of}' for name, (n, of) in left.items())}")
            form = Form.of(measured, wanted.sizes, wanted.target)
            wanted = self._packing(wanted, asked.space, form, note)
        except FAULTS as error:
            return Tier(asked.name, asked.chosen, problem_of(error))
        scales = Accuracy(measured, self.scales, wanted.sizes)
        row, program = Rows(measured, accuracy, batch_symbol(measured.symbols), calibration=scales).row(wanted)
        if program is None or row.problem:
            return Tier(asked.name, asked.chosen, row.problem)
        try:
            return self._written(asked, row, program, measured, form, note, say)
        except (CompileError, ModelFileError) as error:
            return Tier(asked.name, asked.chosen, " ".join(str(error).split()))

    def _packing(self, wanted: Wanted, space: Space, form: Form, note: list[str]) -> Wanted:
        """What is asked for, with the weights packed that are to be narrower. Raises CompileError for integers of
        weights without values."""
        said = f"{', '.join(form.lacking)} {'has' if len(form.lacking) == 1 else 'have'} no values"
        if wanted.mode is not None and form.lacking:
            raise CompileError(f"{said}, which integers are made of: give arrays")
        if wanted.options.weights is not None or wanted.mode is not None or not _narrows(space):
            return wanted
        if form.lacking:
            note.append(f"{said}: each call makes them narrower")
            return wanted
        return replace(wanted, options=replace(wanted.options, weights=form.packed))

    def _check_scales(self, wanted: Wanted) -> None:
        """Raises CompileError where scales are to be found in data, and there is none."""
        if wanted.mode is not None and recipe_of(wanted.mode).static and self.scales.batches is None:
            raise CompileError(f"its mode {wanted.mode} needs data that its scales are found in: say batches or "
                               "calibration in [data]")  # fmt: skip

    def _pruned(self, share: float) -> tuple[MeasuredSource, Mapping[str, tuple[int, int]]]:
        """The source with fewer units, and how many of each kind are left."""
        assert self.pruning is not None
        own = self.measured
        if not callable(own.source) or not own.args:
            raise CompileError(f"{PRUNE} is for functions whose first argument is their parameters")
        try:
            small, left = without_share(own.args[0], self.pruning.units, share, self.pruning.multiple)
        except ValueError as error:
            raise CompileError(str(error)) from None
        if self.pruning.retrain is not None:
            small = self.pruning.retrain(small)
        return own.with_arguments((small, *own.args[1:])), left

    def _written(
        self,
        asked: _Asked,
        row: AutotunedRow,
        program: Program,
        measured: MeasuredSource,
        form: Form,
        note: list[str],
        say: Say,
    ) -> Tier:
        """Checks a program and writes its file. Raises CompileError and ModelFileError."""
        assert row.configuration is not None
        sizes = row.configuration.sizes
        arguments = form.with_batch(self.data.batches)
        said = "off"
        if self.check != "off":

            def tell(said: str, done: int = 0, steps: int = 0) -> None:
                say(f"making {asked.name}: {said}", done, steps)

            said = check_program(measured.source, arguments, program, self.check == "full", tell)
        path = self.folder / f"{asked.name}{SUFFIX}"
        floats = program.asked.quantization is None  # else what is portable has the weights in floats, too
        save(program, path, weights=form.weights, metadata={"tier": asked.name, **asked.chosen}, portable=floats)
        if self.check != "off" and not said.startswith(UNCHECKED):
            try:
                check_file(path, form.given(arguments), program, arguments)
            except WrongTier:
                path.unlink()
                raise
        symbol = batch_symbol(measured.symbols)
        file, report = ModelFile(path), program.report()
        return Tier(
            asked.name,
            asked.chosen,
            "",
            str(path),
            program.target,
            1 if symbol is None else sizes[symbol],
            row.accuracy,
            None,
            report.microseconds,
            report.energy_joules,
            file.archive.bytes,
            sum(size for _, _, size in file.manifest.weights.values()),
            report.memory.arena_bytes,
            said,
            "; ".join(note),
        )


def _narrows(space: Space) -> bool:
    """Whether the choices make weights narrower than the source has them."""
    default = Options()
    return any(
        value != getattr(default, name)
        for (choice,) in space.values()
        for name, value in choice.options.items()
        if name in NARROW
    )


def _change(tier: Tier, before: Sequence[Tier]) -> float | None:
    """How much more accurate a tier is than the first one; None where nobody knows."""
    first = (before[0] if before else tier).accuracy
    if tier.accuracy is None or first is None or not (isfinite(first) and isfinite(tier.accuracy)):
        return None
    return tier.accuracy - first
