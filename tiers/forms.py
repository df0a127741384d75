"""The arguments of a source as tiers have them: weights, whose values go into files, and all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..quantization.calibrate import free_arguments
from ..quantization.quantize import packed_patterns
from ..quantization.traced import trace_source
from ..tuning.measured import Arguments, MeasuredSource, Sizes


@dataclass(frozen=True)
class Form:
    """The arguments of a source. values: by position; labels: what they are called; free: those that hold no weights;
    named: whether they have names, without which nothing is a weight of a file; lacking: weights whose values are
    drawn, since nobody gave any; packed: the patterns of all that can be packed."""

    values: tuple[Any, ...]
    labels: tuple[str, ...]
    free: tuple[int, ...]
    named: bool
    lacking: tuple[str, ...]
    packed: tuple[str, ...]

    @staticmethod
    def of(measured: MeasuredSource, sizes: Sizes, target: str | None) -> Form:
        """Raises CompileError for a source that calls the host, or that does not take such sizes."""
        args, kwargs = measured.arguments(sizes)
        traced = trace_source(measured.source, args, kwargs, None, target)
        own = traced.signature.parameters
        labels = tuple(map(own.label, range(len(args))))
        named = {*labels} <= {*own.positional}
        free = tuple(free_arguments(traced, len(args)))
        lacking = tuple(n for i, n in enumerate(labels) if i not in free and not _has_values(measured.args, i))
        return Form(tuple(args), labels, free, named, lacking, packed_patterns(traced, None))

    @property
    def weights(self) -> dict[str, Any]:
        """The arguments that hold weights with values, by what they are called."""
        if not self.named:
            return {}
        kept = {*range(len(self.labels))} - {*self.free}
        return {self.labels[i]: self.values[i] for i in sorted(kept) if self.labels[i] not in self.lacking}

    def with_batch(self, batches: Sequence[Any] | None) -> Arguments:
        """The arguments, of which those that hold no weights are the first batch of data, where there is one: as many
        rows as they have, one behind the other and again from the first on."""
        import jax

        batch = batches[0] if batches else ()
        given = batch if isinstance(batch, tuple) else (batch,)
        given = tuple(given[i] for i in self.free) if len(given) == len(self.values) else given
        values = list(self.values)
        if len(given) == len(self.free):
            for i, value in zip(self.free, given, strict=True):
                values[i] = jax.tree.map(_fitted, value, values[i])
        return tuple(values), {}

    def given(self, arguments: Arguments) -> Arguments:
        """Of arguments those that a file takes, which has the weights."""
        args, _ = arguments
        own = {label: args[i] for i, label in enumerate(self.labels) if label not in self.weights}
        return ((), own) if self.named else (args, {})


def _has_values(args: Sequence[Any], which: int) -> bool:
    """Whether an argument was given with its values."""
    import jax

    leaves = jax.tree.leaves(args[which]) if which < len(args) else [None]
    return not any(leaf is None or isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)


def _fitted(rows: Any, wanted: Any) -> Any:
    """An array with the elements of `rows` and the shape of `wanted`, again from the first on where these are fewer; as
    it is wanted where it has other dimensions."""
    array, shape = np.asarray(rows), np.shape(wanted)
    if array.ndim != len(shape) or 0 in array.shape:
        return wanted
    for axis, size in enumerate(shape):
        array = array.take(np.arange(size) % array.shape[axis], axis)
    return array
