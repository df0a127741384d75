"""What a source computes and costs in a configuration: its program, calibrated quantization, and accuracy on data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..api.arguments.parameters import title_of
from ..api.arguments.signature import CompileError, is_key
from ..api.compiling import compile as compile_program
from ..api.onnx_sources import resolved
from ..api.options import Options
from ..api.program import Program
from ..api.sizes.filled import filled
from ..api.sizes.sources import open_source_of, sized_origin
from ..api.sources import as_compile_error, input_types
from ..compression.measures import Metric, metric_name, scorer
from ..dialects.dtypes import name_of_numpy
from ..dialects.module import target_of
from ..machine import DEFAULT_TARGET, Machine
from ..passes.quantized.quantize import read_config
from ..quantization.calibrate import batches_of, free_arguments
from ..quantization.fake import integer_function
from ..quantization.quantize import Calibrated, calibrated
from ..quantization.traced import TracedSource, trace_source

Draw = Callable[[Sequence[tuple[tuple[int, ...], str]]], Sequence[np.ndarray]]
"""Makes arrays of these shapes and element types."""

Sizes = Mapping[str, int]

Patterns = tuple[str, ...] | None
"""Patterns of arguments that are weights; None: they are found."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class MeasuredSource:
    """A source whose program is asked for in several configurations. draw: makes values of arguments that are types
    alone, where values count; None: they have none. Raises CompileError for arguments that do not fit."""

    def __init__(
        self, source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None, draw: Draw | None
    ) -> None:
        self.source, self.args, self.kwargs = resolved(source, args, kwargs)
        self.open = open_source_of(self.source, self.args, self.kwargs, target)
        self._draw = draw

    def with_arguments(self, args: Sequence[Any]) -> MeasuredSource:
        """The same source with other arguments by position."""
        return MeasuredSource(self.source, args, self.kwargs, None, self._draw)

    @property
    def name(self) -> str:
        """What messages call it."""
        if self.open is not None:
            return self.open.name
        if callable(self.source):
            return title_of(self.source)
        return Path(self.source).name if isinstance(self.source, str | Path) else "the program"

    @property
    def symbols(self) -> Sequence[str]:
        """The open dimensions."""
        return () if self.open is None else tuple(self.open.symbols)

    def target(self, sizes: Sizes) -> str:
        """The chip that it is compiled for where nobody says one. Raises CompileError."""
        own = None
        if not callable(self.source):
            args, kwargs = self.sized(sizes)
            with as_compile_error():
                own = target_of(sized_origin(self.source, args, kwargs, None).lower()[0])
        return own or DEFAULT_TARGET

    def program(self, target: str | None, options: Options, sizes: Sizes) -> Program:
        """The program, compiled for these sizes alone. Raises CompileError."""
        args, kwargs = self.sized(sizes)
        return compile_program(self.source, *args, target=target, options=options, **kwargs)

    def arguments(self, sizes: Sizes) -> Arguments:
        """Arguments of these sizes, with the values that were given, and drawn ones elsewhere."""
        if self.open is None and not self.args and not callable(self.source) and self._draw is not None:
            return tuple(self._draw(input_types(self.source))), {}
        return self._drawn(self.sized(sizes))

    def sized(self, sizes: Sizes) -> Arguments:
        """Arguments of these sizes, with the values that were given, and types elsewhere."""
        given = tuple(self.args), dict(self.kwargs)
        if self.open is None:
            return given
        return filled(self.open, given, self.open.shapes.checked(self.open.name, sizes))

    def _drawn(self, given: Arguments) -> Arguments:
        import jax

        leaves, tree = jax.tree.flatten(given)
        places = [i for i, leaf in enumerate(leaves) if _is_type(leaf) and not is_key(leaf)]
        if self._draw is None or not places:
            return given
        types = [(tuple(leaves[i].shape), name_of_numpy(leaves[i].dtype)) for i in places]
        for i, array in zip(places, self._draw(types), strict=True):
            leaves[i] = array
        return jax.tree.unflatten(tree, leaves)


def _is_type(leaf: object) -> bool:
    import jax

    return isinstance(leaf, jax.ShapeDtypeStruct)


@dataclass(frozen=True)
class Data:
    """What accuracy is measured on. batches, labels, metric, method: as `tw.quantize` has them; no batches: nothing is
    measured, and quantization is calibrated on the arguments themselves."""

    batches: Sequence[Any] | None
    labels: Sequence[Any] | None
    metric: str | Metric
    method: str

    @staticmethod
    def of(data: Iterable[Any] | None, labels: Sequence[Any] | None, metric: str | Metric, method: str) -> Data:
        """Raises CompileError for data that is no list of batches."""
        if data is not None and not isinstance(data, Iterable):
            raise CompileError(f"the data must be a list of batches, not a value of type {type(data).__name__}")
        return Data(None if data is None else list(data), labels, metric, method)

    @property
    def metric_name(self) -> str:
        """What tables call the metric."""
        return metric_name(self.metric)


