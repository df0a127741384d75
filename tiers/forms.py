"""The arguments of a source as tiers have them: weights, whose values go into files, and all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..quantization.calibrate import free_arguments
from ..quantization.quantize import packed_patterns
from ..quantization.traced import trace_source
from ..tuning.measured import Arguments, MeasuredSource, Sizes


@dataclass(frozen=True)
class Form:
    """The arguments of a source at some sizes. labels: what they are called; free: the numbers of those that hold no
    weights; named: whether they have names, without which nothing is a weight of a file; weights: those that hold
    weights with values, by what they are called; lacking: those without; packed: the patterns of all that can be
    packed. Nothing is drawn before it is asked for."""

    measured: MeasuredSource
    sizes: Sizes
    labels: tuple[str, ...]
    free: tuple[int, ...]
    named: bool
    weights: Mapping[str, Any]
    lacking: tuple[str, ...]
    packed: tuple[str, ...]

    @staticmethod
    def of(measured: MeasuredSource, sizes: Sizes, target: str | None) -> Form:
        """Raises CompileError for a source that calls the host, or that does not take such sizes."""
        args, kwargs = measured.sized(sizes)
        traced = trace_source(measured.source, args, kwargs, None, target)
        own, (count, _) = traced.signature.parameters, traced.signature.form
        labels = tuple(map(own.label, range(count)))
        named = {*labels} <= {*own.positional}
        free = tuple(free_arguments(traced, count))
        held = [i for i in range(count) if i not in free]
        lacking = tuple(labels[i] for i in held if not _has_values(args, i))
        weights = {labels[i]: args[i] for i in held if named and labels[i] not in lacking}
        return Form(measured, sizes, labels, free, named, weights, lacking, packed_patterns(traced, None))

    def with_batch(self, batches: Sequence[Any] | None) -> Arguments:
        """The arguments with values: drawn ones, where nobody gave any; those that hold no weights are the first batch
        of data, where there is one: as many rows as they have, one behind the other and again from the first on."""
        import jax

        values = [*self.measured.arguments(self.sizes)[0]]
        batch = batches[0] if batches else ()
        given = batch if isinstance(batch, tuple) else (batch,)
        given = tuple(given[i] for i in self.free) if len(given) == len(values) else given
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