class Accuracy:
    """How exact a source is in a configuration, on data: what its graph level gives, by JAX, as `tw.quantize` has it.

    start: sizes that the source takes. against: how exact another source is, whose results are those to compare with;
    None: this one's own. What depends on it takes the target, and the patterns of arguments that are weights, None
    where they are found.
    """

    def __init__(self, measured: MeasuredSource, data: Data, start: Sizes, against: Accuracy | None = None) -> None:
        self.measured, self.data, self.against = measured, data, against
        self._start = start
        self._calibrated: dict[tuple[str, str | None, Patterns, tuple[tuple[str, int], ...]], Calibrated] = {}
        self._references: dict[tuple[str | None, Patterns], _Reference] = {}
        self._known: list[tuple[str | None, Options, float]] = []

    def calibrated(self, mode: str, target: str | None, weights: Patterns, sizes: Sizes) -> Calibrated:
        """A mode for all products, with its scales: from the data, or from the arguments of these sizes. Raises
        CompileError as `tw.quantize` does."""
        at = self._data_sizes if self.data.batches is not None else sizes
        key = mode, target, weights, tuple(at.items())
        if key not in self._calibrated:
            args, kwargs = self._arguments(at)
            self._calibrated[key] = calibrated(
                self.measured.source,
                args,
                kwargs,
                data=self.data.batches,
                config=mode,
                labels=self.data.labels,
                metric=self.data.metric,
                method=self.data.method,
                weights=weights,
                target=target,
                progress=False,
            )
        return self._calibrated[key]

    def original(self, target: str | None, weights: Patterns) -> float:
        """The metric of the source itself. Raises CompileError."""
        found = self._reference(target, weights)
        return found.score(found.outputs)

    def of(self, options: Options, target: str | None, weights: Patterns) -> float:
        """The metric of the source as options change its numbers. Raises CompileError."""
        import jax

        for known, asked, score in self._known:
            if known == target and _same_numbers(asked, options):
                return score
        found = self._reference(target, weights)
        with as_compile_error():
            config = None if options.quantization is None else read_config(options.quantization)
        machine = Machine.load(target or DEFAULT_TARGET)
        run = jax.jit(integer_function(found.traced, config, machine, options.stages()))
        wanted = found if self.against is None else self.against._reference(target, weights)
        score = wanted.score([jax.device_get(run(leaves)) for leaves in found.batches])
        self._known.append((target, options, score))
        return score

    def _reference(self, target: str | None, weights: Patterns) -> _Reference:
        if (target, weights) not in self._references:
            args, kwargs = self._arguments(self._data_sizes)
            source = self.measured.source
            traced = trace_source(source, args, kwargs, weights, target)
            batches = batches_of(traced, source, args, kwargs, self.data.batches)
            self._references[target, weights] = _Reference.of(traced, batches, self.data)
        return self._references[target, weights]

    # -- the sizes of the data -------------------------------------------------------------------------------

    @cached_property
    def _free(self) -> Sequence[int]:
        """The numbers of the arguments that hold no weights."""
        args, kwargs = self.measured.arguments(self._start)
        return free_arguments(trace_source(self.measured.source, args, kwargs, None), len(args))

    def _arguments(self, sizes: Sizes) -> Arguments:
        """Arguments of these sizes, those of the first batch of the data among them."""
        args, kwargs = self.measured.arguments(sizes)
        return self._with_batch(args), kwargs

    def _with_batch(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with the first batch of the data in the place of those that hold no weights; as they are where it
        does not fit, which whoever reads all batches says."""
        if not self.data.batches:
            return args
        batch = self.data.batches[0]
        given = batch if isinstance(batch, tuple) else (batch,)
        if len(given) == len(args):
            return given
        if len(given) != len(self._free):
            return args
        merged = list(args)
        for i, value in zip(self._free, given, strict=True):
            merged[i] = value
        return tuple(merged)

    @cached_property
    def _data_sizes(self) -> Sizes:
        """The sizes of open dimensions that the data has. Raises CompileError where its shapes do not fit."""
        opened = self.measured.open
        if opened is None:
            return {}
        args, kwargs = self.measured.arguments(self._start)
        try:
            return opened.sizes(opened.leaves(self._with_batch(args), kwargs))
        except CompileError as error:
            raise CompileError(f"batch 0 of the data: {error}") from None


def _same_numbers(a: Options, b: Options) -> bool:
    """Whether options that differ in nothing but these fields compute the same."""
    names = ("quantization", "precision", "winograd", "host", "without", "strips")
    return all(getattr(a, name) == getattr(b, name) for name in names)


@dataclass(frozen=True)
class _Reference:
    """What the source itself gives. traced: it; batches: the flat inputs of each; data: what it is measured on."""

    traced: TracedSource
    batches: Sequence[Sequence[Any]]
    data: Data

    @staticmethod
    def of(traced: TracedSource, batches: Sequence[Sequence[Any]], data: Data) -> _Reference:
        """Raises CompileError for what cannot be measured, at once."""
        scorer(data.metric, batches, data.labels, traced.signature.unflatten)
        return _Reference(traced, batches, data)

    @cached_property
    def outputs(self) -> Sequence[Sequence[Any]]:
        """The flat results of each batch."""
        import jax

        from ..backends.interpreter.graph import GraphRunner

        run = jax.jit(lambda leaves: self.traced.run(GraphRunner(), leaves))
        return [jax.device_get(run(leaves)) for leaves in self.batches]

    @cached_property
    def score(self) -> Callable[[Sequence[Sequence[Any]]], float]:
        """The metric of results."""
        return scorer(self.data.metric, self.outputs, self.data.labels, self.traced.signature.unflatten)
